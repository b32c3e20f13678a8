"""HPSv2 without open_clip: its form of checkpoint, picture and text against code of our own."""

from __future__ import annotations

import gzip
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from subjectbench import cards, checkpoint
from subjectbench.cards import EncoderCard, Weights
from subjectbench.encoders.hps import PLUGIN as Hps
from subjectbench.encoders.hps import clean, square
from subjectbench.encoders.open_clip_form import clip_config, clip_tensors, clip_tokenizer
from subjectbench.errors import InputError
from subjectbench.hashing import sha256_file
from tests.conftest import CLIP_MEAN, CLIP_STD
from tests.resampling import resize_matrix

Make = Callable[..., Image.Image]
SIDE, PATCH, CONTEXT = 28, 7, 77
MERGES = ["r e", "re d</w>", "c a", "ca t</w>", "' s</w>"]
FILES = {"checkpoint": "hps.pt", "vocabulary": "bpe.txt.gz"}


class Block(nn.Module):
    """A block of open_clip's published layout: attention with fused query, key and value."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential()
        self.mlp.add_module("c_fc", nn.Linear(width, 2 * width))
        self.mlp.add_module("gelu", nn.GELU())
        self.mlp.add_module("c_proj", nn.Linear(2 * width, width))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        y = self.ln_1(x)
        x = x + self.attn(y, y, y, need_weights=False, attn_mask=mask)[0]
        return x + self.mlp(self.ln_2(x))


class Transformer(nn.Module):
    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.resblocks = nn.ModuleList(Block(width, heads) for _ in range(layers))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        for block in self.resblocks:
            x = block(x, mask)
        return x


class Visual(nn.Module):
    def __init__(self, width: int, heads: int, layers: int, out: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, PATCH, PATCH, bias=False)
        self.class_embedding = nn.Parameter(torch.randn(width))
        self.positional_embedding = nn.Parameter(torch.randn((SIDE // PATCH) ** 2 + 1, width))
        self.ln_pre = nn.LayerNorm(width)
        self.transformer = Transformer(width, heads, layers)
        self.ln_post = nn.LayerNorm(width)
        self.proj = nn.Parameter(torch.randn(width, out))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        patches = self.conv1(pixels).flatten(2).permute(0, 2, 1)
        first = self.class_embedding.expand(len(patches), 1, -1)
        x = torch.cat([first, patches], 1) + self.positional_embedding
        return self.ln_post(self.transformer(self.ln_pre(x))[:, 0]) @ self.proj


class OpenClip(nn.Module):
    """Picture and text tower with open_clip's names, written out for this test."""

    def __init__(
        self, words: int, width: int = 24, heads: int = 3, text_width: int = 16, out: int = 12
    ) -> None:
        super().__init__()
        self.visual = Visual(width, heads, 3, out)
        self.transformer = Transformer(text_width, 2, 2)
        self.token_embedding = nn.Embedding(words, text_width)
        self.positional_embedding = nn.Parameter(torch.randn(CONTEXT, text_width))
        self.ln_final = nn.LayerNorm(text_width)
        self.text_projection = nn.Parameter(torch.randn(text_width, out))
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def encode_text(self, ids: torch.Tensor) -> torch.Tensor:
        """No mask but the causal one, pooled at the highest id."""
        mask = torch.full((CONTEXT, CONTEXT), -math.inf).triu(1)
        x = self.token_embedding(ids) + self.positional_embedding
        x = self.ln_final(self.transformer(x, mask))
        return x[torch.arange(len(ids)), ids.argmax(1)] @ self.text_projection


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of HPSv2's form: a checkpoint in half precision and a vocabulary."""
    folder = tmp_path_factory.mktemp("hps")
    text = "\n".join(["#version: 0.2", *MERGES, ""])
    (folder / FILES["vocabulary"]).write_bytes(gzip.compress(text.encode(), mtime=0))
    torch.manual_seed(3)
    model = OpenClip(words=512 + len(MERGES) + 2)
    for value in model.parameters():
        if value.ndim:
            nn.init.normal_(value, std=0.3)
    state = {"epoch": 4, "name": "made", "state_dict": model.half().state_dict()}
    torch.save(state, folder / FILES["checkpoint"])
    return folder


