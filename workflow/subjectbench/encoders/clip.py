"""CLIP, and models of its form."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
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


class Clip(Encoder):
    """``transformers.CLIPModel`` with the preprocessing of its checkpoint, resized by Pillow.

    Embeddings are the projected ones (``pooler_output`` of ``get_*_features``).
    """

    embeds_text = True

    class Params(Strict):
        """Parameters of a CLIP card."""

        hidden_act: Literal["quick_gelu", "gelu"] = Field(
            description="Activation of both towers; the checkpoint's must agree"
        )
        compute_batch: int = Field(default=12, ge=1, description="Rows of every forward pass")

    def __init__(self, params: Any, card: EncoderCard, device: str) -> None:
        super().__init__(params, card, device)
        assert card.weights is not None
        path = checkpoint.folder(card.weights)
        self._load(path)
        # 2 stands for "the highest id" in old configs. Any other wrong id, and every text would be
        # pooled at its first token.
        end = self.model.config.text_config.eos_token_id
        if end not in (2, self.tokenizer.eos_token_id):
            raise InputError(
                f"{path}/config.json",
                f"text_config.eos_token_id is {end}, the tokenizer's is "
                f"{self.tokenizer.eos_token_id}",
                "put tokenizer and model of one checkpoint together",
            )
        for tower in (self.model.config.text_config, self.model.config.vision_config):
            if tower.hidden_act != params.hidden_act:
                raise InputError(
                    f"{path}/config.json",
                    f"hidden_act is {tower.hidden_act}, the card says {params.hidden_act}",
                    "with the other activation the same weights give other scores",
                )

    def _load(self, path: Path) -> None:
        from transformers import AutoImageProcessor, AutoTokenizer, CLIPModel

        self.model = checkpoint.load(CLIPModel, path, self.device)
        self.processor = AutoImageProcessor.from_pretrained(path, backend="pil")
        self.tokenizer = AutoTokenizer.from_pretrained(path)

    def kept(self, size: tuple[int, int]) -> float:
        """Share of a picture of this width and height that is left by the centre crop."""
        return min(size) / max(size)

    def pixels(self, pictures: Sequence[Image.Image]) -> Any:
        """Preprocess RGB pictures. Returns a float32 tensor (n, 3, side, side)."""
        check_rgb(pictures)
        return self.processor(images=pictures, return_tensors="pt")["pixel_values"]

    def images(self, pictures: Sequence[Image.Image]) -> np.ndarray:
        """Embed RGB pictures. Returns float32 (n, projection_dim)."""
        return self._run(pictures, self._image_batch)

    def texts(self, texts: Sequence[str]) -> np.ndarray:
        """Embed texts. Returns float32 (n, projection_dim).

        Texts beyond the context length lose their last words but keep the end token, at which
        CLIP pools.
        """
        return self._run(texts, self._text_batch)

    def cut(self, texts: Sequence[str]) -> list[int]:
        """Tokens that each text has beyond the context length."""
        length = self.model.config.text_config.max_position_embeddings
        tokens = self.tokenizer(list(texts), verbose=False)["input_ids"] if texts else []
        return [max(0, len(row) - length) for row in tokens]

    def _image_batch(self, pictures: list[Image.Image]) -> Any:
        return self.model.get_image_features(pixel_values=self.pixels(pictures).to(self.device))

    def _text_batch(self, texts: list[str]) -> Any:
        length = self.model.config.text_config.max_position_embeddings
        tokens = self.tokenizer(
            texts, padding="max_length", truncation=True, max_length=length, return_tensors="pt"
        ).to(self.device)
        return self.model.get_text_features(
            input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"]
        )

    def _run(self, items: Sequence[Any], forward: Any) -> np.ndarray:
        import numpy as np
        import torch

        rows = []
        with torch.inference_mode():
            for batch, count in fixed_batches(items, self.params.compute_batch):
                out = forward(batch)
                # transformers 5 returns an object, 4 a tensor; element [0] would be patch tokens.
                features = out if isinstance(out, torch.Tensor) else out.pooler_output
                if features.shape[1] != self.model.config.projection_dim:
                    raise RuntimeError(f"features of width {features.shape[1]}")
                rows.append(features[:count].cpu().numpy())
        width = self.model.config.projection_dim
        return np.concatenate(rows) if rows else np.zeros((0, width), np.float32)


PLUGIN = Clip
