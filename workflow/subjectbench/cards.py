"""Cards and the registry: one YAML card and one module make a plug-in, and no list is edited.

A card in ``workflow/cards/<kind>s/<name>.yaml`` names its module (``plugin``), which stands in the
room of its kind and exposes ``PLUGIN``, a class with a pydantic ``Params`` and a ``version``.
"""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, Field

from subjectbench.config import NAME, Strict, Use, validate
from subjectbench.errors import InputError, suggest

ROOT = Path(__file__).resolve().parents[2]
"""The checkout: relative paths in cards and configs start here."""


class Weights(Strict):
    """Where a model's weights come from, and which exactly they are."""

    path: str | None = Field(default=None, description="Folder in the checkout")
    package: str | None = Field(default=None, description="Installed package that holds them")
    repository: str | None = Field(default=None, description="Hub repository")
    revision: str | None = Field(
        default=None,
        pattern=r"^[0-9a-f]{40}$",
        description="Immutable commit of the repository; a branch is refused. A card without one "
        "cannot be used until 'subjectbench pin' has written it",
    )
    files: list[str] = Field(
        default_factory=list,
        description="Patterns of the repository's files to fetch; none: configurations and tensors",
    )
    sha256: dict[str, str] = Field(
        default_factory=dict, description="File name to sha256; checked before the weights are used"
    )

    def model_post_init(self, _: Any) -> None:
        """Exactly one place, and one that may change always with what must be there."""
        if [self.path, self.package, self.repository].count(None) != 2:
            raise ValueError("weights need one of 'path', 'package' and 'repository'")
        if self.package and not self.sha256:
            raise ValueError("weights.package needs 'sha256' of each file that is used")


class Card(Strict):
    """What every kind of card says."""

    title: str = Field(description="Name in tables and figures")
    plugin: str = Field(pattern=NAME, description="Module in the room of this kind")
    about: str = Field(description="What it is, what is known to differ from the papers")
    params: dict[str, Any] = Field(default_factory=dict)
    packages: list[str] = Field(
        default_factory=list, description="Packages whose version is part of the identity"
    )
    weights: Weights | None = None
    license: str = ""
    source: str = Field(default="", description="Paper, equation or repository")


Published = dict[Literal["dsh", "ufo"], str]
"""Paper -> the name under which its tables print something."""


class BenchmarkCard(Card):
    """Subjects and prompts."""

    published: Published = Field(
        default_factory=dict, description="Its name in each paper's printed tables"
    )


class Expected(Strict):
    """What one run of a model needs, for forecasts; not measured unless ``basis`` says so."""

    memory_gb: float = Field(default=0.0, ge=0, description="GPU memory, 10**9 bytes")
    disk_gb: float = Field(default=0.0, ge=0, description="Weights and environment on disk")
    seconds: float = Field(default=0.0, ge=0, description="GPU seconds per picture")
    subject_seconds: float = Field(default=0.0, ge=0, description="GPU seconds per subject, once")
    picture_mb: float = Field(default=0.0, ge=0, description="One picture as PNG, 10**6 bytes")
    price: float = Field(default=0.0, ge=0, description="Money per picture")
    currency: str = "USD"
    basis: str = Field(default="", description="Device, and who says so, when")


class GeneratorCard(Card):
    """A model under test, or a control."""

    base_model: str = ""
    role: Literal["model", "control", "simulated"] = "model"
    parts: dict[str, Weights] = Field(
        default_factory=dict, description="Further weights by role, e.g. adapter, lora"
    )
    published: Published = Field(
        default_factory=dict, description="This model's row in each paper's printed tables"
    )
    differs: list[str] = Field(
        default_factory=list, description="What is known to differ from the papers"
    )
    unstated: list[str] = Field(
        default_factory=list, description="Settings that the papers leave open; what is taken here"
    )
    gate: str = Field(
        default="", description="What must be accepted, and where, to get the weights"
    )
    batch_dependent: str = Field(
        default="", description="Why a picture depends on the batch size, if it does"
    )
    expected: Expected = Field(default_factory=Expected)


class EncoderCard(Card):
    """Pictures or texts to vectors."""


class MetricCard(Card):
    """Per-sample scores."""

    encoder: str | None = Field(default=None, description="Card in workflow/cards/encoders")
    rubric: str | None = Field(default=None, description="Card in workflow/cards/rubrics")
    scale: str = Field(description="What a value means, e.g. 'cosine'")
    range: tuple[float, float] = Field(strict=False)
    direction: Literal["higher", "lower"] = "higher"
    published: Published = Field(
        default_factory=dict, description="Its name in each paper's printed tables"
    )


