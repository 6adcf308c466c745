"""A scripted model server on loopback that speaks all three dialects, and tells what it saw.

It runs in a thread of its own, because the SDKs' clients block. Which script a request plays is in the name of the
model that it asks for, so that any number of tests may use one gateway at once. Raw sockets on purpose: it can do what
no framework allows, such as half an event, a reset, or an answer that never begins.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from itertools import count
from typing import Any, NamedTuple

from tests.engines.scripted_http import Close, Reset, Silence, play_end, read_request

from .speech import PATHS

WAIT_S = 20.0  # Nothing that a test waits for takes longer, unless it never comes


class Flood(NamedTuple):
    """Say the same bytes this many times, as fast as they are taken."""

    piece: bytes
    times: int


class Gate:
    """Say nothing more until a test opens it."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._lock = threading.Lock()
        self._is_open = False
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def open(self) -> None:
        with self._lock:
            self._is_open = True
            waiting, self._waiting = self._waiting, []
        for loop, event in waiting:
            loop.call_soon_threadsafe(event.set)

    def wait_reached(self) -> None:
        assert self._reached.wait(WAIT_S), "the upstream did not come so far"

    async def passed(self) -> None:
        event = asyncio.Event()
        with self._lock:
            if self._is_open:
                return
            self._waiting.append((asyncio.get_running_loop(), event))
        self._reached.set()
        await event.wait()


class Mark:
    """Tells a test that the script has come this far."""

    def __init__(self) -> None:
        self._reached = threading.Event()

    def reach(self) -> None:
        self._reached.set()

    def wait_reached(self) -> None:
        assert self._reached.wait(WAIT_S), "the upstream did not come so far"


Step = bytes | Mark | Silence | Reset | Close | Flood | Gate
Script = Sequence[Step]


class Visit:
    """One request as it arrived, and how it ended."""

    def __init__(self, target: str, headers: dict[str, str], body: Any) -> None:
        self.target, self.headers, self.body = target, headers, body
        self.bytes_sent = 0
        self.left = threading.Event()  # The gateway closed the connection before its answer had ended
        self.over = threading.Event()  # The script was played to its end

    def wait_left(self) -> None:
        assert self.left.wait(WAIT_S), f"the connection of {self.target} was not closed"


class Upstream:
    """`with Upstream() as upstream:` then `upstream.plays(...)` gives the model to ask for."""

    def __init__(self) -> None:
        self._scripts: dict[str, list[Script]] = {}
        self._visits: dict[str, list[Visit]] = {}
        self._came = threading.Condition()
        self._names = count(1)
        self._failures: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self.port = 0

    def __enter__(self) -> Upstream:
        self._thread.start()
        assert self._ready.wait(WAIT_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(WAIT_S)
        assert not self._failures, self._failures

    def url(self, dialect: str) -> str:
        return f"http://127.0.0.1:{self.port}/{dialect}"

    def plays(self, *scripts: Script, name: str = "") -> str:
        """The name of a model whose requests are answered with these scripts, in order."""
        model = name or f"m{next(self._names)}"
        self._visits[model] = []
        self._scripts[model] = list(scripts)
        return model

    def visits(self, model: str, at_least: int = 1) -> list[Visit]:
        """The requests for a model, as soon as there are so many."""
        with self._came:
            came = self._came.wait_for(lambda: len(self._visits[model]) >= at_least, WAIT_S)
        assert came, f"{model} was asked {len(self._visits[model])} times instead of {at_least}"
        return list(self._visits[model])

    def visit(self, model: str) -> Visit:
        """The one request for a model."""
        visits = self.visits(model)
        assert len(visits) == 1, f"{model} was asked {len(visits)} times"
        return visits[0]

    def count(self, model: str) -> int:
        return len(self._visits[model])

    # --- in its thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, backlog=512)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visit: Visit | None = None
        try:
            while True:
                visit = Visit(*await read_request(reader))
                script = self._script_of(visit)
                for step in script:
                    await self._play(step, visit, reader, writer)
                visit.over.set()
                visit = None
        except (ConnectionError, asyncio.IncompleteReadError):
            if visit is not None:
                visit.left.set()
        except asyncio.CancelledError:
            pass
        except Exception as failure:
            self._failures.append(f"{type(failure).__name__}: {failure}")
        finally:
            writer.transport.abort()

    def _script_of(self, visit: Visit) -> Script:
        dialect = visit.target.split("/")[1]
        model = visit.body.get("model", "") if isinstance(visit.body, dict) else ""
        bare = visit.target.partition("?")[0].removeprefix(f"/{dialect}")
        if model not in self._scripts or not bare.startswith(PATHS.get(dialect, "?")):
            raise AssertionError(f"{visit.target} was asked for {model!r}")
        self._visits[model].append(visit)
        with self._came:
            self._came.notify_all()
        if not self._scripts[model]:
            raise AssertionError(f"{model!r} was asked once too often: {visit.target}")
        return self._scripts[model].pop(0)

    async def _play(self, step: Step, visit: Visit, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        match step:
            case bytes():
                writer.write(step)
                visit.bytes_sent += len(step)
                await writer.drain()
            case Gate():
                await step.passed()
            case Mark():
                step.reach()
            case Flood(piece, times):
                for _ in range(times):
                    await self._play(piece, visit, reader, writer)
                    if reader.at_eof():
                        raise ConnectionResetError
            case _:
                await play_end(step, reader, writer)
