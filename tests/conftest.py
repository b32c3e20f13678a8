"""Small real checkpoints, a checkout's cards with ours added, and the data shared beside it."""

from __future__ import annotations

import os
import shutil
import string
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a test that asks the hub is a broken test

ROOT = Path(__file__).resolve().parents[1]
CLIP_MEAN, CLIP_STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
VIT_MEAN, VIT_STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Runs of the Snakefile first: they are long, and a worker should not be left alone with one.

    Fast tests fill the time at the end. Needs xdist's ``--no-loadscope-reorder`` to take effect.
    """
    items.sort(key=lambda item: "workflow" not in item.path.parts)


@pytest.fixture(scope="session", autouse=True)
def programs(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Environments of external programs are made once a run, and not in the user's cache."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    os.environ["SUBJECTBENCH_CACHE"] = str(base / "programs")


@pytest.fixture(scope="session")
def shared() -> Callable[[str], Path]:
    """``shared(name)``: a path in ``$SUBJECTBENCH_SHARED`` or ``../shared``, or a skip."""
    folder = Path(os.environ.get("SUBJECTBENCH_SHARED", ROOT.parent / "shared"))

    def find(name: str = "") -> Path:
        if not (folder / name).exists():
            pytest.skip(f"not here: {folder / name} (set SUBJECTBENCH_SHARED to the folder)")
        return folder / name

    return find


@pytest.fixture(scope="session")
def picture() -> Callable[..., Image.Image]:
    """``picture(seed, size)``: smooth stripes and noise, so that every resampling filter shows."""

    def make(seed: int, size: tuple[int, int] = (57, 41)) -> Image.Image:
        rng = np.random.default_rng(seed)
        y, x = np.mgrid[: size[1], : size[0]]
        stripes = 127 + 100 * np.sin((x + y * (seed + 1)) / 3.0)
        values = stripes[..., None] + rng.normal(0, 25, (size[1], size[0], 3))
        return Image.fromarray(values.clip(0, 255).astype(np.uint8))

    return make


def _save_tokenizer(folder: Path) -> Any:
    from transformers import CLIPTokenizer

    letters = string.ascii_lowercase + string.digits + string.punctuation
    tokens = [*letters, *(f"{c}</w>" for c in letters), "<|startoftext|>", "<|endoftext|>"]
    tokenizer = CLIPTokenizer(
        vocab={t: i for i, t in enumerate(tokens)}, merges=[], model_max_length=77
    )
    tokenizer.save_pretrained(folder)
    return tokenizer


@pytest.fixture(scope="session")
def clip_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CLIP of 32 px pictures and one token per letter, with random weights."""
    import torch
    from transformers import CLIPConfig, CLIPModel
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    folder = tmp_path_factory.mktemp("clip")
    tokenizer = _save_tokenizer(folder)
    assert tokenizer.eos_token_id != 2  # 2 means "the highest id" to transformers
    tower = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2}
    tower |= {"num_hidden_layers": 2, "hidden_act": "quick_gelu"}
    ids = {n: getattr(tokenizer, n) for n in ("bos_token_id", "eos_token_id", "pad_token_id")}
    torch.manual_seed(7)
    model = CLIPModel(
        CLIPConfig(
            text_config={**tower, **ids, "vocab_size": len(tokenizer)},
            vision_config={**tower, "image_size": 32, "patch_size": 8},
            projection_dim=16,
        )
    )
    for value in model.parameters():  # larger than usual: faults show beyond rounding
        if value.ndim > 1:
            torch.nn.init.normal_(value, std=0.3)
    model.save_pretrained(folder)
    CLIPImageProcessorPil(
        size={"shortest_edge": 32},
        crop_size={"height": 32, "width": 32},
        image_mean=CLIP_MEAN,
        image_std=CLIP_STD,
    ).save_pretrained(folder)
    return folder


def _save_vit(folder: Path, pooler: bool) -> Path:
    import torch
    from transformers import ViTConfig, ViTModel
    from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

    torch.manual_seed(8)
    config = ViTConfig(
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        image_size=32,
        patch_size=8,
    )
    model = ViTModel(config, add_pooling_layer=pooler)
    for value in model.parameters():
        torch.nn.init.normal_(value, std=0.3)
    model.save_pretrained(folder)
    ViTImageProcessorPil(
        size={"height": 32, "width": 32}, image_mean=VIT_MEAN, image_std=VIT_STD
    ).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def vit_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ViT in the form of facebook/dino-*: no pooler in the file."""
    return _save_vit(tmp_path_factory.mktemp("vit"), pooler=False)


@pytest.fixture(scope="session")
def vit_checkpoint_with_pooler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same ViT with a pooler, which DINO does not use."""
    return _save_vit(tmp_path_factory.mktemp("vit_pooler"), pooler=True)


