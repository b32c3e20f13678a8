"""Vision transformers whose class token is the embedding: DINO, DINOv2 and models of their form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from subjectbench import checkpoint
from subjectbench.batches import fixed_batches
from subjectbench.cards import EncoderCard
from subjectbench.config import Strict
from subjectbench.encoders.base import Encoder, check_rgb
from subjectbench.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image


class Vit(Encoder):
    """The class token after the last norm: ``ViTModel`` without its pooler, or ``Dinov2Model``.

    Preprocessing: where the card gives ``resize`` and ``crop``, shorter side and centre crop
    (DreamBooth's DINO: 256 and 224, bicubic), rounded as torchvision does; otherwise the
    checkpoint's own. Resized by Pillow.
    """

    class Params(Strict):
        """Parameters of a ViT card."""

        architecture: Literal["vit", "dinov2"] = Field(
            default="vit", description="The checkpoint's: DINO's files are plain ViTs, DINOv2's not"
        )
        resize: int | None = Field(default=None, ge=1, description="Shorter side in pixels")
        crop: int | None = Field(default=None, ge=1, description="Centre crop in pixels")
        compute_batch: int = Field(default=12, ge=1, description="Rows of every forward pass")

    def __init__(self, params: Any, card: EncoderCard, device: str) -> None:
        super().__init__(params, card, device)
        from transformers import AutoImageProcessor, Dinov2Model, ViTModel

        assert card.weights is not None
        path = checkpoint.folder(card.weights)
        if params.architecture == "dinov2":
            self.model = checkpoint.load(Dinov2Model, path, device)
        else:
            # Without a pooler, which would be filled with random numbers if the file has none. Not
            # by a subclass: transformers renames a checkpoint's tensors by the name of the class.
            self.model = checkpoint.load(
                ViTModel, path, device, ignore=("pooler.",), add_pooling_layer=False
            )
        patch = self.model.config.patch_size
        if params.crop and params.crop % patch:
            raise InputError(
                "params.crop",
                f"{params.crop} px are no whole number of patches of {patch} px",
                "the rest would be left out without a word",
            )
        self.processor = AutoImageProcessor.from_pretrained(path, backend="pil")

    def _crop(self, picture: Image.Image) -> Image.Image:
        from PIL import Image

        if self.params.resize:
            short = min(picture.size)
            width, height = (int(self.params.resize * s / short) for s in picture.size)
            picture = picture.resize((width, height), Image.Resampling.BICUBIC)
        if self.params.crop:
            left, top = (round((s - self.params.crop) / 2) for s in picture.size)
            picture = picture.crop((left, top, left + self.params.crop, top + self.params.crop))
        return picture

    def kept(self, size: tuple[int, int]) -> float:
        """Share of a picture of this width and height that is left by the centre crop."""
        if not (self.params.resize and self.params.crop):
            return 1.0
        long = self.params.resize * max(size) / min(size)
        crop = self.params.crop
        return min(1.0, crop / self.params.resize) * min(1.0, crop / long)

    def pixels(self, pictures: Sequence[Image.Image]) -> Any:
        """Preprocess RGB pictures. Returns a float32 tensor (n, 3, height, width)."""
        check_rgb(pictures)
        own = {"do_resize": False, "do_center_crop": False} if self.params.crop else {}
        cropped = [self._crop(p) for p in pictures]
        return self.processor(images=cropped, return_tensors="pt", **own)["pixel_values"]

    def images(self, pictures: Sequence[Image.Image]) -> np.ndarray:
        """Embed RGB pictures. Returns float32 (n, hidden_size)."""
        import numpy as np
        import torch

        rows = []
        with torch.inference_mode():
            for batch, count in fixed_batches(pictures, self.params.compute_batch):
                pixels = self.pixels(batch).to(self.device)
                states = self.model(pixel_values=pixels).last_hidden_state
                rows.append(states[:count, 0].cpu().numpy())
        width = self.model.config.hidden_size
        return np.concatenate(rows) if rows else np.zeros((0, width), np.float32)


PLUGIN = Vit
