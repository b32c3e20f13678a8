"""The contract of a generator: jobs in, one outcome each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol

from pydantic import AfterValidator, BaseModel

from subjectbench.cards import GeneratorCard
from subjectbench.config import Generating
from subjectbench.vocabulary import Status

if TYPE_CHECKING:
    from PIL import Image


@dataclass(frozen=True)
class Job:
    """One picture that is asked for.

    ``details`` is the case's (the miniworld puts subject and scene there); ``seed`` is this
    picture's own, 0 to 2**31 - 1.
    """

    sample_id: str
    subject_id: str
    subject: str
    prompt: str
    reference: Image.Image
    seed: int
    details: dict[str, Any]

    def text(self, template: str) -> str:
        """Weave prompt and subject into a :data:`Template`."""
        return template.format(prompt=self.prompt, subject=self.subject)


def _known_fields(template: str) -> str:
    fields = {f"{{{n}}}" for _, n, *_ in Formatter().parse(template) if n is not None}
    if not {"{prompt}"} <= fields <= {"{prompt}", "{subject}"}:
        found = ", ".join(sorted(fields)) or "neither"
        raise ValueError(f"a template has {{prompt}} and may have {{subject}}; found {found}")
    template.format(prompt="", subject="")  # a format that text cannot have
    return template


Template = Annotated[str, AfterValidator(_known_fields)]
"""How ``{prompt}`` and ``{subject}`` become a model's text; checked while planning."""


@dataclass(frozen=True)
class Outcome:
    """One picture (RGB), or the reason why there is none."""

    image: Image.Image | None
    status: Status = Status.OK
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Desk:
    """Where and how a job asks servers; none of it changes an answer.

    Args:
        results: folder of the store; ``pictures`` in it keeps what was bought.
        limits: concurrency, retries, budget.
        run: name of the run whose budget counts; processes may share it.
        title: of the job, in messages.
    """

    results: Path
    limits: Generating
    run: str
    title: str


@dataclass(frozen=True)
class Check:
    """One thing that a model needs, and whether it is there.

    ``about`` is one of environment, keys, files, program, device; ``mend`` says how to get it.
    """

    about: str
    ok: bool
    found: str
    mend: str = ""


class Kept(Protocol):
    """What a job that is killed leaves to its successor; gone once its pictures are saved."""

    def load(self, name: str) -> bytes | None:
        """Return what was saved under a name, or None."""

    def save(self, name: str, data: bytes) -> None:
        """Save all of it or, if killed meanwhile, nothing."""


class References(Protocol):
    """Reference pictures of the whole benchmark, for controls that need another subject's."""

    subjects: list[str]

    def picture(self, subject_id: str) -> Image.Image | None:
        """Reference of a subject, RGB, or None if it could not be read."""


class Generator(ABC):
    """Makes pictures. A picture depends on its job alone, never on the other jobs of a call.

    Models whose last digits depend on the shape of a batch (all on torch) run every forward pass
    in the fixed shape ``compute_batch`` of their card, padded; it is a parameter, so it is part of
    the identity.
    """

    version: ClassVar[str] = "1"
    external: ClassVar[bool] = False
    """True if the pictures are made and kept elsewhere: no job runs, rows say ``external``."""

    uses_torch: ClassVar[bool] = False
    """True if ``device`` matters."""

    tuning: ClassVar[Any] = None
    """Class of ``tuning`` that is trained for each subject before pictures are made; or None.

    ``Params`` must then extend that class's: training depends on those parameters alone.
    """

    kept: Kept | None = None
    """Set by the stage, for generators whose single pictures are worth saving."""

    given: ClassVar[bool] = False
    """True if the pictures were made elsewhere; then ``match`` says which is whose."""

    remote: ClassVar[bool] = False
    """True if a server makes the pictures; then the stage sets ``desk``."""

    desk: Desk | None = None

    class Params(BaseModel):
        """Parameters of the card; subclasses extend it with ``extra='forbid'``."""

    def __init__(
        self, params: Any, card: GeneratorCard, references: References, device: str
    ) -> None:
        self.params, self.card, self.references, self.device = params, card, references, device

    @classmethod
    def sources(cls, params: Any, root: Path) -> Sequence[Path] | Mapping[str, Path]:
        """Files whose bytes are part of the identity: wrappers, environments, given pictures.

        By name where their places have nothing in common: a name that moves with its folder would
        change the key.
        """
        return []

    @classmethod
    def check(cls, params: Any, card: GeneratorCard, root: Path) -> None:
        """Find faults in what the user supplied before any work starts. Nothing is loaded or sent.

        Raises:
            InputError: naming file, field and mend.
        """
        return None

    @classmethod
    def checks(cls, params: Any, card: GeneratorCard, root: Path) -> list[Check]:
        """Say whether this machine has what the model needs beyond packages, weights and memory.

        For ``subjectbench doctor``, which looks at those three by itself.
        """
        return []

    def take_up(self, folder: Path) -> None:
        """Load what was trained for the subject of the next jobs.

        Args:
            folder: the subject's files, as ``tuning.save`` wrote them; gone when the jobs are done.
        """
        raise NotImplementedError

    @abstractmethod
    def generate(self, jobs: list[Job]) -> list[Outcome]:
        """Return one outcome per job, in order. All jobs of a call share one subject."""

    def close(self) -> None:
        """Give up what is open; called once, after the last picture or a failure."""
        return None
