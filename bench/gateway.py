"""What a request costs behind the gateway, against the smallest relay on the fastest HTTP libraries.

Upstream, relay and gateway are processes of their own; what is compared is the CPU of the relay's and the gateway's,
asked the same in turn. The gateway has a key, routes for every rule, its image agent and its ledger. `--long` asks
20,000 times where memory is watched.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bench.load import Caller, Process, ask_all, connect, python, request
from bench.measure import Ratio, compared

ROUNDS = 60
AT_ONCE = 8
WORDS = 30
MESSAGES, CHAT, RESPONSES = "/v1/messages", "/v1/chat/completions", "/v1/responses"
STREAMS_OPEN = 1_000
SETTLED_S = 1.0
STARTS = 5
CONFIG = """
[engines.claude]
base_url = "{url}"
dialect = "anthropic"
key = "none"
model = "burst-1"

[engines.chat]
base_url = "{url}/v1"
dialect = "openai-chat"
key = "none"
model = "burst-1"

[engines.responses]
base_url = "{url}/v1"
dialect = "openai-responses"
key = "none"
model = "burst-1"

[gateway.routes]
default = "{default}"
background = "chat:burst-1"
think = "chat:burst-2"
long_context = "chat:burst-3"
long_context_tokens = 100000
web_search = "chat:burst-4"
{image}

[gateway.keys.desk]
key = "bench"
"""


class Case(NamedTuple):
    what: str
    engine: str
    """The gateway's route; the relay asks the same of the upstream, in the caller's dialect."""
    asked: Callable[..., bytes]
    """What the callers ask; the fields that it is given are the body's."""
    limit: float
    requests: int = 48
    at_once: int = AT_ONCE


# --- what is asked ----------------------------------------------------------------------------------------------------

QUESTION = "Please explain in a few words what a gateway does, and why somebody would want to have one. " * 4
TOOL_TEXT = "Looks a thing up by its name and gives what is known of it, with its place, its time and its source. " * 4
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABh6FO1AAAAABJRU5ErkJggg=="


def body(path: str, *, streams: bool) -> dict[str, Any]:
    asked = {"model": "some-model", "stream": streams}
    messages = [{"role": "user", "content": QUESTION}]
    if path == MESSAGES:
        return {**asked, "max_tokens": 1000, "system": "You are helpful.", "messages": messages}
    if path == RESPONSES:
        return {**asked, "instructions": "You are helpful.", "input": messages}
    return {**asked, "messages": [{"role": "system", "content": "You are helpful."}, *messages]}


def large_body() -> dict[str, Any]:
    """78 KB: 24 tools, and many rounds of calls and results, as coding agents send them."""
    properties = {f"field_{n}": {"type": "string", "description": TOOL_TEXT[:120]} for n in range(8)}
    schema = {"type": "object", "properties": properties, "required": ["field_0"]}
    tools = [{"name": f"tool_{n}", "description": TOOL_TEXT, "input_schema": schema} for n in range(24)]
    messages: list[dict[str, Any]] = [{"role": "user", "content": QUESTION}]
    for n in range(54):
        use = {"type": "tool_use", "id": f"toolu_{n}", "name": f"tool_{n % 24}", "input": {"field_0": f"thing {n}"}}
        messages.append({"role": "assistant", "content": [{"type": "text", "text": "I will look that up."}, use]})
        result = {"type": "tool_result", "tool_use_id": f"toolu_{n}", "content": f"{n} {QUESTION}"}
        messages.append({"role": "user", "content": [result]})
    return {**body(MESSAGES, streams=True), "tools": tools, "messages": messages}


def body_with_image() -> dict[str, Any]:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    return {
        **body(MESSAGES, streams=True),
        "messages": [
            {"role": "user", "content": [image, {"type": "text", "text": "What is this?"}]},
            {"role": "assistant", "content": "A picture."},
            {"role": "user", "content": QUESTION},
        ],
    }


def said(path: str, what: dict[str, Any], **fields: Any) -> bytes:
    return request(path, {**what, **fields})


def cases() -> list[Case]:
    whole, streamed = (partial(said, MESSAGES, body(MESSAGES, streams=streams)) for streams in (False, True))
    chat = partial(said, CHAT, body(CHAT, streams=True))
    large = partial(said, MESSAGES, large_body())
    return [
        Case("same dialect, whole", f"claude:burst-{WORDS}", whole, 1.8),
        Case("same dialect, streamed in one piece", f"claude:burst-{WORDS}", streamed, 1.6),
        Case("same dialect, streamed word by word", f"claude:paced-{WORDS}", streamed, 1.5, 40, 20),
        Case("same dialect, OpenAI Chat, streamed word by word", f"chat:paced-{WORDS}", chat, 1.5, 40, 20),
        Case("Anthropic in, OpenAI Chat out, streamed", f"chat:paced-{WORDS}", streamed, 3, 40, 20),
        Case("OpenAI Chat in, Anthropic out, streamed", f"claude:paced-{WORDS}", chat, 3, 40, 20),
        Case("Anthropic in, OpenAI Chat out, in one piece", f"chat:burst-{WORDS}", streamed, 3.5),
        Case("78 KB, 24 tools, a long history, across", f"chat:burst-{WORDS}", large, 5, 16),
    ]


