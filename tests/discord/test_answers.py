"""How answers are written: streamed, split, paced, once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import discord
import pytest

from rondel import Agent, Prompt, RondelError, tool
from rondel.discord import ChatReply, ReplyContext
from rondel.surfaces.discord.outlet import Extras
from rondel.surfaces.discord.pace import edit_wait_s
from rondel.testing import Echo, Pause, call
from rondel.testing.png import draw_png
from rondel.values import Delta

from .harness import loopback


async def test_an_answer_streams_by_edits_and_its_end_is_always_shown():
    """A04: streamed by editing, the final edit guaranteed."""
    async with loopback() as world:
        pause = Pause("It begins ", "and it ends.")
        async with world.running(pause):
            await world.say("@bot go")
            (first,) = await world.discord.said(world.general)
            assert first["content"] == "It begins "
            pause.release()
            assert await world.answers() == ["It begins and it ends."]
            assert len(world.discord.sent("POST", "/messages")) == 1
            assert [one.body["allowed_mentions"] for one in world.discord.sent("PATCH", "/messages/")] == [
                {"parse": []}
            ]


async def test_a_quick_answer_is_one_request():
    async with loopback() as world, world.running("Quick."):
        await world.say("@bot go")
        assert await world.answers() == ["Quick."]
        assert world.discord.edits == []


async def test_a_long_answer_is_split_and_every_part_replies():
    """A04: at most 2,000 characters; reply reference kept; nobody is notified on any path."""
    async with loopback() as world:
        text = "intro @everyone\n" + "```py\n" + "print('x')\n" * 500 + "```\n" + "tail " * 300
        async with world.running(text):
            asked = await world.say("@bot go")
            parts = await world.answers(4)
            assert all(len(part) <= 2000 for part in parts)
            assert all(len(re.findall("```", part)) % 2 == 0 for part in parts)
            messages = world.discord.bot_messages(world.general)
            above = [message["message_reference"]["message_id"] for message in messages]
            assert above == [asked["id"], *(message["id"] for message in messages[:-1])]
            assert all(world.discord.world.pings[int(message["id"])] == set() for message in messages)
            for request in world.discord.sent("POST", "/messages"):
                assert request.body["allowed_mentions"] == {"parse": []}
                assert request.body["enforce_nonce"]


@pytest.mark.parametrize("how", ["file", "thread", "messages"])
async def test_a_very_long_answer_that_only_one_person_may_see_is_shown_to_nobody_else(how: str):
    async with loopback() as world:
        text = "\n\n".join(f"Part {number}. " + "word " * 390 for number in range(4))
        async with world.running(text, long_answers=how, messages_max=2):
            given = {"message": "a long story", "private": True}
            made = await world.discord.command(world.ann, world.general, "ai chat", **given)
            await world.discord.answered(made)
            await world.idle()
            assert len(made.answers) == (1 if how == "file" else 4)
            assert world.discord.bot_messages(world.general) == []


@pytest.mark.parametrize("how", ["file", "thread"])
async def test_a_very_long_answer_is_a_file_or_a_thread_if_wished(how: str):
    """A04"""
    async with loopback() as world:
        text = "# The story\n\n" + "\n\n".join(f"Paragraph {n}. " + "word " * 150 for n in range(12))
        async with world.running(text, long_answers=how, messages_max=2):
            await world.say("@bot go")
            await world.answers()
            (message,) = world.discord.bot_messages(world.general)
            if how == "file":
                (file,) = message["attachments"]
                data = world.discord.world.files[file["url"].removeprefix("https://cdn.discordapp.com")][0]
                assert data.decode() == text
                assert message["content"].endswith("*The whole answer is attached.*")
            else:
                thread = world.discord.world.channels[int(message["id"])]
                rest = [one["content"] for one in world.discord.bot_messages(thread)]
                assert "Paragraph 0" in message["content"]
                assert "Paragraph 11" in rest[-1]
                assert thread.name.startswith("The story")


@pytest.mark.parametrize("how", ["file", "thread"])
async def test_messages_in_which_a_very_long_answer_streamed_are_deleted_when_it_moves(how: str):
    """A04: nothing is there twice."""
    async with loopback() as world:
        before = "\n\n".join(f"Paragraph {n}. " + "word " * 150 for n in range(9))
        pause = Pause(before, "\n\nThe end.")
        async with world.running(pause, long_answers=how, messages_max=2):
            await world.say("@bot go")
            messages = await world.discord.said(world.general, 2)
            pause.release()
            await world.discord.until(lambda: len(world.discord.bot_messages(world.general)) == 1)
            await world.idle()
            assert world.discord.bot_messages(world.general) == messages[:1]
            assert len(world.discord.sent("DELETE", f"/messages/{messages[1]['id']}")) == 1
            if how == "file":
                (file,) = messages[0]["attachments"]
                assert world.discord.data_of(file).decode() == f"{before}\n\nThe end."
            else:
                thread = world.discord.world.channels[int(messages[0]["id"])]
                shown = [*messages, *world.discord.bot_messages(thread)]
                text = "\n\n".join(one["content"] for one in shown if one is not messages[1])
                assert [f"Paragraph {n}." for n in range(9)] == re.findall(r"Paragraph \d\.", text)
                assert text.endswith("The end.")


async def test_edits_slow_down_when_discord_says_that_few_requests_are_left():
    """A04: at a pace that adapts to the rate-limit headers."""

    class Slow(Echo):
        async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
            async for delta in super().stream(prompt):
                yield delta
                await asyncio.sleep(0.01)

    async with loopback() as world:
        world.discord.rate_limit = (5, 10.0)
        words = " ".join(f"w{number}" for number in range(60))
        async with world.running(agents=[Agent("helper", engine=Slow())], edit_s=0.02):
            await world.say(f"@bot {words}")
            assert await world.answers() == [f"Ann: {words}"]
            assert world.discord.limited == 0
            assert (
                len(world.discord.edits) <= 3
            )  # without it all five are used up, and the last text waits for the reset


async def test_a_failure_is_a_sentence_without_details_and_the_next_message_works():
    async with loopback() as world, world.running(RondelError("secret/path is broken"), "Fine."):
        await world.say("@bot go")
        assert await world.answers() == ["Sorry, I could not answer that. Please try again in a while."]
        await world.say("@bot again")
        assert (await world.answers(2))[-1] == "Fine."


async def test_an_edit_steers_a_running_answer_and_replaces_a_waiting_one_and_a_delete_stops():
    async with loopback() as world:
        pause, second = Pause("Let me think. "), Pause("Also ")
        async with world.running(pause, "By train.", second, conversation="channel", context_messages=0):
            asked = await world.say("@bot how do I get to Porto?")
            await pause.reached.wait()
            waiting = await world.say("@bot and back?", world.bob)
            while len(world.bot.deliveries) < 2:
                await asyncio.sleep(0)
            await world.discord.edit(waiting, "@bot and home?")
            await world.discord.edit(asked, "@bot how do I get to Porto, without flying?")
            while not world.app.journals.get(f"discord-{world.bot.id}-c{world.general.id}").transcript.inbox:  # type: ignore[union-attr]
                await asyncio.sleep(0)
            pause.release()
            await second.reached.wait()
            texts = [message.text for message in world.engine.prompts[-1].messages]
            assert any("without flying" in text for text in texts)
            assert texts[-1] == "Bob: and home?"
            assert not any("and back?" in text for text in texts)
            await world.discord.delete(waiting)
            await world.idle()
            assert second.closed


@pytest.mark.parametrize("max_messages", [1_000, None])
async def test_a_preview_that_discord_adds_to_a_link_is_not_an_edit(max_messages: int | None):
    """Discord sends the same event for both; what was sent to the model differs from the text, here by an image."""
    async with loopback() as world:
        client = discord.Client(
            intents=discord.Intents.all(),
            connector=world.discord.connector(),
            guild_ready_timeout=0.01,
            max_messages=max_messages,
        )
        pause = Pause("It is ", "a cat.")
        async with world.running(pause, "Next.", client=client, conversation="channel", context_messages=0) as bot:
            files = {"cat.png": (draw_png("8x8"), "image/png")}
            asked = await world.say("@bot what is https://example.org/cat ?", files=files)
            await pause.reached.wait()
            preview = {"embeds": [{"type": "link", "url": "https://example.org/cat", "title": "A cat"}]}
            event = world.discord.world.as_event(asked) | preview
            await world.discord.gateway.dispatch("MESSAGE_UPDATE", event, world.guild)
            await world.say("@bot and now?")
            while len(bot.deliveries) < 2:
                await asyncio.sleep(0)
            pause.release()
            assert await world.answers(2) == ["It is a cat.", "Next."]
            assert "edited" not in str(world.engine.prompts[-1].messages)


async def test_a_channel_that_is_deleted_and_a_server_that_removes_the_bot_end_their_answers():
    async with loopback() as world:
        other = world.discord.channel(world.guild, "other")
        gone, left = Pause("one "), Pause("two ")
        async with world.running(gone, left):
            await world.say("@bot go", channel=other)
            await gone.reached.wait()
            await world.discord.delete_channel(other)
            await world.idle()
            assert gone.closed
            await world.say("@bot go")
            await left.reached.wait()
            await world.discord.remove_bot(world.guild)
            await world.idle()
            assert left.closed
            assert [one async for one in world.bot.records.all_pending()] == []


async def test_hooks_change_what_is_asked_and_what_is_said():
    """A07: chat may change messages; the first reply hook with a value replaces the answer and sees the calls."""
    seen: list[ReplyContext] = []

    @tool(name="mcp-search")
    async def search(query: str) -> str:
        "Search."
        return "found"

    @tool
    async def look() -> str:
        "Look."
        return "seen"

    async with loopback() as world:
        agents = [Agent("helper", engine=world.engine, tools=[search, look])]
        steps = [call("look", "c1"), call("mcp-search", "c2", query="x"), "Raw answer.", "Second."]
        async with world.running(*steps, agents=agents) as bot:

            def shout(messages):  # type: ignore[no-untyped-def]
                from rondel.values import user

                messages[-1] = user(messages[-1].text.upper())

            async def replace(context: ReplyContext) -> ChatReply | None:
                seen.append(context)
                return ChatReply("Replaced.") if context.text == "Raw answer." else None

            bot.hooks.on("chat", shout)
            bot.hooks.on("reply", lambda context: None)
            bot.hooks.on("reply", replace)
            bot.hooks.on("reply", lambda context: "never")
            await world.say("@bot hello")
            assert await world.answers() == ["Replaced."]
            assert world.engine.prompts[0].messages[-1].text == "ANN: HELLO"
            assert [one.name for one in seen[0].calls] == ["look", "mcp-search"]
            assert [one.name for one in seen[0].mcp_calls] == ["mcp-search"]
            assert (seen[0].text, seen[0].person.name, seen[0].channel.id) == ("Raw answer.", "Ann", world.general.id)
            assert seen[0].degraded_servers == ()
            await world.say("@bot more")
            assert (await world.answers(2))[-1] == "never"
            with pytest.raises(RondelError, match="did you mean 'reply'"):
                bot.hooks.on("replay", replace)  # type: ignore[arg-type]


async def test_what_a_reply_hook_adds_is_on_the_first_message_of_a_long_answer():
    """A04: extras on the first chunk."""
    async with loopback() as world, world.running("Short.") as bot:
        embed = discord.Embed(title="Sources")
        bot.hooks.on("reply", lambda context: ChatReply("word " * 900, Extras(embeds=(embed,))))
        await world.say("@bot go")
        await world.answers(3)
        shown = world.discord.bot_messages(world.general)
        assert [[one["title"] for one in message.get("embeds", ())] for message in shown] == [["Sources"], [], []]


async def test_a_model_that_begins_with_the_bot_s_name_as_people_s_messages_do_says_only_the_rest():
    async with loopback() as world, world.running(lambda prompt: f"{world.bot.name}: Hello, {world.bot.name}: you."):
        await world.say("@bot hi")
        assert await world.answers() == [f"Hello, {world.bot.name}: you."]


async def test_instructions_come_once_and_first():
    """A08: exactly once, first."""
    async with loopback() as world:
        agents = [Agent("helper", "Be brief.", engine=world.engine)]
        async with world.running("1", "2", agents=agents, whitelist=[world.general.id]):
            await world.say("one")
            await world.answers()
            await world.say("two")
            await world.answers(2)
            texts = [message.text for message in world.engine.prompts[-1].messages]
            assert texts == ["Be brief.", "Ann: one", "1", "Ann: two"]
        async with world.running("3", agents=agents):  # with what was said around the mention
            await world.say("@bot three")
            await world.answers(3)
            first, around, *rest = world.engine.prompts[-1].messages
            assert (first.role, first.text) == ("system", "Be brief.")
            assert (around.role, around.text[:27]) == ("system", "Recent channel conversation")
            assert [message.text for message in rest] == ["Ann: three"]


@pytest.mark.parametrize(("rooms", "each"), [(4, 5), pytest.param(20, 10, marks=pytest.mark.slow)])
async def test_messages_at_once_in_many_channels_keep_their_order_and_do_not_mix(rooms: int, each: int):
    async with loopback() as world:
        channels = [world.discord.channel(world.guild, f"room-{number}") for number in range(rooms)]
        echo = [lambda prompt: f"re: {prompt.messages[-1].text}"] * (rooms * each)
        async with world.running(*echo, whitelist=[channel.id for channel in channels]):
            for number in range(each):
                for channel in channels:
                    await world.say(f"{channel.name} {number}", channel=channel)
            for channel in channels:
                shown = await world.answers(each, channel)
                assert shown == [f"re: Ann: {channel.name} {number}" for number in range(each)]
                replied = [one["message_reference"]["message_id"] for one in world.discord.bot_messages(channel)]
                asked = [one["id"] for one in world.discord.world.messages_in(channel) if not one["author"]["bot"]]
                assert replied == asked


def test_the_pace_of_edits_follows_what_is_left_of_the_rate_limit():
    """A04"""
    assert edit_wait_s(1.0, remaining=1, reset_after_s=0.0) == 1.0
    assert edit_wait_s(1.0, remaining=1, reset_after_s=4.0) == 4.0
    assert edit_wait_s(1.0, remaining=4, reset_after_s=2.0) == 1.0
    assert edit_wait_s(1.0, remaining=0, reset_after_s=99.0) == 10.0


@pytest.mark.parametrize("trouble", ["a lost permission", "an outage"])
async def test_a_file_is_whole_whenever_it_is_sent_again(trouble: str):
    text = "long " * 2_000
    given: dict[str, Any] = {"long_answers": "file", "messages_max": 1, "stream": False}
    async with loopback() as world, world.running("short", text, **given):
        await world.say("@bot a")
        await world.answers()
        if trouble == "an outage":
            world.discord.fail("POST", "/messages", 503)
        else:
            await world.discord.deny(world.general, "read_message_history")
        await world.say("@bot b")
        await world.answers(2)
        (file,) = world.discord.bot_messages(world.general)[1]["attachments"]
        assert world.discord.data_of(file).decode().strip() == text.strip()


async def test_a_file_of_a_reply_hook_is_whole_whenever_it_is_sent_again(tmp_path: Path):
    """discord.py closes a file that it has opened, once it was sent."""
    path = tmp_path / "SPOILER_notes.txt"
    path.write_text("whole")
    async with loopback() as world, world.running("Hello.") as bot:
        bot.hooks.on("reply", lambda context: ChatReply("See.", Extras(files=(discord.File(path),))))
        world.discord.fail("POST", "/messages", 503)
        await world.say("@bot a")
        await world.answers()
        (file,) = world.discord.bot_messages(world.general)[0]["attachments"]
        assert (file["filename"], world.discord.data_of(file)) == ("SPOILER_notes.txt", b"whole")
