"""Whether models can run here, against a hub on loopback; and pinning of commits."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from subjectbench import cards, doctor
from subjectbench.cli import main
from subjectbench.config import Study, load_study
from subjectbench.doctor import Diagnosis
from subjectbench.errors import InputError

COMMIT = "a" * 40


class Hub(BaseHTTPRequestHandler):
    """As much of the hub's interface as is asked: open, gated, and nothing else."""

    def do_GET(self) -> None:
        path = urlsplit(self.path).path.removeprefix("/api/models/")
        name = "/".join(path.split("/")[:2])
        rest = path[len(name) :].strip("/")
        if name not in ("lab/open", "lab/gated"):
            return self.refuse(404, "RepoNotFound")
        if rest == "auth-check":
            return self.refuse(403, "GatedRepo") if name == "lab/gated" else self.answer({})
        if rest.startswith("revision/") and rest != f"revision/{COMMIT}":
            return self.refuse(404, "RevisionNotFound")
        files = [("model.safetensors", 3 * 10**9), ("other.msgpack", 10**12), ("config.json", 9)]
        siblings = [{"rfilename": n, "size": size} for n, size in files]
        return self.answer({"id": name, "sha": COMMIT, "siblings": siblings})

    def answer(self, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        return None


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """Point the hub's client at a server of ours and at an empty cache."""
    from huggingface_hub import constants

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    yield url
    server.shutdown()
    server.server_close()


def study(*generators: str) -> Study:
    found = load_study(
        {
            "study": "trial",
            "benchmark": "miniworld",
            "generators": list(generators),
            "metrics": ["mini_clip_t"],
        }
    )
    assert isinstance(found, Study)
    return found


def card(**more: Any) -> dict[str, Any]:
    plain = {"title": "Mine", "plugin": "control", "about": "x", "params": {"mode": "noise"}}
    return plain | more


def examined(*names: str) -> dict[str, Diagnosis]:
    return {one.name: one for one in doctor.examine(study(*names), {})}


def amiss(one: Diagnosis) -> list[str]:
    return [f"{c.about}: {c.found} / {c.mend}" for c in one.checks if not c.ok]


def test_what_is_in_the_checkout_can_run() -> None:
    found = examined("mini_diffusion", "noise")
    assert all(one.ok for one in found.values())
    assert "mini_clip" in found  # the metric's encoder is looked at as well
    told = {c.about for c in found["mini_diffusion"].checks}
    assert told >= {"packages", "weights"}


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ({"repository": "lab/open", "revision": COMMIT}, None),
        ({"repository": "lab/open"}, ["says not which commit", "subjectbench pin"]),
        ({"repository": "lab/open", "revision": "b" * 40}, ["no such commit"]),
        ({"repository": "lab/none", "revision": COMMIT}, ["no such repository"]),
        ({"repository": "lab/gated", "revision": COMMIT}, ["gated", "sign the form", "HF_TOKEN"]),
        ({"path": "workflow/weights/nowhere"}, ["no such checkpoint folder"]),
    ],
)
def test_weights(
    hub: str, own_cards: Callable[..., None], weights: dict[str, Any], words: list[str] | None
) -> None:
    own_cards("generator", "mine", card(weights=weights, gate="sign the form at lab/gated"))
    own_cards("generator", "lora", card(parts={"lora": weights}, gate="sign the form"))
    found = examined("mine", "lora")
    for name in ("mine", "lora"):
        if words is None:
            assert found[name].ok
            # Files for other frameworks are not fetched, so not counted.
            assert "3.0 GB" in "".join(c.found for c in found[name].checks)
        else:
            [fault] = amiss(found[name])
            assert all(word in fault for word in words), fault
    assert found["mini_clip"].ok  # one that cannot run hides nothing about the others


