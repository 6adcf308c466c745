"""What a year brings: rate limits, lost connections, lost permissions, servers and channels that go away."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import discord
import msgspec
import pytest

from rondel import Agent, App, user
from rondel.discord import ModeSettings, RondelClient, attach
from rondel.events import MessageQueued
from rondel.machine.conversation import Conversation
from rondel.project.settings import DiscordRule
from rondel.surfaces.discord import outlet
from rondel.surfaces.discord.gate import Chosen, Place, Speaker
from rondel.testing import Pause
from rondel.testing.discord.rest import Refused
from rondel.values import Message

from .harness import World, loopback


async def pending(world: World) -> list[int]:
    return [one.message async for one in world.bot.records.all_pending()]


async def test_a_rate_limit_delays_an_answer_and_neither_loses_nor_repeats_it():
    """A04: Discord's 429, with the time to wait, for posts and for edits."""
    async with loopback() as world:
        pause = Pause("It begins ", "and it ends.")
        async with world.running(pause):
            world.discord.fail("POST", "/messages", 429, times=2)
            world.discord.fail("PATCH", "/messages/", 429)
            await world.say("@bot go")
            await world.discord.said(world.general)
            pause.release()
            assert await world.answers() == ["It begins and it ends."]
            assert world.discord.limited == 3
            assert len(world.discord.sent("POST", "/messages")) == 3


