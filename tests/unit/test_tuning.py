"""Per-subject methods: what each trains, and that neither a kill nor a neighbour changes a byte.

Every method runs on a real Stable Diffusion checkpoint with small random weights, with the card of
the full-size model.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import load_file

from subjectbench import cards
from subjectbench.cards import Weights
from subjectbench.config import Use, load_study
from subjectbench.errors import InputError
from subjectbench.generators.base import Generator, Job
from subjectbench.plan import make_plan
from subjectbench.stages import generate, prepare, train
from subjectbench.stages.base import Context
from subjectbench.store import Plan, Store
from subjectbench.tuning import base, words
from subjectbench.tuning.base import Subject, Tuning
from subjectbench.tuning.prior import ClassPictures
from tests import pipelines

pytestmark = pytest.mark.usefixtures("one_thread")

FILES = {
    "textual_inversion_sd15": {"learned_embeds.safetensors"},
    "dreambooth_sd15": {"unet/diffusion_pytorch_model.safetensors"},
    "dreambooth_lora_sd15": {"pytorch_lora_weights.safetensors"},
    "custom_diffusion_sd14": {
        "learned_embeds.safetensors",
        "pytorch_custom_diffusion_weights.safetensors",
    },
    "hiper_sd14": {"hiper.safetensors"},
    "neti_sd14": {"mapper.safetensors"},
}
TINY = {"training_steps": 12, "learning_rate": 0.02, "training_batch": 4, "accumulate": 1}
TINY |= {"resolution": 16, "steps": 3, "dtype": "float32", "compute_batch": 2}


def test_every_trained_model_is_here() -> None:
    assert set(FILES) == {
        name
        for name in cards.names("generator")
        if cards.plugin("generator", cards.load("generator", name), name).tuning
        and cards.load("generator", name).weights.repository
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pipelines.save_sd(tmp_path_factory.mktemp("sd"))


def parameters(of: str, **changed: Any) -> Any:
    known = cards.plugin("generator", cards.load("generator", of), of).Params.model_fields
    given = {k: v for k, v in {**TINY, "features": 8, "hidden": 8, **changed}.items() if k in known}
    if "class_pictures" in known:
        given = {"class_pictures": 0, **given}
    return cards.params("generator", Use(card=of, params=given), of)


def method(name: str, folder: Path, **changed: Any) -> Tuning:
    plugin = cards.plugin("generator", cards.load("generator", name), name)
    return plugin.tuning(parameters(name, **changed), folder, "cpu")  # type: ignore[no-any-return]


def sampler(name: str, folder: Path, **changed: Any) -> Generator:
    card = cards.load("generator", name).model_copy(update={"weights": Weights(path=str(folder))})
    plugin = cards.plugin("generator", card, name)
    return plugin(parameters(name, **changed), card, None, "cpu")  # type: ignore[no-any-return]


def subject(seed: int = 1) -> Subject:
    rng = np.random.default_rng(seed)
    picture = Image.fromarray(rng.integers(0, 256, (24, 20, 3), np.uint8))
    return Subject("red mug", picture, seed)


def tensors(tuning: Tuning) -> dict[str, torch.Tensor]:
    parts = {"unet": tuning.unet, "text": tuning.text_encoder, "vae": tuning.vae}
    return {f"{p}.{n}": v.clone() for p, m in parts.items() for n, v in m.state_dict().items()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return set(a) == set(b) and all(torch.equal(a[n], b[n]) for n in a)


def written(folder: Path) -> dict[str, str]:
    return {n: hashlib.sha256(p.read_bytes()).hexdigest() for n, p in base.files(folder)}


def pictures(generator: Generator, texts: tuple[str, ...] = ("a red mug", "a cat")) -> list[bytes]:
    jobs = [
        Job(f"s{i}", "s", "red mug", text, Image.new("RGB", (16, 16)), i, {})
        for i, text in enumerate(texts)
    ]
    made = generator.generate(jobs)
    assert {o.status.value for o in made} == {"ok"}, made
    return [o.image.tobytes() for o in made if o.image]


@pytest.mark.parametrize("name", FILES)
def test_what_is_trained_and_only_that(name: str, folder: Path, tmp_path: Path) -> None:
    tuning = method(name, folder, training_steps=30)
    before = tensors(tuning)
    seen: dict[str, Any] = {}
    begin, save = tuning.begin, tuning.save

    def error() -> float:
        rng = torch.Generator().manual_seed(0)
        torch.manual_seed(0)
        encoded = tuning._encoded([subject().reference])
        with torch.no_grad():
            drawn = [tuning.loss(subject(), encoded, None, rng).item() for _ in range(8)]
        return float(np.mean(drawn))

    def begun(one: Subject) -> dict[str, torch.nn.Parameter]:
        seen["trained"] = begin(one)
        seen["start"] = {n: v.detach().clone() for n, v in seen["trained"].items()}
        seen["error"] = error()
        ours = {id(v) for v in seen["trained"].values()}
        for part in (tuning.unet, tuning.text_encoder, tuning.vae):
            for value in part.parameters():
                assert value.requires_grad == (id(value) in ours)
        return seen["trained"]  # type: ignore[no-any-return]

    def saved(where: Path) -> None:
        seen["after"] = error()
        seen["end"] = {n: v.detach().clone() for n, v in seen["trained"].items()}
        seen["frozen"] = tensors(tuning)
        save(where)

    tuning.begin, tuning.save = begun, saved  # type: ignore[method-assign]
    (tmp_path / "out").mkdir()
    losses = tuning.tune(subject(), tmp_path / "checkpoint", tmp_path / "out")
    assert len(losses) == 30 and np.isfinite(losses).all()
    # One word of its usual length moves a small random UNet by no more than rounding.
    word = name in ("textual_inversion_sd15", "neti_sd14")
    assert seen["after"] < seen["error"] + (1e-4 if word else 0.0), "it learned nothing"
    moved = {n for n, v in seen["end"].items() if not torch.equal(v, seen["start"][n])}
    still = set(seen["end"]) - moved
    assert moved and len(still) <= len(moved) // 4, still  # a bias before a norm has no gradient
    if name != "dreambooth_sd15":
        kept = {n: v for n, v in seen["frozen"].items() if n in before}
        assert same(kept, {n: before[n] for n in kept}), "a frozen tensor moved"
    assert same(tensors(tuning), before), "the base is not as it was"
    assert set(written(tmp_path / "out")) == FILES[name]
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.parametrize("name", FILES)
def test_a_subject_depends_on_nothing_before_it(name: str, folder: Path, tmp_path: Path) -> None:
    """Neither training nor sampling remembers another subject, and each makes its own pictures."""
    tuning = method(name, folder)
    for place, seed in (("a", 1), ("b", 2), ("again", 1)):
        (tmp_path / place).mkdir()
        tuning.tune(subject(seed), tmp_path / "checkpoint", tmp_path / place)
    assert written(tmp_path / "a") == written(tmp_path / "again") != written(tmp_path / "b")
    generator = sampler(name, folder)
    made = []
    for place in ("a", "b", "a"):
        generator.take_up(tmp_path / place)
        made.append(pictures(generator))
    assert made[0] == made[2]
    assert made[0][0] != made[1][0], "what was trained has no effect"
    untrained = pictures(sampler("sd15", folder, height=16, width=16, variant=None))
    assert made[0][0] != untrained[0]


@pytest.mark.parametrize("name", FILES)
def test_going_on_from_a_checkpoint_ends_with_the_same_bytes(
    name: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "whole").mkdir()
    whole = method(name, folder).tune(subject(), tmp_path / "unused", tmp_path / "whole")
    monkeypatch.setattr(base, "CHECKPOINT_SECONDS", 0.0)
    tuning = method(name, folder)
    asked, loss = [], tuning.loss

    def stop(*of: Any) -> torch.Tensor:
        asked.append(0)
        if len(asked) == 8:
            raise KeyboardInterrupt
        return loss(*of)

    monkeypatch.setattr(tuning, "loss", stop)
    (tmp_path / "out").mkdir()
    with pytest.raises(KeyboardInterrupt):
        tuning.tune(subject(), tmp_path / "checkpoint", tmp_path / "out")
    assert not written(tmp_path / "out")
    fresh = method(name, folder)
    steps, loss = [], fresh.loss
    monkeypatch.setattr(fresh, "loss", lambda *of: (steps.append(0), loss(*of))[1])
    losses = fresh.tune(subject(), tmp_path / "checkpoint", tmp_path / "out")
    assert len(steps) == len(whole) - 7, "finished steps were repeated"
    assert losses == whole and written(tmp_path / "out") == written(tmp_path / "whole")


def test_a_damaged_checkpoint_is_done_again(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_bytes(b"PK\x03\x04 cut")
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
    tuning = method("textual_inversion_sd15", folder)
    tuning.tune(subject(), tmp_path / "checkpoint", tmp_path / "a")
    tuning.tune(subject(), tmp_path / "none", tmp_path / "b")
    assert written(tmp_path / "a") == written(tmp_path / "b")


def test_prior_pictures_count(folder: Path, tmp_path: Path) -> None:
    """Class pictures add their own loss, by their own caption."""
    tuning = method("dreambooth_sd15", folder)
    one = subject()
    other = Subject(one.noun, one.reference, one.seed, [subject(5).reference])
    encoded = tuning._encoded([one.reference])
    others = tuning._encoded(other.class_pictures)

    def loss(of: torch.Tensor | None) -> float:
        return tuning.loss(one, encoded, of, torch.Generator().manual_seed(3)).item()

    said: list[str] = []
    states = tuning.states
    tuning.states = lambda texts: (said.extend(texts), states(texts))[1]  # type: ignore[method-assign]
    assert loss(others) > loss(None)
    assert set(said) == {"a photo of sks red mug", "a photo of red mug"}


def test_the_standard_forms(folder: Path, tmp_path: Path) -> None:
    """diffusers' loaders read the files by themselves."""
    from diffusers import StableDiffusionPipeline, UNet2DConditionModel

    for name in ("textual_inversion_sd15", "dreambooth_lora_sd15", "dreambooth_sd15"):
        (tmp_path / name).mkdir()
        tuning = method(name, folder)
        tuning.tune(subject(), tmp_path / "checkpoint", tmp_path / name)
    pipeline = StableDiffusionPipeline.from_pretrained(folder)
    embedding = tmp_path / "textual_inversion_sd15" / "learned_embeds.safetensors"
    pipeline.load_textual_inversion(embedding)
    ids = pipeline.tokenizer("a <subject>").input_ids
    row = pipeline.text_encoder.get_input_embeddings().weight[ids[2]]
    assert torch.equal(row, load_file(embedding)["<subject>"][0])
    pipeline.load_lora_weights(tmp_path / "dreambooth_lora_sd15")
    assert pipeline.get_active_adapters()
    trained = tmp_path / "dreambooth_sd15" / "unet" / "diffusion_pytorch_model.safetensors"
    half = load_file(trained)
    assert set(half) == set(UNet2DConditionModel.from_pretrained(folder / "unet").state_dict())
    assert {v.dtype for v in half.values()} == {torch.float16}


