"""The one exception that people are meant to read: it names the place, the fault and the mend."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(Exception):
    """Something the user wrote or supplied is wrong.

    The command line prints it without a traceback and exits with status 2.

    Args:
        where: file (and field, row or line) at fault, e.g. ``"config.yaml: metrics[1]"``.
        fault: what is wrong with it.
        mend: what to do about it.
    """

    def __init__(self, where: object, fault: str, mend: str = "") -> None:
        self.where, self.fault, self.mend = str(where), fault, mend
        super().__init__(f"{self.where}: {fault}" + (f"\n  mend: {mend}" if mend else ""))


def suggest(word: str, known: Iterable[str]) -> str:
    """Return a ``did you mean 'x'?`` sentence, or the list of what is known."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    if close:
        return f"did you mean '{close[0]}'?"
    return "known: " + (", ".join(names) or "none")
