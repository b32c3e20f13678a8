"""OminiControl (Tan et al. 2024, arXiv:2411.15098) on diffusers' FluxPipeline.

The reference's tokens join text and picture in every attention. Only they pass through the LoRA,
at time step 0; the picture's own weights stay the base model's. diffusers has no such
conditioning, so the transformer's forward pass is written anew here, on its own blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from pydantic import Field

from subjectbench.generators import adapters
from subjectbench.generators.base import Job
from subjectbench.generators.native import Native


class OminiControl(Native):
    """Text and reference to picture."""

    pipelines = ("FluxPipeline",)

    class Params(Native.Params):
        """Parameters of an OminiControl card."""

        steps: int = Field(default=8, ge=1, description="Denoising steps")
        guidance_scale: float = Field(
            default=3.5, ge=0, description="Of the distilled guidance; FLUX.1 schnell has none"
        )
        height: int = Field(default=512, ge=16, multiple_of=16, description="Pixels")
        width: int = Field(default=512, ge=16, multiple_of=16, description="Pixels")
        reference_size: int = Field(
            default=512, ge=16, multiple_of=16, description="Side of the reference, which is padded"
        )
        shift: tuple[int, int] = Field(
            default=(0, 32),
            strict=False,
            description="Rows and columns, in tokens, from the picture to the reference",
        )
        lora_file: str = Field(description="Of the card's part lora")
        lora_scale: float = Field(default=1.0, ge=0)
        max_sequence_length: int = Field(default=512, ge=1, description="Tokens of the text")

    def load(self, folder: Path) -> Any:
        """Return the pipeline with its LoRA and the way through it."""
        pipeline = super().load(folder)
        file = self.part("lora") / self.params.lora_file
        self.notes |= adapters.load_lora(pipeline, file, "subject", self.params.lora_scale)
        self.way = Conditioned(pipeline.transformer)
        pipeline.transformer.forward = self.way.forward
        return pipeline

    def arguments(self, jobs: list[Job]) -> dict[str, Any]:
        """Return guidance, and lay the reference ready for the transformer."""
        self.way.condition = self._tokens(jobs[0].reference)
        return {
            "guidance_scale": self.params.guidance_scale,
            "max_sequence_length": self.params.max_sequence_length,
        }

    def _tokens(self, reference: Image.Image) -> tuple[Any, Any]:
        """Latent tokens (1, n, channels) of a reference, and their places (n, 3)."""
        import torch

        pipeline = self.pipeline
        size = self.params.reference_size
        pixels = pipeline.image_processor.preprocess(squared(reference, size), size, size)
        vae = pipeline.vae
        found = vae.encode(pixels.to(pipeline._execution_device, vae.dtype)).latent_dist.mode()
        found = (found - vae.config.shift_factor) * vae.config.scaling_factor
        count, channels, height, width = found.shape
        tokens = pipeline._pack_latents(found, count, channels, height, width)
        rows, columns = torch.meshgrid(
            torch.arange(height // 2), torch.arange(width // 2), indexing="ij"
        )
        down, right = self.params.shift
        places = torch.stack([torch.zeros_like(rows), rows + down, columns + right], -1)
        return tokens, places.reshape(-1, 3).to(tokens.device, tokens.dtype)


def squared(picture: Image.Image, size: int) -> Image.Image:
    """Picture made to fit a white square of a side, nothing cut off."""
    scale = size / max(picture.size)
    inner = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    out = Image.new("RGB", (size, size), "white")
    shown = picture.resize(inner, Image.Resampling.BICUBIC)
    out.paste(shown, ((size - inner[0]) // 2, (size - inner[1]) // 2))
    return out


@dataclass
class _Stream:
    """Tokens that share weights and time step: text, picture or reference."""

    tokens: Any
    time: Any
    rotary: Any
    adapted: bool = False
    """Whether the LoRA acts on it."""


class Conditioned:
    """Forward pass of a ``FluxTransformer2DModel`` with a reference beside the picture.

    Without a reference it computes what the model's own does.
    """

    def __init__(self, transformer: Any) -> None:
        self.model = transformer
        self.condition: tuple[Any, Any] | None = None
        """Tokens (1, n, channels) of the reference and their places (n, 3)."""

    def forward(
        self,
        hidden_states: Any,
        encoder_hidden_states: Any,
        pooled_projections: Any,
        timestep: Any,
        img_ids: Any,
        txt_ids: Any,
        guidance: Any = None,
        joint_attention_kwargs: Any = None,
        return_dict: bool = False,
    ) -> tuple[Any]:
        """Return the velocity (batch, picture tokens, channels), as the pipeline asks for it."""
        import torch

        model, count, dtype = self.model, len(hidden_states), hidden_states.dtype

        def time(step: Any, strength: Any) -> Any:
            given = [step.to(dtype) * 1000]
            given += [] if strength is None else [strength.to(dtype) * 1000]
            return model.time_text_embed(*given, pooled_projections)

        now = time(timestep, guidance)
        text = _Stream(model.context_embedder(encoder_hidden_states), now, model.pos_embed(txt_ids))
        picture = _Stream(_plain(model.x_embedder)(hidden_states), now, model.pos_embed(img_ids))
        streams = [text, picture]
        if self.condition:
            tokens, places = self.condition
            # The reference is no noise: for it the time is 0, and guidance 1.
            still = time(
                torch.zeros_like(timestep),
                None if guidance is None else torch.ones_like(guidance),
            )
            embedded = model.x_embedder(tokens.to(dtype)).expand(count, -1, -1)
            streams.append(_Stream(embedded, still, model.pos_embed(places), adapted=True))
        for block in model.transformer_blocks:
            _double(block, streams)
        for block in model.single_transformer_blocks:
            _single(block, streams)
        return (model.proj_out(model.norm_out(picture.tokens, now)),)


def _plain(layer: Any) -> Any:
    """Return the layer without its LoRA."""
    return getattr(layer, "base_layer", layer)


def _through(layer: Any, stream: _Stream, tokens: Any) -> Any:
    return (layer if stream.adapted else _plain(layer))(tokens)


def _modulation(norm: Any, stream: _Stream) -> Sequence[Any]:
    """Normed tokens, and the scales and shifts that the time step gives, as AdaLayerNormZero."""
    parts = _through(norm.linear, stream, norm.silu(stream.time))
    linear = _plain(norm.linear)
    shift, scale, *others = parts[:, None].chunk(linear.out_features // linear.in_features, -1)
    return [norm.norm(stream.tokens) * (1 + scale) + shift, *others]


def _attend(streams: list[_Stream], asked: list[tuple[Any, Any, Any]]) -> list[Any]:
    """Every stream's tokens attend to those of all; (batch, tokens, width) each."""
    import torch
    from diffusers.models.embeddings import apply_rotary_emb

    def turned(values: Any, stream: _Stream) -> Any:
        return apply_rotary_emb(values, stream.rotary, sequence_dim=1)

    query = torch.cat([turned(a[0], s) for a, s in zip(asked, streams, strict=True)], 1)
    key = torch.cat([turned(a[1], s) for a, s in zip(asked, streams, strict=True)], 1)
    value = torch.cat([a[2] for a in asked], 1)
    found = torch.nn.functional.scaled_dot_product_attention(
        *(values.transpose(1, 2) for values in (query, key, value))
    )
    return list(found.transpose(1, 2).flatten(2).split([a[0].shape[1] for a in asked], 1))


