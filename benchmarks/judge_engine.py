"""What the engine adds to asking: its wall time against a bare loop's with the same client.

The server is a process of its own on loopback that answers every request after a fixed delay. The
bare loop calls the openai client's ``chat.completions.create``, keeps as many requests in flight
and throws the replies away. The engine also looks every question up, reads every reply, commits it
and counts; its backend's ``send`` in the same bare loop is shown as well. Rounds alternate; ratios
are those of the fastest rounds, because other work on the machine only adds. Every question has a
picture and none comes twice.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from subjectbench.asking.base import Ask, Message, Picture, Request
from subjectbench.asking.engine import Engine
from subjectbench.asking.transcripts import Transcripts
from subjectbench.cards import JudgeCard, Price
from subjectbench.config import Judging
from subjectbench.judges.openai import OpenAI
from subjectbench.judges.prompts import form
from subjectbench.judges.replies import read
from subjectbench.vocabulary import Status

ASKS = tuple(Ask(name, f"How good is its {name}?", (0, 10)) for name in ("following", "fit"))
CARD = JudgeCard(title="loopback", plugin="openai", about="of a benchmark")


async def serve(delay: float) -> None:
    """Answer forever; print the port first."""
    content = json.dumps({ask.name: 7 for ask in ASKS} | {"reason": "It looks right."})
    choice = {"index": 0, "finish_reason": "stop"}
    choice |= {"message": {"role": "assistant", "content": content}}
    body = {"id": "x", "object": "chat.completion", "created": 0, "model": "judge-1"}
    body |= {"choices": [choice], "usage": {"prompt_tokens": 300, "completion_tokens": 20}}
    data = json.dumps(body).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n"

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                lines = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
                length = next(li for li in lines if li.startswith(b"content-length:"))
                await reader.readexactly(int(length.split(b":")[1]))
                await asyncio.sleep(delay)
                writer.write(head.encode() + b"\r\n" + data)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(client, "127.0.0.1", 0, limit=2**20)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def questions(number: int, tag: str, picture: bytes) -> list[Request]:
    """Different questions, each with a picture of its own."""
    words, schema = form(ASKS, True)
    system = Message("system", ("You judge pictures strictly.",))
    out = []
    for n in range(number):
        image = Picture("generated", picture + f"{tag}{n}".encode(), "image/png")
        parts = (f"The picture: the generated one. Case {tag}{n}.", image, words)
        out.append(Request((system, Message("user", parts)), ASKS, schema, 256))
    return out


class Plain(OpenAI):
    """Asks as the client's documentation shows it."""

    async def send(self, request: Request) -> Any:
        self._client = self._client or self._connect()
        return await self._client.chat.completions.create(**self._body(request))


def bare(judge: OpenAI, requests: list[Request], flight: int, _: Path) -> float:
    """Seconds of a loop that only keeps requests in flight."""

    async def loop() -> None:
        queue = iter(requests)

        async def worker() -> None:
            for request in queue:
                await judge.send(request)

        await asyncio.gather(*(worker() for _ in range(flight)))
        await judge.close()

    start = time.perf_counter()
    asyncio.run(loop())
    return time.perf_counter() - start


def through_engine(judge: OpenAI, requests: list[Request], flight: int, store: Path) -> float:
    """Seconds of the engine, opening of the store included."""
    start = time.perf_counter()
    with Transcripts(store) as transcripts:
        identity = {"plugin": "openai", "version": "1", "params": {"model": "judge-1"}}
        limits, price = Judging(concurrency=flight), Price(prompt=1.0, completion=4.0)
        engine = Engine(judge, identity, transcripts, limits, price, "benchmark", "engine")
        outcomes = engine.ask(requests, read)
    seconds = time.perf_counter() - start
    assert all(outcome.status is Status.OK for outcome in outcomes)
    return seconds


def main() -> None:
    """Measure and print; exit status 1 where the engine adds over 10 % to the bare loop."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--requests", type=int, default=2000)
    add("--flight", type=int, default=64, help="requests in flight")
    add("--delay", type=float, default=0.05, help="seconds until the server answers")
    add("--picture", type=int, default=8000, help="bytes of a picture")
    add("--rounds", type=int, default=5)
    args = parser.parse_args()
    command = [sys.executable, __file__, "--serve", str(args.delay)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    alone = args.requests * args.delay / args.flight
    took: dict[str, list[float]] = {}
    try:
        url = f"http://127.0.0.1:{server.stdout.readline().strip()}/v1"
        params = OpenAI.Params(model="judge-1", base_url=url, key_env=None)
        sides = {
            "bare loop": (bare, Plain(params, CARD)),
            "bare loop of our send": (bare, OpenAI(params, CARD)),
            "engine": (through_engine, OpenAI(params, CARD)),
        }
        picture = bytes(range(256)) * (args.picture // 256)
        for _, judge in sides.values():
            bare(judge, questions(args.flight, "warm", picture), args.flight, Path())
        with tempfile.TemporaryDirectory() as folder:
            for n in range(args.rounds):
                for name, (run, judge) in sides.items():
                    asked = questions(args.requests, f"{name} {n} ", picture)
                    seconds = run(judge, asked, args.flight, Path(folder) / f"{n}.sqlite")
                    took.setdefault(name, []).append(seconds)
    finally:
        server.kill()
        server.wait()
    print(f"{args.requests} requests of {len(picture)} bytes, {args.flight} in flight")
    print(f"server alone: {alone:.2f} s, {args.requests / alone:.0f} requests/s")
    for name, seconds in took.items():
        rounds = ", ".join(f"{s:.2f}" for s in seconds)
        rate = args.requests / min(seconds)
        print(f"{name}: {min(seconds):.2f} s, {rate:.0f} requests/s (rounds: {rounds})")
    ratios = {name: min(took["engine"]) / min(took[name]) for name in list(took)[:2]}
    for name, ratio in ratios.items():
        print(f"engine / {name}: {ratio:.3f}")
    print(f"engine / server alone: {min(took['engine']) / alone:.3f}")
    sys.exit(not ratios["bare loop"] <= 1.1)


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[2]))) if sys.argv[1:2] == ["--serve"] else main()