def test_a_hub_out_of_reach(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own_cards: Callable[..., None]
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    own_cards("generator", "mine", card(weights={"repository": "a/b", "revision": COMMIT}))
    [fault] = amiss(examined("mine")["mine"])
    assert "out of reach" in fault
    assert f"hf download a/b --revision {COMMIT}" in fault


def test_packages_memory_disk_and_cards(own_cards: Callable[..., None]) -> None:
    own_cards("generator", "package", card(packages=["numpy", "no-such-package"]))
    own_cards("generator", "huge", card(expected={"memory_gb": 10**6, "disk_gb": 10**9}))
    own_cards("generator", "odd", card(plugin="no_such_plugin"))
    found = examined("package", "huge", "odd")
    assert ["no-such-package" in fault for fault in amiss(found["package"])] == [True]
    assert "numpy" not in amiss(found["package"])[0]
    assert [fault.split(":")[0] for fault in amiss(found["huge"])] == ["memory", "disk"]
    assert "no_such_plugin" in amiss(found["odd"])[0]


def test_the_bill(own_cards: Callable[..., None]) -> None:
    costs = {"seconds": 36, "subject_seconds": 180, "price": 0.04, "disk_gb": 5, "picture_mb": 2}
    own_cards("generator", "paid", card(expected=costs))
    own_cards("generator", "silent", card())
    amounts = {name: (10, 2) for name in ("paid", "silent", "noise")}
    found = list(doctor.examine(study("paid", "silent", "noise"), amounts))
    assert [one.name for one in found if one.costs] == ["paid", "silent"]  # no bill for controls
    bill = found[0].costs
    assert bill is not None
    assert bill.gpu_hours == pytest.approx((10 * 36 + 2 * 180) / 3600)
    assert (bill.pictures, bill.price) == (10, pytest.approx(0.4))
    assert bill.disk_gb == pytest.approx(5 + 10 * 0.002)
    text = doctor.words(found)
    assert "0.40 USD" in text and "not stated" in text
    assert "leave out 1 models" in text


def test_the_bill_counts_benchmarks_beside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def pictures(**beside: Any) -> int:
        value = yaml.safe_load((cards.ROOT / "config.yaml").read_text("utf-8"))
        value |= {"beside": {"benchmarks": ["miniworld_dreambench"], **beside}}
        file = tmp_path / "config.yaml"
        file.write_text(yaml.safe_dump(value))
        main(["doctor", "--config", str(file)])
        line = next(x for x in capsys.readouterr().out.splitlines() if x.startswith("mini_diff"))
        return int(line.split()[1])

    assert pictures(generators=["copy_reference"]) == 24 * 12
    assert pictures() == 24 * 12 + 10 * 6


TEXT = """\
# kept
title: Mine
plugin: control  # kept too
about: x
params: {mode: noise}
weights:
  repository: lab/open
  files: [a]
parts:
  lora:
    revision: 'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb'
    repository: "lab/gated"
"""


def test_pinning_keeps_the_cards_text(hub: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(TEXT)
    assert doctor.pin(file) == [f"lab/open {COMMIT}"]
    expected = TEXT.replace("lab/open\n", f"lab/open\n  revision: {COMMIT}\n")
    assert file.read_text() == expected
    assert doctor.pin(file) == []
    assert doctor.pin(file, again=True) == [f"lab/open {COMMIT}", f"lab/gated {COMMIT}"]
    pinned = cards.validate(cards.GeneratorCard, cards.read_yaml(file), file)
    assert pinned.weights and pinned.weights.revision == COMMIT
    assert pinned.parts["lora"].revision == COMMIT
    assert "# kept\n" in file.read_text() and "# kept too\n" in file.read_text()


def test_pinning_an_unknown_repository_writes_nothing(hub: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(TEXT.replace("lab/gated", "lab/none").replace("    revision", "    #"))
    before = file.read_text()
    with pytest.raises(InputError, match="lab/none"):
        doctor.pin(file)
    assert file.read_text() == before
