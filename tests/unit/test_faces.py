"""Faces: alignment against independent code, real photographs, and failures that are no numbers."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from insightface.utils import face_align
from onnx import TensorProto, helper, numpy_helper
from PIL import Image, ImageOps
from skimage.transform import SimilarityTransform

from subjectbench import cards, checkpoint
from subjectbench.cards import EncoderCard, Weights
from subjectbench.config import Use, load_study
from subjectbench.encoders import face_arcface
from subjectbench.encoders.base import Vector
from subjectbench.encoders.face_arcface import PLUGIN as FaceArcFace
from subjectbench.encoders.face_dlib import PLUGIN as FaceDlib
from subjectbench.encoders.faces import TEMPLATE, Face, largest, similarity
from subjectbench.errors import InputError
from subjectbench.hashing import sha256_file
from subjectbench.metrics.base import Item, Result
from subjectbench.metrics.face_similarity import PLUGIN as FaceSimilarity
from subjectbench.metrics.face_similarity import face_score
from subjectbench.plan import make_plan, weights_identity
from subjectbench.stages import embed, generate, prepare, tabulate
from subjectbench.stages import score as score_stage
from subjectbench.stages.base import Context
from subjectbench.vocabulary import Status

TARGET = np.array(TEMPLATE)


def scale(matrix: np.ndarray) -> float:
    return float(np.hypot(matrix[0, 0], matrix[1, 0]))


# --- alignment -----------------------------------------------------------------------------------


def test_landmarks_on_the_template_are_left_as_they_are() -> None:
    """UFO's code makes the scale 2 here."""
    matrix = similarity(TARGET, TARGET)
    assert matrix is not None
    np.testing.assert_allclose(matrix, [[1, 0, 0], [0, 1, 0]], atol=1e-12)
    assert scale(matrix) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("mirrored", [False, True])
