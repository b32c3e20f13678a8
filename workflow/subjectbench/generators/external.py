"""Pictures that were made and are kept elsewhere: only their scores and ratings are here."""

from __future__ import annotations

from subjectbench.config import Strict
from subjectbench.generators.base import Generator, Job, Outcome


class External(Generator):
    """Stands for a model whose pictures cannot be shown; its rows have the status ``external``."""

    external = True

    class Params(Strict):
        """No parameters."""

    def generate(self, jobs: list[Job]) -> list[Outcome]:
        """Is never called: there is nothing to make."""
        raise NotImplementedError


PLUGIN = External
