"""NeTI (Alaluf et al., 2023): a word whose meaning depends on time and on the UNet's layer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from subjectbench.tuning.base import Subject, Tuning
from subjectbench.tuning.words import PLACEHOLDER, add_word, initial_tokens, meaning

if TYPE_CHECKING:
    import torch

FILE = "mapper.safetensors"


class NeTI(Tuning):
    """Trains a small network from (time, layer) to the word's embedding (section 4).

    Each cross-attention sees its own encoding of the text. With the textual bypass the network
    also says what to add to the encoded word; keys come from the text alone, values with that
    addition.
    """

    class Params(Tuning.Params):
        """Parameters of training."""

        name: str = Field(default=PLACEHOLDER, description="Must say the new word")
        max_grad_norm: float = Field(default=0.0, ge=0)
        hidden: int = Field(default=128, ge=2, description="Units of the network's layers")
        features: int = Field(default=1024, ge=1, description="Random Fourier features")
        anchors: int = Field(default=10, ge=2, description="Times that the first layer starts from")
        sigma_time: float = Field(default=0.03, gt=0)
        sigma_layer: float = Field(default=2.0, gt=0)
        nested_dropout: float = Field(
            default=0.5, ge=0, le=1, description="Share of steps that use the first units only"
        )
        bypass: float = Field(
            default=0.2, ge=0, description="Length of the addition, relative; 0: no bypass"
        )

    def __init__(self, params: Any, folder: Path, device: str) -> None:
        super().__init__(params, folder, device)
        self.token = add_word(self.tokenizer, self.text_encoder)

    def begin(self, subject: Subject) -> dict[str, torch.nn.Parameter]:
        """Build the network, and let every cross-attention look at its own texts."""
        self.initial = initial_tokens(self.tokenizer, subject.noun)
        table = self.text_encoder.get_input_embeddings().weight.detach()
        self.layered = Layered(self.unet)
        self.mapper = make_mapper(
            self.params, table[self.initial].float().mean(0), self.layered.count
        ).to(self.device)
        return dict(self.mapper.named_parameters())

    def states(self, texts: list[str]) -> torch.Tensor:
        """Is not used: texts are encoded per time and layer, in ``denoise``."""
        raise NotImplementedError

    def denoise(self, noised: torch.Tensor, times: torch.Tensor, texts: list[str]) -> torch.Tensor:
        """Return the UNet's answer; half of the steps use only the first units of the network."""
        import torch

        kept = self.params.hidden
        if torch.rand(()).item() < self.params.nested_dropout:
            kept = int(torch.randint(1, kept + 1, ()).item())
        keys, values = encode_layers(
            self.text_encoder,
            self.mapper,
            self.ids(texts),
            times,
            self.token,
            self.params.bypass,
            kept,
        )
        with self.layered.showing(keys, values):
            answer: torch.Tensor = self.unet(noised, times, keys[0]).sample
        return answer

    def facts(self) -> dict[str, Any]:
        """Tell the tokens that it started from."""
        return {"initial": self.tokenizer.convert_ids_to_tokens(self.initial)}

    def save(self, folder: Path) -> None:
        """Write the network, its random features included."""
        from safetensors.torch import save_file

        state = self.mapper.state_dict()
        save_file({n: v.detach().cpu().contiguous() for n, v in state.items()}, folder / FILE)

    def end(self) -> None:
        """Put the base's processors back."""
        self.layered.remove()