# --- who is asked -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def gateway(upstream: Process, default: str, *, sees: bool = True) -> Generator[Process]:
    """`sees`: it has a route for images, and with it its image agent."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        config = path / "rondel.toml"
        image = f'image = "chat:burst-{WORDS}"' if sees else ""
        config.write_text(CONFIG.format(url=upstream.url, default=default, image=image), encoding="utf-8")
        config.chmod(0o600)
        env = {"HOME": folder, "RONDEL_TRUST": folder} | {
            f"XDG_{kind}_HOME": folder for kind in ("CONFIG", "DATA", "STATE", "CACHE")
        }
        with python("-m", "rondel", "serve", "--port", "0", cwd=path, env=env) as process:
            yield process


class Side(NamedTuple):
    """One of the two that are compared: a process, callers with open connections, and what they ask."""

    process: Process
    callers: list[Caller]
    asked: bytes

    async def cpu_of(self, requests: int) -> float:
        before = self.process.cpu_s
        await ask_all(self.callers, self.asked, requests)
        return (self.process.cpu_s - before) / requests


@contextlib.asynccontextmanager
async def side(process: Process, asked: bytes, at_once: int) -> AsyncGenerator[Side]:
    callers = await connect(process.port, at_once)
    try:
        yield Side(process, callers, asked)
    finally:
        for caller in callers:
            caller.leave()


async def in_turn(sides: list[Side], requests: int, rounds: int = ROUNDS) -> list[list[float]]:
    """CPU seconds a request: the rounds of each side, taken in turn."""
    for one in sides:
        await one.cpu_of(requests)
    spent: list[list[float]] = [[] for _ in sides]
    for _ in range(rounds):
        for one, seconds in zip(sides, spent, strict=True):
            seconds.append(await one.cpu_of(requests))
    return spent


async def against_relay(case: Case, upstream: Process, relay: Process) -> Ratio:
    asked = case.asked(model=case.engine.partition(":")[2])  # the relay sends the model's name on as it comes
    with gateway(upstream, case.engine) as process:
        async with (
            side(process, case.asked(), case.at_once) as ours,
            side(relay, asked, case.at_once) as theirs,
        ):
            spent = await in_turn([ours, theirs], case.requests)
    return compared(f"{case.what}, against the relay", spent[0], spent[1], case.limit)


async def per_delta(what: str, path: str, engine: str, upstream: Process, relay: Process) -> Ratio:
    """The slope over the number of words; what a request costs besides is taken out."""
    few, many = 10, 130
    asked = body(path, streams=True)
    with gateway(upstream, f"{engine}:paced-{few}") as short, gateway(upstream, f"{engine}:paced-{many}") as long:
        async with contextlib.AsyncExitStack() as stack:
            pairs = [(short, "some-model"), (long, "some-model"), (relay, f"paced-{few}"), (relay, f"paced-{many}")]
            sides = [
                await stack.enter_async_context(side(process, request(path, {**asked, "model": model}), 20))
                for process, model in pairs
            ]
            spent = await in_turn(sides, 20)
    ours = [(b - a) / (many - few) for a, b in zip(spent[0], spent[1], strict=True)]
    theirs = [(b - a) / (many - few) for a, b in zip(spent[2], spent[3], strict=True)]
    # A difference of two rounds may be nearly nothing, so there is no ratio of each.
    return compared(f"{what}, against the relay's chunk", [statistics.median(ours)], [statistics.median(theirs)], 3)


async def image_agent(upstream: Process) -> Ratio:
    """One injected call: the model that calls, the one that sees, and the first one again. Against the same request
    without the agent."""
    asked = request(MESSAGES, body_with_image())
    with (
        gateway(upstream, f"chat:looks-{WORDS}") as looks,
        gateway(upstream, f"chat:burst-{WORDS}", sees=False) as across,
    ):
        async with side(looks, asked, AT_ONCE) as ours, side(across, asked, AT_ONCE) as theirs:
            spent = await in_turn([ours, theirs], 24)
    return compared("one injected call inside, against the same without the agent", spent[0], spent[1], 3)


# --- memory -----------------------------------------------------------------------------------------------------------


async def open_streams(upstream: Process) -> Ratio:
    data = request(MESSAGES, body(MESSAGES, streams=True))
    with gateway(upstream, "claude:idle-3") as process:
        opened = await connect(process.port, 100)
        for caller in opened:
            await caller.begin(data)
        before = process.memory_bytes
        callers = await connect(process.port, STREAMS_OPEN)
        async with asyncio.TaskGroup() as group:
            for caller in callers:
                group.create_task(caller.begin(data))
        each = (process.memory_bytes - before) / STREAMS_OPEN
        for caller in (*opened, *callers):
            caller.leave()
    return Ratio(
        f"each of {STREAMS_OPEN:,} open streams, against 50 KB", each / 50e3, 1, f"{each / 1e3:.1f} KB", "50 KB"
    )


async def slope(upstream: Process, requests: int) -> Ratio:
    """How much memory a request leaves behind. Every tenth caller leaves in mid-stream."""
    data = request(MESSAGES, body(MESSAGES, streams=True))

    async def some(process: Process, count: int) -> None:
        callers = await connect(process.port, AT_ONCE)
        await ask_all(callers, data, count * 9 // 10)
        for caller in callers:
            caller.leave()
        for _ in range(count // 10):
            (caller,) = await connect(process.port, 1)
            await caller.begin(data)
            caller.leave()

    with gateway(upstream, "claude:paced-4") as process:
        for _ in range(3):
            await some(process, 1_000)
        points = [(0, process.memory_bytes)]
        for n in range(4):
            await some(process, requests // 4)
            points.append(((n + 1) * requests // 4, process.memory_bytes))
    each = statistics.linear_regression(*zip(*points, strict=True)).slope
    what = f"memory that a request leaves, over {requests:,} with a tenth aborted, against 1 KB"
    return Ratio(what, max(0.0, each) / 1024, 1, f"{each:.0f} bytes", "1 KB")


async def aborted(upstream: Process, requests: int) -> Ratio:
    """What callers leave behind who leave in mid-stream, in memory and as open files."""
    data = request(MESSAGES, body(MESSAGES, streams=True))

    async def leave(process: Process, count: int) -> None:
        for _ in range(count):
            (caller,) = await connect(process.port, 1)
            await caller.begin(data)
            caller.leave()

    async def many_leave(process: Process, count: int) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(leave(process, count // AT_ONCE))
        await asyncio.sleep(SETTLED_S)  # until the gateway has seen the last callers leave and closed their files

    with gateway(upstream, "claude:idle-3") as process:
        await many_leave(process, 2_000)
        before, files = process.memory_bytes, process.open_files
        await many_leave(process, requests)
        each = max(0, process.memory_bytes - before) / requests
        left = process.open_files - files
    what = f"memory that each of {requests:,} aborted requests leaves, against 1 KB"
    return Ratio(what, each / 1024 if left <= 0 else float("inf"), 1, f"{each:.0f} bytes, {left} files", "1 KB")


# --- start ------------------------------------------------------------------------------------------------------------


async def start_up(upstream: Process) -> list[Ratio]:
    data = request(MESSAGES, body(MESSAGES, streams=False))
    plain, spent, seconds, memory = list[float](), list[float](), list[float](), list[int]()
    for _ in range(STARTS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", "import starlette, asyncio"], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        plain.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        began = time.monotonic()
        with gateway(upstream, "claude:burst-1") as process:
            (caller,) = await connect(process.port, 1)
            await caller.ask(data)
            seconds.append(time.monotonic() - began)
            spent.append(process.cpu_s)
            memory.append(process.memory_bytes)
    answer = "from the start to the first answer"
    best_s, least = min(seconds), min(memory) / 1e6
    return [
        compared(f"{answer}, against python -c 'import starlette, asyncio'", spent, plain, 4),
        Ratio(f"seconds {answer}, against 0.5 s", best_s / 0.5, 1, f"{best_s:.2f} s", "0.5 s"),
        Ratio("memory after the first answer, against 60 MB", least / 60, 1, f"{least:.1f} MB", "60 MB"),
    ]


async def main(*, long: bool = False) -> list[Ratio]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8_192)), hard))
    with (
        python("-m", "bench.upstream") as upstream,
        python("-m", "bench.relay", upstream.url) as relay,
    ):
        ratios = [await against_relay(case, upstream, relay) for case in cases()]
        ratios.append(await per_delta("a delta, same dialect", MESSAGES, "claude", upstream, relay))
        ratios.append(await per_delta("a delta, Anthropic in, OpenAI Chat out", MESSAGES, "chat", upstream, relay))
        ratios.append(await per_delta("a delta, OpenAI Chat in, Anthropic out", CHAT, "claude", upstream, relay))
        ratios.append(await image_agent(upstream))
        ratios.append(await open_streams(upstream))
        ratios.append(await slope(upstream, 20_000 if long else 3_000))
        ratios.append(await aborted(upstream, 10_000))
        ratios += await start_up(upstream)
        return ratios


def run() -> list[Ratio]:
    import uvloop

    return uvloop.run(main(long="--long" in sys.argv))