# --- words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "noun", "told", "how"),
    [
        ("A Mug on a rug, a mug", "mug", "A X on a rug, a mug", "noun"),
        ("two mugs", "mug", "two X", "number"),
        ("a biscuit", "biscuits", "a X", "number"),
        ("red peonies.", "peony", "red X.", "number"),
        ("a smug look", "mug", "a smug look, X", "appended"),
        ("Turn it blue.", "mug", "Turn it blue, X", "appended"),
        ("a c++ (mug)", "c++ (mug)", "a X", "noun"),
    ],
)
def test_the_name_takes_the_nouns_place(prompt: str, noun: str, told: str, how: str) -> None:
    assert words.weave(prompt, noun, "X") == (told, how)


@given(st.text(max_size=30), st.text(min_size=1, max_size=8), st.sampled_from(["<s>", r"\1 \g<0>"]))
def test_the_name_is_always_there(prompt: str, noun: str, name: str) -> None:
    told, how = words.weave(prompt, noun, name)
    assert name in told and how in ("noun", "number", "appended")


def test_dsh_benchs_prompts(shared: Callable[[str], Path]) -> None:
    """C4 of the reference: not every prompt says its subject."""
    path = shared("dsh_bench/DSH-Bench_image_info.json")
    found = Counter(
        words.weave(prompt["prompt"], entry["subject"], "X")[1]
        for entry in json.loads(path.read_text("utf-8")).values()
        for prompt in entry["prompt"]
    )
    assert found == {"noun": 5461, "number": 27, "appended": 20}