def test_alignment_agrees_with_scikit_image(mirrored: bool) -> None:
    """Umeyama by singular values there; mirrored landmarks must not be mirrored back."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        points = TARGET * rng.uniform(0.2, 9) + rng.normal(0, 6, (5, 2)) + rng.uniform(-99, 999, 2)
        points = points * [-1, 1] if mirrored else points
        found = similarity(points, TARGET)
        expected = SimilarityTransform.from_estimate(points, TARGET).params[:2]
        assert found is not None
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7)
        assert np.linalg.det(found[:, :2]) > 0


@settings(max_examples=60, deadline=None)
@given(st.floats(0.05, 30), st.floats(-3.1, 3.1), st.floats(-2000, 2000), st.floats(-2000, 2000))
def test_alignment_undoes_any_similarity(size: float, turn: float, x: float, y: float) -> None:
    move = size * np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    matrix = similarity(TARGET @ move.T + [x, y], TARGET)
    assert matrix is not None
    assert scale(matrix) == pytest.approx(1 / size, rel=1e-6)
    np.testing.assert_allclose(matrix[:, :2] @ move, np.eye(2), atol=1e-6)


@pytest.mark.parametrize(
    "points",
    [
        np.full((5, 2), 40.0),
        40 + TARGET / 1000,
        np.where(np.eye(5, 2) > 0, np.nan, TARGET),
        np.where(np.eye(5, 2) > 0, np.inf, TARGET),
    ],
    ids=["one point", "within a pixel", "nan", "inf"],
)
def test_degenerate_landmarks_have_no_alignment(points: np.ndarray) -> None:
    assert similarity(points, TARGET) is None
    assert face_arcface.align(np.zeros((80, 80, 3), np.uint8), points) is None


@pytest.mark.filterwarnings("ignore:.*estimate.*:FutureWarning")
def test_the_crop_is_insightfaces(photo: Any) -> None:
    """The same landmarks give the same pixels as their ``norm_crop``, also across the border."""
    pixels = np.asarray(photo("astronaut"))
    for points in (TARGET * 0.8 + [180, 60], TARGET * 2.5 + [-60, -50]):
        found = face_arcface.align(pixels, points)
        expected = face_align.norm_crop(pixels, points.astype(np.float32))
        assert found is not None and found.shape == (112, 112, 3)
        assert np.abs(found.astype(int) - expected).max() <= 2  # their matrix is rounded to float32
        assert found.std() > 20
    assert found[0, 0].tolist() == [0, 0, 0]  # beyond the border: black


def test_a_mirrored_pentagon_has_no_best_rotation() -> None:
    angles = np.arange(5) * 2 * np.pi / 5
    pentagon = 50 * np.stack([np.cos(angles), np.sin(angles)], 1)
    assert similarity(pentagon * [1, -1], pentagon) is None


# --- which face counts ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("boxes", "chosen"),
    [
        ([(0, 0, 30, 30), (50, 50, 90, 90)], 1),
        ([(0, 0, 40, 30), (50, 50, 80, 90)], 1),  # equal areas: nearer to the centre
        ([(60, 30, 90, 60), (10, 30, 40, 60)], 1),  # as near: left-most
        ([(35, 60, 65, 90), (35, 10, 65, 40)], 1),  # as far left: upper-most
        ([(-80, 0, 25, 50), (40, 40, 80, 80)], 1),  # only what is inside counts
        ([(0, 0, 19, 90), (40, 40, 65, 65)], 1),  # shorter side below min_face
        ([(np.nan, 0, 50, 50), (0, np.nan, 50, 50)], None),
        ([(200, 200, 300, 300), (0, 0, 19, 19)], None),
        ([], None),
    ],
)
def test_the_largest_face_counts(
    boxes: list[tuple[float, float, float, float]], chosen: int | None
) -> None:
    faces = [Face(b, i) for i, b in enumerate(boxes)]
    for order in (faces, faces[::-1]):
        found = largest(order, (100, 100), 20)
        assert (found.found if found else None) == chosen


# --- real photographs, dlib ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def photo() -> Any:
    """``photo(name)``: photographs that installed packages carry."""
    places = {
        "astronaut": ("skimage", "data/astronaut.png"),
        "group": ("insightface", "data/images/t1.jpg"),
        "cat": ("skimage", "data/chelsea.png"),
    }

    def load(name: str) -> Image.Image:
        package, file = places[name]
        spec = importlib.util.find_spec(package)
        assert spec and spec.submodule_search_locations
        with Image.open(Path(spec.submodule_search_locations[0]) / file) as picture:
            return picture.convert("RGB")

    return load


@pytest.fixture(scope="module")
def people(photo: Any) -> tuple[Image.Image, Image.Image]:
    """Two people's heads, 150 px wide."""
    return photo("astronaut").crop((150, 40, 300, 200)), photo("group").crop((1095, 240, 1245, 400))


def dlib_encoder(**params: Any) -> FaceDlib:
    card = cards.load("encoder", "face_dlib")
    use = Use(card="face_dlib", params=params)
    return FaceDlib(cards.params("encoder", use, "test"), card, "cpu")


@pytest.fixture(scope="module")
def by_dlib() -> FaceDlib:
    return dlib_encoder()


def cosine(a: Vector, b: Vector) -> float:
    result = face_score(a, b)
    assert result.value is not None
    return result.value


