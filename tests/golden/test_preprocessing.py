"""CLIP-05 and CLIP-13: the encoders' preprocessing against the same written out in numpy.

The processors are made of files in the form of the hub's, old names included.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from subjectbench import cards
from subjectbench.cards import EncoderCard, Weights
from subjectbench.encoders.clip import PLUGIN as Clip
from subjectbench.encoders.vit import PLUGIN as Vit
from tests.conftest import CLIP_MEAN, CLIP_STD, VIT_MEAN, VIT_STD
from tests.resampling import linear, resize

CLIP = {
    "do_center_crop": True, "do_normalize": True, "do_resize": True, "resample": 3,
    "feature_extractor_type": "CLIPFeatureExtractor",
    "image_mean": CLIP_MEAN, "image_std": CLIP_STD,
}  # fmt: skip
VIT = {
    "do_normalize": True, "do_resize": True, "resample": 2, "size": 224,
    "feature_extractor_type": "ViTFeatureExtractor", "image_mean": VIT_MEAN, "image_std": VIT_STD,
}  # fmt: skip
BIT = {
    "image_processor_type": "BitImageProcessor", "crop_size": {"height": 224, "width": 224},
    "size": {"shortest_edge": 256}, "resample": 3, "rescale_factor": 0.00392156862745098,
    "do_center_crop": True, "do_convert_rgb": True, "do_normalize": True, "do_rescale": True,
    "do_resize": True, "image_mean": VIT_MEAN, "image_std": VIT_STD,
}  # fmt: skip
FORMS: dict[str, tuple[dict[str, Any], int, int]] = {
    "clip_vit_b32": ({**CLIP, "size": 224, "crop_size": 224}, 224, 224),
    "clip_vit_l14_336": ({**CLIP, "size": 336, "crop_size": 336}, 336, 336),
    "dino_vits8": (VIT, 256, 224),
    "dinov2_vitl14": (BIT, 256, 224),
}
"""Card, and what its preprocessing is: file on the hub, shorter side, centre crop."""
GOLDEN = {
    "clip_vit_b32": [-1.4711, -1.4711, -1.4711, -1.52949, -1.09154, 1.56538, 1.60917, 1.59457],
    "clip_vit_l14_336": [-1.4711, -1.4711, -1.4711, -1.4711, -1.4711, -1.4711, -1.39811, 1.52158],
    "dino_vits8": [-1.55279, -1.55279, -1.55279, -1.55279, -1.60416, -1.27879, 1.66667, 1.71804],
    "dinov2_vitl14": [-1.55279, -1.55279, -1.55279, -1.55279, -1.60416, -1.27879, 1.66667, 1.71804],
}
"""The first eight numbers of the checkerboard's tensor, by the numpy below, not by the encoders."""


@pytest.fixture(scope="module")
def checkerboard() -> Image.Image:
    """512 x 384 px: squares of 24 px in two colours, with a slope over them."""
    y, x = np.mgrid[:384, :512]
    light = ((x // 24 + y // 24) % 2)[..., None]
    levels = np.where(light == 1, [230, 200, 40], [20, 60, 180]) + (x / 512 * 20)[..., None]
    return Image.fromarray(levels.astype(np.uint8))


@pytest.fixture(params=sorted(FORMS))
def form(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Any]:
    """A card's encoder with the hub's preprocessing; its small model plays no part."""
    name = request.param
    card = cards.load("encoder", name)
    models = {"clip": "clip_checkpoint", "dinov2": "dinov2_checkpoint", "vit": "vit_checkpoint"}
    kind = card.params.get("architecture", card.plugin)
    folder = Path(shutil.copytree(request.getfixturevalue(models[kind]), tmp_path / "model"))
    (folder / "preprocessor_config.json").write_text(json.dumps(FORMS[name][0]))
    plugin = {"clip": Clip, "vit": Vit}[card.plugin]
    own = EncoderCard(title="x", plugin="x", about="x", weights=Weights(path=str(folder)))
    return name, plugin(plugin.Params(**card.params), own, "cpu")


def written_out(picture: Image.Image, name: str, **how: Any) -> np.ndarray:
    processor, shorter, crop = FORMS[name]
    width, height = (int(shorter * s / min(picture.size)) for s in picture.size)
    levels = np.asarray(picture, np.float64)
    if (width, height) != picture.size:
        levels = resize(levels, (width, height), **how)
    left, top = (width - crop) // 2, (height - crop) // 2
    levels = levels[top : top + crop, left : left + crop]
    return ((levels / 255 - processor["image_mean"]) / processor["image_std"]).transpose(2, 0, 1)


def test_against_numpy(form: tuple[str, Any], checkerboard: Image.Image) -> None:
    """Pillow rounds its weights, which may move a number by one level of 255, seldom."""
    name, encoder = form
    found = encoder.pixels([checkerboard])[0].numpy()
    expected = written_out(checkerboard, name)
    assert found.dtype == np.float32 and found.shape == expected.shape
    level = 1 / 255 / min(FORMS[name][0]["image_std"])
    off = np.abs(found - expected)
    assert off.max() < 1.01 * level and (off > 0.01 * level).mean() < 0.02
    bilinear = written_out(checkerboard, name, kernel=linear, support=1)
    assert np.abs(found - bilinear).max() > 5 * level  # so the comparison can fail


def test_golden_numbers(form: tuple[str, Any], checkerboard: Image.Image) -> None:
    """CLIP-05, CLIP-13: the tensor does not move with an upgrade."""
    name, encoder = form
    found = encoder.pixels([checkerboard])[0].numpy().ravel()[:8]
    np.testing.assert_allclose(found, GOLDEN[name], rtol=0, atol=2e-5)


def test_the_backend_is_pillow(form: tuple[str, Any]) -> None:
    """CLIP-13: never torchvision's, which an installation would otherwise switch to."""
    name, encoder = form
    assert type(encoder.processor).__name__.endswith("Pil")
    assert {"transformers", "pillow"} <= set(cards.load("encoder", name).packages)


def test_what_a_centre_crop_leaves_out(form: tuple[str, Any]) -> None:
    """CLIP-05: a subject in the left 60 of 256 x 64 px is not seen; the encoder can tell."""
    _, encoder = form
    blank, marked = (np.full((64, 256, 3), 127, np.uint8) for _ in range(2))
    marked[:, :60] = np.random.default_rng(0).integers(0, 256, (64, 60, 3))
    one, other = encoder.pixels([Image.fromarray(blank), Image.fromarray(marked)]).numpy()
    assert np.array_equal(one, other)
    assert encoder.kept((256, 64)) < 0.26 and encoder.kept((64, 256)) < 0.26
    assert encoder.kept((300, 300)) > 0.7


def test_floats_are_refused(form: tuple[str, Any], checkerboard: Image.Image) -> None:
    """CLIP-16: a picture of 0 to 1 is no RGB picture, and an array is none at all."""
    _, encoder = form
    levels = np.asarray(checkerboard)
    for wrong in (levels / 255, levels, checkerboard.convert("F"), checkerboard.convert("RGBA")):
        with pytest.raises(TypeError, match="expected RGB pictures"):
            encoder.images([wrong])
