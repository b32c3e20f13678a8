"""A server on loopback that misbehaves as it is told, and counts.

By itself it is an OpenAI-compatible judge; tests/picture_server.py makes it speak as others do.
"""

from __future__ import annotations

import email
import email.policy
import json
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SO_LINGER, SOL_SOCKET
from typing import Any


@dataclass(frozen=True)
class Call:
    """A request as it arrived. ``nth`` counts those with the same words, pictures and budget."""

    words: str
    nth: int
    body: dict[str, Any]
    headers: dict[str, str]
    at: float
    path: str = ""
    form: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """What the server does."""

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0
    cut: bool = False  # the connection breaks in the middle of the body


def reply(text: Any, finish: str | None = "stop", **message: Any) -> Answer:
    """A chat completion."""
    choice = {"index": 0, "finish_reason": finish}
    choice["message"] = {"role": "assistant", "content": text, **message}
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    body = {"id": "x", "object": "chat.completion", "model": "judge-1", "created": 0}
    return Answer({**body, "choices": [choice], "usage": usage})


def error(status: int, message: str = "no", code: str | None = None, **headers: str) -> Answer:
    """An error in OpenAI's form; ``retry_after="1"`` becomes a header."""
    body = {"error": {"message": message, "type": "error", "code": code, "param": None}}
    return Answer(body, status, {k.replace("_", "-"): v for k, v in headers.items()})


def words_of(body: dict[str, Any]) -> str:
    """All texts of a request, a line each; of one for a picture its prompt."""
    out = [body["prompt"]] if "prompt" in body else []
    for content in body.get("contents", []):
        out += [p["text"] for p in content["parts"] if "text" in p]
    for message in body.get("messages", []):
        content = message["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        out += [p["text"] for p in parts if p["type"] == "text"]
    return "\n".join(out)


def form_of(raw: bytes, kind: str) -> dict[str, bytes]:
    """Parts of a form by name."""
    head = f"Content-Type: {kind}\r\n\r\n".encode()
    parts = email.message_from_bytes(head + raw, policy=email.policy.HTTP).iter_parts()
    return {
        p.get_param("name", header="content-disposition"): p.get_payload(decode=True) for p in parts
    }


class JudgingServer:
    """The server. ``script(call)`` says what it does; by default it answers ``{"score": 4}``."""

    def __init__(self, script: Callable[[Call], Answer] | None = None) -> None:
        self.script = script or (lambda _: reply('{"score": 4}'))
        self.calls: list[Call] = []
        self.most_at_once = self._now = 0
        self._seen: Counter[str] = Counter()
        self._lock = threading.Lock()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                owner._answer(self)

            do_GET = do_POST

            def log_message(self, *_: Any) -> None:
                return None

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        """Base URL."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def count(self) -> Counter[str]:
        """Calls by words."""
        with self._lock:
            return Counter(call.words for call in self.calls)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        raw = handler.rfile.read(int(handler.headers.get("content-length", 0)))
        kind = handler.headers.get("content-type", "")
        form = form_of(raw, kind) if kind.startswith("multipart/") else {}
        body = {n: v.decode() for n, v in form.items() if n != "image[]"} if form else {}
        body = body or json.loads(raw or b"{}")
        with self._lock:
            identity = handler.path + json.dumps(body, sort_keys=True)
            self._seen[identity] += 1
            headers = {name.lower(): value for name, value in handler.headers.items()}
            nth = self._seen[identity]
            said = (words_of(body), nth, body, headers, time.monotonic())
            call = Call(*said, handler.path, form)
            self.calls.append(call)
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
        try:
            answer = self.script(call)
            time.sleep(answer.delay)
        finally:
            with self._lock:
                self._now -= 1
        told = answer.body if isinstance(answer.body, str | bytes) else json.dumps(answer.body)
        data = told.encode() if isinstance(told, str) else told
        handler.send_response(answer.status)
        usual = {"content-type": "application/json", "content-length": str(len(data))}
        for name, value in {**usual, **answer.headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        if answer.cut:
            handler.wfile.write(data[: len(data) // 2])
            handler.wfile.flush()
            handler.connection.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
            handler.close_connection = True
            handler.connection.close()
        else:
            handler.wfile.write(data)