@pytest.fixture(scope="module")
def reference(folder: Path) -> OpenClip:
    model = OpenClip(words=512 + len(MERGES) + 2)
    model.load_state_dict(torch.load(folder / FILES["checkpoint"])["state_dict"])
    return model.float().eval()


def encoder(folder: Path, sha256: dict[str, str] | None = None, **params: Any) -> Any:
    weights = Weights(path=str(folder), sha256=sha256 or {})
    card = EncoderCard(title="HPS", plugin="hps", about="x", weights=weights)
    sizes = {"vision_heads": 3, "text_heads": 2, "hidden_act": "gelu", "compute_batch": 2}
    return Hps(Hps.Params(**{**FILES, **sizes, **params}), card, "cpu")


@pytest.fixture(scope="module")
def hps(folder: Path) -> Any:
    return encoder(folder)


# --- the model -----------------------------------------------------------------------------------


def test_pictures_equal_an_independent_model(hps: Any, reference: OpenClip, picture: Make) -> None:
    photos = [picture(1, (40, 28)), picture(2, (28, 28)), picture(3, (90, 31))]
    with torch.inference_mode():
        expected = reference.visual(hps.pixels(photos)).numpy()
    found = hps.images(photos)
    assert found.dtype == np.float32 and found.shape == (3, 12)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert np.abs(found[0] - found[1]).max() > 0.01


@pytest.mark.parametrize("padding", ["zeros", "ends"])
def test_texts_equal_an_independent_model(hps: Any, reference: OpenClip, padding: str) -> None:
    """Neither the padding nor its mask matters: the text tower is causal."""
    texts = ["a red cat", "red", "the cat's red !", "x " * 200]
    end = len(hps.tokenizer) - 1
    ids = torch.full((len(texts), CONTEXT), 0 if padding == "zeros" else end)
    for row, text in zip(ids, texts, strict=True):
        tokens = hps.tokenizer(text)["input_ids"]
        row[: len(tokens)] = torch.tensor([*tokens[: CONTEXT - 1], end][: len(tokens)])
    assert (ids.argmax(1) == torch.tensor([4, 2, 8, 76])).all()
    with torch.inference_mode():
        expected = reference.encode_text(ids).numpy()
    found = hps.texts(texts)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert np.abs(found[0] - found[1]).max() > 0.01


def test_the_score_is_the_cosine_of_the_reference(
    hps: Any, reference: OpenClip, picture: Make
) -> None:
    """CLIP-09: no logit scale, no softmax."""
    from subjectbench.metrics.cosine import cosine

    photo = picture(4)
    ids = torch.tensor([hps.tokenizer("a red cat")["input_ids"]])
    ids = nn.functional.pad(ids, (0, CONTEXT - ids.shape[1]))
    with torch.inference_mode():
        image = nn.functional.normalize(reference.visual(hps.pixels([photo])), dim=-1)
        text = nn.functional.normalize(reference.encode_text(ids), dim=-1)
    found = cosine(hps.images([photo])[0], hps.texts(["a red cat"])[0])
    assert found == pytest.approx(float(image @ text.T), abs=1e-5)
    for name in ("hpsv2_0", "hpsv2_1"):
        card = cards.load("metric", name)
        assert (card.plugin, card.scale, card.params) == ("cosine_text", "cosine", {})


def test_every_tensor_is_used_once(folder: Path) -> None:
    """Once, and in float32 whatever the file holds (CLIP-12)."""
    file = folder / FILES["checkpoint"]
    state = checkpoint.tensors(file)["state_dict"]
    converted = clip_tensors(state, file)
    assert sum(v.numel() for v in converted.values()) == sum(v.numel() for v in state.values())
    fused = sum("in_proj" in name for name in state)
    assert fused == 10 and len(converted) == len(state) + 2 * fused
    assert {v.dtype for v in converted.values()} == {torch.float32}


