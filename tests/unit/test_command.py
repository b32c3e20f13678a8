"""External programs: the contract, fault by fault, with real processes, clones and environments."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from subjectbench import cards, environments
from subjectbench.cards import ROOT, GeneratorCard
from subjectbench.config import Use, load_study, validate
from subjectbench.errors import InputError
from subjectbench.generators.base import Job, Outcome
from subjectbench.generators.command import PLUGIN, Command
from subjectbench.generators.process import Program
from subjectbench.plan import make_plan

ODD = ROOT / "tests" / "programs" / "odd.py"
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
WRAPPERS = sorted((ROOT / "workflow" / "wrappers").glob("*.py"))
CARDS = [n for n in cards.names("generator") if cards.load("generator", n).plugin == "command"]


class Kept(dict[str, bytes]):
    """What a killed job leaves, in memory."""

    load = dict.get

    def save(self, name: str, data: bytes) -> None:
        self[name] = data


def job(name: str, seed: int = 0) -> Job:
    picture = Image.effect_noise((40, 30), 60).convert("RGB")
    return Job(f"{name}-s0", "mug", "mug", "a mug", picture, seed, {})


JOBS = [job(n) for n in "abc"]


@pytest.fixture
def here(tmp_path: Path) -> dict[str, Any]:
    """Parameters by which the running Python is the program's: its environment is as pinned."""
    pinned = tmp_path / "here.txt"
    pinned.write_text(f"# as it is\npillow=={version('pillow')}\n")
    return {
        "wrapper": str(ODD),
        "environment": str(pinned),
        "python": PYTHON,
        "interpreter": sys.executable,
        "picture_timeout": 20.0,
        "start_timeout": 20.0,
    }


Build = Callable[..., Command]


@pytest.fixture
def build(here: dict[str, Any]) -> Build:
    def make(how: dict[str, str] | str = "ok", device: str = "cpu", **changed: Any) -> Command:
        how = {"*": how} if isinstance(how, str) else how
        settings = {"how": how, **changed.pop("settings", {})}
        params = validate(PLUGIN.Params, {**here, "settings": settings, **changed}, "test")
        card = GeneratorCard(title="Odd", plugin="command", about="A test.")
        PLUGIN.check(params, card, ROOT)
        return PLUGIN(params, card, None, device)  # type: ignore[arg-type]

    return make


def statuses(outcomes: list[Outcome]) -> list[str]:
    return [o.status.value for o in outcomes]


