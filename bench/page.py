"""The page and its events: the first load, the browser's main thread, the size of its document, many who watch a turn.

The browser is the one of the tests. People who watch are connections from another process, so that only the server's
CPU time counts; the yardstick writes the same bytes to as many connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import random
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator

from playwright.async_api import Page, async_playwright
from tests.web.chromium import ARGUMENTS, environment, executable
from tests.web.served import Site, site

import rondel
from bench.measure import Ratio, shown
from rondel.events import HistoryGiven
from rondel.machine.journal import Journal
from rondel.surfaces.web.page import FOLDER
from rondel.testing import Scripted, call
from rondel.values import Message, PartDelta, PartFinished, PartStarted, ReplyFinished, ReplyStarted, Text

FIRST_LOAD_BYTES_MAX = 90_000
TOKENS_PER_S = 100
STREAMED_S = 5.0
BUSY_MAX = 0.30
WATCHERS = 1_000
DELTAS = 100
ROUNDS = 5
RECONNECTS = 100
STEPS = 200
TEXT = "The quick brown fox jumps over the lazy dog and keeps running through the long green grass"
WORDS = TEXT.split()


class Paced:
    """Says words at a steady rate, a paragraph every 40."""

    name, facts = "paced:words", Scripted().facts

    def __init__(self, words: int, per_s: float) -> None:
        self._words, self._wait_s = words, 1 / per_s

    async def stream(self, prompt: rondel.Prompt) -> AsyncIterator[object]:
        yield ReplyStarted("paced")
        yield PartStarted(0, Text(""))
        said = ""
        for n in range(self._words):
            text = WORDS[n % len(WORDS)] + ("\n\n" if n % 40 == 39 else " ")
            said += text
            yield PartDelta(0, text)
            await asyncio.sleep(self._wait_s)
        yield PartFinished(0, Text(said))
        yield ReplyFinished()


# --- the first load ---------------------------------------------------------------------------------------------------


def first_load() -> Ratio:
    html = (FOLDER / "index.html").read_text(encoding="utf-8")
    names = {name.removeprefix("/assets/") for name in re.findall(r'(?:src|href)="([^"]+)"', html)}
    for name in [one for one in names if one.endswith(".js")]:
        names |= set(re.findall(r'from"\./([^"]+)"', (FOLDER / name).read_text(encoding="utf-8")))
    size = sum(len(gzip.compress((FOLDER / name).read_bytes(), 6)) for name in names) + len(
        gzip.compress(html.encode())
    )
    ratio = size / FIRST_LOAD_BYTES_MAX
    return Ratio(
        "the first load, compressed", ratio, 1.0, f"{size / 1e3:.1f} KB", f"{FIRST_LOAD_BYTES_MAX / 1e3:.0f} KB"
    )


# --- the browser ------------------------------------------------------------------------------------------------------


async def history(made: Site, messages: int) -> str:
    """A conversation with this many messages."""
    conversation = made.app.conversation()
    text = "A paragraph with **bold** words, `code` and [a link](https://example.org).\n\n- one\n- two\n"
    given = tuple(
        Message("assistant" if n % 2 else "user", (Text(f"{n}: {text}"),), id=f"m{n}") for n in range(messages)
    )

    async def give(journal: Journal) -> None:
        await journal.append(HistoryGiven(given, owed=False, person=rondel.Person("user")))

    await made.app.journals.change(conversation.id, give)
    return conversation.id


@contextlib.asynccontextmanager
async def tab() -> AsyncGenerator[Page]:
    path = executable()
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=path, args=list(ARGUMENTS), env=environment(path))
        try:
            yield await browser.new_page(viewport={"width": 1280, "height": 800})
        finally:
            await browser.close()


async def main_thread(page: Page, made: Site) -> Ratio:
    """The part of its time that the main thread works (by the CPU time of that thread) while an answer streams."""
    id = await history(made, 1_000)
    await page.goto(f"{made.address}/#/chat/{id}")
    await page.get_by_text("999:", exact=False).first.wait_for()
    session = await page.context.new_cdp_session(page)
    await session.send("Performance.enable", {"timeDomain": "threadTicks"})

    async def used_s() -> float:
        found = (await session.send("Performance.getMetrics"))["metrics"]
        return next(one["value"] for one in found if one["name"] == "TaskDuration")

    await made.json("POST", f"/api/conversations/{id}/messages", {"text": "go"})
    await page.locator(".md").get_by_text("quick brown").last.wait_for()
    before, start = await used_s(), time.monotonic()
    await asyncio.sleep(STREAMED_S - 1)
    busy = (await used_s() - before) / (time.monotonic() - start)
    assert await page.get_by_role("button", name="Stop").count(), "the answer ended before the measuring did"
    what = f"the main thread with {TOKENS_PER_S} tokens/s after 1,000 messages"
    return Ratio(what, busy / BUSY_MAX, 1.0, f"{busy:.0%}", f"{BUSY_MAX:.0%}")


async def document_size(page: Page, made: Site) -> Ratio:
    """How many elements the page has with 10,000 messages, against 200."""
    sizes: list[int] = []
    for messages in (200, 10_000):
        id = await history(made, messages)
        await page.goto(f"{made.address}/#/chat/{id}")
        await page.get_by_text(f"{messages - 1}:", exact=False).first.wait_for()
        sizes.append(await page.evaluate("document.querySelectorAll('*').length"))
    few, many = sizes
    return Ratio("elements with 10,000 messages", many / few, 1.1, f"{many:,}", f"{few:,} with 200")


async def in_the_browser() -> list[Ratio]:
    engine = Paced(int(STREAMED_S * 3 * TOKENS_PER_S), TOKENS_PER_S)
    async with site(rondel.Agent("bench", engine=engine)) as made, tab() as page:  # type: ignore[arg-type]
        return [await main_thread(page, made), await document_size(page, made)]


# --- people who watch -------------------------------------------------------------------------------------------------

CLIENTS = """
import selectors, socket, sys
port, count, request = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].encode().decode("unicode_escape").encode()
found = selectors.DefaultSelector()
for _ in range(count):
    one = socket.create_connection(("127.0.0.1", port))
    one.sendall(request)
    one.recv(65536)
    one.setblocking(False)
    found.register(one, selectors.EVENT_READ)
