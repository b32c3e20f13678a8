"""The contract of a judge's backend: requests in, replies out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from subjectbench.asking.base import Reply, Request, SendError
from subjectbench.cards import JudgeCard
from subjectbench.config import Strict

if TYPE_CHECKING:
    from subjectbench.encoders.base import Encoder


class Backend:
    """Sends requests to one model.

    Remote backends implement ``send``; the engine limits, repeats and counts. Local ones implement
    ``complete``; the engine hands over batches.

    Args:
        params: checked parameters.
        card: the judge's card.
        device: torch device, for judges in process.
        encoder: the card's encoder, for judges that need one.
    """

    Params: ClassVar[type[Strict]] = Strict
    """Parameters. Those marked ``LOCATION`` (base URL, ...) are no part of the identity."""

    version: ClassVar[str] = "1"
    remote: ClassVar[bool] = False
    uses_torch: ClassVar[bool] = False

    def __init__(
        self, params: Any, card: JudgeCard, device: str = "cpu", encoder: Encoder | None = None
    ) -> None:
        self.params, self.card, self.device, self.encoder = params, card, device, encoder

    @classmethod
    def sources(cls, params: Any, root: Path) -> list[Path]:
        """Files that the replies come from, e.g. archived transcripts."""
        return []

    @classmethod
    def identity(cls, params: Any, components: Mapping[str, Any]) -> dict[str, Any]:
        """Return what of the judge is part of every request's key.

        Of a remote judge only what the server is told: refactoring our code buys nothing anew, nor
        does a new parameter that is None (not sent) unless set.
        Of a judge in process everything that the planner knows: weights, code, packages.
        """
        if not cls.remote:
            return dict(components)
        told = {name: value for name, value in components["params"].items() if value is not None}
        return {"plugin": components["plugin"], "version": components["version"], "params": told}

    def check(self) -> None:
        """Find what stands in the way of asking: no key, no archive. Nothing is sent.

        Raises:
            InputError: naming the field and the mend.
        """
        return None

    async def send(self, request: Request) -> Reply:
        """Send one request and return its reply.

        Raises:
            SendError: there was none.
        """
        raise NotImplementedError

    def complete(self, requests: Sequence[Request]) -> Sequence[Reply | SendError]:
        """Answer requests, one reply each, in order; an error where there is no reply to one."""
        raise NotImplementedError

    async def close(self) -> None:
        """Release connections."""
        return None