@pytest.mark.parametrize(
    ("edit", "fault"),
    [
        (lambda s: s.update({"visual.ln_mid.weight": torch.ones(3)}), "'visual.ln_mid.weight' is"),
        (lambda s: s.update({"transformer.resblocks.0.ls_1.gamma": torch.ones(16)}), "ls_1"),
        (lambda s: s.pop("visual.proj"), "has no tensor 'visual.proj'"),
        (lambda s: s.pop("transformer.resblocks.1.ln_2.bias"), "1 tensors missing, first 'text_"),
        (
            lambda s: s.update({"visual.transformer.resblocks.2.ln_1.bias": torch.ones(7)}),
            "of another shape, first 'vision_model.encoder.layers.2.layer_norm1.bias'",
        ),
        (
            lambda s: s.update({"transformer.resblocks.0.attn.in_proj_bias": torch.ones(47)}),
            "not three equal parts",
        ),
        (lambda s: s.update({"logit_bias": 1.0}), "'logit_bias' is no tensor"),
    ],
    ids=["unknown", "layer scale", "size", "missing", "shape", "fused", "no tensor"],
)
def test_other_tensors_are_refused(folder: Path, tmp_path: Path, edit: Any, fault: str) -> None:
    state = checkpoint.tensors(folder / FILES["checkpoint"])
    edit(state["state_dict"])
    torch.save(state, tmp_path / FILES["checkpoint"])
    (tmp_path / FILES["vocabulary"]).write_bytes((folder / FILES["vocabulary"]).read_bytes())
    with pytest.raises(InputError) as caught:
        encoder(tmp_path)
    assert fault in caught.value.fault and FILES["checkpoint"] in caught.value.where


def test_wrong_heads_are_refused_where_they_show(folder: Path) -> None:
    with pytest.raises(InputError, match="not multiples of 5 and 2 heads"):
        encoder(folder, vision_heads=5)
    other = encoder(folder, vision_heads=6)  # cannot be seen in any tensor: the card must be right
    assert other.model.config.vision_config.num_attention_heads == 6


def test_the_sizes_of_vit_h_14_are_read_off() -> None:
    """Shapes only, as published for ViT-H-14: widths 1280 and 1024, 224 px, 14 px patches."""
    with torch.device("meta"):
        model = OpenClip(words=49408, width=1280, heads=16, text_width=1024, out=1024)
        state = dict(model.state_dict())
        state["visual.conv1.weight"] = torch.empty(1280, 3, 14, 14)
        state["visual.positional_embedding"] = torch.empty(257, 1280)
    config = clip_config(state, Path("x.pt"), 16, 16, "gelu")
    vision, text = config.vision_config, config.text_config
    assert (vision.image_size, vision.patch_size, vision.hidden_size) == (224, 14, 1280)
    assert (text.vocab_size, text.eos_token_id, text.max_position_embeddings) == (49408, 49407, 77)
    assert config.projection_dim == 1024
    for version in ("hpsv2_0", "hpsv2_1"):
        params = cards.load("encoder", version).params
        assert (params["vision_heads"], params["text_heads"]) == (16, 16)  # widths 80 and 64


def test_versions_are_different_identities() -> None:
    both = [cards.load("encoder", name) for name in ("hpsv2_0", "hpsv2_1")]
    assert both[0].params != both[1].params and both[0].weights.path != both[1].weights.path


# --- pictures ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(90, 31), (31, 90), (20, 11), (64, 64), (300, 2)])
def test_preprocessing_by_hand(hps: Any, picture: Make, size: tuple[int, int]) -> None:
    """CLIP-05: tensor first, then bicubic to the longer side, black bars, mean and deviation."""
    photo = picture(5, size)
    values = np.asarray(photo, np.float64) / 255
    width, height = (max(1, round(s * SIDE / max(size))) for s in size)
    rows, columns = resize_matrix(size[1], height), resize_matrix(size[0], width)
    small = np.einsum("ih,hwc,jw->ijc", rows, values, columns)
    canvas = np.zeros((SIDE, SIDE, 3))
    top, left = (SIDE - height) // 2, (SIDE - width) // 2
    canvas[top : top + height, left : left + width] = small
    expected = ((canvas - CLIP_MEAN) / CLIP_STD).transpose(2, 0, 1)
    found = hps.pixels([photo])[0].numpy()
    assert found.shape == (3, SIDE, SIDE)
    np.testing.assert_allclose(found, expected, atol=2e-5)
    if size[0] > SIDE:
        plain = square(photo, SIDE, antialias=False)
        assert np.abs(plain.numpy() - canvas.transpose(2, 0, 1)).max() > 0.02


