"""Media in deltas, and stops that say how much of a reply was seen or heard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rondel import Agent, App, Limits, Outcome
from rondel.events import RoundFinished, TurnFinished
from rondel.prompt import Prompt
from rondel.stores.sqlite import SqliteStore
from rondel.testing import Pause, Scripted
from rondel.values import (
    Delta,
    Media,
    MediaDelta,
    ModelFacts,
    PartDelta,
    PartFinished,
    PartStarted,
    Played,
    ReplyBuilder,
    ReplyFinished,
    ReplyStarted,
    Text,
)

from ..helpers import events_after, events_of, of, play

SOUND = Media("audio", "audio/pcm")
PIECES: list[Delta] = [
    ReplyStarted("speaker"),
    PartStarted(0, SOUND),
    MediaDelta(0, b"\x00\x01", "audio/pcm"),
    PartStarted(1, Text("")),
    PartDelta(1, "Good "),
    MediaDelta(0, b"\x02"),
    PartDelta(1, "day."),
]


class Speaks:
    """Speaks a sentence, then waits until its request is closed."""

    name, facts = "speaker:test", ModelFacts()

    def __init__(self) -> None:
        self.spoken = asyncio.Event()

    async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        for delta in PIECES:
            yield delta
        self.spoken.set()
        await asyncio.Event().wait()


def test_media_come_in_pieces_and_the_finished_part_is_kept():
    whole = Media("audio", "audio/pcm", b"\x00\x01\x02")
    engine = Scripted([*PIECES, PartFinished(0, whole), PartFinished(1, Text("Good day.")), ReplyFinished()])

    events = play(events_after("Hello"), Agent("helper", engine=engine))
    assert [delta.data for delta in of(MediaDelta, events)] == [b"\x00\x01", b"\x02"]
    assert of(RoundFinished, events)[0].message.parts == (whole, Text("Good day."))


def test_a_reply_that_is_cut_off_keeps_the_media_so_far():
    builder = ReplyBuilder()
    for delta in (
        ReplyStarted(),
        PartStarted(0, Media("audio")),
        MediaDelta(0, b"ab", "audio/pcm"),
        MediaDelta(0, b"c"),
    ):
        builder.add(delta)
    assert builder.reply().message.parts == (Media("audio", "audio/pcm", b"abc"),)


async def test_media_in_pieces_count_against_the_bytes_of_a_reply():
    pieces: list[Delta] = [ReplyStarted(), PartStarted(0, SOUND), *[MediaDelta(0, bytes(600_000))] * 3]
    agent = Agent("helper", engine=Scripted(pieces), limits=Limits(reply_bytes=1_000_000))
    async with App(agent) as app:
        assert of(TurnFinished, await events_of(await app.conversation().send("Hello")))[0].outcome is Outcome.LIMITED


@pytest.mark.parametrize("whose", ["the process's own", "another process's"])
async def test_a_stop_that_says_how_much_was_played_keeps_only_that(tmp_path: Path, whose: str) -> None:
    engine = Speaks()
    async with (
        asyncio.timeout(20),
        App(Agent("helper", engine=engine), store=SqliteStore(tmp_path / "a.db")) as app,
        App(Agent("helper", engine=engine), store=SqliteStore(tmp_path / "a.db"), recover=False) as other,
    ):
        view = await app.conversation("c").send("Hello")
        await engine.spoken.wait()
        stops = (app if whose == "the process's own" else other).conversation("c")
        assert await stops.stop(played=Played(chars=4, ms=40))
        assert (await view.result()).output == "Good"
        (kept,) = of(RoundFinished, [entry.event for entry in await app.conversation("c").entries()])
        assert kept.message.parts == (Media("audio", "audio/pcm", b"\x00\x01\x02"), Text("Good"))
        assert (kept.stop, kept.played_ms) == ("interrupted", 40)


@pytest.mark.parametrize(("chars", "kept"), [(0, ""), (3, "Let"), (100, "Let me see"), (None, "Let me see")])
async def test_a_text_is_cut_to_what_was_seen(chars: int | None, kept: str) -> None:
    pause = Pause("Let me see")
    async with App(Agent("helper", engine=Scripted(pause))) as app:
        view = await app.conversation().send("Hello")
        await pause.reached.wait()
        assert await view.stop(played=Played(chars=chars))
        assert (await view.result()).output == kept
