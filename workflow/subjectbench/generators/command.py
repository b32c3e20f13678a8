"""Any program in an environment of its own: jobs go to it and pictures come back by id.

``docs/wrappers.md`` states what is asked of such a program. It is started once, loads its model
once, and is asked for one picture after the other, so that a picture that ends it is known.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
import tempfile
import weakref
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from subjectbench import checkpoint, environments, progress
from subjectbench.cards import ROOT, GeneratorCard
from subjectbench.config import LOCATION, Strict
from subjectbench.errors import InputError
from subjectbench.generators.base import Check, Generator, Job, Outcome, References, Template
from subjectbench.generators.process import Ended, Program
from subjectbench.hashing import canonical, digest, sha256
from subjectbench.images import check_names, encode_png, read_picture
from subjectbench.vocabulary import Status

HELPER = "workflow/wrappers/worker.py"
START = """
import importlib.util, runpy, sys
spec = importlib.util.spec_from_file_location("worker", sys.argv[1])
sys.modules["worker"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["worker"])
sys.argv[:] = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a wrapper with its helper, and without its folder on the path: a wrapper ``uno.py`` there
would hide the package ``uno`` of the repository that it wraps."""

ANSWERS = (Status.OK, Status.REFUSED, Status.FILTERED, Status.NOT_APPLICABLE, Status.FAILED)
"""Statuses that a program may answer with; it says why for all but the first."""

UNUSABLE = 2
"""Exit status of a program that cannot work at all: the run stops, and it is not tried again."""


class Command(Generator):
    """Asks a program, restarts it when it ends or hangs, and believes nothing it says unchecked."""

    uses_torch = True

    class Params(Strict):
        """Parameters of a card. Those that say where things lie or how long to wait are no part of
        the identity: what the files contain is.
        """

        wrapper: str = Field(
            json_schema_extra=LOCATION,
            description="Program, in the checkout or anywhere; .py runs in the environment",
        )
        environment: str | None = Field(
            default=None,
            json_schema_extra=LOCATION,
            description="Requirements file (.txt) or conda file (.yaml); a .py wrapper needs one",
        )
        python: str = Field(
            default="3.11", pattern=r"^3\.\d+$", description="Version of the environment's Python"
        )
        interpreter: str | None = Field(
            default=None,
            json_schema_extra=LOCATION,
            description="A Python that has the environment's packages; none: one is made",
        )
        repository: str | None = Field(default=None, description="URL that git clones")
        commit: str | None = Field(
            default=None, pattern=r"^[0-9a-f]{7,40}$", description="Of the repository"
        )
        checkout: str | None = Field(
            default=None,
            json_schema_extra=LOCATION,
            description="A clone that is there already; none: one is made",
        )
        files: dict[str, str] = Field(
            default_factory=dict,
            json_schema_extra=LOCATION,
            description="Further files or folders by name, e.g. weights that no hub has",
        )
        wanted: list[str] = Field(
            default_factory=list, description="Names that 'files' must have before anything runs"
        )
        template: Template = Field(
            default="{prompt}", description="How {prompt} and {subject} are woven into the text"
        )
        width: int | None = Field(
            default=None, ge=1, description="Pixels that a picture must have; none: any"
        )
        height: int | None = Field(default=None, ge=1)
        settings: dict[str, Any] = Field(
            default_factory=dict, description="Handed to the program as they are"
        )
        start_timeout: float = Field(
            default=3600.0,
            gt=0,
            json_schema_extra=LOCATION,
            description="Seconds to load the model",
        )
        picture_timeout: float = Field(
            default=900.0, gt=0, json_schema_extra=LOCATION, description="Seconds for one picture"
        )
        crashes: int = Field(
            default=3,
            ge=1,
            json_schema_extra=LOCATION,
            description="Pictures in a row that may end the program before the run stops",
        )

        @model_validator(mode="after")
        def _belong_together(self) -> Command.Params:
            if (self.repository is None) != (self.commit is None):
                raise ValueError("repository and commit need each other")
            if self.checkout and not self.repository:
                raise ValueError("checkout is a clone of a repository: name it and its commit")
            if self.wrapper.endswith(".py") and not self.environment:
                raise ValueError(
                    "a .py wrapper needs an environment; of an interpreter that you have: "
                    "INTERPRETER -m pip freeze > envs/NAME.txt"
                )
            canonical(self.settings)
            return self

    def __init__(
        self, params: Any, card: GeneratorCard, references: References, device: str
    ) -> None:
        super().__init__(params, card, references, device)
        self.restarts = 0
        self._program: Program | None = None
        self._crashed = 0
        self._answered: set[str] = set()
        self.folder = Path(tempfile.mkdtemp(prefix="subjectbench-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    @classmethod
    def sources(cls, params: Any, root: Path) -> Mapping[str, Path]:
        """Wrapper, its helper, environment file, and given files, whose names do not move."""
        found = {"wrapper": root / params.wrapper, "worker.py": root / HELPER}
        if params.environment:
            found["environment"] = root / params.environment
        for name, place in params.files.items():
            path = root / place
            inside = [p for p in path.rglob("*") if p.is_file()] if path.is_dir() else [path]
            for file in inside:
                found[f"files/{name}/{file.relative_to(path).as_posix()}"] = file
        return found

    @classmethod
    def check(cls, params: Any, card: GeneratorCard, root: Path) -> None:
        """Look for everything that is named.

        Raises:
            InputError: a file is not there, or a clone is not at its commit or has changes.
        """
        if missing := sorted(set(params.wanted) - set(params.files)):
            raise InputError(
                f"{card.title}: params.files",
                f"must say where {' and '.join(missing)} is",
                f"set it in the study: files: {{{missing[0]}: PATH}}; the card says whence",
            )
        named = {"wrapper": params.wrapper, "environment": params.environment}
        named |= {"interpreter": params.interpreter}
        named |= {f"files.{name}": place for name, place in params.files.items()}
        for name, place in named.items():
            if place and not (root / place).exists():
                raise InputError(f"{card.title}: {name}: {place}", "is not there", "mend the path")
        if not params.wrapper.endswith(".py") and not os.access(root / params.wrapper, os.X_OK):
            raise InputError(root / params.wrapper, "cannot be executed", "chmod +x")
        if params.checkout:
            environments.check_repository(root / params.checkout, params.commit)

    @classmethod
    def checks(cls, params: Any, card: GeneratorCard, root: Path) -> list[Check]:
        """Whether the environment and the repository are there, or can be made."""
        out = []
        if params.environment:
            file = root / params.environment
            try:
                if params.interpreter:
                    environments.check_interpreter(root / params.interpreter, file, params.python)
                    out.append(Check("environment", True, params.interpreter))
                elif environments.is_there(file, params.python):
                    made = environments.folder(file, params.python)
                    out.append(Check("environment", True, str(made)))
                else:
                    by = environments.maker(file, params.python)
                    out.append(Check("environment", True, f"made on first use, by {by}"))
            except InputError as error:
                found = f"{error.where} {error.fault}"
                out.append(Check("environment", False, found, error.mend))
        if params.repository:
            place = params.checkout or f"{params.repository} at {params.commit}, cloned when used"
            git = shutil.which("git") is not None
            out.append(Check("program", git, place if git else "git is missing", "install git"))
        return out

    def generate(self, jobs: list[Job]) -> list[Outcome]:
        """Return one outcome per job, as the program gives them.

        A picture that ends or hangs the program twice becomes ``failed``.

        Raises:
            InputError: the environment cannot be made; the program cannot start, breaks the
                contract, or is ended by one picture after the other.
        """
        title = self.card.title
        return [self._one(job) for job in progress.bar(jobs, len(jobs), title)]

    def _one(self, job: Job) -> Outcome:
        reference = encode_png(job.reference)
        line: dict[str, Any] = {
            "sample_id": job.sample_id,
            "prompt": job.text(self.params.template),
            "subject": job.subject,
            "reference": f"{sha256(reference)[:16]}.png",
            "seed": job.seed,
            "width": self.params.width,
            "height": self.params.height,
        }
        # By content: a job that starts again finds what the killed one has made.
        name = digest(line, 24)
        saved = self.kept.load(name) if self.kept is not None else None
        if saved is None:
            line["file"] = f"{name}.png"
            (self.folder / str(line["reference"])).write_bytes(reference)
            answer = self._ask(line)
            if answer is None:
                return Outcome(None, Status.FAILED, {"reason": "ended the program, twice"})
            saved = self._checked(line, answer)
            if self.kept is not None:
                self.kept.save(name, saved)
        return self._outcome(job, saved)

    def _ask(self, line: dict[str, Any]) -> dict[str, Any] | None:
        """Return the program's answer, or None if it ended twice instead."""
        for _ in range(2):
            program = self._running()
            try:
                answer = program.ask(line, self.params.picture_timeout)
            except Ended as ended:
                self._program = None
                self.restarts += 1
                _say(f"{self.card.title}: {ended} on {line['sample_id']}; restart {self.restarts}")
                if ended.code == UNUSABLE:
                    raise self._broken("says that it cannot work", ended.last) from ended
                continue
            except ValueError as error:
                raise self._broken(str(error), program.last) from error
            self._crashed = 0
            return answer
        self._crashed += 1
        if self._crashed >= self.params.crashes:
            raise self._broken(f"ended on {self._crashed} pictures in a row", program.last)
        return None

    def _running(self) -> Program:
        """Return the program, started and ready."""
        if self._program is None:
            weights = {"main": self.card.weights} if self.card.weights else {}
            setup = {
                "protocol": 1,
                "folder": str(self.folder),
                "device": self.device.partition(":")[0],
                "settings": self.params.settings,
                "weights": {
                    role: str(checkpoint.folder(given))
                    for role, given in (weights | self.card.parts).items()
                },
                "files": {n: str((ROOT / p).resolve()) for n, p in self.params.files.items()},
            }
            program = Program(*self._prepared)
            try:
                ready = program.ask(setup, self.params.start_timeout)
            except (Ended, ValueError) as error:
                raise self._broken(f"did not start: {error}", program.last) from error
            if ready != {"ready": True}:
                raise self._broken(f'answered {ready} where {{"ready": true}} was due', "")
            self._program = program
        return self._program

    @cached_property
    def _prepared(self) -> tuple[list[str], dict[str, str], Path]:
        """Command, environment variables and folder of the program; all it needs is made."""
        params, wrapper = self.params, (ROOT / self.params.wrapper).resolve()
        hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
        env = {n: v for n, v in os.environ.items() if n not in hidden}
        env |= {"PYTHONUNBUFFERED": "1", "PYTHONNOUSERSITE": "1", "PYTHONHASHSEED": "0"}
        visible = _visible(self.device, env.get("CUDA_VISIBLE_DEVICES"))
        if visible is not None:
            env["CUDA_VISIBLE_DEVICES"] = visible
        command, folder = [str(wrapper)], self.folder
        if params.environment:
            file = ROOT / params.environment
            if params.interpreter:
                # Not resolve(): the link is how Python finds its environment.
                python = (ROOT / params.interpreter).absolute()
                environments.check_interpreter(python, file, params.python)
            else:
                python = environments.interpreter(file, params.python, _say)
            env["PATH"] = f"{python.parent}{os.pathsep}{env.get('PATH', '')}"
            if wrapper.suffix == ".py":
                command = [str(python), "-c", START, str(ROOT / HELPER), *command]
        if params.repository:
            given = (ROOT / params.checkout).resolve() if params.checkout else None
            folder = environments.repository(params.repository, params.commit, given, _say)
            env["PYTHONPATH"] = str(folder)
        return command, env, folder

    def _checked(self, line: dict[str, Any], answer: dict[str, Any]) -> bytes:
        """Return what an answer amounts to: a line of JSON, then the picture's bytes if any.

        Raises:
            InputError: it breaks the contract.
        """
        asked, answered = line["sample_id"], answer.get("sample_id")
        if answered != asked:
            again = "again " if answered in self._answered else ""
            raise self._broken(f"answered {again}for {answered!r} when {asked!r} was asked", "")
        self._answered.add(asked)
        status, details = answer.get("status"), answer.get("details", {})
        unknown = sorted(set(answer) - {"sample_id", "status", "file", "reason", "details"})
        if unknown or not isinstance(details, dict):
            raise self._broken(f"{asked}: answer has {unknown or 'details that are no object'}", "")
        if status not in [s.value for s in ANSWERS]:
            known = ", ".join(ANSWERS)
            raise self._broken(f"{asked}: answered status {status!r}; known: {known}", "")
        if status != Status.OK:
            if not isinstance(answer.get("reason"), str) or not answer["reason"]:
                raise self._broken(f"{asked}: answered {status} without a reason", "")
            details = {**details, "reason": answer["reason"]}
        head = json.dumps({"status": status, "details": details}, sort_keys=True)
        picture = self._taken(asked, answer.get("file", line["file"])) if status == "ok" else None
        return head.encode() + b"\n" + (picture or b"")

    def _taken(self, asked: str, name: Any) -> bytes | None:
        """Bytes of the picture that an answer names, which is removed; None: there is none.

        Raises:
            InputError: it is no plain file inside the folder.
        """
        if not isinstance(name, str):
            raise self._broken(f"{asked}: answered file {name!r}", "")
        try:
            check_names([name], f"{self.card.title}: {asked}: file")
        except InputError as error:
            raise self._broken(f"{asked}: {error.fault}", "") from error
        path = self.folder / name
        if not path.parent.resolve().is_relative_to(self.folder.resolve()):
            raise self._broken(f"{asked}: {name} lies outside the folder", "")
        try:
            kind = path.lstat().st_mode
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(kind):
            raise self._broken(f"{asked}: {name} is no plain file", "")
        data = path.read_bytes()
        path.unlink()
        return data

    def _outcome(self, job: Job, saved: bytes) -> Outcome:
        head, _, data = saved.partition(b"\n")
        said = json.loads(head)
        status, details = Status(said["status"]), said["details"]
        if status is not Status.OK:
            return Outcome(None, status, details)
        if not data:
            reason = "the program said ok but wrote no picture"
            return Outcome(None, Status.MISSING, {**details, "reason": reason})
        picture = read_picture(data, name=f"{job.sample_id}.png")
        details = {**details, **picture.details}
        if picture.image is None:
            return Outcome(None, picture.status, details)
        wide, high = picture.image.size
        if (self.params.width or wide, self.params.height or high) != (wide, high):
            wanted = f"{self.params.width or 'any'} x {self.params.height or 'any'}"
            reason = f"the picture is {wide} x {high}, asked for {wanted}"
            return Outcome(None, Status.FAILED, {**details, "reason": reason})
        return Outcome(picture.image, details=details)

    def _broken(self, fault: str, last: str) -> InputError:
        self._program = None
        shown = "".join(f"\n    {text}" for text in last.splitlines())
        return InputError(
            f"{self.card.title}: {self.params.wrapper}",
            fault + (f"; its last lines:{shown}" if last else ""),
            "mend the wrapper (docs/wrappers.md has the contract); what it made so far is kept",
        )


def _visible(device: str, visible: str | None) -> str | None:
    """CUDA_VISIBLE_DEVICES for a program on a device: none, what we see, or one of those."""
    kind, _, number = device.partition(":")
    if kind != "cuda":
        return ""
    if number:
        return visible.split(",")[int(number)].strip() if visible else number
    return visible


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


PLUGIN = Command
