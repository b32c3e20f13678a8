"""Encoders against computations written out by hand, and checkpoints that must be refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from subjectbench.cards import EncoderCard, Weights
from subjectbench.encoders.clip import PLUGIN as Clip
from subjectbench.encoders.vit import PLUGIN as Vit
from subjectbench.errors import InputError
from subjectbench.hashing import sha256_file
from tests.conftest import CLIP_MEAN, CLIP_STD, VIT_MEAN, VIT_STD

Make = Callable[..., Image.Image]


def encoder(plugin: Any, folder: Path, sha256: dict[str, str] | None = None, **params: Any) -> Any:
    weights = Weights(path=str(folder), sha256=sha256 or {})
    card = EncoderCard(title="Tiny", plugin="x", about="x", weights=weights)
    if plugin is Clip:
        params = {"hidden_act": "quick_gelu", "compute_batch": 4} | params
    return plugin(plugin.Params(**params), card, "cpu")


@pytest.fixture(scope="module")
def clip(clip_checkpoint: Path) -> Any:
    return encoder(Clip, clip_checkpoint)


@pytest.fixture(scope="module")
def vit(vit_checkpoint: Path) -> Any:
    return encoder(Vit, vit_checkpoint, compute_batch=4)


@pytest.fixture
def copy(clip_checkpoint: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(clip_checkpoint, tmp_path / "copy"))


def pixels(picture: Image.Image, mean: list[float], std: list[float]) -> np.ndarray:
    values = (np.asarray(picture, np.float64) / 255 - mean) / std
    return values.transpose(2, 0, 1).astype(np.float32)


def shorter_side_and_crop(picture: Image.Image, side: int, crop: int, how: int) -> Image.Image:
    short = min(picture.size)
    width, height = (int(side * s / short) for s in picture.size)
    picture = picture.resize((width, height), how)
    left, top = (width - crop) // 2, (height - crop) // 2
    return picture.crop((left, top, left + crop, top + crop))


def clip_image_by_hand(model: Any, values: np.ndarray) -> np.ndarray:
    tower = model.vision_model
    with torch.inference_mode():
        state = tower.pre_layrnorm(tower.embeddings(torch.from_numpy(values)[None]))
        for layer in tower.encoder.layers:
            state = layer(state, None)
            state = state[0] if isinstance(state, tuple) else state
        return model.visual_projection(tower.post_layernorm(state[:, 0])).numpy()[0]


# --- CLIP ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(57, 41), (41, 57), (32, 32), (20, 90)])
def test_clip_image_by_hand(clip: Any, picture: Make, size: tuple[int, int]) -> None:
    """CLIP-02, CLIP-05: the projected class token of one exact preprocessing."""
    photo = picture(1, size)
    found = clip.images([photo])[0]
    assert found.dtype == np.float32 and found.shape == (16,)
    bicubic = shorter_side_and_crop(photo, 32, 32, Image.Resampling.BICUBIC)
    expected = clip_image_by_hand(clip.model, pixels(bicubic, CLIP_MEAN, CLIP_STD))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    if size != (32, 32):
        linear = shorter_side_and_crop(photo, 32, 32, Image.Resampling.BILINEAR)
        other = clip_image_by_hand(clip.model, pixels(linear, CLIP_MEAN, CLIP_STD))
        assert np.abs(other - expected).max() > 1e-2  # so the comparison above can fail


def test_features_of_another_form_are_refused(
    clip: Any, picture: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CLIP-02: an output object or a tensor of the projection's width; patch tokens never."""
    whole = clip.model.get_image_features
    plain = clip.images([picture(1)])
    monkeypatch.setattr(clip.model, "get_image_features", lambda **k: whole(**k).pooler_output)
    assert np.array_equal(clip.images([picture(1)]), plain)
    for wrong in ("last_hidden_state", "hidden_states"):
        monkeypatch.setattr(
            clip.model, "get_image_features", lambda w=wrong, **k: getattr(whole(**k), w)
        )
        with pytest.raises((RuntimeError, AttributeError)):
            clip.images([picture(1)])


