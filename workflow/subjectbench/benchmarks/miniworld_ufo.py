"""The miniworld's side of UFO-Bench: 7 categories, 4 editing paradigms, prepared units.

Two categories are stand-ins, since nothing in the miniworld is a logo or a scene: a flat-drawn
book whose identity is its marking, and a house. Prompts ask for what the reference contradicts
(another colour, another style) and for what it does not show (props), so that following the text
and preserving the reference are in conflict in all paradigms but the first, as in UFO-Bench.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from subjectbench.benchmarks.base import Benchmark
from subjectbench.benchmarks.ufo_bench import BY_PARADIGM, CATEGORIES
from subjectbench.config import Strict
from subjectbench.units import Unit, tool_for
from subjectbench.vocabulary import PARADIGMS

if TYPE_CHECKING:
    import pandas as pd

    from subjectbench.miniworld.scenes import Scene
    from subjectbench.miniworld.subjects import Subject

NOUNS: dict[str, tuple[str, ...]] = {
    "Rigid object": ("mug", "bottle", "lamp", "car"),
    "Soft object": ("shoe", "ball"),
    "Human": ("face", "person"),
    "Animal": ("fish", "bird", "cat", "turtle"),
    "Character-Full body": ("robot",),
    "Logo": ("book",),
    "Scene": ("house",),
}
"""Category of ``ufo_bench.CATEGORIES`` to the nouns of its subjects; no noun in two of them."""

FLAT = ("Character-Full body", "Logo")
"""Categories that are always drawn flat: there are no photographs of them."""

RECOLOURED = ("sketch", "sepia", "neon", "night", "poster")
"""Styles in which even the right picture has other colours than the reference."""


class MiniworldUfo(Benchmark):
    """Drawn subjects of UFO's categories, with cases in UFO-Bench's shares of paradigms.

    Prompts use the words of the miniworld's text encoders only. ``details`` of a case is as the
    miniworld's, so the same simulated models and controls run on it.
    """

    synthetic = True
    breakdowns = ("paradigm", "category")
    has_units = True

    class Params(Strict):
        """Parameters of the miniworld_ufo card."""

        subjects: int = Field(default=2, ge=1, le=99, description="Subjects per category")
        cases: int = Field(default=6, ge=4, le=24, description="Cases per subject")
        seed: int = Field(default=0, ge=0, description="Decides subjects, prompts and scenes")
        size: int = Field(default=64, ge=32, le=512, description="Side of the pictures in pixels")

    def sources(self) -> list[Path]:
        """Return no files: everything is drawn."""
        return []

    def check(self) -> None:
        """Find nothing to check."""

    def _subjects(self) -> list[tuple[str, Subject]]:
        """``(category, subject)``; the first of a category do not depend on their number."""
        import numpy as np

        from subjectbench.miniworld.subjects import looks, random_subject
        from subjectbench.vocabulary import DIFFICULTIES

        found: list[tuple[str, Subject]] = []
        for number, category in enumerate(CATEGORIES):
            rng = np.random.default_rng([self.params.seed, 0x0F0, number])
            seen: set[tuple[str, ...]] = set()
            for index in range(self.params.subjects):
                nouns = NOUNS[category]
                marked = category == "Logo"
                levels = DIFFICULTIES[1:] if marked else DIFFICULTIES
                for _ in range(200):  # as in make_subjects: a repeat only after many tries
                    subject = random_subject(
                        rng,
                        index,
                        noun=nouns[index % len(nouns)],
                        difficulty=levels[(index + number) % len(levels)],
                        domain="Non-photorealistic" if category in FLAT else None,
                    )
                    if looks(subject) not in seen and not (marked and subject.marking == "none"):
                        break
                seen.add(looks(subject))
                found.append((category, subject))
        return found

    def _cases(self) -> Iterator[tuple[str, Subject, str, str, str, Scene]]:
        """``(category, subject, case id, paradigm, prompt, scene)``."""
        for category, subject in self._subjects():
            cases = make_cases(subject, self.params.seed, self.params.cases)
            for case, paradigm, prompt, scene in cases:
                yield category, subject, case, paradigm, prompt, scene

    def cases(self) -> pd.DataFrame:
        """Return the cases of every subject, paradigms in the paper's order."""
        from subjectbench import records

        rows = [
            {
                "case_id": case,
                "subject_id": subject.subject_id,
                "subject": subject.noun,
                "domain": subject.domain,
                "kind": subject.kind,
                "category": category,
                "difficulty": subject.difficulty,
                "scenario": None,
                "paradigm": paradigm,
                "prompt": prompt,
                "reference_id": subject.subject_id,
                "details": json.dumps(
                    {"scene": scene.to_dict(), "subject": subject.to_dict()}, sort_keys=True
                ),
            }
            for category, subject, case, paradigm, prompt, scene in self._cases()
        ]
        return records.table("cases", rows, "miniworld_ufo")

    def references(self) -> Iterator[tuple[str, bytes | None]]:
        """Draw each subject in the reference scene."""
        from subjectbench import images
        from subjectbench.miniworld.draw import draw
        from subjectbench.miniworld.scenes import reference_scene

        for _, subject in self._subjects():
            picture = draw(subject, reference_scene(), self.params.size)
            yield subject.subject_id, images.encode_png(picture)

    def units(self) -> dict[str, list[Unit]]:
        """Return the units of every case: what a careful annotator would write.

        They follow from what the case asks and what its reference shows, never from a generated
        picture.
        """
        return {
            case: make_units(category, subject, scene)
            for category, subject, case, _, _, scene in self._cases()
        }


