"""UFO-Bench as published: metadata with prompt templates, a tree of references, prepared units.

A case is (category, subtype, paradigm, template, reference): templates are shared by all
references of a subtype (UFO, section 3.1). Reference numbers repeat between folders, so no id is a
file's stem alone. Folders may have the labels as they are (``Rigid object``) or sanitised
(``Rigid_object``): the publishers' own code writes both. Nothing is corrected or skipped:
:meth:`UfoBench.anomalies` lists what is odd.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from subjectbench.benchmarks.base import (
    ID,
    Benchmark,
    check_prompt,
    near,
    read_json,
    read_json_values,
    read_rows,
)
from subjectbench.benchmarks.ufo_files import (
    Decomposition,
    Listed,
    Templates,
    descend,
    read_units,
    safe,
    same,
)
from subjectbench.config import LOCATION, Strict, validate
from subjectbench.errors import InputError, suggest
from subjectbench.units import Unit, merged
from subjectbench.vocabulary import PARADIGMS, TIERS

if TYPE_CHECKING:
    import pandas as pd

CATEGORIES = (
    "Rigid object",
    "Soft object",
    "Human",
    "Animal",
    "Character-Full body",
    "Logo",
    "Scene",
)
"""Section 3.1, as the metadata spells them."""

REFERENCES, CASES = 86, 660
"""As printed in the abstract and section 4.1."""

BY_PARADIGM = {
    "non_editing": 119,
    "local_editing": 211,
    "global_editing": 181,
    "complex_editing": 149,
}
"""Cases per paradigm. Derived, not printed: the only whole numbers that give Table 1's totals."""

PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
PLACEHOLDER = "[CATEGORY]"


def plain_id(*parts: str) -> str:
    """Join parts into an id of at most 64 plain characters, different for different parts.

    Parts that are longer, or that lose anything by being made plain, get a hash of all of them.
    """
    plain = [re.sub(r"[^A-Za-z0-9_.]+", "_", part).strip("_.") for part in parts]
    text = "-".join(plain)
    if plain == list(parts) and ID.fullmatch(text):
        return text
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:10]
    return f"{text[:53].lstrip('-') or 'x'}-{digest}"


