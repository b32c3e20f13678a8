"""A judge in process: the Qwen2.5-VL family through transformers, with an adapter if wanted.

Inputs are made by the checkpoint's tokenizer, its chat template and its picture processor (Pillow
resizes); a picture's placeholder is repeated once per merged patch. No torchvision is needed.

What a request gets does not depend on its neighbours: each picture goes through the vision tower
alone (and once, however often it is asked about), and the language model sees batches of a fixed
number of rows, padded on the left to a multiple of a fixed length.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from subjectbench import checkpoint
from subjectbench.asking.base import Message, Picture, Reply, Request, SendError
from subjectbench.batches import fixed_batches
from subjectbench.cards import ROOT, JudgeCard
from subjectbench.config import LOCATION, Strict
from subjectbench.errors import InputError
from subjectbench.judges.base import Backend

if TYPE_CHECKING:
    import torch

    from subjectbench.encoders.base import Encoder

ONE_WORD = "Answer only this question, with one word, yes or no: {question}"
"""Ends a request in ``probability`` mode: it decides what the first token of the answer is."""

_ADAPTER = ("adapter_config.json", "adapter_model.safetensors")


@dataclass(frozen=True)
class _Seen:
    """A picture: its embeddings (tokens, width) and its grid (1, 3) of frames, rows and columns."""

    features: torch.Tensor
    grid: torch.Tensor


@dataclass(frozen=True, eq=False)
class _Job:
    """One sequence to complete: for a request, or for one of its questions."""

    request: int
    ask: str
    ids: list[int]
    pictures: list[_Seen]
    max_tokens: int


@dataclass(frozen=True)
class _Done:
    """What a job brought: a text, or a probability of yes; None: neither yes nor no."""

    text: str
    probability: float | None
    tokens: int
    finish: str = "stop"


class Transformers(Backend):
    """``Qwen2_5_VLForConditionalGeneration``, greedy; see the module's text."""

    uses_torch = True

    class Params(Strict):
        """How the model is loaded, what it sees and how yes and no are read."""

        dtype: Literal["float32", "bfloat16", "float16"] = "bfloat16"
        attention: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"
        min_pixels: int = Field(default=3136, ge=784, description="Smaller pictures are enlarged")
        max_pixels: int = Field(default=1_003_520, ge=784, description="Larger ones are reduced")
        yes_no: Literal["probability", "greedy"] = Field(
            default="probability",
            description="probability: of yes against no as the first word of the answer, each "
            "question by itself; greedy: the reply is text and is read",
        )
        yes: list[str] = Field(default=["yes", "Yes", "YES", " yes", " Yes", " YES"], min_length=1)
        no: list[str] = Field(default=["no", "No", "NO", " no", " No", " NO"], min_length=1)
        min_mass: float = Field(
            default=0.1,
            ge=0,
            le=1,
            description="Probability that yes and no must have together: a model that wants to "
            "say something else has not answered",
        )
        compute_batch: int = Field(default=4, ge=1, description="Rows of every forward pass")
        compute_length: int = Field(
            default=64, ge=1, description="Inputs are padded to a multiple of so many tokens"
        )
        adapter: str | None = Field(
            default=None,
            description="Folder of a PEFT adapter for these weights",
            json_schema_extra=LOCATION,
        )

    def __init__(
        self, params: Any, card: JudgeCard, device: str = "cpu", encoder: Encoder | None = None
    ) -> None:
        super().__init__(params, card, device, encoder)
        from transformers import (
            AutoImageProcessor,
            AutoTokenizer,
            GenerationConfig,
            Qwen2_5_VLForConditionalGeneration,
        )

        assert card.weights is not None
        path = checkpoint.folder(card.weights)
        self.name = card.weights.repository or str(card.weights.path)
        self.tokenizer = AutoTokenizer.from_pretrained(path)
        if not self.tokenizer.chat_template:
            raise InputError(path, "its tokenizer has no chat template", "use an instruct model")
        self.processor = AutoImageProcessor.from_pretrained(
            path, backend="pil", min_pixels=params.min_pixels, max_pixels=params.max_pixels
        )
        self.model = checkpoint.load(
            Qwen2_5_VLForConditionalGeneration,
            path,
            device,
            dtype=params.dtype,
            attn_implementation=params.attention,
        )
        ends = self.model.generation_config.eos_token_id or self.tokenizer.eos_token_id
        self.ends = {ends} if isinstance(ends, int) else set(ends)
        self.pad = self.tokenizer.pad_token_id
        if self.pad is None:
            self.pad = min(self.ends)
        # The checkpoint's own settings sample, or penalise repeated words even when greedy.
        self.model.generation_config = GenerationConfig(
            do_sample=False, eos_token_id=sorted(self.ends), pad_token_id=self.pad
        )
        if params.adapter:
            self._load_adapter(ROOT / params.adapter)
        self.image_token = self.tokenizer.convert_ids_to_tokens(self.model.config.image_token_id)
        self.special = {
            t.content for t in self.tokenizer.added_tokens_decoder.values() if t.special
        }
        self.yes, self.no = self._words("yes"), self._words("no")
        if set(self.yes) & set(self.no):
            raise InputError(f"judge '{card.title}': params", "yes and no share a token")

    @classmethod
    def sources(cls, params: Any, root: Path) -> list[Path]:
        """Return the adapter's files.

        Raises:
            InputError: one is not there.
        """
        if not params.adapter:
            return []
        files = [root / params.adapter / name for name in _ADAPTER]
        for file in files:
            if not file.is_file():
                raise InputError(file, "no such file", "name the folder of a PEFT adapter")
        return files

    def _load_adapter(self, path: Path) -> None:
        """Put an adapter into the model, all of it and in the right places."""
        from peft import PeftConfig, PeftModel
        from safetensors import SafetensorError

        mend = "use the adapter of this very model"
        try:
            config = PeftConfig.from_pretrained(str(path))
            # Its layers are put into the model itself.
            result = PeftModel(self.model, config).load_adapter(
                str(path), "default", torch_device=self.device
            )
        except (OSError, ValueError, RuntimeError, SafetensorError) as error:
            raise InputError(path, f"does not fit: {error}", mend) from error
        # PEFT only warns of the first and says nothing of the second.
        for fault, keys in (
            ("missing", result.missing_keys),
            ("without a place in the model", result.unexpected_keys),
        ):
            if keys:
                first = min(keys)
                raise InputError(path, f"{len(keys)} tensors {fault}, first '{first}'", mend)
        self.model.eval()

    def _words(self, name: str) -> list[int]:
        ids = []
        for word in getattr(self.params, name):
            tokens = self.tokenizer(word, add_special_tokens=False)["input_ids"]
            if len(tokens) != 1:
                raise InputError(
                    f"judge '{self.card.title}': params.{name}",
                    f"{word!r} is {len(tokens)} tokens for this model",
                    "name words that are one token",
                )
            ids += tokens
        return ids

    # --- answering ---

    def complete(self, requests: Sequence[Request]) -> list[Reply | SendError]:
        """Answer requests; an error takes the place of a reply to one that cannot be shown."""
        import torch

        pictures: dict[str, _Seen] = {}
        jobs: list[_Job] = []
        faults: dict[int, SendError] = {}
        with torch.inference_mode():
            for number, request in enumerate(requests):
                try:
                    jobs += self._jobs(number, request, pictures)
                except SendError as error:
                    faults[number] = error
            done = self._run([job for job in jobs if not job.ask], self._write)
            done |= self._run([job for job in jobs if job.ask], self._decide)
        found: dict[int, list[tuple[_Job, _Done]]] = {}
        for job in jobs:
            found.setdefault(job.request, []).append((job, done[job]))
        return [faults.get(n) or self._reply(found[n]) for n in range(len(requests))]

    def _reply(self, found: Sequence[tuple[_Job, _Done]]) -> Reply:
        (_, first), graded = found[0], bool(found[0][0].ask)
        text = first.text
        if graded:
            answers = {job.ask: done.probability for job, done in found}
            text = json.dumps({n: round(p, 6) for n, p in answers.items() if p is not None})
        return Reply(
            text=text,
            finish=first.finish,
            model=self.name,
            prompt_tokens=sum(len(job.ids) for job, _ in found),
            completion_tokens=sum(done.tokens for _, done in found),
            graded=graded,
        )

    # --- requests to sequences ---

    def _jobs(self, number: int, request: Request, pictures: dict[str, _Seen]) -> list[_Job]:
        seen = [self._see(picture, pictures) for picture in request.pictures()]
        graded = bool(request.asks) and all(ask.scale is None for ask in request.asks)
        if not (graded and self.params.yes_no == "probability"):
            ids = self._tokens(request.messages, seen)
            return [_Job(number, "", ids, seen, request.max_tokens)]
        *before, last = request.messages
        jobs = []
        for ask in request.asks:
            question = "\n\n" + ONE_WORD.replace("{question}", ask.text)
            messages = [*before, Message(last.role, (*last.parts, question))]
            jobs.append(_Job(number, ask.name, self._tokens(messages, seen), seen, 1))
        return jobs

    def _see(self, picture: Picture, pictures: dict[str, _Seen]) -> _Seen:
        from PIL import Image

        if picture.sha256 not in pictures:
            image = Image.open(io.BytesIO(picture.data)).convert("RGB")
            try:
                values = self.processor(images=[image], return_tensors="pt").to(self.device)
            except ValueError as error:  # a strip of pixels
                raise SendError("request", f"the {picture.role} picture: {error}") from error
            grid = values["image_grid_thw"]
            (features,) = self.model.get_image_features(values["pixel_values"], grid).pooler_output
            pictures[picture.sha256] = _Seen(features, grid)
        return pictures[picture.sha256]

    def _tokens(self, messages: Sequence[Message], seen: Sequence[_Seen]) -> list[int]:
        text = self.tokenizer.apply_chat_template(
            [self._turn(message) for message in messages],
            tokenize=False,
            add_generation_prompt=True,
        )
        first, *rest = text.split(self.image_token)
        if len(rest) != len(seen):
            raise InputError(
                self.name,
                f"its chat template shows {len(rest)} of {len(seen)} pictures",
                "use a model that sees pictures",
            )
        for picture, following in zip(seen, rest, strict=True):
            first += self.image_token * len(picture.features) + following
        return list(self.tokenizer(first, add_special_tokens=False)["input_ids"])

    def _turn(self, message: Message) -> dict[str, Any]:
        texts = [part for part in message.parts if isinstance(part, str)]
        found = next((s for s in sorted(self.special) if any(s in t for t in texts)), None)
        if found:  # it would be read as the end of a turn, or as a picture
            raise SendError("request", f"a text holds the model's control word {found}")
        if len(texts) == len(message.parts):
            return {"role": message.role, "content": "\n".join(texts)}
        parts = [
            {"type": "text", "text": part} if isinstance(part, str) else {"type": "image"}
            for part in message.parts
        ]
        return {"role": message.role, "content": parts}

    # --- sequences through the model ---

    def _run(self, jobs: Sequence[_Job], model: Any) -> dict[_Job, _Done]:
        """Run jobs in batches of a shape that depends on each job's own length only."""
        groups: dict[int, list[_Job]] = {}
        for job in jobs:
            step = self.params.compute_length
            groups.setdefault(-(-len(job.ids) // step) * step, []).append(job)
        done: dict[_Job, _Done] = {}
        for length, group in sorted(groups.items()):
            for batch, count in fixed_batches(group, self.params.compute_batch):
                found = model(batch, self._inputs(batch, length))
                done |= zip(batch[:count], found)
        return done

    def _inputs(self, batch: Sequence[_Job], length: int) -> dict[str, Any]:
        import torch
        from transformers.modeling_outputs import BaseModelOutputWithPooling

        padded = [[self.pad] * (length - len(job.ids)) + job.ids for job in batch]
        mask = [[0] * (length - len(job.ids)) + [1] * len(job.ids) for job in batch]
        ids = torch.tensor(padded, device=self.device)
        inputs: dict[str, Any] = {
            "input_ids": ids,
            "attention_mask": torch.tensor(mask, device=self.device),
            "mm_token_type_ids": (ids == self.model.config.image_token_id).int(),
        }
        seen = [picture for job in batch for picture in job.pictures]
        if seen:
            inputs["image_grid_thw"] = torch.cat([picture.grid for picture in seen])
            features = tuple(picture.features for picture in seen)
            inputs["mm_encoder_outputs"] = {
                "image": BaseModelOutputWithPooling(pooler_output=features)
            }
        return inputs

    def _write(self, batch: Sequence[_Job], inputs: Mapping[str, Any]) -> list[_Done]:
        """Continue by the likeliest token until each has ended or used its budget."""
        longest = max(job.max_tokens for job in batch)
        out = self.model.generate(**inputs, max_new_tokens=longest)
        done = []
        for job, row in zip(batch, out[:, inputs["input_ids"].shape[1] :].tolist(), strict=True):
            row = row[: job.max_tokens]
            end = next((i for i, token in enumerate(row) if token in self.ends), None)
            text = self.tokenizer.decode(row[:end], skip_special_tokens=True)
            if end is None:
                done.append(_Done(text, None, len(row), "length"))
            else:
                done.append(_Done(text, None, end + 1))
        return done

    def _decide(self, batch: Sequence[_Job], inputs: Mapping[str, Any]) -> list[_Done]:
        """P(yes) / (P(yes) + P(no)) of the next token, over the words of both."""
        logits = self.model(**inputs, logits_to_keep=1).logits[:, -1].float()
        yes, no = (logits[:, ids].logsumexp(-1) for ids in (self.yes, self.no))
        mass = (yes.logaddexp(no) - logits.logsumexp(-1)).exp().tolist()
        probability = (yes - no).sigmoid().tolist()
        return [
            _Done("", p if m >= self.params.min_mass else None, 1)
            for p, m in zip(probability, mass, strict=True)
        ]


PLUGIN = Transformers
