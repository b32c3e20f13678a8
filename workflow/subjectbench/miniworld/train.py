"""Recipes for the miniworld's small encoders, trained on drawn pictures.

    train="python -m subjectbench.miniworld.train"
    $train --recipe clip --alike-steps 0 --out first/mini_clip
    $train --recipe clip --init first/mini_clip --pool 5600 --out workflow/weights/mini_clip
    $train --recipe hps --init workflow/weights/mini_clip --out workflow/weights/mini_hps
    $train --recipe dino --out workflow/weights/mini_dino

Each writes a folder that ``from_pretrained`` reads like a full checkpoint, and a ``training.json``
with the recipe's arguments and the skill measured on what was held out. One CPU thread suffices.

Held out: the subjects of ``make_subjects(HELD_OUT_SEED, HELD_OUT_COUNT)``, which are the default
study's, and every subject that looks like one of them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import torch
import transformers
from PIL import Image
from torch.nn import functional
from tqdm import tqdm
from transformers import CLIPConfig, CLIPModel, CLIPTokenizer, PreTrainedModel, ViTConfig, ViTModel

from subjectbench.errors import InputError
from subjectbench.miniworld.defects import damage, drift_identity, preservation
from subjectbench.miniworld.draw import draw
from subjectbench.miniworld.scenes import (
    BACKGROUNDS,
    VOCABULARY,
    Scene,
    caption,
    make_prompts,
    prompt_for,
    random_scene,
    reference_scene,
)
from subjectbench.miniworld.subjects import (
    COLOURS,
    NOUNS,
    Subject,
    looks,
    make_subjects,
    random_subject,
)

HELD_OUT_SEED = 0
HELD_OUT_COUNT = 48
SIZE = 64
CONTEXT = 32
_GROUP = 8  # pictures that share a scene
CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
VIT_MEAN = VIT_STD = (0.5, 0.5, 0.5)

Pictures = np.ndarray  # uint8, pictures x 64 x 64 x 3


def held_out_subjects() -> list[Subject]:
    """Return the subjects that no recipe may train on."""
    return make_subjects(HELD_OUT_SEED, HELD_OUT_COUNT)


def _fresh_subject(rng: np.random.Generator, banned: set[tuple[str, ...]]) -> Subject:
    while True:
        subject = random_subject(rng)
        if looks(subject) not in banned:
            return subject


# ---------------------------------------------------------------- tokenizer and processors


def make_tokenizer() -> CLIPTokenizer:
    """Build a CLIP tokenizer whose merges make one token of every word of ``VOCABULARY``.

    All bytes are tokens too, so an unknown word becomes letters and never the end token, at which
    the text model would stop reading. As in the full CLIP the end token has the highest id and
    also pads; it must not be id 2, which makes transformers pool at another place.
    """
    from tokenizers.pre_tokenizers import ByteLevel

    letters = sorted(ByteLevel.alphabet())
    tokens = [*letters, *(c + "</w>" for c in letters)]
    words = [[*w[:-1], w[-1] + "</w>"] for w in VOCABULARY]
    merges: list[tuple[str, str]] = []
    while any(len(w) > 1 for w in words):
        counts: dict[tuple[str, str], int] = {}
        for word in words:
            for pair in itertools.pairwise(word):
                counts[pair] = counts.get(pair, 0) + 1
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        merges.append(best)
        for word in words:
            i = 0
            while i < len(word) - 1:
                if (word[i], word[i + 1]) == best:
                    word[i : i + 2] = ["".join(best)]
                i += 1
    tokens += ["".join(pair) for pair in merges]
    tokens += ["<|startoftext|>", "<|endoftext|>"]
    vocab = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    return CLIPTokenizer(vocab=vocab, merges=merges, model_max_length=CONTEXT)


def _tokenise(tokenizer: CLIPTokenizer, texts: Sequence[str]) -> np.ndarray:
    """Return ids, texts x ``CONTEXT``; what is too long is cut before the end token."""
    out = tokenizer(list(texts), padding="max_length", truncation=True, max_length=CONTEXT)
    return np.asarray(out["input_ids"], np.int64)


def _trim(ids: np.ndarray, end: int) -> dict[str, torch.Tensor]:
    """Cut the padding that no text of the batch needs; the text model is causal, so it is safe."""
    length = int((ids != end).sum(axis=1).max()) + 1
    kept = torch.from_numpy(ids[:, :length])
    return {"input_ids": kept, "attention_mask": torch.ones_like(kept)}


def _save_clip_processor(out: Path) -> None:
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    CLIPImageProcessorPil(
        size={"shortest_edge": SIZE},
        crop_size={"height": SIZE, "width": SIZE},
        image_mean=list(CLIP_MEAN),
        image_std=list(CLIP_STD),
    ).save_pretrained(out)


def _save_vit_processor(out: Path) -> None:
    from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

    ViTImageProcessorPil(
        size={"height": SIZE, "width": SIZE}, image_mean=list(VIT_MEAN), image_std=list(VIT_STD)
    ).save_pretrained(out)


def _pixels(
    pictures: Pictures, mean: Sequence[float], std: Sequence[float], shift: tuple[int, int] = (0, 0)
) -> torch.Tensor:
    """Normalise pictures to ``pixel_values`` (n x 3 x 64 x 64), moved by ``shift`` pixels."""
    if any(shift):
        index = [np.clip(np.arange(SIZE) + s, 0, SIZE - 1) for s in shift]
        pictures = pictures[:, index[0]][:, :, index[1]]
    scale, offset = np.float32(1 / 255), np.asarray(mean, np.float32)
    values = (pictures * scale - offset) / np.asarray(std, np.float32)
    return torch.from_numpy(np.ascontiguousarray(values.transpose(0, 3, 1, 2)))


def _render(subject: Subject, scene: Scene) -> np.ndarray:
    return np.asarray(draw(subject, scene, SIZE))


# ---------------------------------------------------------------- the training loop


def _fit(
    model: PreTrainedModel, loss: Callable[[int], torch.Tensor], steps: int, rate: float, name: str
) -> float:
    """Minimise ``loss(step)`` with AdamW, a short warm-up and a cosine. Returns seconds."""
    decay = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decay, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.98))
    warm = max(1, min(100, steps // 10))

    def schedule(step: int) -> float:
        if step < warm:
            return (step + 1) / warm
        return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimiser, schedule)
    start = time.perf_counter()
    # With bfloat16 products and plain attention a step takes half the time on one CPU thread; the
    # weights stay float32.
    model.set_attn_implementation("eager")
    model.train()
    bar = tqdm(range(steps), desc=name, mininterval=10)
    for step in bar:
        with torch.autocast("cpu", torch.bfloat16):
            value = loss(step)
        optimiser.zero_grad(set_to_none=True)
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        scheduler.step()
        scale = getattr(model, "logit_scale", None)
        if scale is not None:
            with torch.no_grad():
                scale.clamp_(max=math.log(100))  # as CLIP does, so that training stays stable
        if step % 20 == 0:
            bar.set_postfix(loss=f"{value.item():.3f}", refresh=False)
    model.eval()
    model.set_attn_implementation("sdpa")
    return time.perf_counter() - start


def _info_nce(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Symmetric InfoNCE over ``logits`` (texts x pictures).

    Another picture with the very same text is not a wrong answer, so it is left out.
    """
    same = (ids[:, None] == ids[None]).all(-1) & ~torch.eye(len(ids), dtype=torch.bool)
    logits = logits.masked_fill(same, -1e4)
    target = torch.arange(len(ids))
    rows = functional.cross_entropy(logits, target)
    return (rows + functional.cross_entropy(logits.T, target)) / 2


