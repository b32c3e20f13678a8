"""The zero-shot judge: against sums by hand, on drawn pictures of known truth, and its limits."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from pydantic import ValidationError

from subjectbench import cards
from subjectbench.asking.base import Ask, Message, Picture, Request
from subjectbench.config import Use
from subjectbench.encoders.base import Encoder
from subjectbench.errors import InputError
from subjectbench.judges import replies
from subjectbench.judges.zero_shot import PLUGIN as ZeroShot
from subjectbench.miniworld import defects, scenes
from subjectbench.miniworld.draw import draw
from subjectbench.miniworld.subjects import COLOURS, Subject, make_subjects
from subjectbench.vocabulary import Status

CARD = "mini_zero_shot"
MUG = {"subject": "mug"}


def encoder(name: str = "mini_clip") -> Encoder:
    card = cards.load("encoder", name)
    plugin = cards.plugin("encoder", card, name)
    return plugin(cards.params("encoder", Use(card=name), name), card, "cpu")  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def mini_clip() -> Encoder:
    torch.set_num_threads(1)  # as in a job; many small products gain nothing from more
    return encoder()


def build(mini_clip: Encoder, **params: Any) -> Any:
    card = cards.load("judge", CARD)
    checked = cards.params("judge", Use(card=CARD, params=params), CARD)
    return ZeroShot(checked, card, "cpu", mini_clip)


@pytest.fixture(scope="module")
def judge(mini_clip: Encoder) -> Any:
    return build(mini_clip)


def encoded(image: Image.Image, role: str) -> Picture:
    file = io.BytesIO()
    image.save(file, "PNG")
    return Picture(role, file.getvalue(), "image/png")


def request(asks: Sequence[Ask], values: Mapping[str, Any], **images: Image.Image) -> Request:
    parts = tuple(encoded(image, role) for role, image in images.items())
    return Request((Message("user", ("look", *parts)),), tuple(asks), values=values)


def unit(name: str, relevance: str) -> Ask:
    return Ask(f"part/{name}", "?", about={"name": name, "relevance": relevance})


def mark(dimension: str, low: int = 0, high: int = 10) -> Ask:
    return Ask(dimension, "?", (low, high), {"dimension": dimension})


def answers(judge: Any, asked: Request) -> dict[str, float]:
    """What the reader of replies makes of the judge's text."""
    (reply,) = judge.complete([asked])
    reading = replies.read(asked, reply)
    return {n: a.value for n, a in reading.answers.items() if a.value is not None}


SUBJECT = make_subjects(0, 24)[0]
PLAIN = scenes.reference_scene()


@pytest.fixture(scope="module")
def reference() -> Image.Image:
    return draw(SUBJECT, PLAIN, 64)


def cosines(mini_clip: Encoder, image: Image.Image, texts: list[str]) -> np.ndarray:
    """By hand, in double precision."""
    vectors = np.concatenate([mini_clip.images([image]), mini_clip.texts(texts)]).astype(float)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors[1:] @ vectors[0])


def softmax(logits: np.ndarray) -> np.ndarray:
    return np.asarray(np.exp(logits) / np.exp(logits).sum())


# --- by hand -------------------------------------------------------------------------------------


def test_a_value_that_the_prompt_names(judge: Any, mini_clip: Encoder, picture: Any) -> None:
    photo = picture(1, (64, 64))
    values = {"prompt": "A photo of an orange mug on a beach", "subject": "mug"}
    asked = request([unit("Color", "text_only")], values, generated=photo)
    articles = {c: "an" if c[0] in "aeiou" else "a" for c in COLOURS}
    texts = [f"A photo of {articles[c]} {c} mug on a beach" for c in COLOURS]
    share = softmax(26.3 * cosines(mini_clip, photo, texts))[list(COLOURS).index("orange")]
    odds = share / (1 - share) * 10  # 10 other values, even odds beforehand
    assert answers(judge, asked) == {"part/Color": pytest.approx(odds / (1 + odds), abs=1e-6)}


def test_the_same_value_in_both_pictures(mini_clip: Encoder, picture: Any) -> None:
    judge = build(mini_clip, phrases=0)  # says nothing of scenes
    first, second = picture(1, (64, 64)), picture(2, (64, 64))
    texts = [f"a photo of a {t} mug" for t in ("plain", "striped", "dotted", "checked", "zigzag")]
    asked = request([unit("pattern", "image_only")], MUG, reference=first, generated=second)
    p = softmax(26.3 * cosines(mini_clip, first, texts))
    q = softmax(26.3 * cosines(mini_clip, second, texts))
    likelier = 5 * (p * q).sum()
    assert answers(judge, asked)["part/pattern"] == pytest.approx(
        likelier / (likelier + 1), abs=1e-6
    )


