"""Any server that speaks OpenAI's chat completions: OpenAI's own, vLLM's, transformers' serve."""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from subjectbench.asking.base import Message, Picture, Reply, Request, SendError
from subjectbench.asking.server import Server, count, mapping
from subjectbench.config import LOCATION, Strict
from subjectbench.judges.base import Backend

if TYPE_CHECKING:
    from openai import APIStatusError, AsyncOpenAI

_NO_KEY = "none"
"""Sent to servers without a key, so that the client looks for none in the environment."""


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

    @cached_property
    def server(self) -> Server:
        """Address and key."""
        params = self.params
        where = f"judge {self.card.title}: params"
        return Server(where, params.base_url, params.key_env, params.model)

    def check(self) -> None:
        """Find a wrong address and a missing key.

        Raises:
            InputError: neither repeats what was given, in case it is a secret.
        """
        self.server.check()

    def _connect(self) -> AsyncOpenAI:
        from openai import AsyncOpenAI

        self.check()
        for name in ("openai", "httpx2", "httpcore2"):  # at DEBUG they show headers
            logging.getLogger(name).setLevel(logging.WARNING)
        # The engine says for how long and how often to try.
        return AsyncOpenAI(
            api_key=self.server.key() or _NO_KEY,
            base_url=self.params.base_url,
            timeout=None,
            max_retries=0,
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
            raise SendError("retry", self.server.scrubbed(f"{error}{detail}")) from None
        except (openai.OpenAIError, ValueError) as error:  # a body that is no JSON
            message = f"{type(error).__name__}: {error}"
            raise SendError("retry", self.server.scrubbed(message)) from None
        if not isinstance(answer, Mapping):  # a page of some proxy, with status 200
            raise SendError(
                "retry", self.server.scrubbed(f"the server's answer is no reply: {answer}")
            )
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
            raise SendError("retry", self.server.scrubbed(f"the server reports an error: {fault}"))
        choice = mapping(choices[0] if isinstance(choices, list) and choices else None)
        message, usage = mapping(choice.get("message")), mapping(answer.get("usage"))
        finish, text = str(choice.get("finish_reason") or ""), _text(message.get("content"))
        if message.get("refusal") and not text:
            text, finish = str(message["refusal"]), "content_filter"
        return Reply(
            text=text if text is None else self.server.without_key(text),
            finish=finish,
            model=self.server.without_key(str(answer.get("model") or "")),
            prompt_tokens=count(usage.get("prompt_tokens")),
            completion_tokens=count(usage.get("completion_tokens")),
        )

    def _refusal(self, error: APIStatusError) -> SendError:
        """Say what an HTTP status of 400 or more means for this request and the next ones."""
        inner = mapping(mapping(error.body).get("innererror"))
        codes = {str(w).lower() for w in (error.code, error.type, inner.get("code")) if w}
        return self.server.fault(error.status_code, error.message, codes, error.response.headers)


def _text(content: Any) -> str | None:
    """Content as text. Of a list of parts only texts count: others are reasoning."""
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    texts = [p.get("text") for p in content if isinstance(p, Mapping) and p.get("type") == "text"]
    return "".join(t for t in texts if isinstance(t, str)) or None


PLUGIN = OpenAI
