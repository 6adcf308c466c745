"""The bot from code, and on other people's clients."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import discord
import pytest
from discord.ext import commands

from rondel import Agent, App, RondelError, tool
from rondel.discord import ChatReply, DiscordBot, RondelClient, attach
from rondel.engine import UnavailableEngine
from rondel.surfaces.discord.mounting import settings_of
from rondel.testing import Pause, Scripted, call
from rondel.testing.discord import LoopbackDiscord
from rondel.values import Message, Person, user

from .harness import World, loopback


async def test_chat_calls_back_with_each_reply_and_chat_sync_returns_the_first():
    """A05: a callback per reply; sync returns the first reply and raises if none comes."""

    @tool(background="inline")
    async def report() -> str:
        "Report."
        return "42"

    async with loopback() as world:
        agents = [Agent("helper", engine=world.engine, tools=[report])]
        steps = [call("report"), "Started.", "It is 42.", "Hello.", "", RondelError("no model")]
        async with world.running(*steps, agents=agents) as bot:
            replies: list[str] = []
            await bot.chat("go", lambda reply: replies.append(reply.text), person=Person("ann"))
            assert replies == ["Started.", "It is 42."]
            answer = await bot.chat_sync([user("one"), user("two")])
            assert answer == ChatReply("Hello.")
            with pytest.raises(RondelError, match="ended without a reply"):
                await bot.chat_sync("nothing")
            with pytest.raises(RondelError, match="no model"):
                await bot.chat_sync("fails")
            assert world.discord.bot_messages(world.general) == []


async def test_without_an_engine_chat_warns_once_and_chat_sync_raises(caplog: pytest.LogCaptureFixture):
    """A05: "AI engine is not configured"; one warning only."""
    async with loopback() as world:
        agents = [Agent("helper", engine=UnavailableEngine("none", "no key is set"))]
        async with world.running(agents=agents) as bot:
            for _ in range(3):
                await bot.chat("hi", lambda reply: None)
            with pytest.raises(RondelError, match="AI engine is not configured: no key is set"):
                await bot.chat_sync("hi")
            warned = [record for record in caplog.records if "AI engine is not configured" in record.getMessage()]
            assert len(warned) == 1


async def test_readiness_means_that_an_engine_has_answered():
    """A12: is_ready only after the engine answered. A06: what a surface asks of an engine: its features."""
    async with loopback() as world, world.running("ok") as bot:
        assert not bot.is_ready
        await bot.check_engine()
        assert bot.is_ready
        assert world.app.registry.resolve("helper").engine.facts.features == {"vision"}  # decides about attachments


@pytest.mark.parametrize("kind", ["client", "bot"])
async def test_an_existing_bot_gets_agents_in_five_lines_and_keeps_its_own_handlers(kind: str):
    """A05"""
    async with loopback() as world:
        options: dict[str, Any] = {
            "intents": discord.Intents.all(),
            "connector": world.discord.connector(),
            "guild_ready_timeout": 0.01,
        }
        client = commands.Bot("!", **options) if kind == "bot" else discord.Client(**options)
        heard: list[str] = []

        async def on_message(message: discord.Message) -> None:
            heard.append(message.content)

        async def setup_hook() -> None:
            heard.append("setup")

        client.on_message = on_message  # type: ignore[method-assign, union-attr]
        client.setup_hook = setup_hook  # type: ignore[method-assign]
        app = App(Agent("helper", engine=Scripted("Hello.")))
        world.bot = bot = attach(client, app, whitelist=[world.general.id], edit_s=0.01)
        async with asyncio.TaskGroup() as group:
            group.create_task(client.start(world.discord.token))
            while not client.is_ready():
                await asyncio.sleep(0.001)
            await world.say("hi")
            assert await world.answers() == ["Hello."]
            await client.close()
        assert heard[:2] == ["setup", "hi"]
        assert bot.client is client
        with pytest.raises(RondelError, match="did you mean 'whitelist'"):
            settings_of({"whitelst": [1]})


@pytest.mark.parametrize("shards", [1, pytest.param(2, marks=pytest.mark.slow)])  # shards start five seconds apart
async def test_shards_resume_and_a_dropped_connection_lose_no_message(shards: int):
    async with LoopbackDiscord(shards=shards) as discord_:
        world = World(discord_)
        others = [discord_.guild(f"Server {number}", world.ann) for number in range(3)]
        rooms = [discord_.channel(guild, "room") for guild in others]
        client = RondelClient(connector=discord_.connector(), guild_ready_timeout=0.01, shard_count=shards)
        async with world.running(*[lambda prompt: prompt.messages[-1].text] * 8, client=client):
            assert discord_.gateway.identified == shards
            assert discord_.gateway.compressed
            for room in rooms:
                await world.say("@bot hello", channel=room)
                assert await world.answers(channel=room) == ["Ann: hello"]
            await discord_.gateway.drop()
            await world.say("@bot while you were away")  # replayed when the session is resumed
            assert await world.answers() == ["Ann: while you were away"]
            assert discord_.gateway.resumed >= 1
            await world.say("back", channel=discord_.dm(world.ann))
            assert await world.answers(channel=discord_.dm(world.ann)) == ["back"]


@pytest.mark.parametrize("conversation", ["auto", "channel"])
async def test_what_is_said_while_the_bot_stops_is_answered_after_the_next_start(conversation: str):
    async with loopback() as world:
        pause = Pause("The first ", "ends.")

        async def say_late(bot: DiscordBot) -> None:
            while not bot._is_stopping:  # pyright: ignore[reportPrivateUsage]
                await asyncio.sleep(0)
            await world.say("@bot second", world.bob)
            await world.say("not for the bot", world.bob)
            third = await world.say("@bot third")
            async with asyncio.timeout(5):
                while await bot.records.pending(int(third["id"])) is None:
                    await asyncio.sleep(0.001)
            pause.release()

        async with asyncio.TaskGroup() as group, world.running(pause, drain_s=10, conversation=conversation) as bot:
            await world.say("@bot first")
            await pause.reached.wait()
            group.create_task(say_late(bot))
        assert [message["content"] for message in world.discord.bot_messages(world.general)] == ["The first ends."]
        async with world.running("To the second.", "To the third.", conversation=conversation) as bot:
            assert (await world.answers(3))[1:] == ["To the second.", "To the third."]
            assert len(await bot.records.conversations_of(str(world.bob.id))) == 1
        async with world.running() as bot:  # and only once
            while not bot.has_recovered:
                await asyncio.sleep(0.001)
            assert bot.deliveries == {}


async def test_a_message_that_is_read_when_the_bot_stops_is_answered_after_the_next_start():
    async with loopback() as world:
        async with world.running() as bot:
            reading = asyncio.Event()

            async def read(messages: Sequence[Message]) -> None:
                reading.set()
                while not bot._is_stopping:  # pyright: ignore[reportPrivateUsage]
                    await asyncio.sleep(0)
                await asyncio.sleep(0.01)  # longer than a bot waits that has nothing to answer

            bot.hooks.on("chat", read)
            await world.say("@bot hello")
            await reading.wait()
        assert world.discord.bot_messages(world.general) == []
        async with world.running("Hello."):
            assert await world.answers() == ["Hello."]


async def test_a_stop_finishes_what_is_being_answered_and_hands_over_the_rest():
    async with loopback() as world:
        pause = Pause("It begins ", "and it ends.")

        async def release_late(bot: DiscordBot) -> None:
            while not bot._is_stopping:  # pyright: ignore[reportPrivateUsage]
                await asyncio.sleep(0)
            pause.release()

        async with asyncio.TaskGroup() as group, world.running(pause, drain_s=10) as bot:
            await world.say("@bot go")
            await pause.reached.wait()
            group.create_task(release_late(bot))
        assert [message["content"] for message in world.discord.bot_messages(world.general)] == [
            "It begins and it ends."
        ]
        started = asyncio.Event()

        @tool(idempotent=True, timeout_s=0)
        async def work() -> str:
            "Work."
            if not started.is_set():
                started.set()
                await asyncio.Event().wait()
            return "worked"

        agents = [Agent("helper", engine=world.engine, tools=[work])]
        async with world.running(call("work"), "Handed over.", agents=agents, drain_s=0):
            await world.say("@bot work")
            await started.wait()
        async with world.running(agents=agents):
            assert (await world.answers(2))[-1] == "Handed over."
