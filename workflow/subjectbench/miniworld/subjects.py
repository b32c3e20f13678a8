"""Subjects of the miniworld: an object, an animal or a person described by named attributes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (214, 40, 40),
    "orange": (246, 134, 28),
    "yellow": (250, 214, 46),
    "green": (52, 160, 66),
    "cyan": (64, 204, 210),
    "blue": (40, 84, 206),
    "purple": (124, 58, 176),
    "pink": (248, 138, 186),
    "brown": (126, 78, 42),
    "white": (246, 246, 246),
    "black": (36, 36, 40),
}
"""Colour name to sRGB."""

TEXTURES = ("plain", "striped", "dotted", "checked", "zigzag")
MARKINGS = ("none", "star", "cross", "ring", "heart", "triangle", "letter")
DOMAINS = ("Photorealistic", "Non-photorealistic")

CATEGORIES: dict[str, tuple[str, str]] = {
    "mug": ("Object", "Daily Necessity"),
    "bottle": ("Object", "Daily Necessity"),
    "lamp": ("Object", "Furniture"),
    "book": ("Object", "Stationery"),
    "shoe": ("Object", "Clothing"),
    "car": ("Object", "Vehicle"),
    "house": ("Object", "Building"),
    "ball": ("Object", "Toy"),
    "robot": ("Object", "Toy"),
    "fish": ("Animal", "Fish"),
    "bird": ("Animal", "Bird"),
    "cat": ("Animal", "Mammal"),
    "turtle": ("Animal", "Reptile"),
    "face": ("Human", "Facial Close-up"),
    "person": ("Human", "Full Body"),
}
"""Noun to the second and third tier of DSH-Bench's category tree (section 3.1)."""

NOUNS = tuple(CATEGORIES)

# Half objects, a third animals, a sixth people, as far as six subjects allow.
_KINDS = ("Object", "Object", "Object", "Animal", "Animal", "Human")
_DIFFICULTIES = ("easy", "medium", "hard")


@dataclass(frozen=True)
class Subject:
    """One subject. Every attribute is a name, so two subjects can be compared exactly.

    ``second_colour`` equal to ``colour`` means one-coloured: parts and patterns are then drawn in
    a shade of it. ``marking_colour`` means nothing while ``marking`` is ``none``.
    """

    subject_id: str
    noun: str
    domain: str
    kind: str
    category: str
    difficulty: str
    shape: str
    colour: str
    second_colour: str
    texture: str
    marking: str
    marking_colour: str

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a JSON-ready dict."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Subject:
        """Inverse of ``to_dict``; unknown or missing fields raise ``TypeError``."""
        return cls(**fields)


def random_subject(
    rng: np.random.Generator,
    index: int = 0,
    *,
    noun: str | None = None,
    difficulty: str | None = None,
    domain: str | None = None,
) -> Subject:
    """Draw one subject; what is not given is drawn too.

    Difficulty is the complexity of the surface: ``easy`` is plain without a marking, ``medium``
    has a pattern or a marking, ``hard`` has a pattern in a second colour and a marking in a third
    (drawn at two scales).
    """
    noun = noun or str(rng.choice(NOUNS))
    difficulty = difficulty or str(rng.choice(_DIFFICULTIES))
    domain = domain or str(rng.choice(DOMAINS))
    colour, second, third = (str(c) for c in rng.choice(list(COLOURS), size=3, replace=False))
    texture = str(rng.choice(TEXTURES[1:]))
    marking = str(rng.choice(MARKINGS[1:]))
    pattern_only = bool(rng.random() < 0.5)
    if difficulty == "easy" or (difficulty == "medium" and not pattern_only):
        texture, second = "plain", colour
    if difficulty == "easy" or (difficulty == "medium" and pattern_only):
        marking, third = "none", colour
    kind, category = CATEGORIES[noun]
    return Subject(
        subject_id=f"{noun}_{index:03d}",
        noun=noun,
        domain=domain,
        kind=kind,
        category=category,
        difficulty=difficulty,
        shape=noun,
        colour=colour,
        second_colour=second,
        texture=texture,
        marking=marking,
        marking_colour=third,
    )


def looks(subject: Subject) -> tuple[str, ...]:
    """Return the attributes that decide the subject's appearance, apart from its domain."""
    return (
        subject.shape,
        subject.colour,
        subject.second_colour,
        subject.texture,
        subject.marking,
        subject.marking_colour,
    )


def make_subjects(seed: int, count: int) -> list[Subject]:
    """Return ``count`` subjects that all look different.

    Difficulties cycle, so each has the same share; of every six subjects three are objects, two
    animals and one a person; the domains alternate in a seeded order. The first ``n`` subjects do
    not depend on ``count``.
    """
    rng = np.random.default_rng([seed, 0x5B])
    subjects: list[Subject] = []
    seen: set[tuple[str, ...]] = set()
    unused: dict[str, list[str]] = {}
    kinds: list[str] = []
    domains: list[str] = []
    for index in range(count):
        if not kinds:
            kinds = [str(k) for k in rng.permutation(_KINDS)]
        if not domains:
            domains = [str(d) for d in rng.permutation(DOMAINS)]
        kind, domain = kinds.pop(), domains.pop()
        if not unused.get(kind):
            # Every noun of a kind is used once before any returns.
            nouns = [n for n in NOUNS if CATEGORIES[n][0] == kind]
            unused[kind] = [str(n) for n in rng.permutation(nouns)]
        noun = unused[kind].pop()
        difficulty = _DIFFICULTIES[index % 3]
        # Easy subjects have 11 looks per noun, so a repeat is only accepted after many tries.
        for _ in range(200):
            subject = random_subject(rng, index, noun=noun, difficulty=difficulty, domain=domain)
            if looks(subject) not in seen:
                break
        seen.add(looks(subject))
        subjects.append(subject)
    return subjects
