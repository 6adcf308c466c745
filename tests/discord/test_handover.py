"""What is said to a bot that stops is answered by its next start, as if it had been said to that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import discord
import msgspec
import pytest

from rondel import Agent, App
from rondel.discord import DiscordBot, DiscordRule, RondelClient, attach
from rondel.machine.conversation import Conversation
from rondel.testing import Pause, Scripted
from rondel.testing.discord import Json
from rondel.values import Message

from .harness import World, loopback


class Hanging:
    """A chat hook that waits until it is released."""

    def __init__(self) -> None:
        self.reached, self.go = asyncio.Event(), asyncio.Event()

    async def __call__(self, messages: Any) -> None:
        self.reached.set()
        await self.go.wait()


async def redact(messages: list[Message]) -> list[Message]:
    if any("refuse" in message.text for message in messages):
        raise ValueError("this must not be sent")
    return [
        msgspec.structs.replace(message, parts=(type(message.parts[0])(message.text.replace("4711", "[PIN]")),))
        for message in messages
    ]


async def stop_while(world: World, late: Callable[[DiscordBot], Awaitable[object]], **given: Any) -> None:
    """Stop a bot that is answering, and let people do something meanwhile."""
    pause = Pause("The first ", "ends.")

    async def when_it_stops(bot: DiscordBot) -> None:
        while not bot._is_stopping:  # pyright: ignore[reportPrivateUsage]
            await asyncio.sleep(0)
        try:
            await late(bot)
        finally:
            pause.release()

    async with asyncio.TaskGroup() as group, world.running(pause, drain_s=20, **given) as bot:
        await world.say("@bot first", channel=world.discord.dm(world.bob))
        await pause.reached.wait()
        group.create_task(when_it_stops(bot))


async def kept(bot: DiscordBot, message: Json, text: str = "") -> None:
    """Wait until a message is kept, with this text."""
    async with asyncio.timeout(10):
        while (found := await bot.records.pending(int(message["id"]))) is None or text not in str(found.heard):
            await asyncio.sleep(0.001)


async def next_start(world: World, *steps: Any, **given: Any) -> list[str]:
    """Start the bot again. Returns what its model was sent."""
    before = len(world.engine.prompts)
    async with world.running(*steps, **given):
        await world.recovered()
    async with world.running(**given) as bot:  # and nothing is left
        await world.recovered()
        assert [one async for one in bot.records.all_pending()] == []
    return [prompt.messages[-1].text for prompt in world.engine.prompts[before:]]


@pytest.mark.parametrize("conversation", ["auto", "channel", "user", "thread"])
async def test_a_hook_that_outlives_the_stop_loses_no_message(conversation: str):
    """Not the one that it prepares, not those behind it, and not one that is said while the bot stops."""
    async with loopback() as world:
        hook = Hanging()

        async def late(bot: DiscordBot) -> None:
            while not bot._is_stopping:  # pyright: ignore[reportPrivateUsage]
                await asyncio.sleep(0)
            await kept(bot, await world.say("@bot third", world.bob))
            pause.release()

        pause = Pause("It begins ", "and ends.")
        async with asyncio.TaskGroup() as group, world.running(pause, drain_s=20, conversation=conversation) as bot:
            await world.say("@bot zero", channel=world.discord.dm(world.bob))
            await pause.reached.wait()
            bot.hooks.on("chat", hook)
            first = await world.say("@bot first")
            await hook.reached.wait()
            second = await world.say("@bot second", world.bob, reply_to=first)
            while int(second["id"]) not in bot._seen:  # pyright: ignore[reportPrivateUsage]
                await asyncio.sleep(0)
            group.create_task(late(bot))
        said = await next_start(world, *["It was answered."] * 3, conversation=conversation)
        assert said == ["Ann: first", "Bob: second", "Bob: third"]


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("when", ["while it stops", "while it is away"])
async def test_what_its_author_takes_back_before_the_next_start_is_not_sent(reads: bool, when: str):
    """Also if the bot may not read what was said, unless it was away."""
    async with loopback() as world:

        async def change(deleted: Json, edited: Json) -> None:
            await world.discord.delete(deleted)
            await world.discord.edit(edited, "@bot nothing here")

        async def late(bot: DiscordBot) -> None:
            said.extend([await world.say(f"@bot my password is {one}", world.bob) for one in "XY"])
            for message in said:
                await kept(bot, message)
            if when == "while it stops":
                await change(*said)
                await kept(bot, said[1], "nothing here")

        said: list[Json] = []
        await stop_while(world, late)
        if when == "while it is away":
            await change(*said)
        if not reads:
            world.general.denied = 1 << 16
        sent = await next_start(world, "To Bob.", "To Bob.")
        expected = ["Bob: nothing here"]
        if when == "while it is away" and not reads:
            expected = ["Bob: my password is X", "Bob: my password is Y"]  # Discord gives neither; this cannot be known
        assert sent == expected


@pytest.mark.parametrize("reads", [True, False])
async def test_chat_hooks_see_what_was_said_while_the_bot_stopped(reads: bool):
    """Nothing reaches a model around a hook that redacts or refuses."""
    async with loopback() as world:

        async def late(bot: DiscordBot) -> None:
            for text in ("@bot my PIN is 4711", "@bot refuse this", "@bot bye"):
                await kept(bot, await world.say(text))

        given: dict[str, Any] = {"hooks": [redact], "context_messages": 0}
        await stop_while(world, late, **given)
        if not reads:
            world.general.denied = 1 << 16
        assert await next_start(world, "a", "b", **given) == ["Ann: my PIN is [PIN]", "Ann: bye"]
        shown = [message["content"].partition(",")[0] for message in world.discord.bot_messages(world.general)]
        assert sorted(shown) == ["Sorry", "a", "b"]


@pytest.mark.parametrize("reads", [True, False])
async def test_what_was_said_while_the_bot_stopped_is_answered_in_a_thread_of_its_own(reads: bool):
    async with loopback() as world:

        async def late(bot: DiscordBot) -> None:
            await kept(bot, await world.say("@bot second", world.bob))

        await stop_while(world, late, conversation="thread")
        if not reads:
            world.general.denied = 1 << 16
        assert await next_start(world, "To Bob.", conversation="thread") == ["Bob: second"]
        assert world.discord.bot_messages(world.general) == []
        (thread,) = [one for one in world.discord.world.channels.values() if one.is_thread]
        assert [message["content"] for message in world.discord.bot_messages(thread)] == ["To Bob."]


async def test_what_a_message_replies_to_is_known_after_the_next_start():
    async with loopback() as world:

        async def late(bot: DiscordBot) -> None:
            poem = await world.say("Roses are red")
            files = {"notes.txt": (b"Violets are blue", "text/plain")}
            await kept(bot, await world.say("@bot translate this", world.bob, reply_to=poem, files=files))

        await stop_while(world, late)
        await next_start(world, "Rosen sind rot.")
        *_, above, asked = world.engine.prompts[-1].messages
        assert above.text == "Ann: Roses are red"
        assert asked.text.startswith("Bob: translate this")
        assert "Violets are blue" in asked.text


@pytest.mark.parametrize("reads", [True, False])
async def test_the_roles_and_the_name_of_who_spoke_count_after_the_next_start(reads: bool):
    """Discord does not send them with a message that the bot asks for."""
    async with loopback() as world:
        vip = world.discord.role(world.guild, "VIP", world.bob)
        world.guild.members[world.bob.id].nick = "Bobby"
        agents = [Agent("helper", engine=world.engine), Agent("poet", engine=(poet := Scripted("A poem.")))]
        given: dict[str, Any] = {"agents": agents, "rules_of_discord": [DiscordRule(role=vip.id, agent="poet")]}

        async def late(bot: DiscordBot) -> None:
            await kept(bot, await world.say("@bot a poem", world.bob))

        def client() -> RondelClient:
            options: dict[str, Any] = {"guild_ready_timeout": 0.01, "shard_count": 1}
            nobody = discord.MemberCacheFlags.none()
            return RondelClient(connector=world.discord.connector(), member_cache_flags=nobody, **options)

        await stop_while(world, late, client=client(), **given)
        if not reads:
            world.general.denied = 1 << 16
        async with world.running(client=client(), **given):
            await world.recovered()
        assert [prompt.messages[-1].text for prompt in poet.prompts] == ["Bobby: a poem"]


async def test_a_channel_that_is_closed_to_the_bot_meanwhile_is_obeyed():
    async with loopback() as world:
        quiet = world.discord.channel(world.guild, "quiet")

        async def late(bot: DiscordBot) -> None:
            await kept(bot, await world.say("@bot hi"))

        await stop_while(world, late)
        assert await next_start(world, restrict=[quiet.id]) == []


async def test_a_slash_command_while_the_bot_stops_is_answered_after_the_next_start():
    async with loopback() as world:

        async def late(bot: DiscordBot) -> None:
            for private in (False, True):
                asked = await world.discord.command(
                    world.ann, world.general, "ai chat", message="hello?", private=private
                )
                told = await world.discord.answered(asked)
                assert told.text == "I am being restarted. I will answer you after that."
                assert told.is_private is private

        await stop_while(world, late)
        assert await next_start(world, "To all.", "To Ann.") == ["Ann: hello?", "hello?"]
        assert world.discord.bot_messages(world.general)[-1]["content"] == "To all."
        assert world.discord.bot_messages(world.discord.dm(world.ann))[-1]["content"] == "To Ann."


@pytest.mark.parametrize("late", [False, True])
async def test_a_private_answer_that_had_begun_comes_whole_as_a_direct_message_after_the_next_start(late: bool):
    """What was shown before is removed, unless Discord does not allow it any more."""
    async with loopback() as world:
        async with world.running(Pause("It begins "), drain_s=0) as bot:
            made = await world.discord.command(world.ann, world.general, "ai chat", message="go", private=True)
            assert (await world.discord.answered(made)).text.strip() == "It begins"
            while not [one async for one in bot.records.all_pending() if one.posted]:
                await asyncio.sleep(0.001)
        if late:
            world.discord.fail("DELETE", "/webhooks/", 401, 50027, "Invalid Webhook Token", times=9)
        await next_start(world, "It begins and ends.")
        assert [one["content"] for one in world.discord.bot_messages(world.discord.dm(world.ann))] == [
            "It begins and ends."
        ]
        assert len(made.answers) == late
        assert world.discord.bot_messages(world.general) == []


async def test_a_queued_message_that_is_edited_while_the_bot_stops_is_answered_once_after_the_next_start():
    async with loopback() as world:
        pause = Pause("The first ", "ends.")

        async def late(bot: DiscordBot) -> None:
            while not bot._is_stopping:  # pyright: ignore[reportPrivateUsage]
                await asyncio.sleep(0)
            await world.discord.edit(second, "@bot the new second")
            await kept(bot, second, "the new second")
            pause.release()

        async with asyncio.TaskGroup() as group, world.running(pause, drain_s=20, conversation="channel") as bot:
            await world.say("@bot first")
            await pause.reached.wait()
            second = await world.say("@bot second", world.bob)
            while int(second["id"]) not in bot.deliveries:
                await asyncio.sleep(0.001)
            group.create_task(late(bot))
        sent = await next_start(world, "To the second.", conversation="channel")
        assert sent == ["Bob: the new second"]


async def test_a_stop_waits_for_nothing_that_begins_while_it_ends(monkeypatch: pytest.MonkeyPatch):
    """A slash command whose message the store takes late."""
    async with loopback() as world:
        send, reached, go = Conversation.send, asyncio.Event(), asyncio.Event()

        async def slow(self: Conversation, *given: Any, **named: Any) -> Any:
            reached.set()
            await go.wait()
            return await send(self, *given, **named)

        monkeypatch.setattr(Conversation, "send", slow)
        pause = Pause("never ", "ends")
        world.engine.add(pause)
        app = App(Agent("helper", engine=world.engine), store=world.store)
        async with app:
            async with world.running(app=app, drain_s=0.05) as bot:
                await world.discord.command(world.ann, world.general, "ai chat", message="hi")
                await reached.wait()
            go.set()
            await pause.reached.wait()
            while not bot.deliveries:
                await asyncio.sleep(0.001)
            assert bot.tasks.running == set()
        assert await next_start(world, "Late.") == ["Ann: hi"]
        assert [message["content"] for message in world.discord.bot_messages(world.general)][-1:] == ["Late."]


async def test_the_connection_is_closed_before_the_app_so_that_nothing_is_heard_and_lost():
    async with loopback() as world:
        was_connected: list[bool] = []

        class Watching(Scripted):
            async def aclose(self) -> None:
                was_connected.append(bool(world.discord.gateway.sockets) or not client.is_closed())

        client = RondelClient(connector=world.discord.connector(), guild_ready_timeout=0.01, shard_count=1)
        attach(client, App(Agent("helper", engine=Watching("A."))))
        async with asyncio.TaskGroup() as group:
            group.create_task(client.start(world.discord.token))
            while not client.is_ready():
                await asyncio.sleep(0.001)
            await client.close()
        assert was_connected == [False]


async def test_an_outage_at_the_start_drops_no_message():
    async with loopback() as world:
        dm = world.discord.dm(world.ann)  # no channel of a server, so the bot must ask for it

        async def late(bot: DiscordBot) -> None:
            await kept(bot, await world.say("hello", channel=dm))

        await stop_while(world, late)
        world.discord.fail("GET", f"/channels/{dm.id}", 503)
        async with world.running():
            await world.recovered()
        assert await next_start(world, "Hello.") == ["hello"]


async def test_a_record_that_cannot_be_read_leaves_the_others(monkeypatch: pytest.MonkeyPatch):
    async with loopback() as world:

        async def late(bot: DiscordBot) -> None:
            for text in ("@bot one", "@bot two"):
                said.append(await world.say(text))
                await kept(bot, said[-1])

        said: list[Json] = []
        await stop_while(world, late)
        fetch = discord.http.HTTPClient.get_message

        def get_message(self: Any, channel: int, message: int) -> Any:
            if str(message) == said[0]["id"]:
                raise ZeroDivisionError("no eyes")
            return fetch(self, channel, message)

        monkeypatch.setattr(discord.http.HTTPClient, "get_message", get_message)
        async with world.running("To two."):
            await world.recovered()
        monkeypatch.undo()
        assert await next_start(world, "To one.") == ["Ann: one"]