class NoWaiting:
    """asyncio for a module whose waits take no time. `waits` are their seconds."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await asyncio.sleep(0)


@pytest.mark.parametrize(("method", "path"), [("POST", "/messages"), ("PATCH", "/messages/")])
@pytest.mark.parametrize("how", ["down", "dropped before", "dropped after"])
async def test_an_answer_is_not_lost_while_discord_is_down(
    monkeypatch: pytest.MonkeyPatch, method: str, path: str, how: str
):
    """A04: for longer than discord.py tries it; and what was posted without an answer is not posted twice."""
    theirs, ours = NoWaiting(), NoWaiting()
    monkeypatch.setattr(discord.http, "asyncio", theirs)
    monkeypatch.setattr(outlet, "asyncio", ours)

    def drop(of: str, where: str, is_done: bool) -> None:
        if is_done and of == method and path in where:
            world.discord.on_request = None
            raise Refused(0, 0, "dropped")

    async with loopback() as world:
        pause = Pause("It begins ", "and it ends.")
        async with world.running(pause):
            if how == "down":
                world.discord.fail(method, path, 502, times=12)
            elif how == "dropped before":
                world.discord.fail(method, path, 0, times=2)
            else:
                world.discord.on_request = drop
            await world.say("@bot go")
            await world.discord.said(world.general)
            pause.release()
            assert await world.answers() == ["It begins and it ends."]
            assert ours.waits == ([1.0] if how == "dropped after" else [1.0, 2.0])
            assert len([wait for wait in theirs.waits if wait]) == (12 if how == "down" else 0)
            assert await pending(world) == []


async def test_a_client_of_the_loopback_discord_can_reach_nothing_else():
    async with loopback() as world, aiohttp.ClientSession(connector=world.discord.connector()) as session:
        with pytest.raises(aiohttp.ClientConnectorDNSError):
            await session.get("https://example.org/")
        async with session.get("https://discord.com/api/v10/gateway") as answer:
            assert answer.status == 401  # it is there, and wants a token


@pytest.mark.parametrize(("method", "path"), [("POST", "/messages"), ("PATCH", "/messages/")])
async def test_a_permission_that_is_lost_in_mid_answer_is_said_once_and_stops_the_turn(method: str, path: str):
    async with loopback() as world:
        pauses = [Pause("It begins ", "and it ends."), Pause("Again ", "and again.")]
        async with world.running(*pauses) as bot:
            for pause in pauses:
                world.discord.fail(method, path, 403, 50013, "Missing Permissions")
                await world.say("@bot go", world.bob)
                await pause.reached.wait()
                if method == "PATCH":
                    await world.discord.said(world.general)
                pause.release()
                await world.idle()
            told = await world.answers(channel=world.discord.dm(world.bob))
            assert told == ["I cannot answer in #general: I lack a permission there. Please ask an admin."]
            assert await pending(world) == []
            assert bot.active_tasks() == []


async def test_a_message_that_discord_shows_twice_is_answered_once_and_its_own_notices_never():
    """A01: a resumed connection may repeat events; pins, boosts and joins are messages, too."""
    async with loopback() as world, world.running("Once.", "Next.", whitelist=[world.general.id]):
        message = await world.say("hello")
        event = world.discord.world.as_event(message)
        await world.discord.gateway.dispatch("MESSAGE_CREATE", event, world.guild)
        for number, kind in enumerate((6, 7, 8), 1):  # pinned, joined, boosted
            notice = {**event, "id": str(int(message["id"]) + number), "type": kind}
            await world.discord.gateway.dispatch("MESSAGE_CREATE", notice, world.guild)
        await world.answers()
        await world.say("and now?")
        assert await world.answers(2) == ["Once.", "Next."]


@pytest.mark.slow  # discord.py waits five seconds
async def test_a_message_that_cannot_be_heard_or_prepared_ends_neither_the_connection_nor_other_answers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    async with loopback() as world, world.running("one", "two", "three") as bot:
        hears, prepares = bot.gate.heard, bot.chosen

        def heard(place: Place, speaker: Speaker) -> None:
            monkeypatch.setattr(bot.gate, "heard", hears)
            raise ZeroDivisionError("no ears")

        async def chosen(place: Place, speaker: Speaker) -> Chosen:
            monkeypatch.setattr(bot, "chosen", prepares)
            raise ZeroDivisionError("no head")

        monkeypatch.setattr(bot.gate, "heard", heard)
        await world.say("@bot first")
        monkeypatch.setattr(bot, "chosen", chosen)
        await world.say("@bot second")
        await world.say("@bot third")
        assert await world.answers() == ["one"]
        assert [one.exc_info[1].args for one in caplog.records if one.exc_info and one.exc_info[1]] == [
            ("no ears",),
            ("no head",),
        ]
        assert world.discord.gateway.identified == 1


async def test_an_answer_is_no_reply_once_the_bot_may_not_read_what_was_said():
    """The permission is taken away right after an answer."""
    async with loopback() as world, world.running("one", "two"):
        await world.say("@bot a")
        await world.answers()
        await world.discord.deny(world.general, "read_message_history")
        await world.say("@bot b")
        assert await world.answers(2) == ["one", "two"]


async def test_a_session_that_discord_refuses_to_resume_is_begun_anew():
    async with loopback() as world, world.running("First.", "Second."):
        await world.say("@bot one")
        await world.answers()
        seen = world.discord.gateway.identified
        world.discord.gateway.sessions.clear()  # as after a long outage
        for socket in list(world.discord.gateway.sockets):
            await socket.close(4000)
        while world.discord.gateway.identified == seen:
            await asyncio.sleep(0.001)
        await world.say("@bot two")
        assert await world.answers(2) == ["First.", "Second."]


async def test_an_answer_to_a_server_that_removed_the_bot_while_it_was_away_is_dropped():
    async with loopback() as world:
        async with world.running(Pause("It begins "), drain_s=0):
            await world.say("@bot go")
            await world.discord.said(world.general)
        await world.discord.remove_bot(world.guild)
        async with world.running() as bot:
            while not bot.has_recovered:
                await asyncio.sleep(0.001)
            await world.idle()
            assert await pending(world) == []
            await world.say("still there", channel=world.discord.dm(world.ann))
            await world.idle()


async def test_a_thread_that_is_deleted_in_mid_answer_ends_it():
    async with loopback() as world:
        thread = await world.discord.start_thread(world.general, "topic", world.ann)
        pause = Pause("It begins ")
        async with world.running(pause):
            await world.say("@bot go", channel=thread)
            await world.discord.said(thread)
            await world.discord.delete_channel(thread)
            await world.idle()
            assert pause.closed
            assert await pending(world) == []


async def test_messages_that_a_moderator_deletes_together_are_answered_no_more():
    async with loopback() as world:
        pauses = [Pause("one "), Pause("two ")]
        async with world.running(*pauses):
            said = [await world.say("@bot go", person) for person in (world.ann, world.bob)]
            for pause in pauses:
                await pause.reached.wait()
            await world.discord.purge(world.general, *said)
            await world.idle()
            assert [pause.closed for pause in pauses] == [True, True]
            assert await pending(world) == []


@pytest.mark.parametrize("rule", [DiscordRule(mode="brief"), DiscordRule(agent="guide")])
async def test_an_answer_of_a_mode_or_an_agent_that_is_gone_is_finished_after_a_restart(rule: DiscordRule):
    """A04, A12: the agent of a mode is made again; instead of one that was removed, the default one answers."""
    async with loopback() as world:
        given: dict[str, Any] = {"modes": {"brief": ModeSettings(instructions="Be brief.")}}
        agents = [Agent("helper", engine=world.engine), Agent("guide", engine=world.engine)]
        pause = Pause("It begins ")
        async with world.running(pause, drain_s=0, agents=agents, rules_of_discord=(rule,), **given):
            await world.say("@bot go")
            await world.discord.said(world.general)
        async with world.running("It begins and ends.", drain_s=0, **given) as bot:
            while not bot.has_recovered:
                await asyncio.sleep(0.001)
            await world.discord.until(lambda: "ends." in world.discord.bot_messages(world.general)[-1]["content"])
            await world.idle()
            assert await world.answers() == ["It begins and ends."]
            assert ("Be brief." in world.engine.prompts[-1].messages[0].text) is bool(rule.mode)
            assert await pending(world) == []


async def test_the_ledger_and_the_transcript_know_who_spoke_where():
    async with loopback() as world, world.running("Hello.", conversation="channel"):
        await world.say("@bot hi", world.bob)
        await world.answers()
        transcript = await world.app.conversation(f"discord-{world.bot.id}-c{world.general.id}").transcript()
        assert transcript.messages[-2].author == str(world.bob.id)
        for by, value in (("person", world.bob), ("channel", world.general), ("guild", world.guild)):
            totals = await world.app.ledger.totals(by=by, value=str(value.id), window="day")  # type: ignore[attr-defined]
            assert totals.calls == 1


class Hanging:
    """A chat hook that waits until it is released."""

    def __init__(self) -> None:
        self.reached, self.go = asyncio.Event(), asyncio.Event()

    async def __call__(self, messages: Any) -> None:
        self.reached.set()
        await self.go.wait()


async def test_a_message_that_is_deleted_while_it_is_prepared_is_not_answered():
    async with loopback() as world, world.running() as bot:
        hook = Hanging()
        bot.hooks.on("chat", hook)
        messages = [await world.say("@bot one"), await world.say("@bot two")]
        await hook.reached.wait()
        for message in messages:
            await world.discord.delete(message)
        while bot._beginning:  # pyright: ignore[reportPrivateUsage]
            await asyncio.sleep(0.001)
        hook.go.set()
        while bot._locks:  # pyright: ignore[reportPrivateUsage]
            await asyncio.sleep(0.001)
        assert world.engine.prompts == []
        assert bot.deliveries == {}


async def test_the_model_gets_what_a_message_says_after_an_edit_while_it_was_prepared():
    async with loopback() as world, world.running("Yes.") as bot:
        hook = Hanging()
        bot.hooks.on("chat", hook)
        message = await world.say("@bot my password is X")
        await hook.reached.wait()
        await world.discord.edit(message, "@bot nothing here")
        while "nothing" not in bot._beginning[int(message["id"])].content:  # pyright: ignore[reportPrivateUsage]
            await asyncio.sleep(0.001)
        hook.go.set()
        assert await world.answers() == ["Yes."]
        assert [prompt.messages[-1].text for prompt in world.engine.prompts] == ["Ann: nothing here"]


@pytest.mark.parametrize("change", ["delete", "edit"])
async def test_a_message_that_is_deleted_or_edited_while_its_answer_begins_is_treated_as_such(
    change: str, monkeypatch: pytest.MonkeyPatch
):
    """While the store takes it: the answer is neither prepared any more, nor under way."""
    send, reached, go = Conversation.send, asyncio.Event(), asyncio.Event()

    async def slow(self: Conversation, *given: Any, **named: Any) -> Any:
        reached.set()
        await go.wait()
        return await send(self, *given, **named)

    async with loopback() as world, world.running("Yes.", "Yes.") as bot:
        monkeypatch.setattr(Conversation, "send", slow)
        message = await world.say("@bot my password is X")
        await reached.wait()
        id = int(message["id"])
        if change == "delete":
            await world.discord.delete(message)
            while id in bot._beginning:  # pyright: ignore[reportPrivateUsage]
                await asyncio.sleep(0.001)
        else:
            await world.discord.edit(message, "@bot nothing here")
            while "nothing" not in bot._beginning[id].content:  # pyright: ignore[reportPrivateUsage]
                await asyncio.sleep(0.001)
        go.set()
        while bot._locks or bot.deliveries:  # pyright: ignore[reportPrivateUsage]
            await asyncio.sleep(0.001)
        sent = [prompt.messages[-1].text for prompt in world.engine.prompts]
        shown = [one["content"] for one in world.discord.bot_messages(world.general)]
        assert (sent, shown) == (([], []) if change == "delete" else (["Ann: nothing here"], ["Yes."]))
        assert await pending(world) == []


async def test_an_edit_to_an_empty_text_takes_back_what_was_said_before():
    """What is attached stays."""
    async with loopback() as world, world.running("Yes.") as bot:
        hook = Hanging()
        bot.hooks.on("chat", hook)
        message = await world.say("@bot my password is X", files={"a.txt": (b"hello", "text/plain")})
        await hook.reached.wait()
        await world.discord.edit(message, "")
        while bot._beginning[int(message["id"])].content:  # pyright: ignore[reportPrivateUsage]
            await asyncio.sleep(0.001)
        hook.go.set()
        assert await world.answers() == ["Yes."]
        (sent,) = [prompt.messages[-1].text for prompt in world.engine.prompts]
        assert "password" not in sent
        assert "hello" in sent


async def test_a_chat_hook_sees_the_new_text_of_a_message_that_is_edited_while_it_is_answered():
    def redact(messages: list[Message]) -> list[Message]:
        if "refuse" in messages[-1].text:
            raise ValueError("this must not be sent")
        return [msgspec.structs.replace(one, parts=user(one.text.replace("4711", "[PIN]")).parts) for one in messages]

    async with loopback() as world:
        pauses = [Pause("One ", "moment."), Pause("Two ", "moments.")]
        async with world.running(*pauses, "Yes.", "Yes.", conversation="channel", hooks=[redact]) as bot:
            await world.say("@bot first")
            await pauses[0].reached.wait()
            second = await world.say("@bot second", world.bob)
            while int(second["id"]) not in bot.deliveries:
                await asyncio.sleep(0.001)
            await world.discord.edit(second, "@bot the PIN is 4711")  # it is queued
            while "[PIN]" not in bot.deliveries[int(second["id"])].pending.content.text:
                await asyncio.sleep(0.001)
            pauses[0].release()
            while not bot.deliveries[int(second["id"])].fold.turn:
                await asyncio.sleep(0.001)
            await world.discord.edit(second, "@bot refuse this")
            await world.discord.edit(second, "@bot the PIN is 4711 again")  # it is being answered
            talk = world.app.conversation(bot.deliveries[int(second["id"])].pending.conversation)
            while not any(isinstance(entry.event, MessageQueued) for entry in await talk.entries()):
                await asyncio.sleep(0.001)
            pauses[1].release()
            await world.idle()
            sent = [message.text for prompt in world.engine.prompts for message in prompt.messages]
            assert "Bob: the PIN is [PIN]" in sent
            assert "(I have edited my message. It now says:)\nBob: the PIN is [PIN] again" in sent
            assert not [text for text in sent if "4711" in text or "refuse" in text]


async def test_an_edit_while_a_thread_is_opened_opens_no_second_one(monkeypatch: pytest.MonkeyPatch):
    create, reached, go = discord.Message.create_thread, asyncio.Event(), asyncio.Event()

    async def slow(self: discord.Message, **named: Any) -> discord.Thread:
        reached.set()
        await go.wait()
        return await create(self, **named)

    monkeypatch.setattr(discord.Message, "create_thread", slow)
    async with loopback() as world, world.running("The answer.", conversation="thread") as bot:
        # Discord may tell of the thread later than of the edit.
        connection = bot.client._connection  # pyright: ignore[reportPrivateUsage]
        connection.parsers["THREAD_CREATE"] = lambda data: None
        message = await world.say("@bot old")
        await reached.wait()
        await world.discord.edit(message, "@bot new")
        while "new" not in bot._beginning[int(message["id"])].content:  # pyright: ignore[reportPrivateUsage]
            await asyncio.sleep(0.001)
        go.set()
        (thread,) = await world.discord.until(
            lambda: [one for one in world.discord.world.channels.values() if one.is_thread]
        )
        assert await world.answers(channel=thread) == ["The answer."]
        assert world.discord.bot_messages(world.general) == []
        assert [prompt.messages[-1].text for prompt in world.engine.prompts] == ["Ann: new"]


@pytest.mark.parametrize("error", [aiohttp.ServerDisconnectedError(), OSError("no network"), ZeroDivisionError("?")])
async def test_an_error_of_the_connection_costs_one_request_and_not_the_bot(
    error: Exception, monkeypatch: pytest.MonkeyPatch
):
    """Here when it says that it cannot answer, and when it shows that it is typing."""

    def broken(messages: Any) -> None:
        if "bad" in messages[-1].text:
            raise ValueError("no hook")

    monkeypatch.setattr("rondel.surfaces.discord.pace.AT_ONCE_S", 0)
    monkeypatch.setattr("rondel.surfaces.discord.pace.TYPING_S", 0.01)
    async with loopback() as world:
        pause = Pause("It begins ", "and it ends.")
        async with world.running(pause, "Fine.", hooks=[broken], context_messages=0) as bot:
            await world.say("@bot go", world.bob)
            await world.discord.said(world.general)
            http, failed = bot.client.http, list[str]()
            request = http.request

            async def down(route: Any, **given: Any) -> Any:
                if route.method == "POST":
                    failed.append(route.path)
                    raise error
                return await request(route, **given)

            monkeypatch.setattr(http, "request", down)
            await world.say("@bot bad")
            await world.say("bad", channel=world.discord.dm(world.ann))
            while not (any("typing" in path for path in failed) and any("messages" in path for path in failed)):
                await asyncio.sleep(0.001)
            monkeypatch.setattr(http, "request", request)
            pause.release()
            await world.say("@bot good")
            await world.discord.until(lambda: "Fine." in str(world.discord.bot_messages(world.general)))
            shown = [one["content"] for one in world.discord.bot_messages(world.general)]
            assert "It begins and it ends." in shown


async def test_a_bot_that_ends_by_an_error_says_so_and_closes_its_connection(caplog: pytest.LogCaptureFixture):
    """It must not stay and hear nothing."""
    async with loopback() as world:
        client = RondelClient(connector=world.discord.connector(), guild_ready_timeout=0.01, shard_count=1)
        bot = attach(client, App(Agent("helper", engine=world.engine)))

        async def fail() -> None:
            raise ZeroDivisionError("no heart")

        async def live() -> None:
            async with client:
                await client.start(world.discord.token)

        async with asyncio.TaskGroup() as group:
            group.create_task(live())
            while not client.is_ready():
                await asyncio.sleep(0.001)
            bot.tasks._group.create_task(fail())  # pyright: ignore[reportPrivateUsage]
            while "the bot has ended by an error" not in caplog.text:
                await asyncio.sleep(0.001)
        assert "no heart" in caplog.text
        assert client.is_closed()
        with pytest.raises(ExceptionGroup):
            await client.close()  # whoever runs it should know