def counts(cases: int) -> dict[str, int]:
    """Split a subject's cases by paradigm in UFO-Bench's shares (largest remainders).

    Six are 1, 2, 2, 1; four are one of each.
    """
    total = sum(BY_PARADIGM.values())
    out = {p: cases * BY_PARADIGM[p] // total for p in PARADIGMS}
    rest = sorted(PARADIGMS, key=lambda p: -(cases * BY_PARADIGM[p] % total))
    for paradigm in rest[: cases - sum(out.values())]:
        out[paradigm] += 1
    return out


def make_cases(subject: Subject, seed: int, cases: int) -> list[tuple[str, str, str, Scene]]:
    """Return a subject's cases, in the order of ``PARADIGMS``.

    * ``non_editing``: another place, every second time from another side.
    * ``local_editing``: props that are worn, stand beside or stand before the subject.
    * ``global_editing``: a style, or another colour and pattern, never the subject's own.
    * ``complex_editing``: one of both.

    Returns:
        ``(case id, paradigm, prompt, scene)``. The layout is not part of the prompt.
    """
    import numpy as np

    from subjectbench.miniworld import scenes
    from subjectbench.miniworld.scenes import Scene, prompt_for
    from subjectbench.miniworld.subjects import COLOURS, TEXTURES

    digest = hashlib.sha256(f"ufo/{seed}/{subject.subject_id}".encode()).digest()
    rng = np.random.default_rng(list(digest))

    def cycle(names: list[str]) -> Iterator[str]:
        """Names in a seeded order, again and again: none repeats before all were used."""
        order = [str(n) for n in rng.permutation(names)]
        while True:
            yield from order

    own = {subject.colour, subject.second_colour, subject.marking_colour}
    colours = cycle([c for c in COLOURS if c not in own])
    textures = cycle([t for t in TEXTURES[1:] if t != subject.texture])
    places, views = cycle(list(scenes.BACKGROUNDS)[1:]), cycle(list(scenes.VIEWS)[1:])
    companions, occluders = cycle(list(scenes.COMPANIONS)[1:]), cycle(list(scenes.OCCLUDERS)[1:])
    ideas, styles = cycle(list(scenes.IMAGINATIONS)[1:]), cycle(list(scenes.STYLES)[1:])

    def local(turn: int) -> Scene:
        if turn % 2 == 0:
            return Scene(imagination=next(ideas), background=next(places))
        return Scene(companion=next(companions), occluder=next(occluders))

    def wide(turn: int) -> Scene:
        if turn % 2 == 0:
            return Scene(style=next(styles), background=next(places))
        return Scene(new_colour=next(colours), new_texture=next(textures))

    def scene_of(paradigm: str, turn: int) -> Scene:
        if paradigm == "non_editing":
            place = Scene(background=next(places))
            return place if turn % 2 else replace(place, view=next(views))
        if paradigm == "local_editing":
            return local(turn)
        if paradigm == "global_editing":
            return wide(turn)
        if turn % 2 == 0:
            return replace(wide(1), imagination=next(ideas), background=next(places))
        return replace(wide(0), companion=next(companions))

    found = []
    for paradigm, count in counts(cases).items():
        for turn in range(count):
            scene = scene_of(paradigm, turn)
            prompt = prompt_for(subject.noun, scene, int(rng.integers(4)))
            name = f"{subject.subject_id}-{paradigm.removesuffix('_editing')}{turn}"
            laid_out = replace(scene, **scenes.layout(rng))  # type: ignore[arg-type]
            found.append((name, paradigm, prompt, laid_out))
    return found


Level = Literal["global_attribute", "part", "setting"]
Relevance = Literal["image_only", "text_only", "text_and_image"]

KEPT = "Is the subject's {} the same in the generated picture as in the reference picture?"
CHANGED = (
    "Is the subject's {} in the generated picture what the prompt makes of the one in the "
    "reference picture?"
)
ASKED = "Does the generated picture show {} that the prompt asks for?"


def make_units(category: str, subject: Subject, scene: Scene) -> list[Unit]:
    """Return the units of one case, attributes first.

    Weights as UFO means them: 5 edit target or decisive for identity, 4 major structure, 3
    secondary, 2 minor.
    """
    units: list[Unit] = []

    def add(level: Level, name: str, relevance: Relevance, weight: int, question: str) -> None:
        tool = tool_for(name, relevance, category)
        units.append(
            Unit(
                level=level,
                name=name,
                relevance=relevance,
                weight=weight,
                question=question,
                tool=tool,
            )
        )

    def look(level: Level, name: str, weight: int, words: str, changed: bool = False) -> None:
        """What the reference shows, and perhaps the prompt changes."""
        if changed:
            add(level, name, "text_and_image", 5, CHANGED.format(words))
        else:
            add(level, name, "image_only", weight, KEPT.format(words))

    def wish(level: Level, name: str, weight: int, words: str) -> None:
        """What only the prompt says."""
        add(level, name, "text_only", weight, ASKED.format(words))

    if scene.style not in RECOLOURED:
        look("global_attribute", "colour", 4, "colour", bool(scene.new_colour))
    look("global_attribute", "texture", 3, "surface pattern", bool(scene.new_texture))
    look("global_attribute", "shape", 4, "shape")
    if scene.style != "none":
        wish("global_attribute", "style", 5, "the style")
    if subject.marking != "none":
        look("part", "marking", 5 if category == "Logo" else 3, "marking")
    if category == "Human":
        look("part", "face", 5, "face")
    if scene.imagination != "none":
        wish("part", "imagination", 5, "the unusual thing on, with or around the subject")
    if scene.companion != "none":
        wish("part", "companion", 5, "the thing next to the subject")
    if scene.occluder != "none":
        wish("part", "occluder", 4, "the thing before the subject")
    if scene.background != "studio":
        # Where nothing is edited, the surroundings are all that the prompt asks for.
        edits = (scene.style, scene.imagination, scene.companion, scene.occluder)
        edited = any(e != "none" for e in edits) or scene.new_colour or scene.new_texture
        wish("setting", "background", 2 if edited else 4, "the place")
    if scene.view != "front":
        wish("setting", "view", 3, "the view")
    return units


PLUGIN = MiniworldUfo