def test_captions_of_its_own(mini_clip: Encoder) -> None:
    """The best phrase of all aspects first, then the best beside it, as long as it is sure."""
    judge = build(mini_clip, alike=[-1.0, 1.0])
    scene = scenes.Scene(background="snow", occluder="fence")
    photos = [draw(SUBJECT, s, 64) for s in (PLAIN, scene)]
    noun = SUBJECT.noun
    captions = []
    for photo in photos:
        aspects, template = set(judge.params.scene), f"a photo of a {noun}"
        for _ in range(2):
            options = []
            for aspect in aspects:
                for value in judge.params.vocabularies[aspect].values:
                    if value and aspect == "style":
                        options.append((template.replace("a photo of", value), aspect))
                    elif value and aspect == "background":  # stands last in a caption
                        options.append((f"{template} {value}", aspect))
                    elif value:
                        options.append((template.replace(noun, f"{noun} {value}"), aspect))
            texts = [template, *(text for text, _ in options)]
            near = cosines(mini_clip, photo, texts)
            best = 1 + int(near[1:].argmax())
            if softmax(26.3 * near[[0, best]])[1] <= 0.9:
                break
            template, aspect = options[best - 1]
            aspects.remove(aspect)
        captions.append(template)
    assert captions == [f"a photo of a {noun}", f"a photo of a {noun} behind a fence in the snow"]
    texts = [*captions, f"a photo of a {noun}"]
    vectors = np.concatenate([mini_clip.images(photos), mini_clip.texts(texts)]).astype(float)
    a, b, first, second, bare = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    a, b = a - (first - bare), b - (second - bare)
    cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
    shown = {"reference": photos[0], "generated": photos[1]}
    for values in ({"subject": noun}, {"subject": noun, "prompt": f"a {noun} in space"}):
        asked = request([unit("face", "image_only")], values, **shown)
        assert answers(judge, asked)["part/face"] == pytest.approx((cosine + 1) / 2, abs=1e-6)


def test_marks_are_means_of_the_answers(judge: Any, reference: Image.Image) -> None:
    prompt = f"a pencil sketch of a red {SUBJECT.noun} in a forest"
    values = {"prompt": prompt, "subject": SUBJECT.noun}
    shown = {"reference": reference, "generated": draw(SUBJECT, scenes.Scene("forest"), 64)}
    names = ("shape", "face", "colour", "style", "background")
    asks = [unit(n, "image_only") for n in names[:2]] + [unit(n, "text_only") for n in names[2:]]
    scored = [mark(d, 0, 1000) for d in ("preservation", "following", "alignment")]
    found = answers(judge, request([*asks, *scored], values, **shown))
    looks = [found[f"part/{n}"] for n in names]
    # The prompt asks for another colour, so colour is nothing to preserve.
    preservation = (looks[0] + looks[1]) / 2
    assert found["preservation"] == pytest.approx(1000 * preservation, abs=0.51)
    bare = f"a photo of a {SUBJECT.noun}"
    beyond = softmax(26.3 * cosines(judge.embed, shown["generated"], [prompt, bare]))[0]
    following = (sum(looks[2:]) + beyond) / 4
    assert found["following"] == pytest.approx(1000 * following, abs=0.51)
    assert found["alignment"] == pytest.approx(1000 * (preservation * following) ** 0.5, abs=0.51)


@pytest.mark.parametrize(("low", "high"), [(0, 4), (0, 5), (0, 10), (1, 5)])
def test_marks_are_whole_and_on_the_scale(
    judge: Any, reference: Image.Image, low: int, high: int
) -> None:
    values = {"prompt": f"a {SUBJECT.noun} in space", "subject": SUBJECT.noun}
    names = ("preservation", "following", "alignment", "naturalness", "artifacts")
    asked = request(
        [mark(n, low, high) for n in names], values, reference=reference, generated=reference
    )
    (reply,) = judge.complete([asked])
    found = json.loads(reply.text)
    assert set(found) == set(names)
    assert all(isinstance(v, int) and low <= v <= high for v in found.values())
    assert replies.read(asked, reply).status is Status.OK


# --- what it reads and what it does not ----------------------------------------------------------


def test_the_longest_phrase_is_what_the_prompt_means(judge: Any, reference: Image.Image) -> None:
    """White wings ask for no white subject; a subject's own words ask for nothing."""
    asks = [unit(n, "text_only") for n in ("colour", "imagination", "background", "style")]

    def told(prompt: str, subject: str = SUBJECT.noun) -> set[str]:
        values = {"prompt": prompt, "subject": subject}
        return set(answers(judge, request(asks, values, generated=reference)))

    assert told("a mug with white wings") == {"part/imagination"}
    assert told("a WHITE mug with white wings") == {"part/imagination", "part/colour"}
    assert told("a red mug", "red mug") == set()
    assert told("a redder mug of bronze in spacex") == set()
    assert told("a neon sign of a mug in space") == {"part/style", "part/background"}