def test_clip_preprocessing_by_hand(clip: Any, picture: Make) -> None:
    photo = picture(2)
    found = clip.processor(images=[photo], return_tensors="np")["pixel_values"][0]
    bicubic = shorter_side_and_crop(photo, 32, 32, Image.Resampling.BICUBIC)
    np.testing.assert_allclose(found, pixels(bicubic, CLIP_MEAN, CLIP_STD), atol=1e-5)


def test_clip_text_by_hand(clip: Any) -> None:
    text = "a b"
    found = clip.texts([text])[0]
    tower, vocabulary = clip.model.text_model, clip.tokenizer.get_vocab()
    tokens = ["<|startoftext|>", "a</w>", "b</w>", "<|endoftext|>"]
    ids = torch.tensor([[vocabulary[t] for t in tokens]])
    with torch.inference_mode():  # the four tokens alone: no padding, pooled at the last
        state = tower(input_ids=ids).last_hidden_state
        expected = clip.model.text_projection(state[:, -1]).numpy()[0]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_long_texts_keep_their_end_token(clip: Any) -> None:
    """CLIP-01: 75, 76 and 100 words score as the text cut by hand; 74 do not."""
    texts = ["x " * n for n in (74, 75, 76, 100)]
    short, *rest = clip.texts(texts)
    assert [np.array_equal(row, rest[0]) for row in rest] == [True] * 3
    assert np.abs(short - rest[0]).max() > 1e-3
    ending = clip.texts(["x " * 74 + "y", "x " * 75 + "y"])
    assert np.abs(ending[0] - rest[0]).max() > 1e-3  # word 75 counts,
    assert np.array_equal(ending[1], rest[0])  # word 76 does not


def test_the_last_word_counts(clip: Any) -> None:
    """Pooled anywhere but at the end token, texts with one beginning would be one vector."""
    one, two = clip.texts(["a red cat on a m", "a red cat on a n"])
    assert np.abs(one - two).max() > 1e-3


def test_end_token_of_another_tokenizer_is_refused(copy: Path) -> None:
    path = copy / "config.json"
    config = json.loads(path.read_text())
    config["text_config"]["eos_token_id"] = 5
    path.write_text(json.dumps(config))
    with pytest.raises(InputError, match=r"config\.json: .*eos_token_id is 5"):
        encoder(Clip, copy)


def test_no_batch_changes_a_bit(clip: Any, picture: Make) -> None:
    """CLIP-12, made exact: every forward pass has one shape."""
    photos = [picture(i) for i in range(6)]
    together = clip.images(photos)
    alone = np.concatenate([clip.images([p]) for p in photos])
    assert together.tobytes() == alone.tobytes()
    assert clip.images(photos[::-1])[::-1].tobytes() == together.tobytes()
    texts = ["a", "a b c", "x " * 100, "a b", "q"]
    together = clip.texts(texts)
    assert together.tobytes() == np.concatenate([clip.texts([t]) for t in texts]).tobytes()
    assert clip.images([]).shape == (0, 16)


def test_another_activation_is_refused(copy: Path) -> None:
    """CLIP-03: by name, since the numbers differ too little to notice."""
    config = json.loads((copy / "config.json").read_text())
    for tower in ("text_config", "vision_config"):
        changed = {**config, tower: {**config[tower], "hidden_act": "gelu"}}
        (copy / "config.json").write_text(json.dumps(changed))
        with pytest.raises(InputError, match="hidden_act is gelu, the card says quick_gelu"):
            encoder(Clip, copy)
    with pytest.raises(InputError, match="hidden_act is quick_gelu, the card says gelu"):
        encoder(Clip, copy, hidden_act="gelu")


# --- checkpoints ---------------------------------------------------------------------------------


