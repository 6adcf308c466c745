"""What the model gets."""

from __future__ import annotations

import pytest

from rondel import Agent
from rondel.surfaces.discord.bot import MENTIONED_MAX
from rondel.surfaces.discord.context import AROUND_CHARS_MAX, IMAGE_BYTES_MAX, IMAGES_MAX, TEXT_BYTES_MAX
from rondel.testing import Scripted, say
from rondel.testing.discord import permission_bits
from rondel.values import Media, ModelFacts, Usage

from .harness import World, loopback

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
)


def said(world: World, index: int = -1) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in world.engine.prompts[index].messages]


async def test_what_was_said_around_a_mention_comes_as_one_system_message_and_never_twice():
    """A02: the surrounding messages, without the chain, its own and empty ones, as one system message."""
    async with loopback() as world:
        for number in range(10):
            await world.say(f"line {number}", world.bob if number % 2 else world.ann)
        async with world.running("Blue.", "Still blue."):
            await world.say("@bot what colour is it?")
            await world.answers()
            (role, around), (_, asked) = said(world)
            assert role == "system"
            assert around.startswith("Recent channel conversation for reference.")
            lines = around.split("\n\n", 1)[1].splitlines()
            assert lines == [f"{'Bob' if n % 2 else 'Ann'}: line {n}" for n in range(2, 10)]  # eight, oldest first
            assert asked == "Ann: what colour is it?"
            await world.say("one more line", world.bob)
            await world.say("sure?", reply_to=world.discord.bot_messages(world.general)[0])
            await world.answers(2)
            prompt = said(world)
            everything = "\n".join(text for _, text in prompt)
            assert everything.count("line 9") == everything.count("Blue.") == everything.count("one more line") == 1
            assert [role for role, _ in prompt] == ["system", "user", "assistant", "system", "user"]


async def test_the_surroundings_are_eight_messages_without_those_above_a_reply_its_own_and_empty_ones():
    """A02: excluding chain, own and empty; what is left out makes room for others."""
    async with loopback() as world:
        lines = []
        for number in range(9):
            lines.append(await world.say(f"line {number}", world.bob))
            if number in (2, 5, 8):
                world.discord.world.message(world.general, world.discord.world.bot, {"content": "my own"})
                world.discord.world.message(world.general, world.bob, {"content": ""})  # a sticker, for example
        async with world.running("I see."):
            await world.say("@bot what do you think?", reply_to=lines[4])
            await world.answers(4)
            (_, around), *rest = said(world)
            assert around.split("\n\n", 1)[1].splitlines() == [f"Bob: line {n}" for n in (0, 1, 2, 3, 5, 6, 7, 8)]
            assert rest == [("user", "Bob: line 4"), ("user", "Ann: what do you think?")]


async def test_where_every_message_is_for_the_bot_and_in_threads_nothing_around_it_is_sent():
    """A02: only around a mention in a channel where people talk among themselves."""
    async with loopback() as world:
        opened = world.discord.channel(world.guild, "opened")
        thread = await world.discord.start_thread(world.general, "topic", world.bob)
        places = [opened, thread, world.discord.dm(world.ann)]
        for place in places:
            await world.say("said before", world.ann, place)
        async with world.running(*"123", whitelist=[opened.id]):
            for place in places:
                await world.say("@bot now", world.ann, place)
                await world.answers(channel=place)
        assert [[message.text for message in prompt.messages] for prompt in world.engine.prompts] == [
            ["Ann: now"],
            ["Ann: now"],
            ["now"],
        ]


async def test_a_reply_brings_the_messages_above_it_oldest_first():
    """A02: reply chain of depth 3, oldest first; the surroundings can be switched off."""
    async with loopback() as world, world.running("I see.", context_messages=0):
        first = await world.say("zero", world.bob)
        for number in ("one", "two", "three"):
            first = await world.say(number, world.ann if number == "two" else world.bob, reply_to=first)
        await world.say("@bot what do you think?", reply_to=first)
        await world.answers()
        assert said(world) == [
            ("user", "Bob: one"),
            ("user", "Ann: two"),
            ("user", "Bob: three"),
            ("user", "Ann: what do you think?"),
        ]


