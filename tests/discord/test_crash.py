"""The bot dies at every write to its store and around every post: no answer is lost, and none comes twice."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
from discord.gateway import KeepAliveHandler

from rondel import Agent, App, Prompt, tool
from rondel.discord import RondelClient, attach
from rondel.stores.memory import MemoryStore
from rondel.surfaces.discord.hooks import ReplyContext
from rondel.testing import Pause, Scripted, Step, call, say
from rondel.testing.discord import Interaction, text_of
from rondel.testing.discord.world import LOADING
from rondel.tools.ask_user import ask_user
from rondel.values import Reply, ToolResult
from tests.machine.test_crash import PowerCut

from .harness import World, loopback

# A process that is killed closes nothing.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning", "ignore:coroutine:RuntimeWarning"
)

NOTED = 3  # the writes of the commit that notes a message: its record, who took part, and the turn's job
LONG = "First part. " + "word " * 450 + "\n\nSecond part. " + "word " * 50


def answers(prompt: Prompt) -> Reply:
    """Call a tool first, then answer at length: whatever was cut off before."""
    results = [part for message in prompt.messages for part in message.parts if isinstance(part, ToolResult)]
    return call("note", "c1", saying="Let me see.") if not results else say(LONG)


class Life:
    """One process of the bot."""

    def __init__(
        self, world: World, store: MemoryStore, noted: list[str], answers: Step = answers, **settings: Any
    ) -> None:
        @tool
        async def note() -> str:
            "Note something, once."
            noted.append("noted")
            return "noted"

        self.world, self.store = world, store
        agent = Agent("helper", engine=Scripted(*[answers] * 20), tools=[note, ask_user])
        self.client = RondelClient(connector=world.discord.connector(), guild_ready_timeout=0.01, shard_count=1)
        self.bot = attach(self.client, App(agent, store=store), edit_s=0.01, context_messages=0, **settings)
        self._others = asyncio.all_tasks()
        self._task = asyncio.create_task(self.client.start(world.discord.token))

    async def until(self, holds: Callable[[], object]) -> None:
        dead = getattr(self.store, "dead", None)
        while not holds() and not (dead is not None and dead.is_set()) and not self._task.done():
            await asyncio.sleep(0.001)

    async def kill(self) -> None:
        """End everything that this process does, as a power cut would."""
        for thread in threading.enumerate():
            if isinstance(thread, KeepAliveHandler):
                thread.stop()
        for _ in range(3):
            tasks = asyncio.all_tasks() - self._others - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await self.client.http.close()
        gc.collect()

    async def close(self) -> None:
        await self.client.close()
        await self._task


def loud(context: ReplyContext) -> str:
    """A reply hook."""
    return context.text.replace("First part.", "FIRST PART.")


WAYS: dict[str, dict[str, Any]] = {
    "message": {},
    "command": {},
    "private": {},
    "file": {"long_answers": "file", "messages_max": 1},
    "thread": {"long_answers": "thread", "messages_max": 1},
    "hook": {},
}
"""How the bot is asked, and how it answers."""


async def live_and_die(at: int, moment: str, way: str = "message", *, late: bool = False) -> int:
    """Kill the bot at write `at` (`before` or `after` it), or at a step of Discord; then let it live again, perhaps so
    late that Discord has forgotten what it forgets. Returns how many writes there were."""
    noted: list[str] = []
    async with loopback() as world:
        disk = MemoryStore()
        store = PowerCut(
            disk, at if moment in ("before", "after") else 10**9, written=moment == "after", counts_all=True
        )
        steps = 0

        def step(name: str) -> None:
            nonlocal steps
            steps += name == moment
            if name == moment and steps == at:
                store.dead.set()

        world.discord.on_step = step
        life = Life(world, store, noted, **WAYS[way])
        if way == "hook":
            life.bot.hooks.on("reply", loud)
        await life.until(life.client.is_ready)
        writes = store.left
        made: Interaction | None = None
        if way in ("command", "private"):
            given = {"message": "go", "private": way == "private"}
            made = await world.discord.command(world.ann, world.general, "ai chat", **given)
        else:
            await world.say("@bot go")
        await life.until(lambda: life.bot.deliveries)
        await life.until(lambda: not life.bot.deliveries)
        writes -= store.left
        await life.kill()
        world.discord.on_step = None
        if late:  # after some minutes, and a quarter of an hour
            world.discord.world.nonces.clear()
            world.discord.fail("", "/webhooks/", 401, 50027, "Invalid Webhook Token", times=100)
        life = Life(world, disk.reopen(), noted, **WAYS[way])
        if way == "hook":
            life.bot.hooks.on("reply", loud)
        await life.until(life.client.is_ready)
        await life.until(lambda: life.bot.has_recovered and not life.bot.deliveries)
        await life.close()
        check(world, way, made, late=late, is_lost=at <= NOTED and moment == "before")
        assert len(noted) <= 1
        return writes


def check(world: World, way: str, made: Interaction | None, *, late: bool, is_lost: bool) -> None:
    """Check that all of the answer is shown, once."""
    places = [world.general, world.discord.dm(world.ann)]
    places += [one for one in world.discord.world.channels.values() if one.is_thread]
    shown = [message for place in places for message in world.discord.bot_messages(place)]
    if made is not None and way == "private" and not shown:  # else all of it has come as a direct message
        shown = made.answers
    text = "\n\n".join(message["content"] for message in shown)
    if is_lost:  # it died before it had noted the message
        assert not text
        return
    if made is not None and not (late and way == "private"):
        assert not any(message["flags"] & LOADING for message in made.answers)
    assert len(shown) == (1 if way == "file" else 2), [message["content"][:60] for message in shown]
    first = "FIRST PART." if way == "hook" else "First part."
    assert text.count("Let me see.") == text.count(first) == 1
    files = [world.discord.data_of(file).decode() for message in shown for file in message["attachments"]]
    assert len(files) == (way == "file")
    assert (files[0] if files else text).count("Second part.") == 1
    if way == "thread":
        assert [len(world.discord.bot_messages(place)) for place in places] == [1, 0, 1]


MOMENTS = [(1, "after"), (6, "before"), (1, "post"), (1, "posted"), (2, "post"), (2, "posted")]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("at", "moment"), MOMENTS)
async def test_an_answer_is_posted_once_wherever_the_bot_dies(at: int, moment: str, way: str):
    """A04: killed between two appends, no answer is lost and none is posted twice."""
    await live_and_die(at, moment, way)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("at", [1, 2])
async def test_an_answer_is_posted_once_even_if_the_bot_comes_back_late(at: int, way: str):
    """A04: Discord forgets nonces after some minutes; then the channel is searched."""
    await live_and_die(at, "posted", way, late=True)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("moment", ["before", "after", "post", "posted"])
async def test_an_answer_is_posted_once_wherever_the_bot_dies_at_every_write(moment: str, way: str):
    """A04"""
    writes = await live_and_die(10**6, "before", way)
    assert writes > 8
    for at in range(1, writes + 1 if moment in ("before", "after") else 3):
        for late in (False, True):
            await live_and_die(at, moment, way, late=late)


async def test_a_question_is_asked_once_even_if_the_bot_comes_back_late():
    """A04: a card has no text of its own, and is found by the text in it."""
    ask = call("ask_user", "q", question="Which colour?", options=["red", "blue"])
    async with loopback() as world:
        disk = MemoryStore()
        store = PowerCut(disk, 10**9, written=True, counts_all=True)
        world.discord.on_step = lambda name: store.dead.set() if name == "posted" else None
        life = Life(world, store, [], ask)
        await life.until(life.client.is_ready)
        await world.say("@bot paint")
        await life.until(lambda: False)
        await life.kill()
        world.discord.on_step = None
        world.discord.world.nonces.clear()
        life = Life(world, disk.reopen(), [], ask)
        await life.until(life.client.is_ready)
        await life.until(
            lambda: life.bot.has_recovered and all(one.pending.posted for one in life.bot.deliveries.values())
        )
        (asked,) = world.discord.bot_messages(world.general)
        assert "Which colour?" in text_of(asked)
        await life.close()


@pytest.mark.parametrize("way", ["file", "thread"])
async def test_parts_that_streamed_before_a_crash_and_belong_elsewhere_at_the_end_are_removed(way: str):
    texts = [f"Part {number}. " + "word " * 395 for number in range(3)]
    async with loopback() as world:
        disk = MemoryStore()
        settings = {"long_answers": way, "messages_max": 2}
        pause = Pause("\n\n".join(texts), " The end.")
        life = Life(world, PowerCut(disk, 10**9, written=True, counts_all=True), [], pause, **settings)
        await life.until(life.client.is_ready)
        await world.say("@bot go")
        await world.discord.said(world.general, 2)
        await life.kill()
        world.discord.world.nonces.clear()
        life = Life(world, disk.reopen(), [], say("\n\n".join((*texts, "The end."))), **settings)
        await life.until(life.client.is_ready)
        await life.until(lambda: life.bot.has_recovered and not life.bot.deliveries)
        await life.close()
        (first,) = world.discord.bot_messages(world.general)
        assert first["content"].startswith("Part 0.")
        assert len(first["attachments"]) == (way == "file")
        threads = [one for one in world.discord.world.channels.values() if one.is_thread]
        rest = [message["content"][:7] for thread in threads for message in world.discord.bot_messages(thread)]
        assert rest == ([] if way == "file" else ["Part 1.", "Part 2."])
