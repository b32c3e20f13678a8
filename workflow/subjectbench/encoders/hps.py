"""HPSv2 (Wu et al. 2023): a ViT-H/14 CLIP of open_clip, fine-tuned on people's preferences.

Its score is the cosine of picture and prompt, without logit scale and without softmax (metric
``cosine_text``). It ranks pictures of one prompt; scores of other prompts are on another level.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from subjectbench import checkpoint
from subjectbench.encoders.base import check_rgb
from subjectbench.encoders.clip import Clip
from subjectbench.encoders.open_clip_form import clip_config, clip_tensors, clip_tokenizer
from subjectbench.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

MEAN = (0.48145466, 0.4578275, 0.40821073)
DEVIATION = (0.26862954, 0.26130258, 0.27577711)


class Hps(Clip):
    """The published file as it is, run by ``transformers.CLIPModel``.

    A picture becomes a tensor of 0 to 1 first and is resized as such: longer side to the model's,
    bicubic, values beyond 0 and 1 kept; then black bars to a square; CLIP's mean and deviation.
    Texts are mended (ftfy), HTML entities resolved twice, white space joined, letters lowered.
    """

    class Params(Clip.Params):
        """Parameters of an HPSv2 card."""

        checkpoint: str = Field(description="File of tensors in the weights' folder")
        vocabulary: str = Field(description="CLIP's vocabulary in the weights' folder")
        vision_heads: int = Field(ge=1, description="Attention heads of the picture tower")
        text_heads: int = Field(ge=1, description="Attention heads of the text tower")
        antialias: bool = Field(
            default=True,
            description="Whether the resize looks at all pixels; torchvision's did not before 0.17",
        )

    def _load(self, path: Path) -> None:
        from transformers import CLIPModel

        file = path / self.params.checkpoint
        state = checkpoint.tensors(file).get("state_dict")
        if not isinstance(state, dict):
            raise InputError(file, "has no 'state_dict'", "use the file of the hub's xswu/HPSv2")
        heads = self.params.vision_heads, self.params.text_heads
        config = clip_config(state, file, *heads, self.params.hidden_act)
        converted = clip_tensors(state, file)
        self.tokenizer = clip_tokenizer(path / self.params.vocabulary)
        self.model = checkpoint.from_tensors(CLIPModel, config, converted, file, self.device)

    def texts(self, texts: Sequence[str]) -> np.ndarray:
        """Embed texts. Returns float32 (n, projection_dim)."""
        return super().texts([clean(text) for text in texts])

    def cut(self, texts: Sequence[str]) -> list[int]:
        """Tokens that each text has beyond the context length."""
        return super().cut([clean(text) for text in texts])

    def kept(self, size: tuple[int, int]) -> float:
        """All of it: the rest of the square is black."""
        return 1.0

    def pixels(self, pictures: Sequence[Image.Image]) -> Any:
        """Preprocess RGB pictures. Returns a float32 tensor (n, 3, side, side)."""
        import torch

        check_rgb(pictures)
        side = self.model.config.vision_config.image_size
        mean = torch.tensor(MEAN).view(3, 1, 1)
        deviation = torch.tensor(DEVIATION).view(3, 1, 1)
        squares = [square(picture, side, self.params.antialias) for picture in pictures]
        return torch.stack([(pixels - mean) / deviation for pixels in squares])


def square(picture: Image.Image, side: int, antialias: bool) -> Any:
    """Resize an RGB picture's tensor to fit a square, and pad it with black.

    The reference leaves a picture whose longer side is right already without bars, and then cannot
    take it; here it gets them too.

    Returns:
        float32 tensor (3, side, side), about 0 to 1: bicubic resizing goes beyond.
    """
    import numpy as np
    import torch
    from torch.nn.functional import interpolate, pad

    pixels = torch.from_numpy(np.array(picture)).permute(2, 0, 1).float() / 255
    scale = side / max(picture.size)
    width, height = (max(1, round(s * scale)) for s in picture.size)
    if scale != 1:
        pixels = interpolate(
            pixels[None], (height, width), mode="bicubic", align_corners=False, antialias=antialias
        )[0]
    left, top = (side - width) // 2, (side - height) // 2
    return pad(pixels, (left, side - width - left, top, side - height - top))


def clean(text: str) -> str:
    """Mend a text as open_clip's tokenizer does; curly quotes become straight ones, for example."""
    import html

    import ftfy

    mended = html.unescape(html.unescape(ftfy.fix_text(text)))
    return " ".join(mended.split()).lower()


PLUGIN = Hps
