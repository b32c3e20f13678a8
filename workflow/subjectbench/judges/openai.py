"""Any server that speaks OpenAI's chat completions: OpenAI's own, vLLM's, ``transformers serve``.

The key comes from the environment and from nowhere else. It is struck out of whatever a server says
before that is logged or kept.
"""

from __future__ import annotations

import base64
import email.utils
import logging
import math
import os
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field

from subjectbench.asking.base import Message, Picture, Reply, Request, SendError
from subjectbench.config import LOCATION, Strict
from subjectbench.errors import InputError
from subjectbench.judges.base import Backend

if TYPE_CHECKING:
    from openai import APIStatusError, AsyncOpenAI

_NO_KEY = "none"
"""Sent to servers without a key, so that the client looks for none in the environment."""

_FILTERED = {"content_filter", "content_policy_violation", "moderation_blocked"}
_FILTERED |= {"responsibleaipolicyviolation"}
_NO_QUOTA = {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"}
_PARAMETER = {"unsupported_parameter", "unsupported_value", "unknown_parameter"}
_SECRET = re.compile(r"(?i)\b(?:bearer|basic)\s+[^\s,;\"']+|\bsk-[\w*.-]{4,}")


class OpenAI(Backend):
    """Chat completions through the ``openai`` package, which neither retries nor logs here."""

    version = "1"
    remote = True

    class Params(Strict):
        """Parameters of the card. None means: not sent."""

        model: str = Field(min_length=1, description="As the server names it; a pinned snapshot")
        base_url: str | None = Field(
            default=None,
            description="Address up to and with /v1; none: the client's own (api.openai.com)",
            json_schema_extra=LOCATION,
        )
        key_env: str | None = Field(
            default="OPENAI_API_KEY",
            description="Name of the environment variable that holds the key; none: no key",
            json_schema_extra=LOCATION,
        )
        temperature: float | None = Field(default=0.0, ge=0, le=2)
        seed: int | None = Field(default=0, description="As far as the server heeds it")
        max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = Field(
            default="max_completion_tokens", description="Older servers know only max_tokens"
        )
        image_detail: Literal["low", "high", "auto"] | None = Field(
            default=None, description="How finely OpenAI's models look"
        )
        structured: Literal["json_schema", "json_object", "none"] = Field(
            default="json_schema", description="How the server is held to a reply's form"
        )

    _client: AsyncOpenAI | None = None

    def check(self) -> None:
        """Find a wrong address and a missing key.

        Raises:
            InputError: neither repeats what was given, in case it is a secret.
        """
        name, url = self.params.key_env, self.params.base_url
        where = f"judge {self.card.title}: params"
        if url is not None:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise InputError(f"{where}.base_url", "is no address", "write http(s)://host/v1")
            if parts.username or parts.password or parts.query:
                raise InputError(
                    f"{where}.base_url",
                    "holds a user, a password or a query",
                    "put the key into the environment, and its variable's name into key_env",
                )
        if name is None:
            return
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise InputError(
                f"{where}.key_env",
                "is no name of an environment variable",
                "write the variable's name there, never the key itself",
            )
        if not os.environ.get(name, "").strip():
            raise InputError(
                f"{where}.key_env",
                f"the environment variable {name} is not set",
                f"export {name}=..., or set key_env: null for a server without key",
            )

    def _key(self) -> str:
        return os.environ[self.params.key_env].strip() if self.params.key_env else _NO_KEY

    def _connect(self) -> AsyncOpenAI:
        from openai import AsyncOpenAI

        self.check()
        for name in ("openai", "httpx2", "httpcore2"):  # at DEBUG they show headers
            logging.getLogger(name).setLevel(logging.WARNING)
        # The engine says for how long and how often to try.
        return AsyncOpenAI(
            api_key=self._key(), base_url=self.params.base_url, timeout=None, max_retries=0
        )

    async def send(self, request: Request) -> Reply:
        """Send one request.

        Raises:
            SendError: there was no reply.
        """
        import openai

        self._client = self._client or self._connect()
        try:
            # chat.completions.create would first walk through the whole body, at twice the time.
            answer: Any = await self._client.post(
                "/chat/completions", cast_to=object, body=self._body(request)
            )
        except openai.APIStatusError as error:
            raise self._refusal(error) from None
        except openai.APIConnectionError as error:
            cause = error.__cause__
            detail = f" ({type(cause).__name__}: {cause})" if cause else ""
            raise SendError("retry", self._scrubbed(f"{error}{detail}")) from None
        except (openai.OpenAIError, ValueError) as error:  # a body that is no JSON
            message = f"{type(error).__name__}: {error}"
            raise SendError("retry", self._scrubbed(message)) from None
        if not isinstance(answer, Mapping):  # a page of some proxy, with status 200
            raise SendError("retry", self._scrubbed(f"the server's answer is no reply: {answer}"))
        return self._reply(answer)

    async def close(self) -> None:
        """Close the connections; a later ``send`` opens new ones."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    # --- the request -----------------------------------------------------------------------------

    def _body(self, request: Request) -> dict[str, Any]:
        params = self.params
        body: dict[str, Any] = {
            "model": params.model,
            "messages": [self._message(m) for m in request.messages],
            params.max_tokens_field: request.max_tokens,
        }
        for name in ("temperature", "seed"):
            if getattr(params, name) is not None:
                body[name] = getattr(params, name)
        if request.schema and params.structured == "json_object":
            body["response_format"] = {"type": "json_object"}
        elif request.schema and params.structured == "json_schema":
            form = {"name": "reply", "strict": True, "schema": dict(request.schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        return body

    def _message(self, message: Message) -> dict[str, Any]:
        texts = [part for part in message.parts if isinstance(part, str)]
        if len(texts) == len(message.parts):  # every server understands this form
            return {"role": message.role, "content": "\n".join(texts)}
        return {"role": message.role, "content": [self._part(part) for part in message.parts]}

    def _part(self, part: str | Picture) -> dict[str, Any]:
        if isinstance(part, str):
            return {"type": "text", "text": part}
        data = base64.b64encode(part.data).decode("ascii")
        image = {"url": f"data:{part.media_type};base64,{data}"}
        if self.params.image_detail:
            image["detail"] = self.params.image_detail
        return {"type": "image_url", "image_url": image}

    # --- the reply -------------------------------------------------------------------------------

    def _reply(self, answer: Mapping[str, Any]) -> Reply:
        """Read a completion, whatever is missing in it. Reasoning is not its content."""
        choices = answer.get("choices")
        fault = answer.get("error")
        if fault and not choices:  # some gateways report errors with status 200
            raise SendError("retry", self._scrubbed(f"the server reports an error: {fault}"))
        choice = _mapping(choices[0] if isinstance(choices, list) and choices else None)
        message, usage = _mapping(choice.get("message")), _mapping(answer.get("usage"))
        finish, text = str(choice.get("finish_reason") or ""), _text(message.get("content"))
        if message.get("refusal") and not text:
            text, finish = str(message["refusal"]), "content_filter"
        return Reply(
            text=text if text is None else self._without_key(text),
            finish=finish,
            model=self._without_key(str(answer.get("model") or "")),
            prompt_tokens=_count(usage.get("prompt_tokens")),
            completion_tokens=_count(usage.get("completion_tokens")),
        )

    def _refusal(self, error: APIStatusError) -> SendError:
        """Say what an HTTP status of 400 or more means for this request and the next ones."""
        status, inner = error.status_code, _mapping(_mapping(error.body).get("innererror"))
        codes = {str(w).lower() for w in (error.code, error.type, inner.get("code")) if w}
        message = self._scrubbed(f"HTTP {status}: {error.message}")
        if codes & _FILTERED:
            return SendError("refused", message, status)
        if codes & _NO_QUOTA or status in (401, 402, 403, 404) or codes & _PARAMETER:
            if status in (401, 403) and self.params.key_env:
                message += f" (the key is from the environment variable {self.params.key_env})"
            elif status == 404:
                message += f" (model {self.params.model}; is base_url right?)"
            return SendError("account", message, status)
        if status in (408, 409, 429) or status >= 500:
            return SendError("retry", message, status, _retry_after(error.response.headers))
        return SendError("request", message, status)

    def _without_key(self, text: str) -> str:
        key = self._key()
        return text if key == _NO_KEY else text.replace(key, "***")

    def _scrubbed(self, text: str) -> str:
        """Strike keys out of a message, and keep it short."""
        return _SECRET.sub("***", self._without_key(" ".join(text.split())))[:500]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(content: Any) -> str | None:
    """Content as text. Of a list of parts only texts count: others are reasoning."""
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    texts = [p.get("text") for p in content if isinstance(p, Mapping) and p.get("type") == "text"]
    return "".join(t for t in texts if isinstance(t, str)) or None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _retry_after(headers: Mapping[str, str]) -> float | None:
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


PLUGIN = OpenAI