def _shift(rng: np.random.Generator) -> tuple[int, int]:
    down, right = rng.integers(-3, 4, size=2)
    return int(down), int(right)


# ---------------------------------------------------------------- mini_clip


def new_clip(tokenizer: CLIPTokenizer) -> CLIPModel:
    """Return an untrained ``CLIPModel`` for 64 px pictures (0.8 million parameters)."""
    special = {
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": 96,
        "intermediate_size": 192,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": CONTEXT,
        "hidden_act": "quick_gelu",
        "projection_dim": 64,
        **special,
    }
    vision = {
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "image_size": SIZE,
        "patch_size": 8,
        "hidden_act": "quick_gelu",
        "projection_dim": 64,
    }
    return CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=64))


def _captioned(
    rng: np.random.Generator, count: int
) -> tuple[Pictures, list[str], list[str], list[tuple[Subject, Scene]]]:
    """Draw ``count`` pictures, each with a full caption and with a prompt-like one."""
    banned = {looks(s) for s in held_out_subjects()}
    made: list[tuple[Subject, Scene]] = []
    prompts: list[str] = []
    pictures = np.empty((count, SIZE, SIZE, 3), np.uint8)
    for i in tqdm(range(count), desc="draw", mininterval=10):
        subject, scene = _fresh_subject(rng, banned), random_scene(rng)
        pictures[i] = _render(subject, scene)
        made.append((subject, scene))
        prompts.append(prompt_for(subject.noun, scene, int(rng.integers(4))))
    return pictures, [caption(*m) for m in made], prompts, made


