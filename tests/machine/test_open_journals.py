"""Which conversations stay in memory: the newest ones, as long as they are small."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from rondel import Agent, App
from rondel.events import HistoryGiven
from rondel.machine.journal import Journal
from rondel.stores.sqlite import SqliteStore
from rondel.testing import Pause, Scripted
from rondel.values import Media, user

MB = 1_000_000


def in_memory() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.fixture(autouse=True)
def traced() -> Generator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def picture(number: int) -> Media:
    return Media("file", "application/octet-stream", number.to_bytes(4, "big") + bytes(MB), name=f"{number}.bin")


async def test_conversations_with_large_files_do_not_stay_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rondel.machine.journals.SIZE_MAX", 5 * MB)
    monkeypatch.setattr("rondel.machine.prefix_cache.SIZE_MAX", 3 * MB)
    engine = Scripted(*["Fine."] * 41)
    before = in_memory()
    async with App(Agent("a", engine=engine), store=SqliteStore(tmp_path / "rondel.db")) as app:
        first = app.conversation()
        for number in range(20):
            conversation = first if number == 0 else app.conversation()
            await (await conversation.send([picture(number)])).result()
            engine.prompts.clear()
        assert in_memory() - before <= 12 * MB
        for number in range(20):  # files that come with a history, and those that are only looked at

            async def give(journal: Journal, number: int = number) -> None:
                await journal.append(HistoryGiven((user(picture(number)),), owed=False))

            await app.journals.change(f"given-{number}", give)
        for number in range(20):
            await app.conversation(f"given-{number}").transcript()
        assert in_memory() - before <= 12 * MB
        await (await first.send("And now?")).result()
        said: Any = engine.prompts[-1].messages
        assert [part.name for message in said for part in message.parts if isinstance(part, Media)] == ["0.bin"]


async def test_a_conversation_that_is_in_use_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rondel.machine.journals.SIZE_MAX", MB // 2)
    pause = Pause(after="Late.")
    agents = Agent("slow", engine=Scripted(pause)), Agent("quick", engine=Scripted(*["Fine."] * 9))
    async with App(*agents, store=SqliteStore(tmp_path / "rondel.db")) as app:
        slow = app.conversation(agent="slow")
        view = await slow.send([picture(0)])
        await pause.reached.wait()
        for number in range(3):
            await (await app.conversation(agent="quick").send([picture(number)])).result()
        assert app.journals.get(slow.id) is not None
        pause.release()
        assert (await view.result()).output == "Late."
