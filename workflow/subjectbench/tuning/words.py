"""Words of per-subject methods: naming the subject in prompts, and vectors that stand for words."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subjectbench.errors import InputError, suggest

if TYPE_CHECKING:
    import torch

PLACEHOLDER = "<subject>"
"""Token that is added to the vocabulary for the subject."""


def check_template(template: str, fields: tuple[str, ...], where: str) -> None:
    """Refuse a template with a field that nobody fills in.

    Raises:
        InputError: naming the field and those that are known.
    """
    try:
        found = [name for _, name, _, _ in string.Formatter().parse(template) if name is not None]
    except ValueError as error:
        raise InputError(where, f"no template: {error}", "write {{ and }} for braces") from error
    for name in found:
        if name not in fields:
            raise InputError(where, f"no field '{{{name}}}' to fill in", suggest(name, fields))


def weave(prompt: str, noun: str, name: str) -> tuple[str, str]:
    """Put the subject's name where a prompt says its noun.

    The first whole word that is the noun, in any case, or the noun in its other number; in a prompt
    that says neither the name follows at the end, after a comma. Of DSH-Bench's 5508 prompts 5461
    say the noun, 27 another number of it, and 20 neither as a word of its own.

    Returns:
        The new prompt, and how: ``noun``, ``number`` or ``appended``.
    """
    others = [f"{noun}s", f"{noun}es"]
    for ending, other in (("s", ""), ("es", ""), ("y", "ies"), ("ies", "y")):
        if noun.endswith(ending) and len(noun) > len(ending) + 1:
            others.append(noun.removesuffix(ending) + other)
    for how, words in (("noun", [noun]), ("number", others)):
        word = re.compile(rf"(?<!\w)({'|'.join(map(re.escape, words))})(?!\w)", re.IGNORECASE)
        if word.search(prompt):
            return word.sub(lambda _: name, prompt, count=1), how
    return f"{prompt.rstrip().rstrip('.')}, {name}", "appended"


def initial_tokens(tokenizer: Any, noun: str) -> list[int]:
    """Return the tokens whose mean embedding a new word starts from.

    The last word of the noun that is one single token (in "golden gate bridge" the head stands
    last); if no word is (``mugskulls``), all tokens of the last word.

    Raises:
        ValueError: the noun has no tokens.
    """
    words = [tokenizer(w, add_special_tokens=False).input_ids for w in noun.split()]
    words = [ids for ids in words if ids]
    if not words:
        raise ValueError(f"noun {noun!r} has no tokens")
    return next((ids for ids in reversed(words) if len(ids) == 1), words[-1])


def add_word(tokenizer: Any, text_encoder: Any, word: str = PLACEHOLDER) -> int:
    """Add a word to the vocabulary and a row for it; return its id.

    Raises:
        InputError: the vocabulary has that word already.
    """
    if not tokenizer.add_tokens(word):
        raise InputError(f"token {word}", "is in the vocabulary already", "choose another name")
    # Without mean_resizing the row is random; it is never read, since a vector stands for it.
    text_encoder.resize_token_embeddings(len(tokenizer), mean_resizing=False).requires_grad_(False)
    return int(tokenizer.convert_tokens_to_ids(word))


@contextmanager
def meaning(text_encoder: Any, token: int, vector: torch.Tensor) -> Iterator[None]:
    """Let a token mean a vector: shape (width,), or (texts, width) for one of its own per text."""
    import torch

    def replace(_: Any, inputs: tuple[torch.Tensor, ...], out: torch.Tensor) -> torch.Tensor:
        own = vector if vector.ndim == 1 else vector[:, None]
        return torch.where((inputs[0] == token)[..., None], own.to(out.dtype), out)

    hook = text_encoder.get_input_embeddings().register_forward_hook(replace)
    try:
        yield
    finally:
        hook.remove()


def load_word(pipeline: Any, file: Path) -> None:
    """Give a pipeline the word of one subject, in place of an earlier one's."""
    if PLACEHOLDER in pipeline.tokenizer.get_vocab():
        pipeline.unload_textual_inversion(PLACEHOLDER)
    pipeline.load_textual_inversion(str(file), token=PLACEHOLDER, local_files_only=True)
