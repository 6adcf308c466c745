"""A loopback server that plays a model over OpenAI Chat Completions, in a process of its own: its CPU is not ours.

The model's name says what it does: `deltas-N` streams N pieces of text, `rounds-N` calls a tool in each of N rounds,
`parallel-N` makes N calls in one round. Events leave one by one, as tokens do; those of `burst-N` leave together, so
that how they arrive does not depend on how busy the server was.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"

USAGE = (
    b'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"bench","choices":[],'
    b'"usage":{"prompt_tokens":10,"completion_tokens":100,"total_tokens":110}}\n\n'
)


def chunk(delta: dict[str, object], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    data = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "bench", "choices": [choice]}
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def text_events(pieces: int) -> list[bytes]:
    return [
        chunk({"role": "assistant", "content": ""}),
        *(chunk({"content": f"word{n} "}) for n in range(pieces)),
        chunk({}, "stop"),
        USAGE,
        b"data: [DONE]\n\n",
    ]


def call_events(count: int, salt: int) -> list[bytes]:
    events = [chunk({"role": "assistant", "content": None})]
    for n in range(count):
        function = {"name": "add", "arguments": ""}
        events.append(
            chunk({"tool_calls": [{"index": n, "id": f"c{salt}_{n}", "type": "function", "function": function}]})
        )
        for piece in ('{"a": ', f"{n}, ", '"b": 1}'):
            events.append(chunk({"tool_calls": [{"index": n, "function": {"arguments": piece}}]}))
    return [*events, chunk({}, "tool_calls"), USAGE, b"data: [DONE]\n\n"]


def answer(body: dict[str, object]) -> list[bytes]:
    kind, _, number = str(body["model"]).partition("-")
    messages = body["messages"]
    assert isinstance(messages, list)
    last_user = max(i for i, message in enumerate(messages) if message["role"] == "user")
    rounds = sum(message["role"] == "assistant" for message in messages[last_user:])
    if kind in ("deltas", "burst"):
        return text_events(int(number))
    if kind == "rounds":
        return call_events(1, len(messages)) if rounds < int(number) else text_events(5)
    return call_events(int(number), len(messages)) if rounds == 0 else text_events(5)


async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            body = json.loads(await reader.readexactly(length))
            events = answer(body)
            if body["model"].startswith("burst"):
                events = [b"".join(events)]
            writer.write(HEAD)
            for event in events:
                writer.write(b"%x\r\n%b\r\n" % (len(event), event))
                await asyncio.sleep(0)
            writer.write(b"0\r\n\r\n")
            await writer.drain()
    writer.close()


def run_server(pipe: Connection) -> None:
    async def main() -> None:
        server = await asyncio.start_server(serve_one, "127.0.0.1", 0, backlog=1024)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """The base URL of a server that lives as long as this is open."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=run_server, args=(theirs,), daemon=True)
    process.start()
    try:
        if not ours.poll(30):
            raise RuntimeError("the bench server did not start within 30 s")
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.terminate()
        process.join()