print("ready", flush=True)
while found.get_map():
    for key, _ in found.select():
        if not key.fileobj.recv(1 << 20):
            found.unregister(key.fileobj)
            key.fileobj.close()
"""


@contextlib.asynccontextmanager
async def clients(port: int, request: str) -> AsyncGenerator[None]:
    """Connections from another process that read and forget."""
    escaped = request.encode("unicode_escape").decode()
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLIENTS, str(port), str(WATCHERS), escaped, stdout=subprocess.PIPE
    )
    assert running.stdout is not None
    try:
        assert await running.stdout.readline() == b"ready\n"
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            running.kill()
        await running.wait()


async def served_turns() -> tuple[float, list[bytes]]:
    """CPU seconds of a turn that many watch, and the pieces that one of them got."""
    engine = Paced(DELTAS, TOKENS_PER_S)
    async with site(rondel.Agent("bench", engine=engine)) as made:  # type: ignore[arg-type]
        id = await history(made, 2)
        request = f"GET /api/conversations/{id}/events?after=0 HTTP/1.1\r\nhost: 127.0.0.1:{made.port}\r\n\r\n"
        async with clients(made.port, request):
            spent: list[float] = []
            pieces: list[bytes] = []
            for _ in range(ROUNDS):
                conversation = made.app.conversation(id)
                start = time.process_time()
                if pieces:
                    await conversation.ask("go")
                else:
                    pieces = await _while_asking(made, id, conversation)
                await asyncio.sleep(0.1)
                spent.append(time.process_time() - start)
            return statistics.median(spent), pieces


async def _while_asking(made: Site, id: str, conversation: rondel.Conversation) -> list[bytes]:
    """The first round warms up, and says what everyone gets."""
    pieces: list[bytes] = []
    seq = (await made.app.journals.open(id)).seq
    async with made.client.stream("GET", f"/api/conversations/{id}/events?after={seq}") as answer:
        chunks = answer.aiter_raw()
        await anext(chunks)
        async with asyncio.TaskGroup() as group:
            group.create_task(conversation.ask("go"))
            async for piece in chunks:
                pieces.append(piece)
                if b"turn_finished" in piece:
                    break
    return pieces


async def written(pieces: list[bytes]) -> float:
    """CPU seconds for writing these pieces to as many connections."""
    writers: list[asyncio.StreamWriter] = []

    async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        writers.append(writer)

    server = await asyncio.start_server(keep, "127.0.0.1", 0, backlog=WATCHERS)
    port = server.sockets[0].getsockname()[1]
    async with server, clients(port, "GET / HTTP/1.1\r\n\r\n"):
        spent: list[float] = []
        for _ in range(ROUNDS):
            start = time.process_time()
            for piece in pieces:
                for writer in writers:
                    writer.write(piece)
                await asyncio.sleep(1 / TOKENS_PER_S)
            spent.append(time.process_time() - start)
        for writer in writers:
            writer.close()
    return statistics.median(spent)


async def watchers() -> Ratio:
    ours, pieces = await served_turns()
    theirs = await written(pieces)
    per = WATCHERS * len(pieces)
    what = f"{WATCHERS:,} who watch a turn of {len(pieces)} pieces, against writing the bytes, each"
    return Ratio(what, ours / theirs, 2.0, shown(ours / per), shown(theirs / per))


# --- coming back ------------------------------------------------------------------------------------------------------


async def reconnects() -> Ratio:
    """A client that leaves and comes back at random: entries that it lost or got twice."""

    @rondel.tool
    async def step(n: int) -> str:
        "Do a step."
        await asyncio.sleep(0.005)
        return f"step {n}"

    steps = [call("step", f"c{n}", n=n) for n in range(STEPS)]
    limits = rondel.Limits(rounds=2 * STEPS)
    rng = random.Random(7)
    async with site(rondel.Agent("bench", engine=Scripted(*steps, "done"), tools=[step], limits=limits)) as made:
        id = await made.start()
        seen: list[int] = []
        connects, is_over = 0, False
        await made.json("POST", f"/api/conversations/{id}/messages", {"text": "go"})
        while not is_over:
            connects += 1
            most = rng.randrange(1, 9) if connects < RECONNECTS else 1 << 30
            async with asyncio.timeout(60), contextlib.aclosing(made.events(id, after=max(seen, default=0))) as events:
                async for name, data in events:
                    if name == "entry":
                        seen.append(data["seq"])
                        is_over = data["event"]["type"] == "turn_finished"
                        most -= 1
                    if not most or is_over:
                        break
        last = (await made.json("GET", f"/api/conversations/{id}/entries"))["seq"]
    wrong = len(seen) - len(set(seen)) + len(set(range(1, last + 1)) - set(seen))
    return Ratio(f"entries lost or twice in {connects} connections", float(wrong), 0.0, str(wrong), f"{last} entries")


def run() -> list[Ratio]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4 * WATCHERS)), hard))
    found = [first_load(), *asyncio.run(in_the_browser())]
    return [*found, asyncio.run(watchers()), asyncio.run(reconnects())]
