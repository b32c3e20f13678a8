"""dlib's face recognition (King 2017): detector, five landmarks, a ResNet with 128 numbers.

The embedding was trained for Euclidean distance (0.6 and less: the same person) and is not of unit
length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from subjectbench import checkpoint
from subjectbench.cards import EncoderCard
from subjectbench.encoders.faces import Face, FaceEncoder

if TYPE_CHECKING:
    import numpy as np

CNN = "models/mmod_human_face_detector.dat"
LANDMARKS = "models/shape_predictor_5_face_landmarks.dat"
RESNET = "models/dlib_face_recognition_resnet_model_v1.dat"


class FaceDlib(FaceEncoder):
    """dlib's own alignment to 150 px, on RGB; pixels beyond the picture's border are black.

    Runs on the CPU, whatever the device.
    """

    class Params(FaceEncoder.Params):
        """Parameters of a dlib card."""

        detector: Literal["hog", "cnn"] = Field(
            default="hog", description="hog: frontal faces, fast; cnn: also turned ones, slow"
        )
        upsample: int = Field(
            default=1,
            ge=0,
            le=3,
            description="How often the picture is doubled for the search alone; hog finds faces "
            "from about 80 px in what it searches",
        )
        min_score: float = Field(
            default=0.0, ge=0, description="Detections below are no faces; dlib's own is 0"
        )

    def __init__(self, params: Any, card: EncoderCard, device: str) -> None:
        super().__init__(params, card, device)
        import dlib

        assert card.weights is not None
        folder = checkpoint.folder(card.weights)
        self._hog = dlib.get_frontal_face_detector()
        self._cnn = dlib.cnn_face_detection_model_v1(str(folder / CNN))
        self._landmarks = dlib.shape_predictor(str(folder / LANDMARKS))
        self._resnet = dlib.face_recognition_model_v1(str(folder / RESNET))

    def detect(self, pixels: np.ndarray) -> list[Face]:
        """Find the faces in RGB pixels, uint8 (height, width, 3)."""
        if self.params.detector == "hog":
            found, _, _ = self._hog.run(pixels, self.params.upsample, self.params.min_score)
        else:
            scored = self._cnn(pixels, self.params.upsample)
            found = [f.rect for f in scored if f.confidence >= self.params.min_score]
        # dlib's right and bottom are inclusive.
        return [Face((r.left(), r.top(), r.right() + 1, r.bottom() + 1), r) for r in found]

    def embed(self, pixels: np.ndarray, face: Face) -> np.ndarray:
        """Align and embed one face. Returns float64 (128,)."""
        import numpy as np

        shape = self._landmarks(pixels, face.found)
        return np.array(self._resnet.compute_face_descriptor(pixels, shape))


PLUGIN = FaceDlib
