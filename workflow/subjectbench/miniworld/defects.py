"""Known defects: what a simulated generator gets wrong, each with the truth about it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from PIL import Image, ImageFilter

from subjectbench.miniworld.scenes import Scene, reference_scene, requested
from subjectbench.miniworld.subjects import COLOURS, MARKINGS, NOUNS, TEXTURES, Subject

WEIGHTS: dict[str, float] = {
    "shape": 0.35,
    "colour": 0.25,
    "texture": 0.15,
    "second_colour": 0.05,
    "marking": 0.15,
    "marking_colour": 0.05,
}
"""Share of each attribute in a subject's identity. Sums to 1."""

_OVERRIDES = {"colour": "new_colour", "texture": "new_texture"}

ARTEFACTS = ("blur", "blocks", "noise", "banding", "strips")


def preservation(reference: Subject, drawn: Subject, scene: Scene) -> float:
    """Return the weighted share of the reference's attributes that the drawn subject kept.

    An attribute that the scene asks to change is not counted. A one-coloured subject's second
    colour follows its colour, and the colour of a missing marking is nothing, so neither is
    counted as a second fault.

    Returns:
        0 (nothing kept) to 1 (all kept).
    """
    total = kept = 0.0
    for name, weight in WEIGHTS.items():
        if name in _OVERRIDES and getattr(scene, _OVERRIDES[name]):
            continue
        total += weight
        kept += weight * _same(name, reference, drawn)
    return min(1.0, kept / total)


def _same(name: str, a: Subject, b: Subject) -> bool:
    if name == "second_colour":
        single = a.second_colour == a.colour, b.second_colour == b.colour
        return all(single) or (not any(single) and a.second_colour == b.second_colour)
    if name == "marking_colour":
        blank = a.marking == "none", b.marking == "none"
        return all(blank) or (not any(blank) and a.marking_colour == b.marking_colour)
    return bool(getattr(a, name) == getattr(b, name))


def drift_identity(
    subject: Subject, strength: float, rng: np.random.Generator
) -> tuple[Subject, float]:
    """Change more of a subject's attributes the greater ``strength`` is.

    Args:
        strength: 0 (the same subject) to 1 (every attribute changed). The same generator state
            with a greater strength changes a superset.

    Returns:
        The drifted subject and its ``preservation`` in the reference scene; on average about
        ``1 - strength``.
    """
    # Everything is drawn before the strength is looked at, so that the changes are nested.
    order = [str(n) for n in rng.permutation(list(WEIGHTS))]
    taken = {subject.colour, subject.second_colour, subject.marking_colour}
    free = [str(c) for c in rng.permutation([c for c in COLOURS if c not in taken])]
    new = {
        "shape": str(rng.choice([n for n in NOUNS if n != subject.shape])),
        "colour": free[0],
        "second_colour": free[1],
        "texture": str(rng.choice([t for t in TEXTURES if t != subject.texture])),
        "marking": str(rng.choice([m for m in MARKINGS if m != subject.marking])),
        "marking_colour": free[2],
    }
    changed: dict[str, str] = {}
    before = 0.0
    for name in order:
        if strength > 0 and before + WEIGHTS[name] / 2 <= strength:
            changed[name] = new[name]
        before += WEIGHTS[name]
    one_coloured = subject.second_colour == subject.colour
    if one_coloured and "colour" in changed and "second_colour" not in changed:
        changed["second_colour"] = changed["colour"]
    if "marking" in changed and subject.marking == "none":
        # A marking that appears needs a colour of its own, or it could not be seen.
        changed["marking_colour"] = new["marking_colour"]
    drifted = replace(subject, **changed)
    return drifted, preservation(subject, drifted, reference_scene())


def following(asked: Scene, drawn: Scene) -> float:
    """Return the share, 0 to 1, of the asked scene's requested parts that the drawn one has.

    1 if nothing was requested. Layout does not count.
    """
    parts = requested(asked)
    if not parts:
        return 1.0
    return sum(getattr(asked, p) == getattr(drawn, p) for p in parts) / len(parts)


def ignore_prompt(scene: Scene, strength: float, rng: np.random.Generator) -> tuple[Scene, float]:
    """Drop requested parts of a scene, each with probability ``strength``.

    Args:
        strength: 0 (all drawn) to 1 (all dropped, as in the reference scene). The same generator
            state with a greater strength drops a superset.

    Returns:
        The scene to draw, and ``following`` of it.
    """
    parts = requested(scene)
    chance = rng.random(len(parts))
    plain = reference_scene()
    dropped = {p: getattr(plain, p) for p, c in zip(parts, chance) if c < strength}
    drawn = replace(scene, **dropped)
    return drawn, following(scene, drawn)


def damage(
    image: Image.Image, strength: float, rng: np.random.Generator, kind: str | None = None
) -> tuple[Image.Image, float]:
    """Damage a picture with one artefact.

    Args:
        image: RGB.
        strength: 0 (untouched) to 1 (hardly recognisable).
        kind: one of ``ARTEFACTS``; drawn if not given.

    Returns:
        The damaged picture, same size, and its quality, by definition ``1 - strength``.
    """
    chosen = kind or str(rng.choice(ARTEFACTS))
    seed = int(rng.integers(2**31))  # so the caller's generator moves on equally in every case
    strength = float(strength)  # Pillow's filters cannot compare NumPy's numbers
    quality = 1.0 - strength
    if strength <= 0:
        return image, quality
    inner = np.random.default_rng(seed)
    pixels = np.asarray(image, np.float64)
    height, width = pixels.shape[:2]
    if chosen == "blur":
        return image.filter(ImageFilter.GaussianBlur(strength * width / 18)), quality
    if chosen == "noise":
        out = pixels + inner.normal(0, 85 * strength, pixels.shape)
    elif chosen == "banding":
        levels = 1 + 5 * (1 - strength)
        # Each channel has its own offset, so greys turn into coloured bands as well.
        offset = inner.uniform(-0.3, 0.3, 3)
        coarse = (np.round(pixels / 255 * levels + offset) - offset) / levels * 255
        out = pixels + (coarse - pixels) * min(1.0, 2 * strength)
    elif chosen == "blocks":
        out = pixels.copy()
        step = max(2, width // 8)
        for y in range(0, height, step):
            for x in range(0, width, step):
                if inner.random() < 0.85 * strength:
                    cell = out[y : y + step, x : x + step]
                    cell[:] = cell.mean(axis=(0, 1)) + inner.normal(0, 40, 3)
    elif chosen == "strips":
        out = pixels.copy()
        step = max(1, height // 16)
        for y in range(0, height, step):
            shift = int(inner.integers(-width // 2, width // 2 + 1))
            if inner.random() < 0.2 + 0.8 * strength:
                out[y : y + step] = np.roll(out[y : y + step], round(shift * strength), axis=1)
    else:
        raise ValueError(f"unknown artefact {chosen!r}; known: {ARTEFACTS}")
    return Image.fromarray(np.clip(out, 0, 255).round().astype(np.uint8)), quality