def make_mapper(params: Any, initial: torch.Tensor, layers: int) -> torch.nn.Module:
    """Build an untrained network.

    Args:
        params: ``NeTI.Params``.
        initial: embedding that it starts from, and whose length its answers have, (width,).
        layers: number of cross-attentions.
    """
    import torch
    from torch import nn

    class Mapper(nn.Module):
        """(time, layer) to two vectors: the word, and what is added to the encoded word."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = layers
            # Frequencies in turns per step of time and per layer (equation 4).
            scale = torch.tensor([params.sigma_time, params.sigma_layer])
            self.register_buffer("frequencies", torch.randn(params.features, 2) * scale)
            self.register_buffer("length", initial.norm()[None])
            self.first = nn.Linear(2 * params.features, params.anchors * layers)
            # Each row answers to one anchor: a time and a layer.
            times = torch.linspace(0, 999, params.anchors).repeat_interleave(layers)
            places = torch.arange(layers, dtype=torch.float32).repeat(params.anchors)
            with torch.no_grad():
                self.first.weight.copy_(self.features(times, places))
                self.first.bias.zero_()
            self.second = nn.Linear(params.anchors * layers, params.hidden)
            self.third = nn.Linear(params.hidden, params.hidden)
            self.norms = nn.ModuleList(nn.LayerNorm(params.hidden) for _ in range(2))
            self.out = nn.Linear(params.hidden, 2 * len(initial))
            with torch.no_grad():  # starts close to the noun
                self.out.weight.mul_(0.1)
                self.out.bias.copy_(torch.cat([initial, initial]))

        def features(self, times: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
            """Random Fourier features, (n, 2 x features), of length 1."""
            where = torch.stack([times, places], 1).float()
            turns = where @ self.frequencies.T
            return torch.cat([turns.cos(), turns.sin()], 1) / params.features**0.5

        def forward(
            self, times: torch.Tensor, places: torch.Tensor, kept: int
        ) -> tuple[torch.Tensor, torch.Tensor]:
            hidden = self.second(self.first(self.features(times, places)))
            hidden = nn.functional.leaky_relu(self.norms[0](hidden))
            hidden = nn.functional.leaky_relu(self.norms[1](self.third(hidden)))
            hidden = hidden * (torch.arange(params.hidden, device=hidden.device) < kept)
            word, added = self.out(hidden).chunk(2, 1)
            word = word / word.norm(dim=1, keepdim=True) * self.length
            return word, added / added.norm(dim=1, keepdim=True)

    return Mapper()


def encode_layers(
    text_encoder: Any,
    mapper: Any,
    ids: torch.Tensor,
    times: torch.Tensor,
    token: int,
    bypass: float,
    kept: int,
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Encode texts once per layer, with the word's vector at these times.

    Args:
        text_encoder: of the pipeline.
        mapper: from :func:`make_mapper`.
        ids: (texts, tokens).
        times: one per text.
        token: id of the word.
        bypass: length of the addition relative to the encoded word; 0: none.
        kept: units of the network that are used.

    Returns:
        What keys and what values are made of: per layer, (texts, tokens, width).
    """
    import torch

    layers, count = mapper.layers, len(ids)
    places = torch.arange(layers, device=ids.device).repeat_interleave(count)
    word, added = mapper(times.to(ids.device).repeat(layers), places, kept)
    with meaning(text_encoder, token, word):
        states = text_encoder(ids.repeat(layers, 1))[0]
    shown = (ids == token).repeat(layers, 1)[..., None]
    more = bypass * states.norm(dim=-1, keepdim=True).detach() * added[:, None]
    values = torch.where(shown, states + more, states) if bypass else states
    return list(states.split(count)), list(values.split(count))


class Layered:
    """Lets each cross-attention of a UNet look at its own keys and values."""

    def __init__(self, unet: Any) -> None:
        self.unet, self.before = unet, dict(unet.attn_processors)
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []
        names = [n for n in self.before if n.endswith("attn2.processor")]
        self.count = len(names)
        own = {name: _processor(self, place) for place, name in enumerate(names)}
        unet.set_attn_processor({**self.before, **own})

    @contextmanager
    def showing(self, keys: list[torch.Tensor], values: list[torch.Tensor]) -> Iterator[None]:
        """Show these, one per layer, while the context lasts; outside, the UNet is the base's."""
        self.keys, self.values = keys, values
        try:
            yield
        finally:
            self.keys, self.values = [], []

    def remove(self) -> None:
        """Put the UNet's own processors back."""
        self.unet.set_attn_processor(self.before)


def _processor(layered: Layered, place: int) -> Any:
    """Cross-attention of one layer, whose keys and values come from ``layered``."""
    from torch.nn.functional import scaled_dot_product_attention

    def attend(
        attn: Any,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        **_: Any,
    ) -> torch.Tensor:
        keys = layered.keys[place] if layered.keys else encoder_hidden_states
        values = layered.values[place] if layered.values else encoder_hidden_states

        def heads(x: torch.Tensor) -> torch.Tensor:
            return x.unflatten(-1, (attn.heads, -1)).transpose(1, 2)

        out = scaled_dot_product_attention(
            heads(attn.to_q(hidden_states)), heads(attn.to_k(keys)), heads(attn.to_v(values))
        )
        answer: torch.Tensor = attn.to_out[1](attn.to_out[0](out.transpose(1, 2).flatten(2)))
        return answer

    return attend