def test_one_person_is_liker_than_another(by_dlib: FaceDlib, photo: Any) -> None:
    astronaut, group = photo("astronaut"), photo("group")
    copies = [
        ImageOps.mirror(astronaut),
        astronaut.point(lambda v: v // 2),
        astronaut.convert("L"),
        astronaut.resize((256, 256)),
    ]
    others = [group.crop((x, 0, x + 180, 886)) for x in (30, 420, 690, 1080)]
    own, *rest = by_dlib.vectors([astronaut, *copies, *others])
    assert [v.status for v in (own, *rest)] == [Status.OK] * 9
    assert own.values is not None and own.values.shape == (128,)
    same, other = rest[:4], rest[4:]
    assert min(cosine(own, v) for v in same) > 0.97 > 0.93 > max(cosine(own, v) for v in other)
    by_distance = [face_score(v, own, "distance").value or 0.0 for v in rest]
    assert min(by_distance[:4]) > 0.65 > 0.4 > max(by_distance[4:])  # 0.6 apart is dlib's limit


@pytest.mark.parametrize("swapped", [False, True])
def test_the_larger_of_two_people_is_compared(
    by_dlib: FaceDlib, people: tuple[Image.Image, Image.Image], swapped: bool
) -> None:
    large, small = people[::-1] if swapped else people
    canvas = Image.new("RGB", (500, 340), (120, 130, 140))
    canvas.paste(small.resize((120, 128)), (20, 100))
    canvas.paste(large.resize((260, 277)), (200, 30))
    both, large_alone, small_alone = by_dlib.vectors([canvas, large, small])
    assert len(by_dlib.detect(np.asarray(canvas))) == 2
    assert cosine(both, large_alone) > 0.96 > 0.93 > cosine(both, small_alone)


def test_no_face_and_a_tiny_face(
    by_dlib: FaceDlib, photo: Any, people: tuple[Image.Image, Image.Image]
) -> None:
    tiny = people[0].resize((30, 32))
    assert by_dlib.vectors([photo("cat"), tiny]) == [Vector(Status.NO_FACE)] * 2
    assert dlib_encoder(upsample=2).vectors([tiny])[0].status is Status.NO_FACE  # 18 px < min_face
    assert dlib_encoder(upsample=2, min_face=10).vectors([tiny])[0].status is Status.OK
    with pytest.raises(ValueError, match="picture 1: no_face"):
        by_dlib.images([people[0], tiny])
    assert by_dlib.images(people).shape == (2, 128)


def test_no_picture_changes_another(
    by_dlib: FaceDlib, photo: Any, people: tuple[Image.Image, Image.Image]
) -> None:
    alone = by_dlib.images(people[:1])
    again = by_dlib.vectors([photo("cat"), people[1], people[0]])[2].values
    assert again is not None and again.tobytes() == alone[0].tobytes()


def test_the_other_detector_finds_the_same_face(photo: Any, by_dlib: FaceDlib) -> None:
    pixels = np.asarray(photo("astronaut").crop((130, 20, 330, 240)))
    cnn = dlib_encoder(detector="cnn", upsample=0)
    (face,), (other,) = cnn.detect(pixels), by_dlib.detect(pixels)
    np.testing.assert_allclose(face.box, other.box, atol=20)
    found, expected = cnn.embed(pixels, face), by_dlib.embed(pixels, other)
    assert np.linalg.norm(found - expected) < 0.4  # one person
    assert dlib_encoder(detector="cnn", upsample=0, min_score=9.0).detect(pixels) == []


def test_dlib_gets_rgb_and_black_beyond_the_border(
    by_dlib: FaceDlib, people: tuple[Image.Image, Image.Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    import dlib

    cut = np.asarray(people[0].crop((30, 30, 120, 150)))
    found = by_dlib.embed(cut, Face((5, 5, 85, 95), dlib.rectangle(5, 5, 85, 95)))

    def apart(colour: int) -> float:
        wide = np.pad(cut, ((40, 40), (40, 40), (0, 0)), constant_values=colour)
        moved = by_dlib.embed(wide, Face((45, 45, 125, 135), dlib.rectangle(45, 45, 125, 135)))
        return float(np.linalg.norm(found - moved))

    assert apart(0) < 0.06 < 0.1 < apart(255)  # the border's own line of pixels is blended
    seen = []

    class Spy:
        def run(self, pixels: np.ndarray, *_: Any) -> tuple[list[Any], list[Any], list[Any]]:
            seen.append(pixels[0, 0].tolist())
            return [], [], []

    monkeypatch.setattr(by_dlib, "_hog", Spy())
    by_dlib.vectors([Image.new("RGB", (64, 64), (255, 0, 0))])
    assert seen == [[255, 0, 0]]


def test_weights_in_a_package_are_checked_and_named() -> None:
    weights = cards.load("encoder", "face_dlib").weights
    assert weights_identity(weights) == {"package": weights.package, "sha256": weights.sha256}
    name = next(iter(weights.sha256))
    other = Weights(package=weights.package, sha256={name: "0" * 64})
    with pytest.raises(InputError, match="is another file than the card names"):
        checkpoint.folder(other)
    with pytest.raises(InputError, match="no such package"):
        checkpoint.folder(Weights(package="no_such_package", sha256={name: "0" * 64}))


# --- ArcFace, with small ONNX files of the form of a pack ----------------------------------------


def save(folder: Path, name: str, nodes: list[Any], inputs: Any, outputs: Any, values: Any) -> None:
    constants = [numpy_helper.from_array(v, n) for n, v in values.items()]
    graph = helper.make_graph(nodes, name, inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, folder / name)


def save_detector(folder: Path, landmarks: bool = True) -> None:
    """An SCRFD by its outputs: every cell of 8, 16 or 32 px that is red and not green is a face.

    Of two anchors per cell the first scores; its box is the cell, its landmarks the template.
    """
    parts = {"score": 1, "bbox": 4, "kps": 10} if landmarks else {"score": 1, "bbox": 4}
    nodes, outputs, values = [], [], {}
    for part, width in parts.items():
        values[f"{part}_shape"] = np.array([-1, width])
        for stride in (8, 16, 32):
            kernel = np.zeros((2 * width, 3, stride, stride), np.float32)
            bias = np.zeros((2, width), np.float32)
            if part == "score":  # red minus green, in [-1, 1], of RGB input
                kernel[0, 0], kernel[0, 1] = 0.5 / stride**2, -0.5 / stride**2
            elif part == "bbox":  # distances from the cell's corner, in strides
                bias[:] = [0, 0, 1, 1]
            else:
                bias[:] = (TARGET / 112).ravel()
            name = f"{part}_{stride}"
            values |= {f"{name}_w": kernel, f"{name}_b": bias.ravel()}
            nodes += [
                helper.make_node(
                    "Conv",
                    ["input", f"{name}_w", f"{name}_b"],
                    [f"{name}_c"],
                    strides=[stride, stride],
                ),
                helper.make_node("Transpose", [f"{name}_c"], [f"{name}_t"], perm=[0, 2, 3, 1]),
                helper.make_node("Reshape", [f"{name}_t", f"{part}_shape"], [name]),
            ]
            outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, width]))
    shape = [1, 3, "height", "width"]
    picture = helper.make_tensor_value_info("input", TensorProto.FLOAT, shape)
    save(folder, "det.onnx", nodes, [picture], outputs, values)