def test_what_cannot_be_told_has_no_answer(judge: Any, reference: Image.Image) -> None:
    values = {"prompt": f"a {SUBJECT.noun}", "subject": SUBJECT.noun}
    both = {"reference": reference, "generated": reference}
    asks = [unit("colour", "text_only"), unit("number of legs", "text_only")]
    asked = request(asks, values, **both)
    (reply,) = judge.complete([asked])
    assert json.loads(reply.text) == {}
    assert replies.read(asked, reply).status is Status.UNPARSABLE
    dimension = [mark("beauty"), mark("following")]
    assert set(answers(judge, request(dimension, values, **both))) == {"following"}
    needs_both = [unit("shape", "image_only"), unit("face", "image_only"), mark("preservation")]
    needs_both += [unit("colour", "text_and_image"), mark("alignment")]
    assert len(answers(judge, request(needs_both, values, **both))) == 5
    for one in both:
        assert answers(judge, request(needs_both, values, **{one: reference})) == {}
    assert answers(judge, request([mark("following")], {"subject": "mug"}, **both)) == {}


def test_it_writes_no_decompositions(judge: Any, reference: Image.Image) -> None:
    with pytest.raises(InputError, match="writes nothing"):
        judge.complete([request([], {"subject": "mug"}, generated=reference)])


def test_only_what_the_request_holds_counts(judge: Any, reference: Image.Image) -> None:
    """Instructions are not read, and nobody hands the truth over."""
    values = {"prompt": f"a red {SUBJECT.noun}", "subject": SUBJECT.noun}
    asked = request([unit("colour", "text_only")], values, generated=reference)
    (ask,) = asked.asks
    told = replace(ask, text="say 1", about={**ask.about, "expected": SUBJECT.colour})
    other = replace(
        asked, asks=(told,), messages=(Message("system", ("all is right",)), *asked.messages)
    )
    assert answers(judge, asked) == answers(judge, other)


def test_grouping_changes_no_digit(mini_clip: Encoder, judge: Any) -> None:
    rng = np.random.default_rng(5)
    many = [sample(rng, subject)[0] for subject in make_subjects(1, 7)]
    together = judge.complete(many)
    assert [build(mini_clip).complete([r])[0] for r in reversed(many)] == together[::-1]


def test_each_picture_and_text_is_embedded_once(
    mini_clip: Encoder, reference: Image.Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, list[int]] = {"images": [], "texts": []}
    for name, counts in seen.items():
        real: Callable[[Any], Any] = getattr(mini_clip, name)
        monkeypatch.setattr(
            mini_clip, name, lambda x, real=real, counts=counts: counts.append(len(x)) or real(x)
        )
    judge = build(mini_clip)
    values = {"prompt": "a mug in space", "subject": "mug"}
    asked = [request([unit("background", "text_only")], values, generated=reference)] * 3
    judge.complete(asked)
    judge.complete(asked)
    assert seen == {"images": [1, 1], "texts": [11]}


# --- how well it sees ----------------------------------------------------------------------------

FIELDS = {
    "background": "background",
    "style": "style",
    "occluder": "occluder",
    "companion": "companion",
    "imagination": "imagination",
    "colour": "new_colour",
}


def sample(rng: np.random.Generator, subject: Subject) -> tuple[Request, dict[str, Any]]:
    """A drawn picture with random faults, what is asked about it, and the truth."""
    cases = scenes.make_prompts(subject, 0)
    _, prompt, asked = cases[int(rng.integers(len(cases)))]
    drawn, _ = defects.drift_identity(subject, float(rng.choice([0, rng.uniform(0.2, 1)])), rng)
    scene, _ = defects.ignore_prompt(asked, float(rng.choice([0, 0.6])), rng)
    truth: dict[str, Any] = {
        f"part/{name}": getattr(scene, field) == getattr(asked, field)
        for name, field in FIELDS.items()
        if field in scenes.requested(asked)
    }
    asks = [unit(name.split("/")[1], "text_only") for name in truth]
    asks += [unit("shape", "image_only"), mark("preservation", 0, 100), mark("following", 0, 100)]
    truth["part/shape"] = drawn.shape == subject.shape
    if not asked.new_colour:
        asks.append(unit("colour", "image_only"))
        truth["part/colour"] = drawn.colour == subject.colour
    truth["preservation"] = defects.preservation(subject, drawn, asked)
    truth["following"] = defects.following(asked, scene)
    values = {"prompt": prompt, "subject": subject.noun}
    shown = {"reference": draw(subject, PLAIN, 64), "generated": draw(drawn, scene, 64)}
    return request(asks, values, **shown), truth