@pytest.fixture(scope="session")
def dinov2_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A DINOv2 with 14 px patches, a position table for 56 px and the hub's preprocessing."""
    import torch
    from transformers import Dinov2Config, Dinov2Model
    from transformers.models.bit.image_processing_pil_bit import BitImageProcessorPil

    folder = tmp_path_factory.mktemp("dinov2")
    torch.manual_seed(10)
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "mlp_ratio": 2}
    model = Dinov2Model(Dinov2Config(**sizes, image_size=56, patch_size=14))
    for value in model.parameters():
        torch.nn.init.normal_(value, std=0.3)
    model.save_pretrained(folder)
    BitImageProcessorPil(
        size={"shortest_edge": 256},
        crop_size={"height": 224, "width": 224},
        image_mean=VIT_MEAN,
        image_std=VIT_STD,
    ).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def qwen_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen2.5-VL with random weights, one token per byte, and "yes" and "no" as tokens."""
    import torch
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    folder = tmp_path_factory.mktemp("qwen")
    tokenizer = _save_qwen_tokenizer(folder)
    token = tokenizer.convert_tokens_to_ids
    torch.manual_seed(9)
    ends = {"eos_token_id": token("<|im_end|>"), "pad_token_id": token("<|endoftext|>")}
    model = Qwen2_5_VLForConditionalGeneration(
        Qwen2_5_VLConfig(
            text_config={
                **ends,
                "vocab_size": len(tokenizer),
                "hidden_size": 32,
                "intermediate_size": 64,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "num_key_value_heads": 1,
                "max_position_embeddings": 4096,
                "rope_parameters": {
                    "rope_type": "default",
                    "rope_theta": 1e6,
                    "mrope_section": [2, 3, 3],
                },
            },
            vision_config={
                "depth": 2,
                "hidden_size": 32,
                "intermediate_size": 64,
                "num_heads": 2,
                "out_hidden_size": 32,
                "window_size": 56,
                "fullatt_block_indexes": [1],
            },
            image_token_id=token("<|image_pad|>"),
            video_token_id=token("<|video_pad|>"),
            vision_start_token_id=token("<|vision_start|>"),
            vision_end_token_id=token("<|vision_end|>"),
        )
    )
    for value in model.parameters():
        if value.ndim > 1:
            torch.nn.init.normal_(value, std=0.3)
    said = model.lm_head.weight.data  # it says no control words but the end's
    said[[t for t in tokenizer.all_special_ids if t != ends["eos_token_id"]]] = 0
    model.generation_config.update(**ends)
    model.save_pretrained(folder)
    Qwen2VLImageProcessorPil().save_pretrained(folder)
    return folder


def _save_qwen_tokenizer(folder: Path) -> Any:
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import Qwen2Tokenizer

    words = {"yes": ["y", "e", "s"], "no": ["n", "o"]}
    words |= {w.title(): [w[0].upper(), *letters[1:]] for w, letters in words.items()}
    words |= {w.upper(): list(w.upper()) for w in ("yes", "no")}
    merges = []
    for word, letters in words.items():
        merges += [("".join(letters[:i]), letters[i]) for i in range(1, len(letters))]
        merges.append(("\u0120", word))  # the letter that stands for a space
    tokens = dict.fromkeys([*sorted(ByteLevel.alphabet()), *("".join(m) for m in merges)])
    names = ("endoftext", "im_start", "im_end", "vision_start", "vision_end")
    tokenizer = Qwen2Tokenizer(
        vocab={t: i for i, t in enumerate(tokens)},
        merges=list(dict.fromkeys(merges)),
        unk_token=None,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        extra_special_tokens=[f"<|{n}|>" for n in (*names, "image_pad", "video_pad")],
    )
    tokenizer.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}"
        "{% if p.type == 'text' %}{{ p.text }}"
        "{% else %}<|vision_start|><|image_pad|><|vision_end|>{% endif %}"
        "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    tokenizer.save_pretrained(folder)
    return tokenizer


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """As jobs run: with more threads the place in a batch may change the last bit.

    And two threads on a busy machine wait for each other.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def own_cards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str, str, dict[str, Any]], None]]:
    """A checkout's cards, to which ``own_cards(kind, name, card)`` adds one."""
    from subjectbench import cards

    root = tmp_path / "checkout"
    shutil.copytree(ROOT / "workflow" / "cards", root / "workflow" / "cards")
    monkeypatch.setattr(cards, "ROOT", root)
    cards.load.cache_clear()

    def add(kind: str, name: str, card: dict[str, Any]) -> None:
        (cards.cards_folder(kind) / f"{name}.yaml").write_text(yaml.safe_dump(card), "utf-8")
        cards.load.cache_clear()

    yield add
    cards.load.cache_clear()
