"""Textual Inversion: a prompt with a new word whose embedding was trained."""

from __future__ import annotations

from pathlib import Path

from subjectbench.generators.personal import Personal
from subjectbench.generators.stable_diffusion import StableDiffusion
from subjectbench.tuning.textual_inversion import FILE, TextualInversion
from subjectbench.tuning.words import load_word


class TextualInversionSampler(Personal):
    """Puts the word into tokenizer and text encoder by diffusers' own loader."""

    tuning = TextualInversion

    class Params(TextualInversion.Params, StableDiffusion.Params):
        """Parameters of training and of sampling."""

    def take_up(self, folder: Path) -> None:
        """Load the word in place of the last subject's."""
        load_word(self.pipeline, folder / FILE)


PLUGIN = TextualInversionSampler
