"""A server behind HTTP: its address, its key, and what its faults mean.

The key comes from the environment and from nowhere else. It is struck out of whatever a server says
before that is logged or kept.
"""

from __future__ import annotations

import email.utils
import math
import os
import re
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from subjectbench.asking.base import SendError
from subjectbench.errors import InputError

FILTERED = frozenset(
    {
        "content_filter",
        "content_policy_violation",
        "moderation_blocked",
        "responsibleaipolicyviolation",
    }
)
"""Codes of OpenAI's form of errors, lower case: a filter of the server stopped the request."""

_NO_QUOTA = {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"}
_PARAMETER = {"unsupported_parameter", "unsupported_value", "unknown_parameter"}
_SECRET = re.compile(r"(?i)\b(?:bearer|basic)\s+[^\s,;\"']+|\bsk-[\w*.-]{4,}|\bAIza[\w-]{8,}")


class Server:
    """Where a server is and which key it takes.

    Args:
        where: the parameters, in messages: ``"judge GPT-4o: params"``.
        base_url: its address; None: the client knows it.
        key_env: name of the environment variable that holds the key; None: no key.
        model: as the server names it, in messages.
    """

    def __init__(self, where: str, base_url: str | None, key_env: str | None, model: str) -> None:
        self.where, self.base_url, self.key_env, self.model = where, base_url, key_env, model

    def check(self) -> None:
        """Find a wrong address and a missing key.

        Raises:
            InputError: neither repeats what was given, in case it is a secret.
        """
        if self.base_url is not None:
            parts = urlsplit(self.base_url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise InputError(
                    f"{self.where}.base_url", "is no address", "write http(s)://host/v1"
                )
            if parts.username or parts.password or parts.query:
                raise InputError(
                    f"{self.where}.base_url",
                    "holds a user, a password or a query",
                    "put the key into the environment, and its variable's name into key_env",
                )
        if self.key_env is None:
            return
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", self.key_env):
            raise InputError(
                f"{self.where}.key_env",
                "is no name of an environment variable",
                "write the variable's name there, never the key itself",
            )
        if not self.key():
            raise InputError(
                f"{self.where}.key_env",
                f"the environment variable {self.key_env} is not set",
                f"export {self.key_env}=..., or set key_env: null for a server without key",
            )

    def key(self) -> str | None:
        """Return the key, or None if there is none."""
        return (os.environ.get(self.key_env, "").strip() or None) if self.key_env else None

    def without_key(self, text: str) -> str:
        """Strike the key out of a text."""
        key = self.key()
        return text.replace(key, "***") if key else text

    def scrubbed(self, text: str) -> str:
        """Strike keys out of a message, and keep it short."""
        return _SECRET.sub("***", self.without_key(" ".join(text.split())))[:500]

    def fault(
        self, status: int, message: str, codes: set[str], headers: Mapping[str, str]
    ) -> SendError:
        """Say what an HTTP status of 400 or more means for this request and the next ones.

        Args:
            message: what the server says.
            codes: its words for the fault, lower case.
        """
        message = self.scrubbed(f"HTTP {status}: {message}")
        if codes & FILTERED:
            return SendError("refused", message, status)
        if codes & _NO_QUOTA or status in (401, 402, 403, 404) or codes & _PARAMETER:
            if status in (401, 403) and self.key_env:
                message += f" (the key is from the environment variable {self.key_env})"
            elif status == 404:
                message += f" (model {self.model}; is base_url right?)"
            return SendError("account", message, status)
        if status in (408, 409, 429) or status >= 500:
            return SendError("retry", message, status, retry_after(headers))
        return SendError("request", message, status)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server asks to wait: in milliseconds, in seconds, or as a date."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    try:
        date = email.utils.parsedate_to_datetime(headers.get("retry-after", ""))
    except (TypeError, ValueError):
        return None
    return max(0.0, date.timestamp() - time.time())


def mapping(value: Any) -> Mapping[str, Any]:
    """The value, if it is a mapping; else an empty one."""
    return value if isinstance(value, Mapping) else {}


def count(value: Any) -> int | None:
    """The value, if it is a whole number of 0 or more."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