def test_pictures_come_back_by_id(build: Build, tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    program = build(settings={"asked": str(asked)}, template="{prompt}, {subject}")
    outcomes = program.generate(JOBS)
    assert statuses(outcomes) == ["ok"] * 3
    assert [o.image.tobytes() for o in outcomes if o.image] == [j.reference.tobytes() for j in JOBS]
    first = ast.literal_eval(asked.read_text().splitlines()[0].replace("null", "None"))
    assert first["prompt"] == "a mug, mug" and first["seed"] == 0 and first["width"] is None
    assert not list(program.folder.glob(f"{first['file']}")), "pictures that were read stay there"


def test_the_documented_lines_are_the_real_ones(build: Build, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "wrappers.md").read_text("utf-8")
    blocks = re.findall(r"```json\n(.*?)```", text, re.S)
    setup, ready, asked, answers = ([json.loads(t) for t in b.splitlines()] for b in blocks)
    lines = tmp_path / "asked"
    program = build("seen", settings={"asked": str(lines)})
    seen: list[dict[str, Any]] = []
    real = Program.ask

    def ask(self: Program, line: dict[str, Any], timeout: float) -> dict[str, Any]:
        seen.append({"in": line, "out": real(self, line, timeout)})
        return dict(seen[-1]["out"])

    Program.ask = ask  # type: ignore[method-assign, assignment]
    try:
        program.generate(JOBS[:1])
    finally:
        Program.ask = real  # type: ignore[method-assign]
    assert set(seen[0]["in"]) == set(setup[0]) and seen[0]["out"] == ready[0]
    assert set(seen[1]["in"]) == set(asked[0]) and set(seen[1]["out"]) == set(answers[0])
    for number, answer in enumerate(answers):  # each is an answer that is taken
        program._answered.clear()
        (program.folder / asked[0]["file"]).write_bytes(b"")
        head = program._checked(asked[0], answer).partition(b"\n")[0]
        assert json.loads(head)["status"] == answers[number]["status"]
    for name in ("worker.py", *(f"`{n}`" for n in CARDS if n != "example_command")):
        assert name in text
    for default in ("start_timeout", "picture_timeout", "crashes"):
        value = PLUGIN.Params.model_fields[default].default
        assert re.search(rf"`{default}` [^|]*?\({value:g}( s)?\)", text), default


@pytest.mark.parametrize(
    ("how", "status", "reason"),
    [
        ("refused", "refused", "a celebrity"),
        ("filtered", "filtered", "safety checker"),
        ("missing", "missing", "wrote no picture"),
        ("empty", "missing", "wrote no picture"),
        ("text", "unreadable", "no known picture format"),
        ("truncated", "truncated", "PNG"),
    ],
)
def test_a_picture_that_is_none_is_a_row(build: Build, how: str, status: str, reason: str) -> None:
    """The pictures beside it are not touched."""
    outcomes = build({"b-s0": how}).generate(JOBS)
    assert statuses(outcomes) == ["ok", status, "ok"]
    assert reason in outcomes[1].details["reason"] and outcomes[1].image is None


def test_a_wrong_size_is_a_failure_and_no_picture(build: Build) -> None:
    outcomes = build(width=64, height=30).generate(JOBS[:1])
    assert statuses(outcomes) == ["failed"]
    assert outcomes[0].details["reason"] == "the picture is 40 x 30, asked for 64 x 30"
    assert statuses(build(width=40).generate(JOBS[:1])) == ["ok"]


@pytest.mark.parametrize(
    ("how", "fault"),
    [
        ("unknown", "answered for 'somebody-else' when 'a-s0' was asked"),
        ("twice", "answered again for 'a-s0' when 'b-s0' was asked"),
        ("outside", "has an empty, '.' or '..' part"),
        ("absolute", "is absolute"),
        ("no_name", "answered file 3"),
        ("symlink", "is no plain file"),
        ("dangling", "is no plain file"),
        ("fifo", "is no plain file"),
        ("symlinked_folder", "lies outside the folder"),
        ("odd_status", "answered status 'fine'"),
        ("no_reason", "answered refused without a reason"),
        ("extra", "answer has \\['seconds'\\]"),
        ("no_details", "details that are no object"),
        ("no_json", "answered no JSON"),
        ("unusable", "says that it cannot work; its last lines:\n    no weights for me"),
    ],
)
def test_a_broken_contract_stops_the_run(build: Build, how: str, fault: str) -> None:
    with pytest.raises(InputError, match=fault) as error:
        build({"a-s0": how}).generate(JOBS)
    assert str(ODD) in error.value.where and "docs/wrappers.md" in error.value.mend


def test_what_a_program_prints_is_no_answer(
    build: Build, capfd: pytest.CaptureFixture[str]
) -> None:
    assert statuses(build("noise").generate(JOBS[:1])) == ["ok"]
    assert "Loading pipeline" in capfd.readouterr().err


def test_details_are_kept(build: Build) -> None:
    (outcome,) = build("details").generate(JOBS[:1])
    assert outcome.details["subject_in_prompt"] is True and outcome.details["width"] == 40


def test_a_crash_is_tried_again(build: Build) -> None:
    program = build({"b-s0": "crash_once"})
    assert statuses(program.generate(JOBS)) == ["ok"] * 3 and program.restarts == 1


def test_a_picture_that_crashes_twice_fails_alone(
    build: Build, capfd: pytest.CaptureFixture[str]
) -> None:
    program = build({"b-s0": "crash"})
    outcomes = program.generate(JOBS)
    assert statuses(outcomes) == ["ok", "failed", "ok"] and program.restarts == 2
    assert outcomes[1].details == {"reason": "ended the program, twice"}
    said = capfd.readouterr().err
    assert "ended with SIGSEGV on b-s0; restart 2" in said and "about to fall over" in said


def test_a_program_that_always_crashes_stops_the_run(build: Build) -> None:
    with pytest.raises(InputError, match="ended on 2 pictures in a row") as error:
        build("crash", crashes=2).generate(JOBS)
    assert "about to fall over" in error.value.fault


def test_a_program_whose_child_lives_on_has_ended(build: Build, tmp_path: Path) -> None:
    note = tmp_path / "child"
    program = build({"a-s0": "orphan"}, settings={"note": str(note)}, picture_timeout=50.0)
    started = time.monotonic()
    assert statuses(program.generate(JOBS[:2])) == ["failed", "ok"]
    assert time.monotonic() - started < 40
    assert wait_for(lambda: not alive(int(note.read_text())))


def test_a_hang_is_ended_with_all_that_it_started(build: Build, tmp_path: Path) -> None:
    note = tmp_path / "child"
    program = build({"a-s0": "hang"}, picture_timeout=1.0, settings={"note": str(note)})
    assert statuses(program.generate(JOBS[:2])) == ["failed", "ok"]
    assert wait_for(lambda: not alive(int(note.read_text())))


@pytest.mark.parametrize(
    ("start", "fault"),
    [("slow", "did not start: gave no answer within 1 s"), ("odd", "where .* was due")],
)
def test_a_program_that_does_not_start_stops_the_run(build: Build, start: str, fault: str) -> None:
    program = build(start_timeout=1.0, settings={"start": start})
    with pytest.raises(InputError, match=fault):
        program.generate(JOBS)


def test_what_a_killed_job_left_is_not_asked_again(build: Build, tmp_path: Path) -> None:
    asked, kept = tmp_path / "asked", Kept()
    first = build({"c-s0": "crash"}, crashes=1, settings={"asked": str(asked)})
    first.kept = kept
    with pytest.raises(InputError):
        first.generate(JOBS)
    second = build(settings={"asked": str(asked)})
    second.kept = kept
    outcomes = second.generate(JOBS)
    again = build().generate(JOBS)
    assert [(o.status, o.details) for o in outcomes] == [(o.status, o.details) for o in again]
    ids = [line.split('"')[3] for line in asked.read_text().splitlines()]
    assert ids == ["a-s0", "b-s0", "c-s0", "c-s0", "c-s0"]  # two tries before, one now
    asked.unlink()
    third = build(settings={"asked": str(asked)})
    third.kept = kept
    third.generate([job("a", seed=1)])  # another seed is another picture
    assert len(asked.read_text().splitlines()) == 1


def test_a_program_ends_with_its_generator(build: Build) -> None:
    program = build()
    program.generate(JOBS[:1])
    assert program._program
    pid, folder = program._program._process.pid, program.folder
    del program
    assert wait_for(lambda: not alive(pid)) and not folder.exists()


@pytest.mark.parametrize(
    ("device", "outside", "inside"),
    [
        ("cpu", "0,1", ""),
        ("cuda", "0,1", "0,1"),
        ("cuda", None, None),
        ("cuda:1", "4,7", "7"),
        ("cuda:1", None, "1"),
        ("cuda:0", "GPU-8a,GPU-9b", "GPU-8a"),
    ],
)
def test_a_program_sees_the_gpu_of_its_job(
    build: Build,
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    outside: str | None,
    inside: str | None,
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if outside is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", outside)
    (outcome,) = build("seen", device).generate(JOBS[:1])
    assert outcome.details["CUDA_VISIBLE_DEVICES"] == inside
    assert outcome.details["device"] == device.partition(":")[0]
    assert outcome.details["PYTHONPATH"] is None, "our library is not the program's"


def test_a_wrapper_that_is_no_python_runs_by_itself(build: Build, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f'#!/bin/sh\nexec python "{ODD}"\n')
    with pytest.raises(InputError, match="cannot be executed"):
        build(wrapper=str(script))
    script.chmod(0o755)
    assert statuses(build(wrapper=str(script)).generate(JOBS[:1])) == ["ok"]


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"wrapper": "nowhere.py"}, "wrapper: nowhere.py: is not there"),
        ({"environment": "envs/nowhere.txt"}, "environment: envs/nowhere.txt: is not there"),
        ({"environment": None}, "a .py wrapper needs an environment"),
        ({"interpreter": "/nowhere/python"}, "interpreter: /nowhere/python: is not there"),
        ({"files": {"ssr": "/nowhere.bin"}}, "files.ssr: /nowhere.bin: is not there"),
        ({"wanted": ["ssr"]}, "params.files: must say where ssr is"),
        ({"repository": "https://example.org/x"}, "repository and commit need each other"),
        ({"repository": "https://example.org/x", "commit": "main"}, "commit"),
        ({"checkout": "/tmp"}, "checkout is a clone of a repository"),
        ({"template": "{word}"}, "template"),
        ({"python": "3"}, "python"),
    ],
)
def test_faults_are_found_while_planning(build: Build, changed: dict[str, Any], fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        build(**changed)


def alive(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat")
    return state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z"


def wait_for(what: Callable[[], bool], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while not what() and time.monotonic() < end:
        time.sleep(0.05)
    return what()


# --- identity ------------------------------------------------------------------------------------


def key(**params: Any) -> str:
    study = {
        "study": "s",
        "benchmark": {"card": "miniworld", "params": {"subjects": 2}},
        "generators": [{"card": "example_command", "params": params}],
        "metrics": ["mini_clip_i"],
    }
    return make_plan(load_study(study)).of_kind("generate")[0].key


def test_what_a_program_is_made_of_decides_the_key(tmp_path: Path) -> None:
    base = key()
    example = ROOT / "workflow" / "wrappers" / "example.py"
    copies = {}
    for place in ("here", "there"):
        copies[place] = tmp_path / place / "mine.py"
        copies[place].parent.mkdir()
        copies[place].write_text(example.read_text())
    weights = tmp_path / "weights.bin"
    weights.write_bytes(b"1")
    assert key(wrapper=str(copies["here"])) == key(wrapper=str(copies["there"])) == base
    same = {"picture_timeout": 1.0, "start_timeout": 2.0, "crashes": 9}
    assert key(interpreter=sys.executable, **same) == base
    copies["here"].write_text(example.read_text() + "\n")
    others = [
        key(wrapper=str(copies["here"])),
        key(environment="envs/uno.txt"),
        key(python="3.12"),
        key(width=65),
        key(settings={"share": 0.6}),
        key(template="{subject} {prompt}"),
        key(repository="https://example.org/x", commit="1234567"),
        key(repository="https://example.org/x", commit="1234568"),
        key(files={"weights": str(weights)}),
    ]
    weights.write_bytes(b"2")
    others.append(key(files={"weights": str(weights)}))
    assert len({base, *others}) == 11


# --- environments --------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUBJECTBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_two_jobs_make_one_environment_even_after_a_kill(cache: Path, tmp_path: Path) -> None:
    file = tmp_path / "none.txt"
    file.write_text("# no package\n# then: --no-build-isolation --no-index -r also.txt\n")
    (tmp_path / "also.txt").write_text("")
    file.write_text(file.read_text().replace("also.txt", str(tmp_path / "also.txt")))
    half = environments.folder(file, PYTHON)
    (half / "bin").mkdir(parents=True)  # as a killed process leaves it
    (half / "bin" / "python").write_text("")
    said: list[str] = []
    found: list[Path] = []

    def make() -> None:
        found.append(environments.interpreter(file, PYTHON, said.append))

    threads = [threading.Thread(target=make) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [half / "bin" / "python"] * 2 and environments.is_there(file, PYTHON)
    log = half.with_name(f"{half.name}.log").read_text()
    assert log.count("-m venv") == 1 and log.count("--no-build-isolation") == 1
    assert sum("waiting for another job" in text for text in said) == 1
    subprocess.run([found[0], "-c", "import sys; assert sys.prefix != sys.base_prefix"], check=True)
    said.clear()
    assert environments.interpreter(file, PYTHON, said.append) == found[0] and said == []
    file.write_text("# no package at all\n")  # another file is another environment
    assert environments.folder(file, PYTHON) != half
    assert not environments.is_there(file, PYTHON)
    assert environments.folder(file, "3.12") != environments.folder(file, PYTHON)


def test_an_environment_that_cannot_be_made_says_why_and_leaves_nothing(
    cache: Path, tmp_path: Path
) -> None:
    file = tmp_path / "bad.txt"
    file.write_text("--no-index\nno-such-package-at-all==1.0\n")
    with pytest.raises(InputError, match="no-such-package-at-all") as error:
        environments.interpreter(file, PYTHON)
    log = Path(error.value.mend.rpartition("The whole log: ")[2])
    assert "no-such-package-at-all" in log.read_text()
    assert not environments.folder(file, PYTHON).exists()


def test_a_python_that_is_not_here_is_named(cache: Path, tmp_path: Path) -> None:
    file = tmp_path / "old.txt"
    file.write_text("")
    with pytest.raises(InputError, match=r"Python 3\.3: is not on this machine"):
        environments.interpreter(file, "3.3")
    assert environments.find_python(PYTHON)


def test_a_conda_file_needs_conda(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    file = tmp_path / "env.yaml"
    file.write_text("dependencies: [python=3.10]\n")
    with pytest.raises(InputError, match="needs micromamba, mamba or conda"):
        environments.interpreter(file, "3.10")
    assert not environments.folder(file, "3.10").exists()


def test_an_interpreter_with_other_versions_is_refused(build: Build, tmp_path: Path) -> None:
    pinned = tmp_path / "other.txt"
    pinned.write_text("Pillow==1.0  # old\nnumpy>=1\ntorch==9; python_version < '3'\n")
    assert environments.pins(pinned) == {"Pillow": "1.0"}
    with pytest.raises(InputError, match=r"has Pillow .*, other.txt pins 1\.0"):
        build(environment=str(pinned)).generate(JOBS[:1])
    with pytest.raises(InputError, match=r"is Python .*, the card says 3\.2"):
        build(python="3.2").generate(JOBS[:1])
    program = build(environment=str(pinned))
    (check,) = program.checks(program.params, program.card, ROOT)
    assert not check.ok and "pins 1.0" in check.found and "pip freeze" in check.mend


# --- repositories --------------------------------------------------------------------------------


def git(folder: Path, *arguments: str) -> str:
    settings = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    command = ["git", "-C", str(folder), *settings, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def upstream(tmp_path: Path) -> tuple[Path, list[str]]:
    """A repository with two commits: (folder, commits)."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    commits = []
    for value in ("1", "2"):
        (folder / "theirs.py").write_text(f"VALUE = {value}\n")
        git(folder, "add", ".")
        git(folder, "commit", "-qm", value)
        commits.append(git(folder, "rev-parse", "HEAD"))
    return folder, commits


def test_a_repository_is_cloned_at_its_commit_and_the_program_runs_in_it(
    build: Build, cache: Path, upstream: tuple[Path, list[str]], tmp_path: Path
) -> None:
    folder, (old, _) = upstream
    wrapper = tmp_path / "theirs.py"  # named like the package, as one does
    wrapper.write_text(
        "import theirs\n"
        "from pathlib import Path\n"
        "from worker import reference, serve\n"
        "def load(setup):\n"
        "    Path('downloaded.bin').write_text('')\n"
        "    return lambda job: (reference(job), {'value': theirs.VALUE})\n"
        "serve(load)\n"
    )
    asked = {"repository": folder.as_uri(), "commit": old[:8], "wrapper": str(wrapper)}
    (outcome,) = build(**asked).generate(JOBS[:1])
    assert outcome.details["value"] == 1
    (clone,) = [p for p in (cache / "repositories").iterdir() if p.is_dir()]
    assert (clone / "downloaded.bin").exists()  # weights that it fetched change nothing
    assert build(**asked).generate(JOBS[:1])[0].details["value"] == 1
    (clone / "theirs.py").write_text("VALUE = 3\n")
    with pytest.raises(InputError, match=r"has local changes: theirs\.py"):
        build(**asked).generate(JOBS[:1])


def test_a_clone_of_the_users_own_is_checked(
    build: Build, upstream: tuple[Path, list[str]], tmp_path: Path
) -> None:
    folder, (old, new) = upstream
    asked: dict[str, Any] = {"repository": "https://example.org/theirs", "checkout": str(folder)}
    (outcome,) = build("seen", commit=new[:7], **asked).generate(JOBS[:1])
    assert outcome.details["cwd"] == str(folder)
    with pytest.raises(InputError, match=f"is at commit {new[:12]}, the card names {old}"):
        build(commit=old, **asked)
    (folder / "theirs.py").write_text("VALUE = 4\n")
    with pytest.raises(InputError, match="has local changes"):
        build(commit=new, **asked)
    with pytest.raises(InputError, match="is no clone"):
        build(commit=new, **{**asked, "checkout": str(tmp_path)})


def test_a_commit_that_is_not_there_says_so(cache: Path, upstream: tuple[Path, list[str]]) -> None:
    with pytest.raises(InputError, match="'checkout'") as error:
        environments.repository(upstream[0].as_uri(), "0" * 40, None)
    assert "The whole log" in error.value.mend
    assert not [p for p in (cache / "repositories").glob("theirs-*") if p.is_dir()]


# --- wrappers and cards that ship ----------------------------------------------------------------


@pytest.mark.parametrize("old", ["3.8", "3.9"])
def test_the_helper_runs_on_old_pythons(build: Build, tmp_path: Path, old: str) -> None:
    try:
        python = environments.find_python(old)
    except InputError as error:
        pytest.skip(str(error))
    wrapper, none = tmp_path / "copy.py", tmp_path / "none.txt"
    none.write_text("")
    wrapper.write_text(
        "import shutil, sys\n"
        "from worker import Declined, serve\n"
        "class Copy:\n"
        "    def __init__(self, path): self.path = path\n"
        "    def save(self, target): shutil.copyfile(self.path, target)\n"
        "def load(setup):\n"
        "    def make(job):\n"
        "        print('prints are no answers')\n"
        "        if job.sample_id == 'b-s0': raise Declined('no')\n"
        "        if job.sample_id == 'c-s0': raise KeyError('x')\n"
        "        return Copy(job.reference), {'python': '%d.%d' % sys.version_info[:2]}\n"
        "    return make\n"
        "serve(load)\n"
    )
    params = {"wrapper": str(wrapper), "environment": str(none), "python": old}
    outcomes = build(**params, interpreter=str(python)).generate(JOBS)
    assert statuses(outcomes) == ["ok", "refused", "failed"]
    assert outcomes[0].details["python"] == old
    assert outcomes[2].details["reason"] == "KeyError: 'x'"


@pytest.mark.parametrize("path", WRAPPERS, ids=lambda p: p.stem)
def test_a_wrapper_is_python_of_its_environment(path: Path) -> None:
    """Old environments run old Pythons: 3.8 for the helper, the card's for each wrapper."""
    tree = ast.parse(path.read_text("utf-8"), str(path), feature_version=(3, 8))
    if path.stem != "worker":
        last = tree.body[-1]
        assert isinstance(last, ast.Expr) and ast.unparse(last) == "serve(load)"


def wrapper_module(name: str) -> Any:
    """A wrapper's functions, without its last line, which would serve."""
    path = ROOT / "workflow" / "wrappers" / f"{name}.py"
    tree = ast.parse(path.read_text("utf-8"))
    tree.body = [s for s in tree.body if ast.unparse(s) != "serve(load)"]
    found: dict[str, Any] = {"__name__": name}
    exec(compile(tree, str(path), "exec"), found)
    return SimpleNamespace(**found)


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "workflow" / "wrappers"))
    import worker as found

    return found


def test_code_that_fetches_from_the_hub_gets_the_cards_weights_only(
    worker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", huggingface_hub.hf_hub_download)
    (tmp_path / "theirs" / "sub").mkdir(parents=True)
    weights = tmp_path / "theirs" / "sub" / "x.bin"
    weights.write_bytes(b"1")
    worker.pin_downloads({"them/theirs": str(tmp_path / "theirs")})
    fetch = huggingface_hub.hf_hub_download
    assert fetch(repo_id="them/theirs", filename="sub/x.bin") == str(weights)
    for _ in range(2):  # DreamO looks for it in ./models afterwards
        placed = fetch("them/theirs", "x.bin", subfolder="sub", local_dir=str(tmp_path / "models"))
        assert placed == str(tmp_path / "models" / "sub" / "x.bin")
        assert Path(placed).read_bytes() == b"1"
    with pytest.raises(worker.Unusable, match="does not pin"):
        fetch("somebody/else", "x.bin")
    with pytest.raises(worker.Unusable, match="add it to 'files'"):
        fetch("them/theirs", "y.bin")


def test_a_prompt_without_its_subject_is_declined(worker: Any) -> None:
    worker.require_subject(SimpleNamespace(subject="Mug", prompt="a red mug"))
    with pytest.raises(worker.Declined, match="does not contain 'cup'") as error:
        worker.require_subject(SimpleNamespace(subject="cup", prompt="a red mug"))
    assert error.value.status == "not_applicable"


def test_omnigen2_takes_the_negative_prompt_of_its_repository(
    worker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "inference.py"
    script.write_text('p.add_argument("--negative_prompt", type=str, default="a, (b)", help="")\n')
    module = wrapper_module("omnigen2")
    assert module.negative_prompt() == "a, (b)"
    script.write_text("")
    with pytest.raises(worker.Unusable):
        module.negative_prompt()


def test_blip_diffusion_is_called_as_diffusers_has_it() -> None:
    """The class is the same in the release of the wrapper's environment and in ours."""
    from diffusers import BlipDiffusionPipeline

    text = (ROOT / "workflow" / "wrappers" / "blip_diffusion.py").read_text("utf-8")
    (call,) = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pipeline"
    ]
    keywords = {str(k.arg): None for k in call.keywords}
    signature = inspect.signature(BlipDiffusionPipeline.__call__)
    bound = signature.bind(None, *call.args, **keywords)
    assert list(bound.arguments)[1:5] == [
        "prompt",
        "reference_image",
        "source_subject_category",
        "target_subject_category",
    ]


@pytest.mark.parametrize("name", CARDS)
def test_a_card_of_a_program_is_whole(name: str) -> None:
    card = cards.load("generator", name)
    params = cards.params("generator", Use(card=name), name)
    settings = ast.parse((ROOT / params.wrapper).read_text("utf-8"))
    used = {
        node.slice.value
        for node in ast.walk(settings)
        if isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Constant)
        and ast.unparse(node.value) in ("setup.settings", "settings")
    }
    assert used == set(params.settings), "the wrapper and the card know other settings"
    weights = {"main"} if card.weights else set()
    asked = {
        node.slice.value
        for node in ast.walk(settings)
        if isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Constant)
        and ast.unparse(node.value) in ("setup.weights", "weights")
    }
    assert asked == weights | set(card.parts), "the wrapper and the card know other weights"
    file = ROOT / params.environment
    for line in file.read_text("utf-8").splitlines():
        assert line.startswith("#") or environments._PIN.match(line), f"not pinned: {line}"
    asked = {
        node.slice.value
        for node in ast.walk(settings)
        if isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Constant)
        and ast.unparse(node.value) == "setup.files"
    }
    assert asked == set(params.wanted), "the wrapper and the card know other files"