def test_a_new_word_starts_from_a_single_token() -> None:
    tokenizer = pipelines.clip_tokenizer()  # one token per letter
    ids = tokenizer.convert_tokens_to_ids
    assert words.initial_tokens(tokenizer, "x mug y") == [ids("y</w>")]
    assert words.initial_tokens(tokenizer, "y mug") == [ids("y</w>")]
    assert words.initial_tokens(tokenizer, "old mug") == [ids("m"), ids("u"), ids("g</w>")]


@pytest.mark.parametrize("field", ["name", "training_templates"])
def test_templates_are_checked_while_planning(field: str) -> None:
    wrong = "a {nuon}" if field == "name" else ["a {nuon}"]
    card = cards.load("generator", "neti_sd14")
    with pytest.raises(InputError, match=f"(?s){field}: no field '{{nuon}}'.*noun"):
        cards.plugin("generator", card, "").check(
            parameters("neti_sd14", **{field: wrong}), card, Path()
        )


# --- the stage -----------------------------------------------------------------------------------


@pytest.fixture
def study(
    folder: Path, tmp_path: Path, own_cards: Callable[[str, str, dict[str, Any]], None]
) -> Callable[..., Plan]:
    """``study(subjects, ...)``: the plan of a study of own pictures and small methods."""
    for name in ("dreambooth_lora_sd15", "dreambooth_sd15", "custom_diffusion_sd14"):
        card = cards.load("generator", name).model_dump(exclude_none=True, exclude={"expected"})
        card |= {"weights": {"path": str(folder)}, "params": parameters(name).model_dump()}
        own_cards("generator", f"tiny_{name.rpartition('_')[0]}", card)

    def plan(
        subjects: tuple[str, ...] = ("mug", "cat"),
        model: str = "tiny_dreambooth_lora",
        shards: int = 1,
        **params: Any,
    ) -> Plan:
        pictures = tmp_path / f"pictures-{len(subjects)}"
        for number, name in enumerate(subjects):
            (pictures / name).mkdir(parents=True, exist_ok=True)
            subject(number).reference.save(pictures / name / "1.png")
        if "broken" in subjects:
            (pictures / "broken" / "1.png").write_bytes(b"\x89PNG\r\n\x1a\n")
        (pictures / "prompts.txt").write_text("a {} on a table\n")
        return make_plan(
            load_study(
                {
                    "study": "tiny",
                    "benchmark": {"card": "folder", "params": {"path": str(pictures)}},
                    "generators": [{"card": model, "params": params}],
                    "metrics": ["mini_dino"],
                    "shards": shards,
                    "results": str(tmp_path / "results"),
                    "run": {"device": "cpu"},
                }
            )
        )

    return plan