def _alike(
    rng: np.random.Generator, groups: int
) -> tuple[Pictures, list[str], list[str], list[bool]]:
    """Draw groups of ``_GROUP`` pictures that only the subject tells apart.

    All of a group show one scene. Even groups show different nouns; odd groups one noun in
    different colours, which only the full captions name.

    Returns:
        Pictures, full captions, prompt-like captions, and which pictures' prompts may be used.
    """
    banned = {looks(s) for s in held_out_subjects()}
    pictures = np.empty((groups * _GROUP, SIZE, SIZE, 3), np.uint8)
    full: list[str] = []
    short: list[str] = []
    usable: list[bool] = []
    for g in tqdm(range(groups), desc="draw alike", mininterval=10):
        scene = random_scene(rng, parts=1, attributes=False)
        nouns = rng.permutation(NOUNS)[:_GROUP] if g % 2 == 0 else [str(rng.choice(NOUNS))] * _GROUP
        colours: set[str] = set()
        for noun in nouns:
            while True:
                subject = random_subject(rng, noun=str(noun))
                fresh = g % 2 == 0 or subject.colour not in colours
                if fresh and looks(subject) not in banned:
                    break
            colours.add(subject.colour)
            pictures[len(full)] = _render(subject, scene)
            full.append(caption(subject, scene))
            short.append(prompt_for(subject.noun, scene, int(rng.integers(4))))
            usable.append(g % 2 == 0)
    return pictures, full, short, usable