async def test_names_go_in_and_mentions_come_out():
    """A03: ids become names for the model, and @name becomes an id on the way out; e-mail addresses stay."""
    async with loopback() as world:
        await world.discord.join(world.guild, zoe := world.discord.person("zoe"))
        role = world.discord.role(world.guild, "mods", permissions=permission_bits())
        answer = "Ask @Bob or @zoe (zoe@example.org), not @nobody or Bob. @everyone!"
        async with world.running(answer, context_messages=0):
            await world.say(f"@bot who knows <#{world.general.id}>? <@{world.bob.id}>? <@&{role.id}>?")
            shown = await world.answers()
            assert said(world)[0][1] == "Ann: who knows #general? @Bob? @mods?"
            expected = f"Ask <@{world.bob.id}> or <@{zoe.id}> (zoe@example.org), not @nobody or Bob. @everyone!"
            assert shown == [expected]
            (answer_id,) = [int(message["id"]) for message in world.discord.bot_messages(world.general)]
            assert world.discord.world.pings[answer_id] == set()


async def test_so_many_names_of_an_answer_are_looked_up():
    """A model that writes thousands of names must not hold up the bot in a server with thousands of members."""
    async with loopback() as world:
        for name in ("zoe", "late"):
            await world.discord.join(world.guild, world.discord.person(name))
        names = " ".join(f"@n{number}" for number in range(MENTIONED_MAX))
        async with world.running(f"@zoe {names} @late", context_messages=0):
            await world.say("@bot whom do you know?")
            (shown,) = await world.answers()
            assert shown.startswith("<@")
            assert shown.endswith(f"{names} @late")


async def test_images_are_seen_texts_are_read_and_other_files_are_named():
    """A09: image attachments only become image parts, when the engine sees."""
    files = {
        "cat.png": (PNG, "image/png"),
        "notes.txt": (b"remember the milk", "text/plain"),
        "song.mp3": (b"\0\1\2", "audio/mpeg"),
        "data.bin": (b"\0\1\2\3", "application/octet-stream"),
        "lie.png": (b"not a picture at all", "image/png"),
    }
    async with loopback() as world:
        async with world.running("A cat.", "Blind.", context_messages=0):
            await world.say("@bot look", files=files)
            await world.answers()
            parts = world.engine.prompts[-1].messages[-1].parts
            assert [part.data for part in parts if isinstance(part, Media)] == [PNG]
            text = world.engine.prompts[-1].messages[-1].text
            assert "remember the milk" in text
            assert "[Attached: song.mp3, audio/mpeg, 3 bytes]" in text
            assert "[Attached: data.bin, application/octet-stream, 4 bytes]" in text
            assert "[Attached: lie.png, image/png, 20 bytes]" in text
        blind = Scripted("Blind.", facts=ModelFacts(images=False))
        async with world.running(agents=[Agent("helper", engine=blind)], context_messages=0):
            await world.say("@bot look again", files=files)
            await world.answers(2)
            message = blind.prompts[-1].messages[-1]
            assert not any(isinstance(part, Media) for part in message.parts)
            assert "[Attached: cat.png, image/png" in message.text


async def test_a_model_gets_so_many_images_and_no_file_that_is_too_large():
    """A09: what is left out is named, so that the model can say so."""
    images = {f"{number}.png": (PNG, "image/png") for number in range(IMAGES_MAX + 1)}
    large = {
        "large.png": (PNG.ljust(IMAGE_BYTES_MAX + 1, b"\0"), "image/png"),
        "large.txt": (b"x" * (TEXT_BYTES_MAX + 1), "text/plain"),
    }
    async with loopback() as world, world.running("Many.", "Large.", context_messages=0):
        await world.say("@bot look", files=images)
        await world.answers()
        message = world.engine.prompts[-1].messages[-1]
        assert sum(isinstance(part, Media) for part in message.parts) == IMAGES_MAX
        assert message.text.endswith(f"[Attached: {IMAGES_MAX}.png, image/png, {len(PNG)} bytes]")
        await world.say("@bot and this", files=large)
        await world.answers(2)
        message = world.engine.prompts[-1].messages[-1]
        assert not any(isinstance(part, Media) for part in message.parts)
        assert "[Attached: large.png, image/png, 8,000,001 bytes]" in message.text
        assert "[Attached: large.txt, text/plain, 200,001 bytes]" in message.text


