"""ArcFace (Deng et al. 2019) from the ONNX files of an insightface pack: SCRFD, then the network.

insightface runs the two files; which face counts and how it is aligned is ours (``faces``).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from subjectbench import checkpoint
from subjectbench.cards import EncoderCard
from subjectbench.encoders.faces import SIDE, TEMPLATE, Face, FaceEncoder, similarity
from subjectbench.errors import InputError

if TYPE_CHECKING:
    import numpy as np


class FaceArcFace(FaceEncoder):
    """SCRFD's largest face, aligned from the picture's own pixels, and 512 numbers of it.

    The detector works on a square that keeps the picture's shape. The crop of 112 px is bilinear;
    pixels beyond the picture's border are black, as in insightface.

    One order of colours at the border: our pixels are RGB, and both insightface classes get BGR.
    ONNX Runtime uses CUDA where the device is ``cuda`` and the installed package has it, and
    otherwise one thread of the CPU.
    """

    class Params(FaceEncoder.Params):
        """Parameters of an ArcFace card."""

        detector: str = Field(description="File of the SCRFD detector, with landmarks")
        recogniser: str = Field(description="File of the network for aligned faces")
        threshold: float = Field(
            default=0.5, gt=0, lt=1, description="Detections that score below are no faces"
        )
        search: int = Field(
            default=640, ge=32, multiple_of=32, description="Side of the detector's square"
        )

    def __init__(self, params: Any, card: EncoderCard, device: str) -> None:
        super().__init__(params, card, device)
        from insightface.model_zoo.arcface_onnx import ArcFaceONNX
        from insightface.model_zoo.scrfd import SCRFD

        assert card.weights is not None
        folder = checkpoint.folder(card.weights)
        detector, recogniser = folder / params.detector, folder / params.recogniser
        self.detector = SCRFD(
            str(detector), session=_session(detector, device), static_shape_sessions=False
        )
        self.recogniser = ArcFaceONNX(str(recogniser), session=_session(recogniser, device))
        if not self.detector.use_kps:
            raise InputError(detector, "finds no landmarks", "use a detector with landmarks")
        if tuple(self.recogniser.input_size) != (SIDE, SIDE):
            raise InputError(
                recogniser,
                f"takes pictures of {self.recogniser.input_size}, not {SIDE} px",
                "use a network for aligned faces",
            )

    def detect(self, pixels: np.ndarray) -> list[Face]:
        """Find the faces in RGB pixels, uint8 (height, width, 3)."""
        search = (self.params.search, self.params.search)
        found, landmarks = self.detector.detect(
            _bgr(pixels), input_size=search, det_thresh=self.params.threshold
        )
        return [Face(tuple(f[:4].tolist()), p) for f, p in zip(found, landmarks, strict=True)]

    def embed(self, pixels: np.ndarray, face: Face) -> np.ndarray | None:
        """Align and embed one face. Returns float32 (d,), or None if it cannot be aligned."""
        crop = align(_bgr(pixels), face.found)
        return None if crop is None else self.recogniser.get_feat(crop)[0]


def align(pixels: np.ndarray, landmarks: np.ndarray) -> np.ndarray | None:
    """Crop an aligned face of 112 px from pixels (height, width, 3); None if it has no alignment.

    Args:
        pixels: uint8, any order of colours.
        landmarks: (5, 2), in the order of the template.
    """
    import cv2
    import numpy as np

    matrix = similarity(landmarks.astype(np.float64), np.array(TEMPLATE))
    return None if matrix is None else cv2.warpAffine(pixels, matrix, (SIDE, SIDE))


def _bgr(pixels: np.ndarray) -> np.ndarray:
    import numpy as np

    return np.ascontiguousarray(pixels[:, :, ::-1])


def _session(file: Path, device: str) -> Any:
    import onnxruntime

    if not file.is_file():
        raise InputError(file, "no such file", "name a file of the card's weights")
    kind, _, number = device.partition(":")
    wanted = [("CUDAExecutionProvider", {"device_id": number or "0"})] * (kind == "cuda")
    available = onnxruntime.get_available_providers()
    providers = [p for p in wanted if p[0] in available] + ["CPUExecutionProvider"]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(file, options, providers)


PLUGIN = FaceArcFace