class Price(Strict):
    """What an answer costs, for budgets and forecasts."""

    currency: str = "USD"
    prompt: float = Field(default=0.0, ge=0, description="Per million prompt tokens")
    completion: float = Field(default=0.0, ge=0, description="Per million completion tokens")
    image_tokens: int = Field(default=0, ge=0, description="Prompt tokens per picture, a forecast")
    picture: float = Field(default=0.0, ge=0, description="Per picture that is made")
    as_of: str = Field(default="", description="When and where the price was read")


class JudgeCard(Card):
    """A backend, a model and its decoding parameters."""

    encoder: str | None = Field(default=None, description="Card in workflow/cards/encoders")
    price: Price = Field(default_factory=Price)


class RubricCard(Card):
    """What a judge is asked about a sample, and on which scale."""

    judge: str | None = Field(default=None, description="Card in workflow/cards/judges")
    decomposition: str | None = Field(
        default=None, description="Card in workflow/cards/decompositions, if units are asked about"
    )


class DecompositionCard(Card):
    """How a case is split into atomic units."""

    judge: str | None = Field(default=None, description="Card in workflow/cards/judges")


class RatersCard(Card):
    """Judgements by people, or by a simulation of them."""


KINDS: dict[str, type[Card]] = {
    "benchmark": BenchmarkCard,
    "generator": GeneratorCard,
    "encoder": EncoderCard,
    "metric": MetricCard,
    "raters": RatersCard,
    "judge": JudgeCard,
    "rubric": RubricCard,
    "decomposition": DecompositionCard,
}


def room(kind: str) -> str:
    """Name of the package, and of the folder of cards, of a kind."""
    return kind if kind.endswith("s") else kind + "s"


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML keeps the last of two equal keys without a word; a card must not."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(k, deep=True) for k, _ in node.value]
        twice = next((k for i, k in enumerate(keys) if k in keys[:i]), None)
        if twice is not None:
            raise yaml.constructor.ConstructorError(
                None, None, f"key '{twice}' appears twice", node.start_mark
            )
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> Any:
    """Read one YAML file.

    Raises:
        InputError: not there, not UTF-8, not YAML, or a key twice; with line and column.
    """
    try:
        return yaml.load(path.read_text("utf-8"), Loader=_UniqueKeyLoader)
    except FileNotFoundError as error:
        raise InputError(path, "no such file") from error
    except UnicodeDecodeError as error:
        raise InputError(path, f"not UTF-8 at byte {error.start}", "save it as UTF-8") from error
    except yaml.YAMLError as error:
        raise InputError(path, f"not valid YAML: {error}") from error


def cards_folder(kind: str) -> Path:
    """Folder of the cards of a kind."""
    return ROOT / "workflow" / "cards" / room(kind)


def names(kind: str) -> list[str]:
    """Names of all cards of a kind, sorted."""
    return sorted(p.stem for p in cards_folder(kind).glob("*.yaml"))


@cache
def load(kind: str, name: str, asked_by: str = "") -> Any:
    """Load and check one card; the result has the class of ``KINDS[kind]``.

    Raises:
        InputError: no such card (with a suggestion), or a fault in it.
    """
    path = cards_folder(kind) / f"{name}.yaml"
    if not path.is_file():
        raise InputError(
            asked_by or path, f"no {kind} card named '{name}'", suggest(name, names(kind))
        )
    return validate(KINDS[kind], read_yaml(path), path.relative_to(ROOT))


def plugin(kind: str, card: Card, where: object) -> Any:
    """Import the plug-in class that a card names. Its module must be light to import.

    Raises:
        InputError: no such module, or it exposes no ``PLUGIN``.
    """
    package = f"subjectbench.{room(kind)}"
    name = f"{package}.{card.plugin}"
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        folder = Path(__file__).parent / room(kind)
        known = [p.stem for p in folder.glob("*.py") if p.stem not in ("__init__", "base")]
        raise InputError(
            f"{where}: plugin", f"no module {name}", suggest(card.plugin, known)
        ) from error
    if not hasattr(module, "PLUGIN"):
        raise InputError(name, "exposes no PLUGIN", "add: PLUGIN = YourClass")
    return module.PLUGIN


def params(kind: str, use: Use, where: object) -> BaseModel:
    """Effective parameters of a use: the card's, then the study's on top, then defaults.

    Raises:
        InputError: a parameter is unknown or of the wrong type.
    """
    card = load(kind, use.card, str(where))
    merged = {**card.params, **use.params}
    return validate(plugin(kind, card, where).Params, merged, f"{where}: {use.label}: params")