def make(plan: Plan, *kinds: str) -> list[Path]:
    """Make the artifacts of some kinds; return the folders of the last kind."""
    stages = {"benchmark": prepare, "train": train, "generate": generate}
    for kind in kinds:
        for artifact in plan.of_kind(kind):
            stages[kind].run(Context(plan, artifact))  # type: ignore[attr-defined]
    return [plan.folder(a.key) for a in plan.of_kind(kinds[-1])]


def keys(plan: Plan, kind: str) -> set[str]:
    return {artifact.key for artifact in plan.of_kind(kind)}


def test_sampling_retrains_nothing(study: Callable[..., Plan]) -> None:
    plain = study()
    for change in ({"steps": 9}, {"guidance_scale": 3.0}, {"template": "wow, {prompt}"}):
        other = study(**change)
        assert keys(other, "train") == keys(plain, "train"), change
        assert keys(other, "generate") != keys(plain, "generate"), change
    for change in ({"training_steps": 13}, {"rank": 2}, {"training_seed": 1}):
        assert keys(study(**change), "train") != keys(plain, "train"), change


def test_identities_hold_no_more_code_than_counts(study: Callable[..., Plan]) -> None:
    (trained,) = study().of_kind("train")
    assert not [m for m in trained.components["code"] if m.startswith("subjectbench.generators")]
    plain = make_plan(
        load_study(
            {
                "study": "x",
                "benchmark": "miniworld",
                "generators": ["mini_diffusion"],
                "metrics": ["mini_dino"],
            }
        )
    )
    assert not plain.of_kind("train")
    for artifact in plain.of_kind("generate"):
        assert not [m for m in artifact.components["code"] if m.startswith("subjectbench.tuning")]


def test_statuses_of_subjects_become_those_of_their_rows(study: Callable[..., Plan]) -> None:
    plan = study(("mug", "broken"))
    (trained,) = make(plan, "benchmark", "train")
    rows = pd.read_parquet(trained / "subjects.parquet").set_index("subject_id")
    assert rows["status"].to_dict() == {"mug": "ok", "broken": "bad_reference"}
    losses = pd.read_parquet(trained / "losses.parquet")
    assert losses["subject_id"].unique() == ["mug"] and list(losses["step"]) == list(range(12))
    (made,) = make(plan, "generate")
    samples = pd.read_parquet(made / "samples.parquet").set_index("case_id")
    assert sorted(samples["status"]) == ["bad_reference", "ok"]
    assert not plan_faults(plan)


def plan_faults(plan: Plan) -> list[str]:
    store = Store(Path(plan.results))
    found = [plan.folder(a.key) for kind in ("train", "generate") for a in plan.of_kind(kind)]
    return [fault for folder in found for fault in store.verify(folder)]


