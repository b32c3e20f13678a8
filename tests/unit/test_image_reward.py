"""ImageReward without its package: the published form of checkpoint, against code of our own."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import conv2d, gelu, layer_norm, linear, softmax

from subjectbench import cards, records
from subjectbench.cards import EncoderCard, MetricCard, Weights
from subjectbench.config import load_study
from subjectbench.encoders.blip_pair import PLUGIN as BlipPair
from subjectbench.encoders.blip_pair import bert_tokenizer
from subjectbench.errors import InputError
from subjectbench.hashing import sha256_file
from subjectbench.metrics.base import Item, Result, Vector
from subjectbench.metrics.image_reward import PLUGIN as ImageReward
from subjectbench.plan import make_plan
from subjectbench.stages import embed, generate, prepare, score, tabulate
from subjectbench.stages.base import Context, details
from subjectbench.vocabulary import Status
from tests.conftest import CLIP_MEAN, CLIP_STD
from tests.resampling import resize

Make = Callable[..., Image.Image]
State = dict[str, torch.Tensor]
SIDE, PATCH, WIDE, TEXT, HEADS, LAYERS, TOKENS = 32, 8, 24, 16, 2, 2, 7
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "red", "cat", "##s", "on", "mat", ","]
FILES = {"checkpoint": "ImageReward.pt", "vocabulary": "vocab.txt"}
SIZES = [TEXT, 9, 5, 1]
MEAN, DEVIATION = 0.1672, 1.0333


def published() -> State:
    """Random tensors by the names and in the shapes of the published file, only smaller."""
    shapes: dict[str, tuple[int, ...]] = {}

    def dense(name: str, out: int, into: int) -> None:
        shapes.update({f"{name}.weight": (out, into), f"{name}.bias": (out,)})

    def norm(name: str, width: int) -> None:
        shapes.update({f"{name}.weight": (width,), f"{name}.bias": (width,)})

    eye, reader = "blip.visual_encoder.", "blip.text_encoder."
    shapes[f"{eye}cls_token"] = (1, 1, WIDE)
    shapes[f"{eye}pos_embed"] = (1, (SIDE // PATCH) ** 2 + 1, WIDE)
    shapes |= {f"{eye}patch_embed.proj.weight": (WIDE, 3, PATCH, PATCH)}
    shapes |= {f"{eye}patch_embed.proj.bias": (WIDE,)}
    for layer in range(LAYERS):
        block = f"{eye}blocks.{layer}."
        norm(f"{block}norm1", WIDE)
        dense(f"{block}attn.qkv", 3 * WIDE, WIDE)
        dense(f"{block}attn.proj", WIDE, WIDE)
        norm(f"{block}norm2", WIDE)
        dense(f"{block}mlp.fc1", 4 * WIDE, WIDE)
        dense(f"{block}mlp.fc2", WIDE, 4 * WIDE)
    norm(f"{eye}norm", WIDE)
    shapes[f"{reader}embeddings.word_embeddings.weight"] = (len(WORDS) + 2, TEXT)
    shapes[f"{reader}embeddings.position_embeddings.weight"] = (20, TEXT)
    norm(f"{reader}embeddings.LayerNorm", TEXT)
    for layer in range(LAYERS):
        block = f"{reader}encoder.layer.{layer}."
        for kind, width in (("attention", TEXT), ("crossattention", WIDE)):
            dense(f"{block}{kind}.self.query", TEXT, TEXT)
            dense(f"{block}{kind}.self.key", TEXT, width)
            dense(f"{block}{kind}.self.value", TEXT, width)
            dense(f"{block}{kind}.output.dense", TEXT, TEXT)
            norm(f"{block}{kind}.output.LayerNorm", TEXT)
        dense(f"{block}intermediate.dense", 2 * TEXT, TEXT)
        dense(f"{block}output.dense", TEXT, 2 * TEXT)
        norm(f"{block}output.LayerNorm", TEXT)
    for number, (into, out) in zip((0, 2, 4), itertools.pairwise(SIZES), strict=True):
        dense(f"mlp.layers.{number}", out, into)
    torch.manual_seed(5)
    state = {name: torch.randn(shape) * 0.5 for name, shape in shapes.items()}
    for name in state:
        if "norm" in name.lower() and name.endswith("weight"):
            state[name] += 1  # or the picture and the prompt would hardly show
    state[f"{reader}embeddings.position_ids"] = torch.arange(20)[None]
    state["blip.text_proj.weight"] = torch.randn(4, TEXT)
    return state


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Over single sequences (tokens, width)."""
    q, k, v = (x.reshape(len(x), HEADS, -1).transpose(0, 1) for x in (q, k, v))
    weights = softmax(q @ k.transpose(1, 2) / math.sqrt(q.shape[-1]), -1)
    return (weights @ v).transpose(0, 1).reshape(q.shape[1], -1)