@pytest.mark.parametrize("sees", [True, False])
async def test_a_picture_of_the_bot_is_seen_by_who_is_asked_about_it(sees: bool):
    """A02, A09: in a reply to it, also where another conversation answers. No API takes it in the bot's own words."""
    async with loopback() as world:
        file = world.discord.store_file(world.general, "fox.png", PNG, "image/png")
        world.discord.world.message(world.general, world.discord.world.bot, {"attachments": [file]})
        (picture,) = world.discord.bot_messages(world.general)
        log = world.discord.store_file(world.general, "log.txt", b"secret", "text/plain")
        body = {"content": "The log.", "attachments": [log], "message_reference": {"message_id": picture["id"]}}
        above = world.discord.world.message(world.general, world.discord.world.bot, body)
        engine = Scripted("A fox.", facts=ModelFacts(images=sees))
        async with world.running(agents=[Agent("helper", engine=engine)], context_messages=0):
            await world.say("what did you draw?", reply_to=above)
            await world.answers(3)
            first, *rest = engine.prompts[-1].messages
            assert [(message.role, message.text) for message in rest] == [
                ("assistant", "The log."),
                ("user", "Ann: what did you draw?"),
            ]
            if sees:
                assert (first.role, first.text) == ("user", "(You sent this:)")
                assert [part.data for part in first.parts if isinstance(part, Media)] == [PNG]
            else:
                named = f"[Attached: fox.png, image/png, {len(PNG)} bytes]"
                assert (first.role, first.text.strip()) == ("assistant", named)


async def test_a_long_message_around_a_mention_is_cut():
    """A02"""
    async with loopback() as world, world.running("Yes."):
        await world.say("y" * 1_500, world.bob)
        await world.say("@bot really?")
        await world.answers()
        around = world.engine.prompts[-1].messages[0].text
        assert around.endswith("Bob: " + "y" * AROUND_CHARS_MAX)


async def test_what_a_conversation_is_can_be_a_channel_a_person_or_a_thread():
    """A02"""
    async with loopback() as world:
        async with world.running("1", "2", conversation="channel", context_messages=0):
            await world.say("@bot from Ann")
            await world.answers()
            await world.say("@bot from Bob", world.bob)
            await world.answers(2)
            assert len(said(world)) == 3  # one conversation
        async with world.running("3", "4", conversation="user", context_messages=0):
            await world.say("@bot from Ann")
            await world.answers(3)
            await world.say("@bot from Bob", world.bob)
            await world.answers(4)
            assert len(said(world)) == 1  # each their own
        async with world.running("5", "6", conversation="thread", context_messages=0):
            message = await world.say("@bot a long story")
            thread = await world.discord.until(lambda: world.discord.world.channels.get(int(message["id"])))
            assert await world.answers(channel=thread) == ["5"]
            await world.say("@bot more", channel=thread)
            assert await world.answers(2, thread) == ["5", "6"]
            assert len(said(world)) == 3


async def test_what_is_said_in_a_thread_is_charged_to_its_channel():
    async with loopback() as world:
        role = world.discord.role(world.guild, "helpers", world.ann, permissions=permission_bits())
        async with world.running(say("Here.", usage=Usage(5, 5)), conversation="thread", context_messages=0):
            message = await world.say("@bot a long story")
            thread = await world.discord.until(lambda: world.discord.world.channels.get(int(message["id"])))
            await world.answers(channel=thread)
            rows = {by: (await world.app.ledger.summary(by=by)).rows for by in ("channel", "guild", "role")}
    wanted = {"channel": world.general.id, "guild": world.guild.id, "role": role.id}  # and no role of everyone
    assert {by: [row.values for row in found] for by, found in rows.items()} == {
        by: [(str(id),)] for by, id in wanted.items()
    }


async def test_a_forum_post_is_a_conversation():
    async with loopback() as world:
        forum = world.discord.channel(world.guild, "help", forum=True)
        async with world.running("Try again.", "Good.", whitelist=[forum.id]):
            thread, _ = await world.discord.forum_post(world.bob, forum, "It broke", "My code does not run.")
            assert await world.answers(channel=thread) == ["Try again."]
            await world.say("It works!", world.bob, thread)
            assert await world.answers(2, thread) == ["Try again.", "Good."]
            assert len(said(world)) == 3


async def test_a_card_of_another_bot_is_read_as_text():
    """A02"""
    async with loopback() as world, world.running("Blue."):
        poll = world.discord.person("poll", "Poll", bot=True)
        text = {"type": 10, "content": "Which colour?"}
        card = {"components": [{"type": 17, "components": [text]}], "flags": 1 << 15}
        asked = world.discord.world.message(world.general, poll, card)
        await world.say("@bot what do you think?", reply_to=asked)
        await world.answers()
        assert [message.text for message in world.engine.prompts[0].messages][-2] == "Poll: Which colour?"
