"""The aesthetic predictor's heads, made and saved as the published ones are, against numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from subjectbench import cards
from subjectbench.cards import MetricCard, Weights
from subjectbench.config import Use
from subjectbench.errors import InputError
from subjectbench.hashing import sha256_file
from subjectbench.metrics.aesthetic import PLUGIN as Aesthetic
from subjectbench.metrics.base import Item, Result, Vector
from subjectbench.vocabulary import Status

SIZES = [12, 9, 5, 1]


class Published(nn.Module):
    """The published layout: linear layers, dropout between some, all numbered."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(12, 9), nn.Dropout(0.2), nn.Linear(9, 5), nn.Dropout(0.1), nn.Linear(5, 1)
        )


def metric(folder: Path, file: str, sizes: list[int], sha256: dict[str, str] | None = None) -> Any:
    weights = Weights(path=str(folder), sha256=sha256 or {})
    card = MetricCard(
        title="A", plugin="aesthetic", about="x", scale="rating", range=(1, 10), weights=weights
    )
    return Aesthetic(Aesthetic.Params(file=file, sizes=sizes), card, folder)


def item(*values: float) -> Item:
    return Item("m", "c-s0", "c", image=Vector(Status.OK, np.array(values, np.float32)))


@pytest.fixture(scope="module")
def head() -> Published:
    torch.manual_seed(4)
    return Published()


@pytest.mark.parametrize("file", ["head.pth", "head.safetensors"])
def test_layers_by_hand(head: Published, tmp_path: Path, file: str) -> None:
    """Unit length, then W x + b layer by layer: no activation, no dropout."""
    if file.endswith("pth"):
        torch.save(head.state_dict(), tmp_path / file)
    else:
        save_file(head.state_dict(), tmp_path / file)
    rng = np.random.default_rng(1)
    vectors = rng.normal(0, 7, (3, 12)).astype(np.float32)
    found = metric(tmp_path, file, SIZES).score([item(*v) for v in vectors])
    for result, values in zip(found, vectors, strict=True):
        x = values.astype(np.float64) / np.sqrt((values.astype(np.float64) ** 2).sum())
        for number in (0, 2, 4):
            layer = head.layers[number]
            x = layer.weight.detach().double().numpy() @ x + layer.bias.detach().double().numpy()
        assert (result.status, result.n_raw) == (Status.OK, 1)
        assert result.value == pytest.approx(float(x[0]), abs=1e-12)
        with torch.inference_mode():
            as_torch = head.eval().layers(torch.tensor(values)[None] / np.linalg.norm(values))
        assert result.value == pytest.approx(float(as_torch), abs=1e-5)
        assert result.value != pytest.approx(head.layers(torch.tensor(values)).item(), abs=1e-2)


def test_a_single_linear_layer(tmp_path: Path) -> None:
    head = nn.Linear(2, 1)
    nn.init.constant_(head.bias, 5)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[1.0, 2.0]]))
    torch.save(head.state_dict(), tmp_path / "h.pth")
    (result,) = metric(tmp_path, "h.pth", [2, 1]).score([item(3, 4)])
    assert result.value == pytest.approx(0.6 + 2 * 0.8 + 5)


def test_failures_stay_failures(head: Published, tmp_path: Path) -> None:
    """CLIP-14: a zero embedding has no direction, so no score."""
    torch.save(head.state_dict(), tmp_path / "h.pth")
    bad = [item(*[0.0] * 12), item(*[float("nan")] * 12), item(*[float("inf")] * 12)]
    unread = Item("m", "c-s0", "c", image=Vector(Status.TRUNCATED))
    found = metric(tmp_path, "h.pth", SIZES).score([*bad, unread, Item("m", "c-s0", "c")])
    assert found[:3] == [Result(Status.NON_FINITE)] * 3
    assert [r.status for r in found[3:]] == [Status.TRUNCATED, Status.MISSING]


def test_other_heads_are_refused(head: Published, tmp_path: Path) -> None:
    state = head.state_dict()

    def refused(match: str, **edit: Any) -> None:
        torch.save({**state, **edit}, tmp_path / "h.pth")
        with pytest.raises(InputError, match=match):
            metric(tmp_path, "h.pth", SIZES).score([item(*range(12))])

    refused("'layers.6.bias' is missing", **{"layers.6.weight": torch.ones(1, 1)})
    refused("'scale' is missing or not known", scale=torch.ones(1))
    refused(r"layers are \[12, 9, 5, 2\] wide", **{"layers.4.weight": torch.ones(2, 5)})
    refused("layers are", **{"layers.2.bias": torch.ones(3)})
    (tmp_path / "h.pth").write_bytes(b"<html>")
    with pytest.raises(InputError, match=r"h\.pth: cannot be read"):
        metric(tmp_path, "h.pth", SIZES).score([item(*range(12))])
    torch.save(state, tmp_path / "h.pth")
    other = {"h.pth": "0" * 64}
    with pytest.raises(InputError, match=r"h\.pth: is another file"):
        metric(tmp_path, "h.pth", SIZES, other).score([item(*range(12))])
    right = {"h.pth": sha256_file(tmp_path / "h.pth")}
    assert metric(tmp_path, "h.pth", SIZES, right).score([item(*range(12))])[0].value


def test_the_card_names_the_published_sizes() -> None:
    card = cards.load("metric", "aesthetic")
    params = cards.params("metric", Use(card="aesthetic"), "here")
    assert params.model_dump()["sizes"] == [768, 1024, 128, 64, 16, 1]
    assert params.model_dump()["file"] in card.weights.sha256
    assert card.encoder == "clip_vit_l14" and Aesthetic.needs == {"image"}