def _asked(attention: Any, stream: _Stream, normed: Any, text: bool = False) -> tuple[Any, ...]:
    """Query, key and value (batch, tokens, heads, head width) of a stream."""
    names = ("add_q_proj", "add_k_proj", "add_v_proj") if text else ("to_q", "to_k", "to_v")
    norms = ("norm_added_q", "norm_added_k") if text else ("norm_q", "norm_k")
    query, key, value = (
        _through(getattr(attention, name), stream, normed).unflatten(-1, (-1, attention.head_dim))
        for name in names
    )
    return getattr(attention, norms[0])(query), getattr(attention, norms[1])(key), value


def _clipped(tokens: Any) -> Any:
    """Keep half precision finite, as the model's own blocks do."""
    return tokens.clip(-65504, 65504) if str(tokens.dtype) == "torch.float16" else tokens


def _double(block: Any, streams: list[_Stream]) -> None:
    """A block with own weights for text, and shared ones for picture and reference."""
    text = [stream is streams[0] for stream in streams]
    normed = [
        _modulation(block.norm1_context if of_text else block.norm1, stream)
        for stream, of_text in zip(streams, text, strict=True)
    ]
    asked: list[Any] = [
        _asked(block.attn, stream, parts[0], of_text)
        for stream, parts, of_text in zip(streams, normed, text, strict=True)
    ]
    found = _attend(streams, asked)
    for stream, parts, heard, of_text in zip(streams, normed, found, text, strict=True):
        gate, shift, scale, gate_mlp = parts[1:]
        out = block.attn.to_add_out if of_text else block.attn.to_out[0]
        stream.tokens = stream.tokens + gate * _through(out, stream, heard)
        norm = block.norm2_context if of_text else block.norm2
        feed = block.ff_context if of_text else block.ff
        inner = norm(stream.tokens) * (1 + scale) + shift
        for layer in feed.net:
            inner = _feed(layer, stream, inner)
        stream.tokens = _clipped(stream.tokens + gate_mlp * inner)


def _feed(layer: Any, stream: _Stream, tokens: Any) -> Any:
    if hasattr(layer, "proj"):  # GELU with its own projection
        return layer.gelu(_through(layer.proj, stream, tokens))
    return _through(layer, stream, tokens)


def _single(block: Any, streams: list[_Stream]) -> None:
    """A block with one set of weights for all."""
    import torch

    normed = [_modulation(block.norm, stream) for stream in streams]
    asked: list[Any] = [
        _asked(block.attn, stream, parts[0]) for stream, parts in zip(streams, normed, strict=True)
    ]
    found = _attend(streams, asked)
    for stream, parts, heard in zip(streams, normed, found, strict=True):
        inner = block.act_mlp(_through(block.proj_mlp, stream, parts[0]))
        joined = torch.cat([heard, inner], 2)
        stream.tokens = _clipped(
            stream.tokens + parts[1] * _through(block.proj_out, stream, joined)
        )


PLUGIN = OminiControl