# --- the benchmark -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One case: names as published, the picture, and the prompt."""

    category: str
    subtype: str
    edit_type: str
    paradigm: str
    template_idx: int
    template: str
    picture: Path
    subject: str
    prompt: str

    @property
    def uid(self) -> str:
        """The publishers' name of the case, unique within its folder only."""
        return f"{self.picture.stem}_template{self.template_idx}"

    @property
    def _labels(self) -> tuple[str, ...]:
        category, subtype = safe(self.category), safe(self.subtype)
        return (category,) if category == subtype else (category, subtype)

    @property
    def reference_id(self) -> str:
        """E.g. ``Soft_object-Plush-12``; the subtype is left out where it is the category."""
        return plain_id(*self._labels, self.picture.stem)

    @property
    def case_id(self) -> str:
        """E.g. ``Soft_object-Plush-12-local-t0``."""
        paradigm = self.paradigm.removesuffix("_editing")
        return plain_id(*self._labels, self.picture.stem, paradigm, f"t{self.template_idx}")

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What a sample list names it by, whatever the writing of labels."""
        return same(self.category), same(self.subtype), same(self.edit_type), self.uid


class UfoBench(Benchmark):
    """86 references and 660 cases in 7 categories and 4 editing paradigms, as published.

    Ids: reference ``12.png`` of subtype ``Plush`` is subject and reference
    ``Soft_object-Plush-12``; its cases are ``Soft_object-Plush-12-local-t0`` and so on.
    """

    class Params(Strict):
        """Where the published files lie, and how a reference is called in prompts."""

        metadata: str = Field(json_schema_extra=LOCATION, description="Path of metadata*.jsonl")
        references: str = Field(
            json_schema_extra=LOCATION, description="Folder of <category>/<subtype>/<picture>"
        )
        phrases: Literal["per_reference", "as_published"] = Field(
            default="per_reference",
            description="What stands for [CATEGORY]: a phrase per reference (subject_phrases), or "
            "the bare label of the subtype or category, as in the reference ('of Animal')",
        )
        subject_phrases: str | None = Field(
            default=None,
            json_schema_extra=LOCATION,
            description="CSV with category, subtype, reference, phrase: 'Soft object', 'Plush', "
            "'12', 'a plush rabbit'",
        )
        decompositions: str | None = Field(
            default=None, json_schema_extra=LOCATION, description="Folder T_gt"
        )
        questions: str | None = Field(
            default=None, json_schema_extra=LOCATION, description="Folder Question_list"
        )
        categories: list[str] = Field(
            default_factory=list, description="Only these categories; the study is then partial"
        )
        sample_list: str | None = Field(
            default=None,
            json_schema_extra=LOCATION,
            description="JSON list of {category, subtype, edit_type, uid}: only these cases; the "
            "study is then partial",
        )
        fallback_folders: bool = Field(
            default=False,
            description="Take the pictures of a subtype without a folder from "
            "<category>/<category> or <category>, as in the reference",
        )

    version: ClassVar[str] = "1"
    breakdowns = ("paradigm", "category")
    params: Params

    def _path(self, name: str) -> Path:
        return self.root / str(getattr(self.params, name))

    # --- metadata --------------------------------------------------------------------------------

    @cached_property
    def _metadata(self) -> list[tuple[str, dict[str, Any], Templates]]:
        """``(where, as read, checked)`` of every chosen category object."""
        path = self._path("metadata")
        found = []
        for line, value in read_json_values(path):
            where = f"{path}: line {line}"
            for block in value if isinstance(value, list) else [value]:
                found.append((where, block, validate(Templates, block, where)))
        if not found:
            raise InputError(path, "is empty", "use the published metadata*.jsonl")
        chosen = self.params.categories
        known = {same(entry.category): entry.category for _, _, entry in found}
        for name in chosen:
            if same(name) not in known:
                raise InputError(
                    f"{path}: categories", f"no category '{name}'", suggest(name, known.values())
                )
        wanted = {same(name) for name in chosen} or set(known)
        return [item for item in found if same(item[2].category) in wanted]

    def _groups(self) -> Iterator[tuple[str, str, str, str, list[str]]]:
        """``(category, subtype, edit type, paradigm, templates)``, each once."""
        seen: dict[tuple[str, str, str], str] = {}
        for where, _, entry in self._metadata:
            for subtype, (edit_type, templates) in product(
                entry.subtypes or [entry.category], entry.templates.items()
            ):
                paradigm = same(edit_type)
                if paradigm not in PARADIGMS:
                    raise InputError(
                        where, f"unknown edit type '{edit_type}'", suggest(paradigm, PARADIGMS)
                    )
                key = (same(entry.category), same(subtype), paradigm)
                if key in seen:
                    fault = f"{entry.category} / {subtype} / {edit_type} is here and in"
                    raise InputError(where, f"{fault} {seen[key]}", "keep one, or join both")
                seen[key] = where
                for index, template in enumerate(templates):
                    check_prompt(template, f"{where}: {edit_type}[{index}]")
                yield entry.category, subtype, edit_type, paradigm, templates

    @cached_property
    def _all(self) -> list[Case]:
        """Every case of the chosen categories, sample list or not."""
        from subjectbench.records import unique_ids

        cases: list[Case] = []
        for category, subtype, edit_type, paradigm, templates in self._groups():
            pictures = self._pictures(category, subtype)
            for index, template in enumerate(templates):
                for picture in pictures:
                    phrase = self._phrase(category, subtype, picture)
                    noun = re.sub(r"^(an?|the)\s+", "", phrase, flags=re.IGNORECASE)
                    prompt = template.replace(PLACEHOLDER, phrase)
                    labels = (category, subtype, edit_type, paradigm)
                    cases.append(Case(*labels, index, template, picture, noun, prompt))
        if not cases:
            raise InputError(self._path("metadata"), "holds no template", "see 'templates'")
        where = self._path("references")
        unique_ids(list(dict.fromkeys(c.reference_id for c in cases)), where, "reference")
        unique_ids([c.case_id for c in cases], where, "case")
        return cases

    @cached_property
    def _chosen(self) -> list[Case]:
        """The cases of the study, in the order of the metadata."""
        if self.params.sample_list is None:
            return self._all
        path = self._path("sample_list")
        entries = read_json(path)
        if not isinstance(entries, list) or not entries:
            raise InputError(path, "is not a list of cases", "see the parameter's description")
        known = {case.key: case for case in self._all}
        wanted: set[tuple[str, str, str, str]] = set()
        for number, entry in enumerate(entries):
            here = f"{path}: [{number}]"
            named = validate(Listed, entry, here)
            subtype = named.subtype or named.category
            key = (same(named.category), same(subtype), same(named.edit_type), named.uid)
            if key not in known:
                ids = [c.uid for c in self._all if c.key[:3] == key[:3]]
                fault = f"no case {named.category} / {subtype} / {named.edit_type} / {named.uid}"
                raise InputError(here, fault, suggest(named.uid, ids))
            if key in wanted:
                raise InputError(here, f"lists {named.uid} of {subtype} again", "keep one")
            wanted.add(key)
        return [case for case in self._all if case.key in wanted]

    # --- pictures and phrases --------------------------------------------------------------------

    def _pictures(self, category: str, subtype: str) -> list[Path]:
        """References of a subtype, sorted by name; every stem once."""
        root = self._path("references")
        tried: list[tuple[str, ...]] = [(category, subtype)]
        if self.params.fallback_folders:
            tried += [(category, category), (category,)]
        for labels in tried:
            folder = descend(root, *labels)
            files = sorted(folder.iterdir()) if folder else []
            pictures = [f for f in files if _is_picture(f)]
            stems = [f.stem for f in pictures]
            for index, stem in enumerate(stems):
                if stem in stems[:index]:
                    other = pictures[stems.index(stem)].name
                    fault = f"'{other}' and '{pictures[index].name}' are both '{stem}'"
                    raise InputError(str(folder), fault, "keep one, or rename one")
            if pictures:
                return pictures
        wanted = root / category / subtype
        folder = descend(root, category, subtype)
        raise InputError(
            folder or wanted,
            "holds no picture" if folder else "no such folder",
            f"put {', '.join(PICTURES)} files there"
            + ("" if folder else f" ({near(wanted)})")
            + ("" if self.params.fallback_folders else "; or see fallback_folders"),
        )

    @cached_property
    def _phrases(self) -> dict[tuple[str, str, str], str] | None:
        """Phrase by category, subtype and stem; None: labels stand as published."""
        given = self.params.subject_phrases
        if self.params.phrases == "as_published":
            if given is not None:
                raise InputError(
                    "subject_phrases", "given, but phrases is as_published", "leave one of them out"
                )
            return None
        if given is None:
            raise InputError(
                "subject_phrases",
                "no phrases for the references",
                "name a CSV with category, subtype, reference, phrase; or set "
                "'phrases: as_published' for bare labels such as 'of Animal'",
            )
        path = self._path("subject_phrases")
        _, rows = read_rows(path, ",", ("category", "subtype", "reference", "phrase"))
        phrases: dict[tuple[str, str, str], str] = {}
        for line, row in rows:
            where = f"{path}: line {line}"
            subtype = row["subtype"] or row["category"]
            key = (same(row["category"]), same(subtype), row["reference"])
            if key in phrases:
                raise InputError(where, f"'{row['reference']}' of {subtype} again", "keep one")
            phrases[key] = check_prompt(row["phrase"], where)
        return phrases

    def _phrase(self, category: str, subtype: str, picture: Path) -> str:
        """What stands for ``[CATEGORY]``."""
        phrases = self._phrases
        if phrases is None:
            return subtype
        key = (same(category), same(subtype), picture.stem)
        if key not in phrases:
            raise InputError(
                self._path("subject_phrases"),
                f"no phrase for {category} / {subtype} / {picture.stem}",
                "add a row; references are written as their file's stem: 00078 is not 78",
            )
        return phrases[key]

    # --- the contract ----------------------------------------------------------------------------

    def sources(self) -> list[Path]:
        """Return the metadata, lists and pictures that are used."""
        named = ("metadata", "subject_phrases", "sample_list")
        files = {self._path(n) for n in named if getattr(self.params, n) is not None}
        return sorted(files | {case.picture for case in self._chosen})

    def unit_sources(self) -> list[Path]:
        """Return the decompositions and questions of the cases."""
        files = (file for case in self._chosen for file in self._unit_files(case))
        return sorted(file for file in files if file.is_file())

    def check(self) -> None:
        """Check metadata, folders, ids, phrases, the sample list and all unit files."""
        if self._chosen and self.has_units:
            self.units()

    def cases(self) -> pd.DataFrame:
        """Return one row per case, in the order of the metadata, then by reference."""
        from subjectbench.records import CASES as SCHEMA
        from subjectbench.records import table

        self.check()
        partial = bool(self.params.categories) or self.params.sample_list is not None
        rows = [
            {
                **dict.fromkeys(SCHEMA.columns),
                "case_id": case.case_id,
                "subject_id": case.reference_id,
                "subject": case.subject,
                "category": _official(case.category) or case.category,
                "paradigm": case.paradigm,
                "prompt": case.prompt,
                "reference_id": case.reference_id,
                "details": json.dumps(
                    {
                        "category": case.category,
                        "subtype": case.subtype,
                        "edit_type": case.edit_type,
                        "tier": TIERS[case.paradigm],
                        "template_idx": case.template_idx,
                        "reference": case.picture.stem,
                        **({"partial": True} if partial else {}),
                    }
                ),
            }
            for case in self._chosen
        ]
        return table("cases", rows, self._path("metadata"))

    def references(self) -> Iterator[tuple[str, bytes | None]]:
        """Yield each reference's file as supplied."""
        for name, picture in {c.reference_id: c.picture for c in self._chosen}.items():
            yield name, picture.read_bytes()

    # --- units -----------------------------------------------------------------------------------

    def _unit_files(self, case: Case) -> tuple[Path, ...]:
        """Where the decomposition and the questions of a case are, or should be."""
        files = []
        for name in ("decompositions", "questions"):
            if getattr(self.params, name) is not None:
                labels = (case.category, case.subtype, case.edit_type)
                root = self._path(name)
                folder = descend(root, *labels) or root.joinpath(*labels)
                files.append(folder / f"{case.uid}.json")
        return tuple(files)

    @cached_property
    def _prepared(self) -> list[tuple[Case, Decomposition, list[Unit]]]:
        """Decomposition and units, not yet merged, of every case that has both files."""
        out = []
        for case in self._chosen:
            files = self._unit_files(case)
            there = [f for f in files if f.is_file()]
            if len(there) == 1:
                (missing,) = set(files) - set(there)
                raise InputError(
                    missing, f"is missing, though {there[0]} is there", "supply or remove both"
                )
            if there:
                out.append((case, *read_units(case.uid, case.category, *there)))
        return out

    @property
    def has_units(self) -> bool:
        """Whether the study names the folders of prepared units."""
        return self.params.decompositions is not None or self.params.questions is not None

    def units(self) -> dict[str, list[Unit]]:
        """Return prepared units by case id; cases without any file are left out, and listed.

        A unit is what both files of a case say of the same level and name; twins are merged. The
        face tool is for people only, whatever the files say of others' faces.
        """
        for name in ("decompositions", "questions"):
            if getattr(self.params, name) is None:
                raise InputError(name, "is required", "T_gt and Question_list go together")
            if not self._path(name).is_dir():
                raise InputError(self._path(name), "no such folder", near(self._path(name)))
        if not self._prepared:
            first, _ = self._unit_files(self._chosen[0])
            raise InputError(first, "no file of any case", near(first))
        return {case.case_id: merged(units) for case, _, units in self._prepared}

    # --- what is odd -----------------------------------------------------------------------------

    def anomalies(self) -> list[dict[str, str | None]]:
        """List what is odd in the data, so that a report can show it.

        Returns:
            Dicts ``kind, subject_id, case_id, detail``; ids are None where a kind is about the
            whole. Kinds: ``partial`` (a choice of cases), ``count`` (not as the paper's),
            ``unknown_category``, ``unknown_field`` (of the metadata), ``no_placeholder``,
            ``article_before_placeholder``, ``fallback_folder``, ``unused_phrase``,
            ``unused_file`` (that no case uses: other file types, other folders), ``no_units``,
            ``duplicate_unit`` and ``prompt_differs`` (the units were written for another prompt).
        """
        found: list[dict[str, str | None]] = []

        def add(kind: str, detail: str, case: Case | None = None, subject: bool = False) -> None:
            ids = {
                "subject_id": case.reference_id if case and subject else None,
                "case_id": case.case_id if case and not subject else None,
            }
            found.append({"kind": kind, **ids, "detail": detail})

        cases = self._chosen
        if self.params.categories:
            add("partial", f"categories: {', '.join(self.params.categories)}")
        if self.params.sample_list is not None:
            add("partial", f"{len(cases)} of {len(self._all)} cases in the sample list")
        if not any(a["kind"] == "partial" for a in found):
            self._counts(add)
        for where, raw, entry in self._metadata:
            if _official(entry.category) is None:
                add("unknown_category", f"{where}: {entry.category}")
            for field in sorted(set(raw) - set(Templates.model_fields)):
                add("unknown_field", f"{where}: {field}")
            for edit_type, templates in entry.templates.items():
                for index, template in enumerate(templates):
                    told = f"{where}: {edit_type}[{index}]: {template}"
                    if PLACEHOLDER not in template:
                        add("no_placeholder", told)
                    if re.search(r"\b(an?|the)\s+\[CATEGORY\]", template, re.IGNORECASE):
                        add("article_before_placeholder", told)
        root = self._path("references")
        for case in {c.reference_id: c for c in cases}.values():
            if case.picture.parent != descend(root, case.category, case.subtype):
                add("fallback_folder", str(case.picture.relative_to(root)), case, subject=True)
        self._unused(add)
        self._odd_units(add)
        return found

    def _counts(self, add: Any) -> None:
        cases = self._chosen
        by_paradigm = Counter(c.paradigm for c in cases)
        counts = {
            "references": (len({c.reference_id for c in cases}), REFERENCES),
            "categories": (len({same(c.category) for c in cases}), len(CATEGORIES)),
            "cases": (len(cases), CASES),
            **{f"{p} cases": (by_paradigm[p], expected) for p, expected in BY_PARADIGM.items()},
        }
        for what, (here, expected) in counts.items():
            if here != expected:
                add("count", f"{here} {what}, UFO-Bench has {expected}")

    def _unused(self, add: Any) -> None:
        keys = {(same(c.category), same(c.subtype), c.picture.stem) for c in self._all}
        for key in sorted(set(self._phrases or {}) - keys):
            add("unused_phrase", " / ".join(key))
        if self.params.categories:
            return  # what belongs to the other categories cannot be told from what is unused
        used = {path for case in self._all for path in (case.picture, *self._unit_files(case))}
        for name in ("references", "decompositions", "questions"):
            if getattr(self.params, name) is not None:
                for file in sorted(self._path(name).rglob("*")):
                    if file.is_file() and file not in used:
                        add("unused_file", str(file))

    def _odd_units(self, add: Any) -> None:
        if not self.has_units:
            return
        units = self.units()
        for case in self._chosen:
            if case.case_id not in units:
                add("no_units", case.uid, case)
        for case, decomposition, written in self._prepared:
            twins = [k for k, n in Counter(u.unit_id for u in written).items() if n > 1]
            for unit_id in twins:
                add("duplicate_unit", unit_id, case)
            published = case.template.replace(PLACEHOLDER, case.subtype)
            if decomposition.prompt and decomposition.prompt != published:
                add("prompt_differs", decomposition.prompt, case)


def _is_picture(file: Path) -> bool:
    hidden = file.name.startswith(".")
    return file.is_file() and file.suffix.lower() in PICTURES and not hidden


def _official(category: str) -> str | None:
    """The paper's category of a label, or None. Table and text write two of them differently."""
    names = {same(name): name for name in CATEGORIES}
    names["full_body_character"] = "Character-Full body"
    return names.get(same(category))


PLUGIN = UfoBench