def test_a_training_that_diverges_makes_no_picture(study: Callable[..., Plan]) -> None:
    plan = study(learning_rate=1e30)
    (made,) = make(plan, "benchmark", "train", "generate")
    samples = pd.read_parquet(made / "samples.parquet")
    assert set(samples["status"]) == {"failed"} and samples["image_sha256"].isna().all()
    assert "at step" in json.loads(samples["details"][0])["training"]


def test_subjects_that_an_earlier_artifact_holds_are_not_trained_again(
    study: Callable[..., Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A subject more, other shards or another run's leftovers: only what is new is trained."""
    seen: list[str] = []
    tune = Tuning.tune
    monkeypatch.setattr(
        Tuning, "tune", lambda self, one, *of: (seen.append(one.noun), tune(self, one, *of))[1]
    )
    (first,) = make(study(), "benchmark", "train")
    assert seen == ["cat", "mug"]
    (second,) = make(study(("mug", "cat", "dog")), "benchmark", "train")
    assert seen == ["cat", "mug", "dog"]
    old, new = (pd.read_parquet(f / "subjects.parquet") for f in (first, second))
    assert new[new["subject_id"] != "dog"].reset_index(drop=True).equals(old)
    parts = make(study(shards=3), "benchmark", "train")
    assert seen == ["cat", "mug", "dog"]
    again = pd.concat([pd.read_parquet(p / "subjects.parquet") for p in parts])
    assert again.sort_values("subject_id").reset_index(drop=True).equals(old)


def test_class_pictures_are_made_once_per_noun_and_shared(
    study: Callable[..., Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[str, int]] = []
    original = ClassPictures.make

    def counted(self: Any, text: str, first: int, count: int, spec: Any) -> dict[str, bytes]:
        made.append((text, count))
        return original(self, text, first, count, spec)

    monkeypatch.setattr(ClassPictures, "make", counted)
    prior = {"class_pictures": 3, "class_steps": 2, "class_template": "a {noun}"}
    plan = study(model="tiny_dreambooth", **prior)
    make(plan, "benchmark", "train")
    assert made == [("a cat", 3), ("a mug", 3)]
    shared = list((Path(plan.results) / "store" / "prior").rglob("images.zip"))
    assert len(shared) == 2
    make(study(model="tiny_custom_diffusion", **prior), "train")
    make(study(model="tiny_dreambooth", **prior, training_steps=5), "train")
    assert len(made) == 2, "another method or rate made them again"
    make(study(model="tiny_dreambooth", **{**prior, "class_steps": 3}), "train")
    assert len(made) == 4


KILLED = """
import os, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from subjectbench.stages import train
from subjectbench.stages.base import Context
from subjectbench.store import Plan
from subjectbench.tuning import base
base.CHECKPOINT_SECONDS = 0.0
plan = Plan.read(Path(sys.argv[1]))
(artifact,) = plan.of_kind("train")
kept, left = base._keep, [int(sys.argv[2])]
def keep(*of):
    kept(*of)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
base._keep = keep
train.run(Context(plan, artifact))
"""


def test_a_killed_job_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGKILL in the second subject: the first is not repeated, the artifact ends the same."""
    study = {
        "study": "killed",
        "benchmark": {"card": "miniworld", "params": {"subjects": 2}},
        "generators": [
            {
                "card": "mini_textual_inversion",
                "params": {"training_steps": 4, "training_batch": 1},
            }
        ],
        "metrics": ["mini_dino"],
        "run": {"device": "cpu"},
    }
    whole = make_plan(load_study({**study, "results": str(tmp_path / "whole")}))
    (wanted,) = make(whole, "benchmark", "train")
    plan = make_plan(load_study({**study, "results": str(tmp_path / "killed")}))
    make(plan, "benchmark")
    arguments = [sys.executable, "-c", KILLED, str(plan.save()), "5"]  # 3 a subject
    env = {**os.environ, "PYTHONPATH": str(cards.ROOT / "workflow")}
    done = subprocess.run(arguments, env=env, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
    steps: list[int] = []
    loss = Tuning.loss
    monkeypatch.setattr(Tuning, "loss", lambda self, *of: (steps.append(0), loss(self, *of))[1])
    (found,) = make(plan, "train")
    assert len(steps) == 2, "of four steps of the second subject two were kept"
    for name in ("subjects.parquet", "losses.parquet", "weights.zip", "manifest.json"):
        assert (found / name).read_bytes() == (wanted / name).read_bytes(), name