def edit_tensors(folder: Path, edit: Callable[[dict[str, torch.Tensor]], None]) -> None:
    path = folder / "model.safetensors"
    tensors = {k: v.clone() for k, v in load_file(path).items()}
    edit(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("edit", "fault"),
    [
        (lambda t: t.pop("visual_projection.weight"), "missing, first 'visual_projection.weight'"),
        (lambda t: t.update(more=torch.ones(2)), "unexpected, first 'more'"),
        (
            lambda t: t.update({"visual_projection.weight": torch.ones(16, 8)}),
            "of another shape, first 'visual_projection.weight'",
        ),
    ],
    ids=["missing", "unexpected", "shape"],
)
def test_tensors_that_do_not_fit_are_refused(copy: Path, edit: Any, fault: str) -> None:
    edit_tensors(copy, edit)
    with pytest.raises(InputError) as caught:
        encoder(Clip, copy)
    assert fault in caught.value.fault and str(copy) in caught.value.where and caught.value.mend


def test_constants_of_old_checkpoints_are_fine(clip: Any, copy: Path, picture: Make) -> None:
    """OpenAI's files on the hub carry position_ids, which transformers no longer stores."""
    ids = {f"{t}_model.embeddings.position_ids": torch.arange(77)[None] for t in ("text", "vision")}
    edit_tensors(copy, lambda t: t.update(ids))
    photo = picture(3)
    assert np.array_equal(encoder(Clip, copy).images([photo]), clip.images([photo]))


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_damaged_file_is_named(copy: Path, name: str) -> None:
    path = copy / name
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError) as caught:
        encoder(Clip, copy)
    assert str(copy) in caught.value.where


def test_sha256_of_the_card_is_checked(copy: Path) -> None:
    name = "model.safetensors"
    right = {name: sha256_file(copy / name)}
    assert encoder(Clip, copy, right)
    edit_tensors(copy, lambda t: t["logit_scale"].add_(1))
    with pytest.raises(InputError, match=r"model\.safetensors: is another file"):
        encoder(Clip, copy, right)
    with pytest.raises(InputError, match=r"other\.bin: is missing"):
        encoder(Clip, copy, {"other.bin": "0" * 64})
    with pytest.raises(InputError, match="no such checkpoint folder"):
        encoder(Clip, copy / "nowhere")


# --- ViT -----------------------------------------------------------------------------------------


def vit_by_hand(model: Any, values: np.ndarray) -> np.ndarray:
    """Class token after all layers and the last norm."""
    layers = next(m for m in model.modules() if isinstance(m, torch.nn.ModuleList))
    with torch.inference_mode():
        state = model.embeddings(torch.from_numpy(values)[None])
        for layer in layers:
            state = layer(state)
            state = state[0] if isinstance(state, tuple) else state
        return model.layernorm(state)[0, 0].numpy()


def test_vit_is_the_class_token_after_the_last_norm(vit: Any, picture: Make) -> None:
    """CLIP-06; a picture of the model's own size needs no resizing."""
    photo = picture(4, (32, 32))
    found = vit.images([photo])[0]
    assert found.dtype == np.float32 and found.shape == (24,)
    expected = vit_by_hand(vit.model, pixels(photo, VIT_MEAN, VIT_STD))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_vit_loads_alike_under_every_seed(
    vit_checkpoint: Path, vit_checkpoint_with_pooler: Path, vit: Any, picture: Make
) -> None:
    """CLIP-06: no layer is filled at random."""
    photo = picture(5)
    torch.manual_seed(0)
    first = encoder(Vit, vit_checkpoint, compute_batch=4).images([photo])
    torch.manual_seed(1)
    second = encoder(Vit, vit_checkpoint, compute_batch=4)
    assert np.array_equal(first, second.images([photo]))
    assert second.model.pooler is None  # nothing random is there to be used
    assert encoder(Vit, vit_checkpoint_with_pooler).model.pooler is None


@pytest.mark.parametrize("size", [(57, 41), (41, 57), (90, 47), (47, 90), (36, 36)])
def test_vit_resize_and_crop_by_hand(
    vit_checkpoint: Path, picture: Make, size: tuple[int, int]
) -> None:
    """DreamBooth's protocol in small (256 and 224): torchvision's rounding, Pillow's bicubic."""
    own = encoder(Vit, vit_checkpoint, resize=36, crop=32, compute_batch=1)
    photo = picture(6, size)
    short = min(size)
    wide = photo.resize(tuple(int(36 * s / short) for s in size), Image.Resampling.BICUBIC)
    left, top = (round((s - 32) / 2) for s in wide.size)
    cropped = wide.crop((left, top, left + 32, top + 32))
    assert own._crop(photo).tobytes() == cropped.tobytes()
    expected = vit_by_hand(own.model, pixels(cropped, VIT_MEAN, VIT_STD))
    np.testing.assert_allclose(own.images([photo])[0], expected, rtol=1e-4, atol=1e-5)