PROJECTION = np.random.default_rng(5).normal(size=(147, 16)).astype(np.float32)


def save_recogniser(folder: Path, side: int = 112) -> None:
    """Means over a grid of 7 x 7, then a random projection to 16 numbers."""
    nodes = [
        helper.make_node("AveragePool", ["data"], ["p"], kernel_shape=[16, 16], strides=[16, 16]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "w"], ["out"]),
    ]
    inputs = [helper.make_tensor_value_info("data", TensorProto.FLOAT, ["n", 3, side, side])]
    outputs = [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["n", 16])]
    weights = np.resize(PROJECTION, (3 * (side // 16) ** 2, 16))
    save(folder, "rec.onnx", nodes, inputs, outputs, {"w": weights})


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "pack"
    folder.mkdir()
    save_detector(folder)
    save_recogniser(folder)
    return folder


def pack_card(pack: Path, folder: Path | None = None) -> EncoderCard:
    hashes = {n: sha256_file(pack / n) for n in ("det.onnx", "rec.onnx")}
    weights = Weights(path=str(folder or pack), sha256=hashes)
    return EncoderCard(title="Tiny", plugin="face_arcface", about="random", weights=weights)


def arcface_encoder(card: EncoderCard, **params: Any) -> FaceArcFace:
    names = {"detector": "det.onnx", "recogniser": "rec.onnx"}
    return FaceArcFace(FaceArcFace.Params(**(names | params)), card, "cpu")


@pytest.fixture(scope="module")
def by_arcface(pack: Path) -> FaceArcFace:
    return arcface_encoder(pack_card(pack))


def scene(*cells: tuple[int, int, int], colour: tuple[int, int, int] = (255, 0, 20)) -> Image.Image:
    """A grey picture of 640 px of noise, with coloured cells (left, top, side) that have a ramp."""
    pixels = np.random.default_rng(3).integers(90, 160, (640, 640, 1), np.uint8).repeat(3, 2)
    for left, top, side in cells:
        cell = pixels[top : top + side, left : left + side]
        cell[:] = colour
        cell[..., 2] += (np.arange(side) * 200 // side).astype(np.uint8)[:, None]
    return Image.fromarray(pixels)


def test_arcface_from_pixels_to_numbers(by_arcface: FaceArcFace) -> None:
    """Detector, largest face, alignment, colours and network, against the sum done by hand."""
    picture = scene((64, 96, 32), (400, 400, 16), (560, 8, 8))
    faces = by_arcface.detect(np.asarray(picture))
    boxes = sorted(tuple(round(v) for v in f.box) for f in faces)
    assert (64, 96, 96, 128) in boxes and (400, 400, 416, 416) in boxes
    assert (560, 8, 568, 16) in boxes
    (vector,) = by_arcface.vectors([picture])
    assert vector.status is Status.OK and vector.values is not None
    # The landmarks are the template shrunk into the cell, so the crop is the cell, 3.5 times.
    rows, columns = (np.arange(112) * 32 / 112 + start for start in (96, 64))
    pixels = np.asarray(picture, np.float64)
    crop = sum(
        pixels[np.ix_(np.floor(rows).astype(int) + i, np.floor(columns).astype(int) + j)]
        * np.abs(1 - i - rows % 1)[:, None, None]
        * np.abs(1 - j - columns % 1)[None, :, None]
        for i in (0, 1)
        for j in (0, 1)
    )
    grid = ((crop - 127.5) / 127.5).reshape(7, 16, 7, 16, 3).mean((1, 3))
    expected = grid.transpose(2, 0, 1).ravel() @ PROJECTION
    np.testing.assert_allclose(vector.values, expected, atol=0.02)


def test_arcface_without_a_face(by_arcface: FaceArcFace, pack: Path) -> None:
    blue = scene((64, 96, 32), colour=(0, 0, 50))
    assert by_arcface.vectors([scene(), blue]) == [Vector(Status.NO_FACE)] * 2
    small = scene((560, 8, 8))
    assert by_arcface.vectors([small]) == [Vector(Status.NO_FACE)]
    assert arcface_encoder(pack_card(pack), min_face=8).vectors([small])[0].status is Status.OK


def test_a_face_that_cannot_be_aligned_failed(
    by_arcface: FaceArcFace, monkeypatch: pytest.MonkeyPatch
) -> None:
    face = Face((0.0, 0.0, 50.0, 50.0), np.full((5, 2), 25.0))
    monkeypatch.setattr(by_arcface, "detect", lambda _: [face])
    assert by_arcface.vectors([scene()]) == [Vector(Status.FAILED)]


def test_face04_insightface_gets_bgr(
    by_arcface: FaceArcFace, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[int]] = []

    class Spy:
        def detect(self, pixels: np.ndarray, **_: Any) -> tuple[np.ndarray, np.ndarray]:
            seen.append(pixels[0, 0].tolist())
            return np.array([[0, 0, 60, 60, 0.9]], np.float32), TARGET[None] / 2 + 2

        def get_feat(self, crop: np.ndarray) -> np.ndarray:
            seen.append(crop[56, 56].tolist())
            return np.ones((1, 16), np.float32)

    monkeypatch.setattr(by_arcface, "detector", Spy())
    monkeypatch.setattr(by_arcface, "recogniser", Spy())
    (vector,) = by_arcface.vectors([Image.new("RGB", (64, 64), (255, 0, 0))])
    assert vector.status is Status.OK
    assert seen == [[0, 0, 255], [0, 0, 255]]


def test_face06_a_pack_one_folder_too_deep_is_named(pack: Path, tmp_path: Path) -> None:
    deep = tmp_path / "models" / "pack"
    shutil.copytree(pack, deep / "pack")
    card = pack_card(pack, deep)
    for find in (lambda: weights_identity(card.weights), lambda: arcface_encoder(card)):
        with pytest.raises(InputError) as caught:  # while planning, and while loading
            find()
        assert caught.value.where == str(deep / "det.onnx")
        assert f"too deep: move what is in {deep / 'pack'} up" in caught.value.mend


def test_face06_missing_files_are_listed_and_no_pack_stands_in(pack: Path, tmp_path: Path) -> None:
    card = pack_card(pack, tmp_path / "pack")
    for make_folder in (False, True):
        if make_folder:
            (tmp_path / "pack").mkdir()
        with pytest.raises(InputError) as caught:
            weights_identity(card.weights)
        assert str(tmp_path / "pack") in caught.value.where
        assert all(n in caught.value.mend for n in ("det.onnx (sha256 ", "rec.onnx (sha256 "))
    for name in ("det.onnx", "rec.onnx"):
        shutil.copy(pack / "rec.onnx", tmp_path / "pack" / name)
    with pytest.raises(InputError, match=r"det\.onnx: is another file than the card names"):
        arcface_encoder(card)
    shutil.copytree(pack, tmp_path / "buffalo_l")  # another pack beside it is not taken
    with pytest.raises(InputError, match=r"det\.onnx: is another file"):
        weights_identity(card.weights)


def test_networks_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    save_detector(tmp_path, landmarks=False)
    save_recogniser(tmp_path)
    with pytest.raises(InputError, match=r"det\.onnx: finds no landmarks"):
        arcface_encoder(pack_card(tmp_path))
    save_detector(tmp_path)
    save_recogniser(tmp_path, side=128)
    with pytest.raises(InputError, match=r"rec\.onnx: takes pictures of \(128, 128\), not 112"):
        arcface_encoder(pack_card(tmp_path))
    with pytest.raises(InputError, match=r"other\.onnx: no such file"):
        arcface_encoder(pack_card(tmp_path), detector="other.onnx")


# --- the metric ----------------------------------------------------------------------------------

NO_FACE = Vector(Status.NO_FACE)


def vector(*values: float) -> Vector:
    return Vector(Status.OK, np.array(values, np.float32))


def score(image: Vector | None, *references: Vector, **params: Any) -> Result:
    card = cards.load("metric", "face_similarity_dlib")
    metric = FaceSimilarity(FaceSimilarity.Params(**params), card, Path())
    (result,) = metric.score([Item("model", "c-s0", "c", image=image, references=references)])
    return result


@pytest.mark.parametrize(
    ("params", "value", "opposite"),
    [
        ({}, 0.96, -0.96),
        ({"map": "clip"}, 0.96, 0.0),
        ({"map": "half"}, 0.98, 0.02),
        ({"map": "threshold"}, 1.0, 0.0),
        ({"map": "threshold", "threshold": 0.97}, 0.0, 0.0),
        ({"map": "threshold", "threshold": -1.0}, 1.0, 1.0),
        ({"map": "distance"}, 0.0, 0.0),
    ],
)
def test_face03_the_score_is_the_declared_map(
    params: dict[str, Any], value: float, opposite: float
) -> None:
    """Raw cosine by default; every other map only by its name."""
    result = score(vector(3, 4), vector(4, 3), **params)
    assert (result.status, result.n_raw) == (Status.OK, 1)
    assert result.value == pytest.approx(value, abs=1e-7)
    assert score(vector(-3, -4), vector(4, 3), **params).value == pytest.approx(opposite, abs=1e-7)
    assert score(vector(3, 4), vector(0, 0), **params) == Result(Status.NON_FINITE)
    assert score(vector(np.inf, 4), vector(3, 4), **params) == Result(Status.NON_FINITE)


def test_the_distance_is_that_of_the_vectors_as_they_are() -> None:
    assert score(vector(0.3, 0.4), vector(0.4, 0.3), map="distance").value == pytest.approx(
        1 - 0.02**0.5
    )
    assert score(vector(1, 2), vector(1, 2), map="distance").value == 1.0


def test_several_references_are_averaged() -> None:
    result = score(vector(1, 0), vector(1, 0), vector(0, 1))
    assert (result.value, result.n_raw) == (pytest.approx(0.5), 2)


@pytest.mark.parametrize("policy", ["status", "zero"])
def test_no_face_means_something_else_on_each_side(policy: str) -> None:
    """Nothing to compare with is never a zero; a lost identity is one if so declared."""
    for image in (vector(1, 0), NO_FACE):
        found = score(image, NO_FACE, no_face=policy)
        assert found == Result(Status.NO_FACE_REFERENCE)
    lost = score(NO_FACE, vector(1, 0), no_face=policy)
    if policy == "zero":
        assert lost == Result(Status.OK, 0.0, 0, {"policy": "zero"})
    else:
        assert lost == Result(Status.NO_FACE)
    for bad in (Status.FAILED, Status.BAD_REFERENCE, Status.TRUNCATED):
        assert score(vector(1, 0), Vector(bad), no_face=policy) == Result(bad)
        assert score(Vector(bad), vector(1, 0), no_face=policy) == Result(bad)
    assert score(None, vector(1, 0), no_face=policy) == Result(Status.MISSING)
    assert score(vector(1, 0), no_face=policy) == Result(Status.MISSING)


def test_face01_the_coverage_table_shows_that_the_ranking_depends_on_the_policy() -> None:
    def like(cos: float) -> Vector:
        return vector(cos, (1 - cos**2) ** 0.5)

    pictures = {"P": [like(0.9), like(0.9), NO_FACE, NO_FACE], "Q": [like(0.7)] * 4}
    rows = []
    for metric, policy in (("face", "status"), ("face_zero", "zero")):
        for generator, vectors in pictures.items():
            for image in vectors:
                result = score(image, vector(1, 0), no_face=policy)
                row = {"metric": metric, "generator": generator, "value": result.value}
                row["details"] = "{}"
                rows.append(row | {"status": result.status.value})
    named = {
        k: [{"name": n, "title": n} for n in v]
        for k, v in {"metrics": ("face", "face_zero"), "generators": ("P", "Q")}.items()
    }
    table = tabulate.coverage(pd.DataFrame(rows), named).set_index(["metric", "generator"])
    found = {
        key: (row["mean"], row["n"], row["expected"], row["others"])
        for key, row in table.iterrows()
    }
    assert found == {
        ("face", "P"): (pytest.approx(0.9), 2, 4, "2 no_face"),
        ("face", "Q"): (pytest.approx(0.7), 4, 4, ""),
        ("face_zero", "P"): (pytest.approx(0.45), 4, 4, ""),
        ("face_zero", "Q"): (pytest.approx(0.7), 4, 4, ""),
    }


def test_faces_through_all_stages(
    people: tuple[Image.Image, Image.Image], photo: Any, tmp_path: Path
) -> None:
    """A folder of one's own: a person, another, and a cat; each model shows its own faces."""
    for name, picture in zip(("anna", "bob", "cat"), (*people, photo("cat")), strict=True):
        picture.save(tmp_path / f"{name}.png")
    (tmp_path / "subjects.csv").write_text(
        "subject_id,subject,image\nanna,woman,anna.png\nbob,man,bob.png\ncat,cat,cat.png\n"
    )
    (tmp_path / "prompts.csv").write_text("subject_id,prompt\nanna,a\nbob,b\ncat,c\n")
    lost = {"card": "face_similarity_dlib", "name": "lost", "params": {"no_face": "zero"}}
    study = {
        "study": "faces",
        "benchmark": {"card": "folder", "params": {"path": str(tmp_path)}},
        "generators": ["copy_reference", "noise"],
        "metrics": ["face_similarity_dlib", lost],
        "results": str(tmp_path / "results"),
        "run": {"device": "cpu"},
    }
    made = make_plan(load_study(study))
    assert len(made.of_kind("embed_images")) == 2  # both policies share the embeddings
    stages = {"benchmark": prepare.run, "generate": generate.run, "embed_cases": embed.run_cases}
    stages |= {"embed_images": embed.run_images, "score": score_stage.run}
    for kind, run in stages.items():
        for artifact in made.of_kind(kind):
            run(Context(made, artifact))
    found = {}
    for artifact in made.of_kind("score"):
        frame = pd.read_parquet(made.folder(artifact.key) / "scores.parquet")
        one = artifact.job["metric"], artifact.job["generator"]
        values = [None if pd.isna(v) else round(v, 4) for v in frame["value"]]
        found[one] = list(zip(frame["status"], values, strict=True))
    cat = ("no_face_reference", None)
    assert found == {
        ("face_similarity_dlib", "copy_reference"): [("ok", 1.0), ("ok", 1.0), cat],
        ("face_similarity_dlib", "noise"): [("no_face", None), ("no_face", None), cat],
        ("lost", "copy_reference"): [("ok", 1.0), ("ok", 1.0), cat],
        ("lost", "noise"): [("ok", 0.0), ("ok", 0.0), cat],
    }
