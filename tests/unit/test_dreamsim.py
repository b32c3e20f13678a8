"""DreamSim's single model against a model of DINO's published form with an adapter made by PEFT."""

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
from torch import nn

from subjectbench import cards
from subjectbench.cards import EncoderCard, MetricCard, Weights
from subjectbench.encoders.dreamsim import PLUGIN as DreamSim
from subjectbench.errors import InputError
from subjectbench.metrics.base import Item, Vector
from subjectbench.metrics.cosine_distance import PLUGIN as CosineDistance
from subjectbench.vocabulary import Status
from tests.conftest import VIT_MEAN, VIT_STD

Make = Callable[..., Image.Image]
FILES = {"backbone": "dino.pth", "adapter": "adapter_model.safetensors"}
SIDE, PATCH, WIDTH, HEADS = 32, 8, 24, 3


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, tokens, _ = x.shape
        parts = self.qkv(x).reshape(n, tokens, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        query, key, value = parts
        weights = (query @ key.transpose(-2, -1) * (WIDTH // HEADS) ** -0.5).softmax(-1)
        return self.proj((weights @ value).transpose(1, 2).reshape(n, tokens, WIDTH))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = (nn.LayerNorm(WIDTH, eps=1e-6) for _ in range(2))
        self.attn = Attention()
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(WIDTH, 48), "fc2": nn.Linear(48, WIDTH)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp["fc2"](nn.functional.gelu(self.mlp["fc1"](self.norm2(x))))


class Dino(nn.Module):
    """A ViT of DINO's published names, written out for this test."""

    def __init__(self) -> None:
        super().__init__()
        self.cls_token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.pos_embed = nn.Parameter(torch.zeros(1, (SIDE // PATCH) ** 2 + 1, WIDTH))
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(3, WIDTH, PATCH, PATCH)})
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH, eps=1e-6)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Class token after the last block; the last norm is there and not used."""
        x = self.patch_embed["proj"](pixels).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return x[:, 0]


class Perceptual(nn.Module):
    """Where DreamSim keeps its model, as the adapter's names show."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.extractor_list = nn.ModuleList([nn.ModuleDict({"model": model})])

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.extractor_list[0]["model"](pixels)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, nn.Module, Dino]:
    """The files, the model with its adapter run by PEFT, and the model without."""
    from peft import LoraConfig, get_peft_model

    folder = tmp_path_factory.mktemp("dreamsim")
    torch.manual_seed(6)
    plain, model = Dino(), Dino()
    for value in plain.parameters():
        nn.init.normal_(value, std=0.3)
    model.load_state_dict(plain.state_dict())
    torch.save(plain.state_dict(), folder / FILES["backbone"])
    config = LoraConfig(r=4, lora_alpha=3, lora_dropout=0.3, bias="none", target_modules=["qkv"])
    adapted = get_peft_model(Perceptual(model), config)
    for name, value in adapted.named_parameters():
        if "lora_" in name:
            nn.init.normal_(value, std=0.5)
    adapted.save_pretrained(folder)
    return folder, adapted.eval(), plain.eval()


def encoder(folder: Path, **params: Any) -> Any:
    card = EncoderCard(title="D", plugin="x", about="x", weights=Weights(path=str(folder)))
    merged = {**FILES, "heads": HEADS, "compute_batch": 2, **params}
    return DreamSim(DreamSim.Params(**merged), card, "cpu")


def by_hand(model: nn.Module, photo: Image.Image) -> np.ndarray:
    """Squashed to the square, 0 to 1, mean and deviation, model; normalised as DreamSim does."""
    squashed = photo.resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    values = (np.asarray(squashed, np.float64) / 255 - VIT_MEAN) / VIT_STD
    with torch.inference_mode():
        out = model(torch.from_numpy(values.transpose(2, 0, 1)[None]).float())[0].double().numpy()
    out = out - out.mean()
    return np.asarray(out / np.linalg.norm(out))


@pytest.mark.parametrize("size", [(57, 41), (20, 90), (SIDE, SIDE)])
def test_embeddings_equal_the_adapted_model(made: Any, picture: Make, size: Any) -> None:
    folder, adapted, plain = made
    photo = picture(1, size)
    found = encoder(folder).images([photo])[0]
    assert found.dtype == np.float32 and found.shape == (WIDTH,)
    unit = found / np.linalg.norm(found)
    np.testing.assert_allclose(unit, by_hand(adapted, photo), atol=1e-5)
    assert np.abs(unit - by_hand(plain, photo)).max() > 0.05  # so the adapter was applied


def test_the_distance_is_one_minus_the_cosine(made: Any, picture: Make) -> None:
    folder, adapted, _ = made
    photos = [picture(2), picture(3, (90, 31))]
    vectors = [Vector(Status.OK, v) for v in encoder(folder).images(photos)]
    card = MetricCard(title="D", plugin="x", about="x", scale="1 - cosine", range=(0, 2))
    metric = CosineDistance(CosineDistance.Params(), card, Path())
    both = Item("m", "s", "c", image=vectors[0], references=tuple(vectors))
    one, mean, none = metric.score(
        [
            Item("m", "s", "c", image=vectors[0], references=(vectors[1],)),
            both,
            Item("m", "s", "c", image=vectors[0], references=(Vector(Status.TRUNCATED),)),
        ]
    )
    a, b = (by_hand(adapted, photo) for photo in photos)
    assert one.value == pytest.approx(1 - float(a @ b), abs=1e-5) and one.value > 0.005
    assert mean.value == pytest.approx(one.value / 2, abs=1e-6) and mean.n_raw == 2
    assert (none.status, none.value) == (Status.TRUNCATED, None)
    assert cards.load("metric", "dreamsim").direction == "lower"


def test_opposite_and_equal_directions() -> None:
    card = MetricCard(title="D", plugin="x", about="x", scale="1 - cosine", range=(0, 2))
    ends = [Vector(Status.OK, np.array(v, np.float32)) for v in ((1, 0), (-2, 0), (3, 0), (0, 1))]
    for scale in (1.0, 100.0):
        metric = CosineDistance(CosineDistance.Params(scale=scale), card, Path())
        found = [
            metric.score([Item("m", "s", "c", image=ends[0], references=(e,))])[0].value
            for e in ends
        ]
        assert found == pytest.approx([0, 2 * scale, 0, scale])


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("use_rslora", True, "use_rslora is True"),
        ("use_dora", True, "use_dora is True"),
        ("target_modules", ["qkv", "proj"], "target_modules is"),
        ("peft_type", "LOHA", "peft_type is 'LOHA'"),
        ("r", 8, "block 0 is incomplete"),
        ("lora_alpha", None, "cannot be read"),
    ],
)
def test_other_adapters_are_refused(
    made: Any, tmp_path: Path, key: str, value: Any, fault: str
) -> None:
    folder = Path(shutil.copytree(made[0], tmp_path / "copy"))
    file = folder / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), key: value}))
    with pytest.raises(InputError, match=fault):
        encoder(folder)


@pytest.mark.parametrize(
    ("edit", "fault"),
    [
        (lambda s: s.update({"head.weight": torch.ones(1)}), "'head.weight' is not known"),
        (lambda s: s.pop("norm.bias"), "1 tensors missing, first 'layernorm.bias'"),
        (lambda s: s.pop("pos_embed"), "has no tensor 'pos_embed'"),
        (
            lambda s: s.update({k.replace(".1.", ".2."): v for k, v in list(s.items())}),
            "no update of its block 2",
        ),
        (
            lambda s: [s.pop(k) for k in list(s) if k.startswith("blocks.1.")],
            "fewer blocks than the adapter",
        ),
    ],
    ids=["unknown", "missing", "size", "more blocks", "fewer blocks"],
)
def test_other_backbones_are_refused(made: Any, tmp_path: Path, edit: Any, fault: str) -> None:
    folder = Path(shutil.copytree(made[0], tmp_path / "copy"))
    state = torch.load(folder / FILES["backbone"])
    edit(state)
    torch.save(state, folder / FILES["backbone"])
    with pytest.raises(InputError, match=fault):
        encoder(folder)