def test_vit_without_sizes_takes_the_checkpoints_own(vit: Any, picture: Make) -> None:
    photo = picture(7)
    squashed = photo.resize((32, 32), Image.Resampling.BILINEAR)
    expected = vit_by_hand(vit.model, pixels(squashed, VIT_MEAN, VIT_STD))
    np.testing.assert_allclose(vit.images([photo])[0], expected, rtol=1e-4, atol=1e-5)


def test_vit_batches_change_no_bit(vit: Any, picture: Make) -> None:
    photos = [picture(i) for i in range(5)]
    alone = np.concatenate([vit.images([p]) for p in photos])
    assert vit.images(photos).tobytes() == alone.tobytes()
    assert vit.images([]).shape == (0, 24)


# --- DINOv2 --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dinov2(dinov2_checkpoint: Path) -> Any:
    return encoder(
        Vit, dinov2_checkpoint, architecture="dinov2", resize=80, crop=70, compute_batch=2
    )


def test_dinov2_is_the_class_token_after_the_last_norm(dinov2: Any, picture: Make) -> None:
    """CLIP-06: neither the mean of the patches nor a state before the norm."""
    photo = picture(8, (90, 60))
    found = dinov2.images([photo])[0]
    assert found.dtype == np.float32 and found.shape == (24,)
    cropped = shorter_side_and_crop(photo, 80, 70, Image.Resampling.BICUBIC)
    values = torch.from_numpy(pixels(cropped, VIT_MEAN, VIT_STD))[None]
    states = []
    hook = dinov2.model.layernorm.register_forward_pre_hook(lambda _, args: states.append(args[0]))
    with torch.inference_mode():
        whole = dinov2.model(pixel_values=values)
    hook.remove()
    state = states[0][0].numpy().astype(np.float64)
    assert state.shape == (26, 24)  # 5 x 5 patches, from a table of 4 x 4
    norm = {n: v.detach().numpy() for n, v in dinov2.model.layernorm.named_parameters()}
    centred = state - state.mean(1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(1, keepdims=True) + dinov2.model.layernorm.eps)
    by_hand = centred / deviation * norm["weight"] + norm["bias"]
    np.testing.assert_allclose(found, by_hand[0], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(found, whole.pooler_output.numpy()[0], rtol=1e-4, atol=1e-5)
    assert np.abs(found - by_hand[1:].mean(0)).max() > 1e-2
    assert np.abs(found - state[0]).max() > 1e-2


def test_dinov2_loads_alike_under_every_seed(
    dinov2_checkpoint: Path, dinov2: Any, picture: Make
) -> None:
    photo = picture(9)
    torch.manual_seed(99)
    params = {"architecture": "dinov2", "resize": 80, "crop": 70, "compute_batch": 2}
    again = encoder(Vit, dinov2_checkpoint, **params)
    assert again.images([photo]).tobytes() == dinov2.images([photo]).tobytes()


def test_a_checkpoint_of_the_other_architecture_is_refused(
    dinov2_checkpoint: Path, vit_checkpoint: Path
) -> None:
    for folder, architecture in ((dinov2_checkpoint, "vit"), (vit_checkpoint, "dinov2")):
        with pytest.raises(InputError, match="tensors missing"):
            encoder(Vit, folder, architecture=architecture)


def test_a_crop_of_no_whole_patches_is_refused(dinov2_checkpoint: Path) -> None:
    """CLIP-06: 57 px with 14 px patches would silently become 56."""
    with pytest.raises(InputError, match="57 px are no whole number of patches of 14 px"):
        encoder(Vit, dinov2_checkpoint, architecture="dinov2", resize=60, crop=57)
