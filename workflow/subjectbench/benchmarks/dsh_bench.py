"""DSH-Bench as published: ``DSH-Bench_image_info.json`` and a folder of reference pictures.

Labels become the paper's (section 3.1, figures 3 and 6): the file says ``mid``, ``Person`` and
``viewing_angle_changes`` where the paper says medium, Human and viewpoint. Nothing is corrected:
:meth:`DshBench.anomalies` lists what is odd.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from subjectbench.benchmarks.base import Benchmark, check_id, check_prompt, near, read_json
from subjectbench.benchmarks.catalogue import plain
from subjectbench.config import LOCATION, Strict
from subjectbench.errors import InputError, suggest

if TYPE_CHECKING:
    import pandas as pd

DIFFICULTIES = {"easy": "easy", "mid": "medium", "medium": "medium", "hard": "hard"}
DOMAINS = {
    "Photorealistic": "Photorealistic",
    "Non-Photorealistic": "Non-photorealistic",
    "Non-photorealistic": "Non-photorealistic",
}
KINDS = {"Object": "Object", "Animal": "Animal", "Person": "Human", "Human": "Human"}
SCENARIOS = {
    "background_changes": "background",
    "viewing_angle_changes": "viewpoint",
    "interacts/occludes/moves": "interaction",
    "attribute_changes": "attribute",
    "style_changes": "style",
    "imagination": "imagination",
}
"""From the file's labels to the paper's. The third tier (category) is the same in both."""

BOMB_PIXELS = 89_478_485
"""Where Pillow warns; ``images.MAX_PIXELS`` (not imported here: it would import Pillow)."""

# No rule finds these without also finding "backpack": listed by hand from the published file.
GLUED = ("actionfigure", "catstatue", "mugskulls")

# fmt: off
IMPERATIVES = frozenset((
    "adjust", "alter", "apply", "capture", "change", "compose", "convert", "create", "depict",
    "design", "display", "edit", "envision", "illustrate", "imagine", "make", "modify", "paint",
    "photograph", "picture", "place", "portray", "position", "present", "recreate", "redesign",
    "reimagine", "remove", "render", "replace", "set", "show", "substitute", "swap", "take",
    "transform", "turn", "visualize",
))
# fmt: on
"""First words of prompts that order an edit instead of describing a picture."""


class DshBench(Benchmark):
    """459 subjects with 12 prompts each, as published.

    Ids: picture ``./images/431.jpg`` is subject and reference ``431``; its prompts, counted from
    0 in the file's order, are cases ``431-p00`` to ``431-p11``.
    """

    class Params(Strict):
        """Where the published files lie."""

        metadata: str = Field(
            json_schema_extra=LOCATION, description="Path of DSH-Bench_image_info.json"
        )
        images: str | None = Field(
            default=None,
            json_schema_extra=LOCATION,
            description="Folder of <n>.jpg; without it no reference is available",
        )

    version: ClassVar[str] = "1"
    params: Params

    @property
    def _file(self) -> Path:
        return self.root / self.params.metadata

    def _image(self, entry: dict[str, Any]) -> Path | None:
        if self.params.images is None:
            return None
        return self.root / self.params.images / PurePosixPath(entry["image"]).name

    def entries(self) -> list[dict[str, Any]]:
        """Read and check the file, once.

        Returns:
            One dict per subject, sorted by number: ``subject_id, image, height, width, subject,
            domain, kind, category, difficulty`` and ``prompts``, a list of ``(scenario, text)``.

        Raises:
            InputError: not the published form; names the entry and the field.
        """
        return self._entries

    @cached_property
    def _entries(self) -> list[dict[str, Any]]:
        published = read_json(self._file)
        if not isinstance(published, dict) or not published:
            raise InputError(
                self._file,
                "is not an object keyed by picture",
                "use DSH-Bench_image_info.json; the newer final_data_*.json have another form",
            )
        entries = [self._entry(key, value) for key, value in published.items()]

        def order(entry: dict[str, Any]) -> tuple[int, str]:
            number = entry["subject_id"]
            return (int(number) if number.isdecimal() else -1, number)

        return sorted(entries, key=order)  # the file's own order is shuffled

    def _entry(self, key: str, value: Any) -> dict[str, Any]:
        where = f"{self._file}: {key}"
        try:
            reference, tiers, prompts = value["ref_image"], value["metadata"], value["prompt"]
            entry = {
                "subject_id": check_id(PurePosixPath(key).stem, where, "picture name"),
                "image": reference["image_path"],
                "height": reference["height"],
                "width": reference["width"],
                "subject": value["subject"],
                "domain": self._label(DOMAINS, tiers["cate1"], f"{where}: cate1"),
                "kind": self._label(KINDS, tiers["cate2"], f"{where}: cate2"),
                "category": tiers["cate3"],
                "difficulty": self._label(
                    DIFFICULTIES,
                    tiers["subject_difficulty_level"],
                    f"{where}: subject_difficulty_level",
                ),
                "prompts": [
                    (
                        self._label(SCENARIOS, p["prompt_scenario"], f"{where}: prompt[{i}]"),
                        check_prompt(p["prompt"], f"{where}: prompt[{i}]"),
                    )
                    for i, p in enumerate(prompts)
                ],
            }
        except KeyError as error:
            raise InputError(where, f"field {error} is missing") from None
        except (TypeError, AttributeError):
            raise InputError(where, "a field does not have the published form") from None
        for name in ("image", "subject", "category"):
            if not isinstance(entry[name], str) or not entry[name].strip():
                raise InputError(where, f"{name} is {entry[name]!r}, not text")
        for name in ("height", "width"):
            if type(entry[name]) is not int or entry[name] < 1:
                raise InputError(where, f"{name} is {entry[name]!r}, not a number of pixels")
        if PurePosixPath(entry["image"]).name != PurePosixPath(key).name:
            raise InputError(where, f"image_path names another picture: {entry['image']}")
        return entry

    @staticmethod
    def _label(names: dict[str, str], label: Any, where: str) -> str:
        if not isinstance(label, str) or label not in names:
            raise InputError(where, f"unknown label {label!r}", suggest(str(label), names))
        return names[label]

    def sources(self) -> list[Path]:
        """Return the metadata file and those pictures that are there."""
        found: list[Path] = []
        if self.params.images is not None:
            images = (self._image(e) for e in self.entries())
            found = sorted(p for p in images if p is not None and p.is_file())
        return [self._file, *found]

    def check(self) -> None:
        """Check the file's form, ids, and that the picture folder holds any of its pictures."""
        from subjectbench.records import unique_ids

        entries = self.entries()
        unique_ids([e["subject_id"] for e in entries], self._file, "picture")
        if self.params.images is not None and len(self.sources()) == 1:
            folder = self.root / self.params.images
            first = self._image(entries[0])
            assert first is not None
            raise InputError(
                folder,
                "no such folder" if not folder.is_dir() else "holds none of the pictures",
                f"expected files such as {first.name}" if folder.is_dir() else near(folder),
            )

    def cases(self) -> pd.DataFrame:
        """Return one row per prompt, by subject number, then in the file's order."""
        from subjectbench.records import table

        self.check()
        rows = [
            {
                "case_id": f"{e['subject_id']}-p{index:02d}",
                "subject_id": e["subject_id"],
                "subject": e["subject"],
                "domain": e["domain"],
                "kind": e["kind"],
                "category": e["category"],
                "difficulty": e["difficulty"],
                "scenario": scenario,
                "paradigm": None,
                "prompt": prompt,
                "reference_id": e["subject_id"],
                "details": json.dumps({"prompt_index": index}),
            }
            for e in self.entries()
            for index, (scenario, prompt) in enumerate(e["prompts"])
        ]
        return table("cases", rows, self._file)

    def references(self) -> Iterator[tuple[str, bytes | None]]:
        """Yield each subject's picture as supplied, None where the folder lacks it."""
        for entry in self.entries():
            path = self._image(entry)
            present = path is not None and path.is_file()
            yield entry["subject_id"], path.read_bytes() if path and present else None

    def reference_files(self) -> dict[str, Path]:
        """Return each subject's picture that is there."""
        found = ((e["subject_id"], self._image(e)) for e in self.entries())
        return {name: path for name, path in found if path and path.is_file()}

    def anomalies(self) -> list[dict[str, str | None]]:
        """List what is odd in the published data, so that a report can show it.

        Returns:
            Dicts ``kind, subject_id, case_id, detail``; ids are None where a kind is about the
            whole. Kinds: ``subject_not_in_prompt`` (hyphens and case ignored),
            ``imperative_edit``, ``grammar`` (the article), ``non_ascii``, ``glued_label``,
            ``mixed_case_label``, ``shared_label`` (one label, several subjects), ``non_square``,
            ``oversize`` (above Pillow's bomb warning), ``small`` (a side below 512),
            ``few_subjects`` (a category of one domain with fewer than 3), and
            ``no_<difficulty>`` (a category of one domain without it).
        """
        found: list[dict[str, str | None]] = []

        def add(
            kind: str, detail: str, subject: str | None = None, case: str | None = None
        ) -> None:
            found.append({"kind": kind, "subject_id": subject, "case_id": case, "detail": detail})

        entries = self.entries()
        groups: dict[tuple[str, str], list[str]] = defaultdict(list)
        labels = Counter(e["subject"] for e in entries)
        for entry in entries:
            number, label = entry["subject_id"], entry["subject"]
            groups[entry["domain"], entry["category"]].append(entry["difficulty"])
            size = f"{entry['width']}x{entry['height']}"
            if entry["width"] != entry["height"]:
                add("non_square", size, number)
            if entry["width"] * entry["height"] > BOMB_PIXELS:
                add("oversize", size, number)
            if min(entry["width"], entry["height"]) < 512:
                add("small", size, number)
            if label in GLUED:
                add("glued_label", label, number)
            if label != label.lower():
                add("mixed_case_label", label, number)
            if labels[label] > 1:
                add("shared_label", f"{label}: {labels[label]} subjects", number)
            for index, (_, prompt) in enumerate(entry["prompts"]):
                self._odd_prompt(add, number, f"{number}-p{index:02d}", label, prompt)
        for (domain, category), levels in sorted(groups.items()):
            name = f"{domain} / {category}: {len(levels)} subjects"
            if len(levels) < 3:
                add("few_subjects", name)
            for level in ("easy", "medium", "hard"):
                if level not in levels:
                    add(f"no_{level}", name)
        return found

    @staticmethod
    def _odd_prompt(add: Any, number: str, case: str, label: str, prompt: str) -> None:
        if plain(label) not in plain(prompt):
            add("subject_not_in_prompt", f"{label}: {prompt}", number, case)
        if prompt.split()[0].rstrip(",.:").casefold() in IMPERATIVES:
            add("imperative_edit", prompt, number, case)
        strange = sorted({c for c in prompt if not c.isascii()})
        if strange:
            add("non_ascii", "".join(strange), number, case)
        # "a UFO", "a one-man band", "an LED" are right: only the clear cases are listed.
        wrong = re.search(r"\b([Aa] (?=[ai])|[Aa]n (?=[bcdfgjklmnpqrstvwz]))\w+", prompt)
        if wrong:
            add("grammar", wrong.group(), number, case)


PLUGIN = DshBench