def test_bicubic_values_beyond_the_range_are_kept() -> None:
    """They are where a picture is made a tensor before it is resized; Pillow would cut them."""
    edge = np.zeros((60, 60, 3), np.uint8)
    edge[:, 30:] = 255
    found = square(Image.fromarray(edge), SIDE, antialias=True)
    assert found.max() > 1.01 and found.min() < -0.01


def test_a_picture_of_the_right_longer_side_gets_bars(picture: Make) -> None:
    photo = picture(6, (SIDE, 10))
    found = square(photo, SIDE, antialias=True).numpy()
    assert found.shape == (3, SIDE, SIDE) and not found[:, :9].any() and not found[:, 19:].any()
    np.testing.assert_array_equal(
        np.rint(found[:, 9:19] * 255), np.asarray(photo).transpose(2, 0, 1)
    )


def test_no_batch_changes_a_bit(hps: Any, picture: Make, one_thread: None) -> None:
    """CLIP-12, made exact."""
    photos = [picture(i) for i in range(5)]
    alone = np.concatenate([hps.images([p]) for p in photos])
    assert hps.images(photos).tobytes() == alone.tobytes()


# --- texts ---------------------------------------------------------------------------------------


def test_texts_are_mended_as_the_reference_does() -> None:
    assert clean("  The cat\u2019s  caf\u00e9\n&amp;amp; <b> ") == "the cat's caf\u00e9 & <b>"


def test_the_vocabulary_is_read_in_order(folder: Path) -> None:
    tokenizer = clip_tokenizer(folder / FILES["vocabulary"])
    vocabulary = tokenizer.get_vocab()
    assert [vocabulary[t] for t in ("!", "~", "!</w>", "re", "red</w>")] == [0, 93, 256, 512, 513]
    assert len(tokenizer) == 512 + len(MERGES) + 2
    assert vocabulary["<|startoftext|>"] == len(tokenizer) - 2
    assert tokenizer.eos_token_id == len(tokenizer) - 1
    words = tokenizer.convert_ids_to_tokens(tokenizer("red cat re")["input_ids"])
    assert words == ["<|startoftext|>", "red</w>", "cat</w>", "r", "e</w>", "<|endoftext|>"]


def test_a_missing_or_wrong_vocabulary_is_named(folder: Path, tmp_path: Path) -> None:
    """CLIP-15: an absent file, a page of HTML under its name, a file of another hash."""
    (tmp_path / FILES["checkpoint"]).write_bytes((folder / FILES["checkpoint"]).read_bytes())
    vocabulary = tmp_path / FILES["vocabulary"]
    with pytest.raises(InputError, match=r"bpe\.txt\.gz: no such file"):
        encoder(tmp_path)
    right = {vocabulary.name: sha256_file(folder / vocabulary.name)}
    for content in (b"<html>404</html>", gzip.compress(b"#\na b c\n")):
        vocabulary.write_bytes(content)
        with pytest.raises(InputError, match=r"bpe\.txt\.gz: (cannot be read|holds a line)"):
            encoder(tmp_path)
        with pytest.raises(InputError, match=r"bpe\.txt\.gz: is another file"):
            encoder(tmp_path, right)
    for version in ("hpsv2_0", "hpsv2_1"):
        assert "bpe_simple_vocab_16e6.txt.gz" in cards.load("encoder", version).weights.sha256


def test_a_checkpoint_that_is_none_is_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / FILES["vocabulary"]).write_bytes((folder / FILES["vocabulary"]).read_bytes())
    with pytest.raises(InputError, match=r"hps\.pt: no such file"):
        encoder(tmp_path)
    (tmp_path / FILES["checkpoint"]).write_bytes(b"<html>")
    with pytest.raises(InputError, match=r"hps\.pt: cannot be read"):
        encoder(tmp_path)
    torch.save({"model": {}}, tmp_path / FILES["checkpoint"])
    with pytest.raises(InputError, match=r"hps\.pt: has no 'state_dict'"):
        encoder(tmp_path)