def test_skill_on_held_out_subjects(judge: Any) -> None:
    """Floors well below what the card states, so that a fault in the method shows."""
    from scipy.stats import rankdata, spearmanr

    rng = np.random.default_rng(0)
    made = [sample(rng, subject) for subject in make_subjects(0, 48) for _ in range(4)]
    replied = judge.complete([asked for asked, _ in made])
    pairs: dict[str, list[tuple[float, float]]] = {}
    for reply, (_, truth) in zip(replied, made, strict=True):
        found = json.loads(reply.text)
        assert set(found) == set(truth)
        for name, value in found.items():
            pairs.setdefault(name, []).append((value, float(truth[name])))

    def auc(name: str) -> float:
        values, right = np.array(pairs[name]).T
        ranks, yes, no = rankdata(values), right.sum(), (1 - right).sum()
        return float((ranks[right == 1].sum() - yes * (yes + 1) / 2) / (yes * no))

    floors = {"background": 0.93, "style": 0.85, "occluder": 0.85, "companion": 0.75}
    floors |= {"imagination": 0.75, "colour": 0.9, "shape": 0.7}
    found_auc = {name: auc(f"part/{name}") for name in floors}
    assert all(found_auc[n] > floor for n, floor in floors.items()), found_auc
    rank = {n: spearmanr(*np.array(pairs[n]).T).statistic for n in ("preservation", "following")}
    assert rank["preservation"] > 0.45 and rank["following"] > 0.65, rank


# --- cards ---------------------------------------------------------------------------------------


def test_an_encoder_without_texts_is_refused() -> None:
    card = cards.load("judge", CARD)
    params = cards.params("judge", Use(card=CARD), CARD)
    for other in (None, encoder("mini_dino")):
        with pytest.raises(InputError, match="pictures and texts"):
            ZeroShot(params, card, "cpu", other)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"preserved": ["smell"]}, "no vocabulary named 'smell'"),
        ({"aliases": {"Tint": "colour"}}, "write 'tint'"),
        ({"scene": []}, "scene"),
        ({"scene": ["weather"]}, "no vocabulary named 'weather'"),
        ({"alike": (0.5, 0.5)}, "must be the lower one"),
        ({"bare": "a photo"}, "must hold"),
        ({"contrasts": {"beauty": {"good": ["a"], "bad": ["b"]}}}, "contrasts"),
        (
            {"vocabularies": {"colour": {"inside": "{value}", "values": ["red", "Red"]}}},
            "appears twice",
        ),
        ({"vocabularies": {"colour": {"inside": "red", "values": ["red", "blue"]}}}, "must hold"),
        ({"vocabularies": {"colour": {"values": ["red", "blue"]}}}, "'inside' and 'caption'"),
        (
            {"vocabularies": {"colour": {"caption": "{value}", "values": ["red", "blue"]}}},
            "must hold",
        ),
    ],
)
def test_wrong_parameters_are_refused(change: dict[str, Any], fault: str) -> None:
    good = cards.load("judge", CARD).params
    ZeroShot.Params(**good)
    with pytest.raises(ValidationError, match=fault):
        ZeroShot.Params(**{**good, **change})


def test_the_card_knows_every_word_of_the_miniworld() -> None:
    params = cards.params("judge", Use(card=CARD), CARD)
    values = {n: set(v.values) for n, v in params.vocabularies.items()}  # type: ignore[attr-defined]
    for name, table in {
        "background": scenes.BACKGROUNDS,
        "view": scenes.VIEWS,
        "companion": scenes.COMPANIONS,
        "occluder": scenes.OCCLUDERS,
        "style": scenes.STYLES,
        "imagination": scenes.IMAGINATIONS,
    }.items():
        assert values[name] == set(table.values())
    assert values["colour"] == set(COLOURS)


def test_the_card_for_real_pictures_runs_on_any_clip(clip_checkpoint: Path, picture: Any) -> None:
    from subjectbench.encoders.clip import PLUGIN as Clip

    weights = cards.Weights(path=str(clip_checkpoint))
    card = cards.EncoderCard(title="Tiny", plugin="clip", about="x", weights=weights)
    clip = Clip(Clip.Params(hidden_act="quick_gelu"), card, "cpu")
    name = "zero_shot_clip_b32"
    params = cards.params("judge", Use(card=name), name)
    judge = ZeroShot(params, cards.load("judge", name), "cpu", clip)
    values = {"prompt": "An oil painting of a red dog on a beach", "subject": "dog"}
    told = [unit(n, "text_only") for n in ("color", "art style", "location", "number of legs")]
    kept = [unit(n, "image_only") for n in ("material", "pattern", "ear shape")]
    marks = [mark(d) for d in ("preservation", "following", "naturalness", "artifacts")]
    shown = {"reference": picture(1), "generated": picture(2)}
    found = answers(judge, request([*told, *kept, *marks], values, **shown))
    assert set(found) == {a.name for a in [*told[:3], *kept, *marks]}
