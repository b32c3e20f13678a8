"""Scenes of the miniworld: what a prompt asks for, and the words it asks with."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from subjectbench.miniworld.subjects import COLOURS, MARKINGS, NOUNS, TEXTURES, Subject
from subjectbench.vocabulary import SCENARIOS

BACKGROUNDS: dict[str, str] = {
    "studio": "in a studio",
    "beach": "on a beach",
    "forest": "in a forest",
    "snow": "in the snow",
    "desert": "in a desert",
    "city": "in a city",
    "kitchen": "in a kitchen",
    "space": "in space",
    "sea": "under the sea",
    "sunset": "at sunset",
    "meadow": "in a meadow",
}
VIEWS: dict[str, str] = {
    "front": "",
    "above": "seen from above",
    "side": "seen from the side",
    "close": "very close up",
    "far": "far away",
    "tilted": "tilted over",
    "flipped": "upside down",
}
COMPANIONS: dict[str, str] = {
    "none": "",
    "tree": "next to a tree",
    "flower": "next to a flower",
    "box": "next to a box",
    "chair": "next to a chair",
    "umbrella": "next to an umbrella",
}
OCCLUDERS: dict[str, str] = {
    "none": "",
    "fence": "behind a fence",
    "grass": "behind tall grass",
    "curtain": "behind a curtain",
}
STYLES: dict[str, str] = {
    "none": "",
    "sketch": "a pencil sketch of",
    "mosaic": "a mosaic of",
    "sepia": "an old sepia photo of",
    "neon": "a neon sign of",
    "night": "a dark night picture of",
    "poster": "a bold poster of",
}
IMAGINATIONS: dict[str, str] = {
    "none": "",
    "crown": "wearing a golden crown",
    "wings": "with white wings",
    "balloons": "carried by balloons",
    "giant": "as a giant over tiny houses",
    "bubbles": "inside a soap bubble",
    "rainbow": "under a rainbow",
}
_NEUTRAL = ("", "a photo of", "a picture of", "an image of")

PARTS = (
    "background",
    "view",
    "companion",
    "occluder",
    "new_colour",
    "new_texture",
    "style",
    "imagination",
)
"""Fields of ``Scene`` that a prompt can ask for; the rest is layout."""


@dataclass(frozen=True)
class Scene:
    """What is drawn around and with a subject.

    ``scale`` (1 = as wide as most of the picture), ``x``, ``y`` (centre, 0 to 1 from the top left)
    and ``rotation`` (degrees, counter-clockwise) are layout that no prompt asks for.
    ``new_colour`` and ``new_texture`` replace the subject's own; empty means its own.
    """

    background: str = "studio"
    view: str = "front"
    scale: float = 1.0
    x: float = 0.5
    y: float = 0.5
    rotation: float = 0.0
    companion: str = "none"
    occluder: str = "none"
    new_colour: str = ""
    new_texture: str = ""
    style: str = "none"
    imagination: str = "none"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a JSON-ready dict."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Scene:
        """Inverse of ``to_dict``; unknown fields raise ``TypeError``."""
        return cls(**fields)


def reference_scene() -> Scene:
    """Return the scene of reference pictures: a light studio, the subject in the middle."""
    return Scene()


def requested(scene: Scene) -> tuple[str, ...]:
    """Return the parts of ``PARTS`` in which the scene differs from the reference scene."""
    plain = reference_scene()
    return tuple(p for p in PARTS if getattr(scene, p) != getattr(plain, p))


def _choice(text: str, count: int) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") % count


def phrase(thing: str, scene: Scene, variant: int = 0) -> str:
    """Say a scene in words.

    Args:
        thing: what is shown, with its article and adjectives.
        scene: only the parts that differ from the reference scene are said; the new colour and
            texture are left to ``thing``.
        variant: picks one of the neutral openings when no style is asked for.
    """
    opening = STYLES[scene.style] or _NEUTRAL[variant % len(_NEUTRAL)]
    place = "" if scene.background == "studio" else BACKGROUNDS[scene.background]
    said = (
        opening,
        thing,
        IMAGINATIONS[scene.imagination],
        VIEWS[scene.view],
        COMPANIONS[scene.companion],
        OCCLUDERS[scene.occluder],
        place,
    )
    return " ".join(s for s in said if s)


def _article(words: str) -> str:
    return ("an " if words[0] in "aeiou" else "a ") + words


def prompt_for(noun: str, scene: Scene, variant: int = 0) -> str:
    """Return a prompt that asks for the scene and names the subject only by its noun."""
    words = " ".join(w for w in (scene.new_colour, scene.new_texture, noun) if w)
    return phrase(_article(words), scene, variant)


def caption(subject: Subject, scene: Scene) -> str:
    """Return a description of the picture that also names the subject's looks.

    The wording varies from picture to picture but is a function of the arguments.
    """
    pick = _choice(repr((subject, scene)), 24)
    colour = scene.new_colour or subject.colour
    texture = scene.new_texture or subject.texture
    # Some captions leave the pattern or the marking out, as people do.
    adjectives = [colour] + ([texture] if texture != "plain" and pick % 4 else [])
    thing = _article(" ".join([*adjectives, subject.shape]))
    if subject.marking != "none" and pick % 3:
        thing += f" with {_article(subject.marking_colour)} {subject.marking}"
    text = phrase(thing, scene, pick // 6)
    if scene.background == "studio" and pick % 2:
        text += " " + BACKGROUNDS["studio"]
    return text


def random_scene(rng: np.random.Generator, parts: int = 2, attributes: bool = True) -> Scene:
    """Draw a scene with up to ``parts`` requested parts and a free layout.

    Args:
        attributes: whether colour and texture may be overridden.
    """
    options: dict[str, list[str]] = {
        "background": list(BACKGROUNDS)[1:],
        "view": list(VIEWS)[1:],
        "companion": list(COMPANIONS)[1:],
        "occluder": list(OCCLUDERS)[1:],
        "style": list(STYLES)[1:],
        "imagination": list(IMAGINATIONS)[1:],
    }
    if attributes:
        options |= {"new_colour": list(COLOURS), "new_texture": list(TEXTURES[1:])}
    names = list(options)
    weights = np.array([3.0 if n == "background" else 1.0 for n in names])
    count = int(rng.integers(0, parts + 1))
    chosen = rng.choice(len(names), size=count, replace=False, p=weights / weights.sum())
    fields = {names[i]: str(rng.choice(options[names[i]])) for i in chosen}
    return Scene(**fields, **layout(rng))  # type: ignore[arg-type]


def layout(rng: np.random.Generator) -> dict[str, float]:
    """Draw the fields of a scene that no prompt asks for."""
    # Rounded so that a scene survives JSON exactly and stays readable.
    return {
        "scale": round(float(rng.uniform(0.85, 1.1)), 2),
        "x": round(float(rng.uniform(0.44, 0.56)), 2),
        "y": round(float(rng.uniform(0.47, 0.57)), 2),
        "rotation": round(float(rng.uniform(-8, 8)), 1),
    }


def make_prompts(subject: Subject, seed: int) -> list[tuple[str, str, Scene]]:
    """Return the 12 cases of a subject: two for each of ``SCENARIOS``, in that order.

    Returns:
        ``(scenario, prompt, scene)``. Of each pair the first asks for the scenario alone and the
        second for it and one thing more (often a background), so that a prompt can be followed in
        part. The layout is not part of the prompt.
    """
    digest = hashlib.sha256(f"{seed}/{subject.subject_id}".encode()).digest()
    rng = np.random.default_rng(list(digest))

    def pick(options: Mapping[str, str], count: int) -> list[str]:
        return [str(c) for c in rng.choice(list(options)[1:], size=count, replace=False)]

    own = {subject.colour, subject.second_colour, subject.marking_colour}
    colours = [str(c) for c in rng.permutation([c for c in COLOURS if c not in own])]
    textures = [t for t in TEXTURES[1:] if t != subject.texture]
    texture = str(rng.choice(textures))
    places = pick(BACKGROUNDS, 7)
    views, companions, styles = pick(VIEWS, 2), pick(COMPANIONS, 3), pick(STYLES, 2)
    ideas = pick(IMAGINATIONS, 2)
    occluder = pick(OCCLUDERS, 1)[0]
    scenes = {
        "background": (
            Scene(background=places[0]),
            Scene(background=places[1], companion=companions[2]),
        ),
        "viewpoint": (Scene(view=views[0]), Scene(view=views[1], background=places[2])),
        "interaction": (
            Scene(companion=companions[0], background=places[3]),
            Scene(companion=companions[1], occluder=occluder),
        ),
        "attribute": (
            Scene(new_colour=colours[0]),
            Scene(new_colour=colours[1], new_texture=texture, background=places[4]),
        ),
        "style": (Scene(style=styles[0]), Scene(style=styles[1], background=places[5])),
        "imagination": (
            Scene(imagination=ideas[0]),
            Scene(imagination=ideas[1], background=places[6]),
        ),
    }
    cases = []
    for scenario in SCENARIOS:
        for scene in scenes[scenario]:
            laid_out = replace(scene, **layout(rng))  # type: ignore[arg-type]
            cases.append(
                (scenario, prompt_for(subject.noun, scene, int(rng.integers(4))), laid_out)
            )
    return cases


def _vocabulary() -> tuple[str, ...]:
    words: set[str] = {"a", "an", "with", "and", "no", "damaged", "clean", "blurry", "noisy"}
    words |= {*NOUNS, *COLOURS, *TEXTURES, *MARKINGS[1:], *BACKGROUNDS, *VIEWS}
    for table in (BACKGROUNDS, VIEWS, COMPANIONS, OCCLUDERS, STYLES, IMAGINATIONS):
        words |= {w for text in table.values() for w in text.split()}
    words |= {w for text in _NEUTRAL for w in text.split()}
    return tuple(sorted(words))


VOCABULARY = _vocabulary()
"""All words that a prompt or a caption can contain, sorted."""