class Reference:
    """The model written out in float64, one picture and one prompt at a time, without padding."""

    def __init__(self, state: State) -> None:
        self.state = {name: tensor.double() for name, tensor in state.items()}

    def dense(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return linear(x, self.state[f"{name}.weight"], self.state[f"{name}.bias"])

    def norm(self, name: str, x: torch.Tensor, eps: float) -> torch.Tensor:
        parts = self.state[f"{name}.weight"], self.state[f"{name}.bias"]
        return layer_norm(x, x.shape[-1:], *parts, eps)

    def see(self, pixels: torch.Tensor) -> torch.Tensor:
        eye = "blip.visual_encoder."
        kernel = [self.state[f"{eye}patch_embed.proj.{kind}"] for kind in ("weight", "bias")]
        patches = conv2d(pixels[None].double(), *kernel, stride=PATCH)[0].flatten(1).T
        x = torch.cat([self.state[f"{eye}cls_token"][0], patches])
        x = x + self.state[f"{eye}pos_embed"][0]
        for layer in range(LAYERS):
            block = f"{eye}blocks.{layer}."
            qkv = self.dense(f"{block}attn.qkv", self.norm(f"{block}norm1", x, 1e-6))
            x = x + self.dense(f"{block}attn.proj", attention(*qkv.split(WIDE, -1)))
            y = self.dense(f"{block}mlp.fc1", self.norm(f"{block}norm2", x, 1e-6))
            x = x + self.dense(f"{block}mlp.fc2", gelu(y))
        return self.norm(f"{eye}norm", x, 1e-6)

    def read(self, ids: list[int], seen: torch.Tensor) -> torch.Tensor:
        reader = "blip.text_encoder."
        x = self.state[f"{reader}embeddings.word_embeddings.weight"][ids]
        x = x + self.state[f"{reader}embeddings.position_embeddings.weight"][: len(ids)]
        x = self.norm(f"{reader}embeddings.LayerNorm", x, 1e-12)
        for layer in range(LAYERS):
            block = f"{reader}encoder.layer.{layer}."
            for kind, other in (("attention", None), ("crossattention", seen)):
                part, source = f"{block}{kind}", x if other is None else other
                query = self.dense(f"{part}.self.query", x)
                keys = [self.dense(f"{part}.self.{n}", source) for n in ("key", "value")]
                y = self.dense(f"{part}.output.dense", attention(query, *keys))
                x = self.norm(f"{part}.output.LayerNorm", x + y, 1e-12)
            y = gelu(self.dense(f"{block}intermediate.dense", x))
            y = self.dense(f"{block}output.dense", y)
            x = self.norm(f"{block}output.LayerNorm", x + y, 1e-12)
        return x[0]

    def reward(self, state: torch.Tensor) -> float:
        for number in (0, 2, 4):
            state = self.dense(f"mlp.layers.{number}", state)
        return (float(state) - MEAN) / DEVIATION


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The two files, in the published form."""
    folder = tmp_path_factory.mktemp("image_reward")
    torch.save(published(), folder / FILES["checkpoint"])
    (folder / FILES["vocabulary"]).write_text("\n".join(WORDS) + "\n", "utf-8")
    return folder


PARAMS = {**FILES, "vision_heads": HEADS, "text_heads": HEADS, "tokens": TOKENS, "compute_batch": 2}
HEAD = {"file": FILES["checkpoint"], "prefix": "mlp.", "sizes": SIZES}
HEAD |= {"mean": MEAN, "deviation": DEVIATION}


def encoder(folder: Path, sha256: dict[str, str] | None = None, **params: Any) -> Any:
    weights = Weights(path=str(folder), sha256=sha256 or {})
    card = EncoderCard(title="B", plugin="blip_pair", about="x", weights=weights)
    return BlipPair(BlipPair.Params(**{**PARAMS, **params}), card, "cpu")


def metric(folder: Path) -> Any:
    about = {"title": "R", "plugin": "image_reward", "about": "x", "scale": "reward"}
    card = MetricCard(**about, range=(-2.5, 2.5), weights=Weights(path=str(folder)))  # type: ignore[arg-type]
    return ImageReward(ImageReward.Params(**HEAD), card, folder)


@pytest.fixture(scope="module")
def blip(folder: Path) -> Any:
    return encoder(folder)


# --- the model -----------------------------------------------------------------------------------

PROMPTS = {
    "A red cat": [2, 5, 6, 7, 3],
    "cats on a dog": [2, 7, 8, 9, 5, 1, 3],
    "a mat, a mat, a red cat": [2, 5, 10, 11, 5, 10, 3],  # 10 tokens of which 7 are read
    "": [2, 3],
}
"""Prompt to the tokens that the model reads, by hand."""


def test_pairs_equal_an_independent_model(blip: Any, folder: Path, picture: Make) -> None:
    """Picture tower, text tower, cross-attention and head, in float64 and without padding."""
    reference = Reference(published())
    photos = [picture(i, (40 + i, 40)) for i in range(len(PROMPTS))]
    found = blip.pairs(photos, list(PROMPTS))
    assert found.dtype == np.float32 and found.shape == (4, TEXT)
    items = [Item("m", "s", "c", pair=Vector(Status.OK, row)) for row in found]
    for photo, ids, row, result in zip(
        photos, PROMPTS.values(), found, metric(folder).score(items), strict=True
    ):
        expected = reference.read(ids, reference.see(blip.pixels([photo])[0]))
        np.testing.assert_allclose(row, expected.numpy(), rtol=1e-4, atol=1e-5)
        assert result.value == pytest.approx(reference.reward(expected), abs=1e-4)
    assert blip.vision.config.layer_norm_eps == 1e-6  # transformers' own differs too little to see
    other = blip.pairs(photos[::-1], list(PROMPTS))  # so that the comparison can fail:
    assert np.abs(other[0] - found[0]).max() > 0.05  # the picture counts,
    other = blip.pairs(photos, ["a red mat", *list(PROMPTS)[1:]])
    assert np.abs(other[0] - found[0]).max() > 0.05  # and so does the prompt


def test_how_long_prompts_are_cut(blip: Any, picture: Make) -> None:
    """CLIP-01 for BERT: the [SEP] stays, what is cut changes nothing, and is counted."""
    texts = ["a red cat on mat", "a red cat on mat mat", "a red cat on mat a cats", "a", ""]
    assert blip.cut(texts) == [0, 1, 3, 0, 0] and blip.cut([]) == []
    photos = [picture(1)] * 3
    rows = blip.pairs(photos, texts[:3])
    assert np.array_equal(rows[0], rows[1]) and np.array_equal(rows[0], rows[2])


def test_a_score_depends_on_its_pair_alone(blip: Any, picture: Make) -> None:
    """CLIP-12, made exact; and pictures and prompts are never paired by chance."""
    photos, texts = [picture(i) for i in range(5)], ["a", "a cat", "mat", "red mat", "on a mat"]
    together = blip.pairs(photos, texts)
    alone = [blip.pairs([p], [t]) for p, t in zip(photos, texts, strict=True)]
    assert together.tobytes() == np.concatenate(alone).tobytes()
    assert blip.pairs([], []).shape == (0, TEXT)
    with pytest.raises(ValueError, match="shorter"):
        blip.pairs(photos, texts[:4])
    with pytest.raises(NotImplementedError):
        blip.images(photos)
    with pytest.raises(NotImplementedError):
        blip.texts(texts)


@pytest.mark.parametrize("size", [(90, 40), (40, 64), (57, 57)])
def test_preprocessing_by_hand(blip: Any, picture: Make, size: tuple[int, int]) -> None:
    """CLIP-05: shorter side, bicubic, in levels of 255; centre crop; CLIP's mean and deviation."""
    photo = picture(5, size)
    width, height = (int(SIDE * s / min(size)) for s in size)
    levels = resize(np.asarray(photo, np.float64), (width, height))
    left, top = (width - SIDE) // 2, (height - SIDE) // 2
    levels = levels[top : top + SIDE, left : left + SIDE] / 255
    expected = ((levels - CLIP_MEAN) / CLIP_STD).transpose(2, 0, 1)
    off = np.abs(blip.pixels([photo])[0].numpy() - expected)
    level = 1 / 255 / min(CLIP_STD)  # Pillow rounds its weights, which seldom moves one level
    assert off.max() < 1.01 * level and (off > 0.01 * level).mean() < 0.02
    assert blip.kept(size) == min(size) / max(size)
    with pytest.raises(TypeError, match="expected RGB"):
        blip.pairs([np.asarray(photo)], ["a"])


# --- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "fault"),
    [
        (lambda s: s.pop("blip.visual_encoder.norm.bias"), "1 tensors missing, first 'post_lay"),
        (lambda s: s.pop("blip.text_encoder.embeddings.LayerNorm.bias"), "1 tensors missing"),
        (lambda s: s.update(more=torch.ones(2)), "tensor 'more' is not known"),
        (lambda s: s.update({"blip.visual_encoder.blocks.0.x.weight": torch.ones(2)}), "not known"),
        (lambda s: s.update({"blip.text_encoder.x": torch.ones(2)}), "unexpected, first 'x'"),
        (lambda s: s.update(epoch=3), "'epoch' is no tensor"),
        (lambda s: s.pop("blip.visual_encoder.pos_embed"), "no tensor 'embeddings.position_embed"),
        (
            lambda s: s.update({"blip.visual_encoder.norm.bias": torch.ones(2)}),
            "of another shape, first 'post_layernorm.bias'",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_refused(
    folder: Path, tmp_path: Path, edit: Any, fault: str
) -> None:
    state: dict[str, Any] = dict(published())
    edit(state)
    torch.save(state, tmp_path / FILES["checkpoint"])
    (tmp_path / FILES["vocabulary"]).write_bytes((folder / FILES["vocabulary"]).read_bytes())
    with pytest.raises(InputError) as caught:
        encoder(tmp_path)
    assert fault in caught.value.fault and FILES["checkpoint"] in str(caught.value.where)
    with pytest.raises(InputError, match="no multiple of 5 heads"):
        encoder(folder, text_heads=5)


def test_a_missing_or_wrong_vocabulary_is_named(folder: Path, tmp_path: Path) -> None:
    """CLIP-15 for BERT's: an absent file, a page under its name, one of another model or hash."""
    (tmp_path / FILES["checkpoint"]).write_bytes((folder / FILES["checkpoint"]).read_bytes())
    vocabulary = tmp_path / FILES["vocabulary"]
    with pytest.raises(InputError, match=r"vocab\.txt: no such file"):
        encoder(tmp_path)
    for content in (b"<html>", b"\xff\xfe", "\n".join([*WORDS, "more"]).encode()):
        vocabulary.write_bytes(content)
        with pytest.raises(InputError, match=r"vocab\.txt: (holds \d+ tokens|not UTF-8)"):
            encoder(tmp_path)
    right = {vocabulary.name: sha256_file(folder / vocabulary.name)}
    with pytest.raises(InputError, match=r"vocab\.txt: is another file"):
        encoder(tmp_path, right)
    assert encoder(folder, right)
    assert bert_tokenizer(folder / "vocab.txt", len(WORDS) + 2)("CATS")["input_ids"] == [2, 7, 8, 3]
    assert "vocab.txt" in cards.load("encoder", "image_reward").weights.sha256


def test_failures_stay_failures(folder: Path) -> None:
    """CLIP-14; and a head that is not the file's."""
    bad = [np.full(TEXT, np.nan, np.float32), np.full(TEXT, np.inf, np.float32)]
    items = [Item("m", "s", "c", pair=Vector(Status.OK, v)) for v in bad]
    items += [Item("m", "s", "c", pair=Vector(Status.TRUNCATED)), Item("m", "s", "c")]
    statuses = [r.status for r in metric(folder).score(items)]
    assert statuses == [Status.NON_FINITE] * 2 + [Status.TRUNCATED, Status.MISSING]
    cut = Item("m", "s", "c", pair=Vector(Status.OK, np.ones(TEXT, np.float32), {"cut": 4}))
    (result,) = metric(folder).score([cut])
    assert isinstance(result, Result) and result.details == {"cut": 4}


# --- the study -----------------------------------------------------------------------------------


def test_from_a_study_to_its_table(folder: Path, tmp_path: Path, own_cards: Any) -> None:
    """A metric of pairs like any other: planned, embedded with prompts, scored, cuts counted."""
    shared = {"about": "x", "weights": {"path": str(folder)}}
    own_cards(
        "encoder", "tiny_blip", {"title": "B", "plugin": "blip_pair", "params": PARAMS} | shared
    )
    card = {"title": "R", "plugin": "image_reward", "encoder": "tiny_blip", "params": HEAD} | shared
    own_cards("metric", "tiny_reward", card | {"scale": "reward", "range": [-2.5, 2.5]})
    study = {
        "study": "pairs",
        "benchmark": {"card": "miniworld", "params": {"subjects": 2}},
        "generators": ["noise"],
        "metrics": ["tiny_reward"],
        "results": str(tmp_path / "results"),
    }
    plan = make_plan(load_study(study))
    runs = {"benchmark": prepare.run, "generate": generate.run, "embed_cases": embed.run_cases}
    runs |= {"embed_images": embed.run_images, "score": score.run}
    for kind, run in runs.items():
        for artifact in plan.of_kind(kind):
            run(Context(plan, artifact))
    (done,) = plan.of_kind("score")
    scores = records.read_table("scores", plan.folder(done.key) / "scores.parquet")
    assert (scores["status"] == "ok").all() and scores["value"].nunique() == len(scores) == 24
    (benchmark,) = plan.of_kind("benchmark")
    prompts = prepare.Prepared(plan.folder(benchmark.key)).cases.set_index("case_id")["prompt"]
    blip = encoder(folder)
    for row in scores.itertuples():
        (cut,) = blip.cut([prompts[row.sample_id.rpartition("-")[0]]])
        assert details(row.details).get("cut", 0) == cut
    (tables,) = plan.of_kind("tables")
    frame = tabulate.coverage(scores, tables.job)
    assert frame["cut_prompts"].tolist() == [sum("cut" in d for d in scores["details"])] != [0]

    def refused(card: str, encoder: str) -> str:
        with pytest.raises(InputError) as caught:
            make_plan(
                load_study({**study, "metrics": [{"card": card, "encoder": {"card": encoder}}]})
            )
        return f"{caught.value.where}: {caught.value.fault}"

    assert "'mini_dino' embeds pictures only, the metric needs image, text" in refused(
        "mini_clip_t", "mini_dino"
    )
    assert "'tiny_blip' embeds pairs of both" in refused("mini_clip_i", "tiny_blip")
    assert "'mini_clip' embeds pictures and texts, the metric needs pair" in refused(
        "tiny_reward", "mini_clip"
    )