def train_clip(
    out: Path, *, steps: int, alike_steps: int, seed: int, pool: int, batch: int, init: Path | None
) -> dict[str, Any]:
    """Train ``CLIPModel`` on pictures and captions with InfoNCE; save it to ``out``.

    The first ``steps`` draw their batches from all pictures, and teach scenes above all, since
    these suffice to tell the pictures of a batch apart. Of each batch of the ``alike_steps``
    after them two thirds are groups that share a scene, which teaches nouns and colours.

    Args:
        init: folder of a model to go on from; the first ``steps`` are then not done.
    """
    rng = np.random.default_rng([seed, 1])
    tokenizer = make_tokenizer()
    pictures, captions, prompts, _ = _captioned(rng, pool)
    # Two captions to one prompt: prompts say less, so a batch has more than one right answer.
    full, short = _tokenise(tokenizer, captions), _tokenise(tokenizer, prompts)

    def fit(images: Pictures, ids: np.ndarray) -> torch.Tensor:
        text = _trim(ids, tokenizer.eos_token_id)
        pixels = _pixels(images, CLIP_MEAN, CLIP_STD, _shift(rng))
        logits = model(pixel_values=pixels, **text).logits_per_text.float()
        return _info_nce(logits, text["input_ids"])

    def loss(step: int) -> torch.Tensor:
        chosen = rng.choice(pool, size=min(batch, pool), replace=False)
        use_short = rng.random(len(chosen)) < 0.33
        return fit(pictures[chosen], np.where(use_short[:, None], short[chosen], full[chosen]))

    seconds = 0.0
    if init is None:
        model = new_clip(tokenizer)
        seconds += _fit(model, loss, steps, 1e-3, "mini_clip")
    else:
        model = CLIPModel.from_pretrained(init)

    rng = np.random.default_rng([seed, 4])
    groups = max(2, pool // _GROUP)
    like, like_captions, like_prompts, usable = _alike(rng, groups)
    like_full = _tokenise(tokenizer, like_captions)
    like_short = _tokenise(tokenizer, like_prompts)

    def alike(step: int) -> torch.Tensor:
        some = rng.choice(groups, size=min(max(1, batch * 2 // 3 // _GROUP), groups), replace=False)
        rows = (some[:, None] * _GROUP + np.arange(_GROUP)).ravel()
        rest = rng.choice(pool, size=min(batch // 3, pool), replace=False)
        use_short = (rng.random(len(rows)) < 0.5) & np.asarray(usable)[rows]
        ids = np.where(use_short[:, None], like_short[rows], like_full[rows])
        return fit(np.concatenate([like[rows], pictures[rest]]), np.concatenate([ids, full[rest]]))

    seconds += _fit(model, alike, alike_steps, 7e-4, "mini_clip alike")
    skill = clip_skill(model, tokenizer)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    _save_clip_processor(out)
    return {"seconds": seconds, "held_out_skill": skill}


@torch.no_grad()
def _clip_images(model: CLIPModel, pictures: Pictures) -> torch.Tensor:
    """Return unit embeddings, pictures x 64."""
    dummy = torch.tensor([[model.config.text_config.bos_token_id,
                           model.config.text_config.eos_token_id]])  # fmt: skip
    parts = [
        model(input_ids=dummy, pixel_values=_pixels(p, CLIP_MEAN, CLIP_STD)).image_embeds
        for p in np.array_split(pictures, max(1, len(pictures) // 128))
    ]
    return torch.cat(parts)


@torch.no_grad()
def _clip_texts(model: CLIPModel, tokenizer: CLIPTokenizer, texts: Sequence[str]) -> torch.Tensor:
    """Return unit embeddings, texts x 64."""
    ids = _trim(_tokenise(tokenizer, texts), tokenizer.eos_token_id)
    blank = torch.zeros(1, 3, SIZE, SIZE)
    return model(pixel_values=blank, **ids).text_embeds


def clip_skill(model: CLIPModel, tokenizer: CLIPTokenizer) -> dict[str, float]:
    """Measure zero-shot accuracy on held-out subjects, each with its chance level.

    Colour and noun are read from the reference pictures and the prompts' pictures without a style;
    background from all pictures whose prompt asks for one. ``prompt_of_12`` is how often a
    picture's own prompt fits it best among its subject's twelve.
    """
    model.eval()
    pictures, known, own = [], [], []
    for k, subject in enumerate(held_out_subjects()):
        cases = make_prompts(subject, HELD_OUT_SEED)
        for _, _, scene in [("", "", reference_scene()), *cases]:
            pictures.append(_render(subject, scene))
            known.append((subject, scene))
        own.append((13 * k + 1, [prompt for _, prompt, _ in cases]))
    images = _clip_images(model, np.stack(pictures))

    def accuracy(options: Sequence[str], text: Callable[[str, str], str],
                 truth: Callable[[Subject, Scene], str | None]) -> float:  # fmt: skip
        by_noun = {n: _clip_texts(model, tokenizer, [text(o, n) for o in options]) for n in NOUNS}
        hits = []
        for image, (subject, scene) in zip(images, known):
            right = truth(subject, scene)
            if right is not None:
                hits.append(options[int((by_noun[subject.noun] @ image).argmax())] == right)
        return float(np.mean(hits))

    def article(words: str) -> str:
        return ("an " if words[0] in "aeiou" else "a ") + words

    right = 0
    for start, prompts in own:
        fits = _clip_texts(model, tokenizer, prompts) @ images[start : start + 12].T
        right += int((fits.argmax(0) == torch.arange(12)).sum())
    places = list(BACKGROUNDS)[1:]
    return {
        "colour_of_11": accuracy(
            list(COLOURS),
            lambda o, n: f"a photo of {article(f'{o} {n}')}",
            lambda su, sc: None if sc.style != "none" else sc.new_colour or su.colour,
        ),
        "noun_of_15": accuracy(
            list(NOUNS),
            lambda o, n: f"a photo of {article(o)}",
            lambda su, sc: None if sc.style != "none" else su.noun,
        ),
        "background_of_10": accuracy(
            places,
            lambda o, n: f"a photo of {article(n)} {BACKGROUNDS[o]}",
            lambda su, sc: None if sc.background == "studio" else sc.background,
        ),
        "prompt_of_12": right / (12 * len(own)),
    }


# ---------------------------------------------------------------- mini_hps


def _damaged_pairs(rng: np.random.Generator, pictures: Pictures) -> tuple[Pictures, Pictures]:
    """Return a better and a worse version of each picture.

    Half of the better ones are undamaged; the worse is always damaged more, by the same or another
    artefact.
    """
    better, worse = np.empty_like(pictures), np.empty_like(pictures)
    for i, picture in enumerate(pictures):
        low, high = sorted(rng.uniform(0, 1, size=2))
        low = 0.0 if rng.random() < 0.5 else low
        high = min(1.0, max(high, low + 0.15))
        image = Image.fromarray(picture)
        better[i] = np.asarray(damage(image, low, rng)[0])
        worse[i] = np.asarray(damage(image, high, rng)[0])
    return better, worse


def train_hps(
    out: Path, *, steps: int, seed: int, pool: int, batch: int, init: Path
) -> dict[str, Any]:
    """Fine-tune the trained CLIP of ``init`` on preferences, as HPSv2 does; save it to ``out``.

    Of two pictures for one prompt the less damaged wins; the loss is that of Bradley and Terry on
    the scaled cosines. A light InfoNCE keeps the model reading the prompt.
    """
    rng = np.random.default_rng([seed, 2])
    tokenizer = CLIPTokenizer.from_pretrained(init)
    model = CLIPModel.from_pretrained(init)
    pictures, captions, prompts, _ = _captioned(rng, pool)
    better, worse = _damaged_pairs(rng, pictures)
    full, short = _tokenise(tokenizer, captions), _tokenise(tokenizer, prompts)

    def loss(step: int) -> torch.Tensor:
        chosen = rng.choice(pool, size=min(batch // 2, pool), replace=False)
        use_short = rng.random(len(chosen)) < 0.5
        ids = np.where(use_short[:, None], short[chosen], full[chosen])
        text = _trim(ids, tokenizer.eos_token_id)
        both = np.concatenate([better[chosen], worse[chosen]])
        pixels = _pixels(both, CLIP_MEAN, CLIP_STD, _shift(rng))
        logits = model(pixel_values=pixels, **text).logits_per_text.float()
        n = len(chosen)
        margin = logits[:, :n].diagonal() - logits[:, n:].diagonal()
        prefer = functional.softplus(-margin).mean()
        return prefer + 0.2 * _info_nce(logits[:, :n], text["input_ids"])

    seconds = _fit(model, loss, steps, 4e-4, "mini_hps")
    skill = hps_skill(model, tokenizer)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    _save_clip_processor(out)
    return {"seconds": seconds, "held_out_skill": skill}


def hps_skill(model: CLIPModel, tokenizer: CLIPTokenizer) -> dict[str, float]:
    """Measure on held-out subjects and their prompts how often the better picture scores higher.

    ``damage_pairs``: less against more damaged. ``prompt_pairs``: undamaged and as asked, against
    undamaged with the requested parts left out. Chance is 0.5 for both. ``background_of_10`` and
    the like show what is left of CLIP's reading.
    """
    model.eval()
    rng = np.random.default_rng(HELD_OUT_SEED)
    asked, plain, prompts = [], [], []
    for subject in held_out_subjects():
        for _, prompt, scene in make_prompts(subject, HELD_OUT_SEED):
            asked.append(_render(subject, scene))
            plain.append(_render(subject, reference_scene()))
            prompts.append(prompt)
    better, worse = _damaged_pairs(rng, np.stack(asked))
    text = _clip_texts(model, tokenizer, prompts)

    def score(pictures: Pictures) -> torch.Tensor:
        return (_clip_images(model, pictures) * text).sum(-1)

    damage_pairs = (score(better) > score(worse)).float().mean()
    prompt_pairs = (score(np.stack(asked)) > score(np.stack(plain))).float().mean()
    return {
        "damage_pairs": float(damage_pairs),
        "prompt_pairs": float(prompt_pairs),
        **clip_skill(model, tokenizer),
    }


# ---------------------------------------------------------------- mini_dino


def new_vit() -> ViTModel:
    """Return an untrained ``ViTModel`` for 64 px pictures (0.6 million parameters), no pooler."""
    config = ViTConfig(
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        image_size=SIZE,
        patch_size=8,
    )
    return ViTModel(config, add_pooling_layer=False)


def _variant(subject: Subject, rng: np.random.Generator) -> Subject:
    """Change a little of a subject, most often one attribute: a negative that is hard to tell."""
    while True:
        drifted, kept = drift_identity(subject, float(rng.uniform(0.05, 0.4)), rng)
        if kept < 1:
            # The same shape and domain, so that only the surface tells the two apart.
            drifted = replace(drifted, shape=subject.shape)
            if preservation(subject, drifted, reference_scene()) < 1:
                return drifted


def train_dino(out: Path, *, steps: int, seed: int, pool: int, batch: int) -> dict[str, Any]:
    """Train ``ViTModel`` so that CLS says which subject it is, whatever the scene.

    Contrastive: pictures of one subject in different scenes attract, all others repel, among them
    three variants of the subject with the same shape and another colour, pattern or marking.
    """
    rng = np.random.default_rng([seed, 3])
    model = new_vit()
    banned = {looks(s) for s in held_out_subjects()}
    views = 6
    families = max(2, pool // (4 * views))
    pictures = np.empty((families, 4, views, SIZE, SIZE, 3), np.uint8)
    for f in tqdm(range(families), desc="draw", mininterval=10):
        base = _fresh_subject(rng, banned)
        members = [base]
        while len(members) < 4:
            other = _variant(base, rng)
            if looks(other) not in banned | {looks(m) for m in members}:
                members.append(other)
        for m, member in enumerate(members):
            for v in range(views):
                scene = reference_scene() if v == 0 else random_scene(rng, attributes=False)
                if scene.style in ("sketch", "neon", "sepia"):
                    # These hide the colours, by which the variants differ.
                    scene = replace(scene, style="none")
                pictures[f, m, v] = _render(member, scene)

    def loss(step: int) -> torch.Tensor:
        some = rng.choice(families, size=min(max(2, batch // 8), families), replace=False)
        pair = np.stack([rng.choice(views, size=2, replace=False) for _ in range(4 * len(some))])
        chosen = pictures[some].reshape(-1, views, SIZE, SIZE, 3)
        rows = np.arange(len(chosen))
        both = np.concatenate([chosen[rows, pair[:, 0]], chosen[rows, pair[:, 1]]])
        pixels = _pixels(both, VIT_MEAN, VIT_STD, _shift(rng))
        cls = model(pixel_values=pixels).last_hidden_state[:, 0]
        z = functional.normalize(cls.float(), dim=-1)
        logits = (z @ z.T).float() / 0.1
        logits.fill_diagonal_(-1e4)
        target = torch.arange(len(z)).roll(len(chosen))
        return functional.cross_entropy(logits, target)

    seconds = _fit(model, loss, steps, 1e-3, "mini_dino")
    skill = dino_skill(model)
    model.save_pretrained(out)
    _save_vit_processor(out)
    return {"seconds": seconds, "held_out_skill": skill}


@torch.no_grad()
def dino_skill(model: ViTModel) -> dict[str, float]:
    """Measure on held-out subjects how well the cosine of CLS knows the subject.

    ``subject_of_48``: the picture of a prompt without an attribute change and without a style
    finds its subject among all reference pictures (chance 0.02). ``variant_pairs``: it is nearer
    to its reference than the same scene with a changed subject is (chance 0.5).
    """
    model.eval()
    rng = np.random.default_rng(HELD_OUT_SEED)
    subjects = held_out_subjects()
    pictures, others, owner = [], [], []
    for k, subject in enumerate(subjects):
        for scenario, _, scene in make_prompts(subject, HELD_OUT_SEED):
            if scenario not in ("attribute", "style"):
                pictures.append(_render(subject, scene))
                others.append(_render(_variant(subject, rng), scene))
                owner.append(k)

    def embed(many: list[np.ndarray]) -> torch.Tensor:
        parts = [
            model(pixel_values=_pixels(p, VIT_MEAN, VIT_STD)).last_hidden_state[:, 0]
            for p in np.array_split(np.stack(many), max(1, len(many) // 128))
        ]
        return functional.normalize(torch.cat(parts), dim=-1)

    references = embed([_render(s, reference_scene()) for s in subjects])
    own, other, index = embed(pictures), embed(others), torch.tensor(owner)
    near = (own * references[index]).sum(-1)
    return {
        f"subject_of_{len(subjects)}": float(
            ((own @ references.T).argmax(1) == index).float().mean()
        ),
        "variant_pairs": float((near > (other * references[index]).sum(-1)).float().mean()),
    }


# ---------------------------------------------------------------- command line

_DEFAULTS = {
    "clip": {"steps": 1800, "alike_steps": 600, "pool": 16000, "batch": 96},
    "dino": {"steps": 1500, "pool": 14400, "batch": 128},
    "hps": {"steps": 400, "pool": 5000, "batch": 96},
}


def _started(init: Path | None) -> dict[str, Any] | None:
    """Return the training record of the model that a recipe went on from."""
    if init is None or not (init / "training.json").is_file():
        return None
    started: dict[str, Any] = json.loads((init / "training.json").read_text(encoding="utf-8"))
    return started


def main(argv: Sequence[str] | None = None) -> int:
    """Run one recipe; see the module's text. Returns the exit status.

    Raises:
        InputError: the hps recipe has no model to start from.
    """
    parser = argparse.ArgumentParser(description="Train a small encoder of the miniworld.")
    parser.add_argument("--recipe", choices=sorted(_DEFAULTS), required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--steps", type=int, help="optimiser steps")
    parser.add_argument("--alike-steps", type=int, help="clip: further steps on like pictures")
    parser.add_argument("--pool", type=int, help="pictures drawn to train on")
    parser.add_argument("--batch", type=int, help="pictures per step")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--init", type=Path, help="folder of the mini_clip to start from")
    args = parser.parse_args(argv)
    options = {
        k: v if getattr(args, k) is None else getattr(args, k)
        for k, v in _DEFAULTS[args.recipe].items()
    }
    torch.set_num_threads(1)  # more threads would change the sums, and so the weights
    torch.manual_seed(args.seed)
    if args.recipe == "hps" and (args.init is None or not (args.init / "config.json").is_file()):
        raise InputError("--init", "no trained mini_clip there", "run --recipe clip first")
    if args.recipe == "dino":
        result = train_dino(args.out, seed=args.seed, **options)
    else:
        recipe: Callable[..., dict[str, Any]] = train_clip if args.recipe == "clip" else train_hps
        result = recipe(args.out, seed=args.seed, init=args.init, **options)
    if args.recipe == "clip" and args.init is not None:
        options["steps"] = 0  # done by the model it went on from
    record = {
        "recipe": args.recipe,
        "arguments": {**options, "seed": args.seed},
        "starts_from": _started(args.init),
        "held_out": {"make_subjects_seed": HELD_OUT_SEED, "count": HELD_OUT_COUNT},
        "held_out_skill": {k: round(v, 4) for k, v in result["held_out_skill"].items()},
        "training_seconds": round(result["seconds"]),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "numpy": np.__version__,
            "pillow": PIL.__version__,
        },
    }
    text = json.dumps(record, indent=2, sort_keys=True) + "\n"
    (args.out / "training.json").write_text(text, encoding="utf-8")
    print(text, end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
