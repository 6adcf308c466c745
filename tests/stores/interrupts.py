"""A program that is interrupted, as by a second Ctrl-C under plain `asyncio.run`: KeyboardInterrupt is raised wherever
the loop's thread is, and then all tasks are cancelled.

`main(first, step)` tries every `step`-th moment at which that can happen in the store's own code.
"""

from __future__ import annotations

import asyncio
import dis
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from rondel.events import MessageAdded
from rondel.stores.sqlite import store, store_thread, writer
from rondel.stores.sqlite.store import SqliteStore
from rondel.values import user

HANGS_S = 20.0
FILES = {module.__file__ for module in (store, store_thread, writer)}
CONVERSATIONS = ("a", "b", "c", "d")


class Interrupt:
    """Raises KeyboardInterrupt at the moment number `at` of those at which Python handles signals: when a function
    begins, after a call, and when a loop goes on."""

    def __init__(self, at: int) -> None:
        self._at, self.moments, self.where = at, 0, ""
        self._offsets: dict[CodeType, set[int]] = {}

    def __enter__(self) -> None:
        sys.settrace(self._begin)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _begin(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        if frame.f_code.co_filename not in FILES:
            return None
        frame.f_trace_opcodes = True
        return self._step

    def _step(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        if event == "opcode" and frame.f_lasti in self._offsets_of(frame.f_code):
            self.moments += 1
            if self.moments == self._at:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
                raise KeyboardInterrupt
        return self._step

    def _offsets_of(self, code: CodeType) -> set[int]:
        if code not in self._offsets:
            steps = list(dis.get_instructions(code))
            self._offsets[code] = {
                after.offset
                for step, after in pairwise(steps)
                if step.opname.startswith(("CALL", "RESUME", "JUMP_BACKWARD"))
            }
        return self._offsets[code]


async def _work(path: Path, acknowledged: dict[str, int]) -> None:
    async def talk(id: str) -> None:
        for seq in (1, 3):
            await made.append(id, seq, (MessageAdded(user("hi")),), at=1.0, wait=False)
            await made.append(id, seq + 1, (MessageAdded(user("ho")),), at=1.0)
            acknowledged[id] = seq + 1
            await made.read(id)

    async with SqliteStore(path) as made:
        await talk(CONVERSATIONS[0])  # alone, on the loop's thread
        async with asyncio.TaskGroup() as group:  # many at once, on the writer's
            for id in CONVERSATIONS[1:]:
                group.create_task(talk(id))


async def _check(path: Path, acknowledged: dict[str, int]) -> None:
    async with SqliteStore(path) as made:
        for id in CONVERSATIONS:
            entries = [entry.seq for entry in await made.read(id)]
            assert entries == list(range(1, len(entries) + 1)), f"{id} has {entries}"
            assert len(entries) >= acknowledged.get(id, 0), f"{id} has {entries}, acknowledged: {acknowledged}"


def _run(path: Path, at: int) -> int:
    """Run the program with an interrupt at this moment. Return how many moments there were."""
    acknowledged: dict[str, int] = {}
    interrupt = Interrupt(at)

    def end() -> None:
        raise SystemExit(f"it hangs after an interrupt at {interrupt.where}")

    with suppress(KeyboardInterrupt), asyncio.Runner() as runner:
        watchdog = runner.get_loop().call_later(HANGS_S, end)
        with interrupt:
            runner.run(_work(path, acknowledged))
        watchdog.cancel()
    asyncio.run(
        _check(path, acknowledged)
    )  # also if it ended before the moment came: threads decide how many there are
    return interrupt.moments


def main(first: int, step: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        moments = _run(Path(folder, "0.db"), 0)
        assert moments > 500, moments
        for at in range(first, moments + 1, step):
            try:
                _run(Path(folder, f"{at}.db"), at)
            except (SystemExit, AssertionError) as error:
                sys.stdout.write(f"{error}\n")
    sys.stdout.write("all ended\n")
