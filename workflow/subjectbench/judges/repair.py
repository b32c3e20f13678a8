"""What a judge is asked after a reply that cannot be read.

A larger budget if it was cut off or empty, one repair question otherwise.
"""

from __future__ import annotations

from dataclasses import replace

from subjectbench.asking.base import Message, Reply, Request
from subjectbench.asking.engine import FollowUp, Readable
from subjectbench.hashing import canonical
from subjectbench.judges.prompts import form
from subjectbench.vocabulary import Status


def follow_up(
    request: Request, reply: Reply, reading: Readable, tried: frozenset[str]
) -> FollowUp | None:
    """Return what to ask next, or None if the reading is final.

    Args:
        request: the request that brought the reply.
        tried: kinds of follow-up that there were already; each comes once.
    """
    if reading.status is not Status.UNPARSABLE:
        return None
    text = reply.text or ""
    if reply.finish == "length" or not text.strip():
        if "longer" in tried:
            return None
        return FollowUp("longer", replace(request, max_tokens=2 * request.max_tokens))
    if "repair" in tried:
        return None
    words = f"That answer cannot be used: {reading.fault or 'it has not the form asked for'}."
    turns = (Message("assistant", (text,)), Message("user", (f"{words} {_form(request)}",)))
    return FollowUp("repair", replace(request, messages=(*request.messages, *turns)))


def _form(request: Request) -> str:
    """Say which form a reply must have."""
    if request.schema and request.asks:
        return form(request.asks, "reason" in request.schema.get("properties", {}))[0]
    if request.schema:
        return f"Answer with one JSON object of this schema: {canonical(dict(request.schema))}"
    wanted = (
        f"{a.name}: " + (f"whole number, {a.scale[0]} to {a.scale[1]}" if a.scale else "yes or no")
        for a in request.asks
    )
    return f"Answer in this form and say nothing else: {'; '.join(wanted)}."
