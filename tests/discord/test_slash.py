"""Our own slash commands."""

from __future__ import annotations

import asyncio
import io

import discord
import pytest
from discord.ext import commands
from PIL import Image, ImageColor

from rondel import Agent, generate_image, tool
from rondel.contracts.ledger import Rule
from rondel.contracts.store import KEYS_MAX
from rondel.discord import ModeSettings
from rondel.errors import RondelError
from rondel.project.settings import DISCORD_COMMANDS, DiscordRule
from rondel.prompt import Prompt
from rondel.surfaces.discord.chart import BAR, COLOURS, GAP, LEFT, TOP
from rondel.surfaces.discord.delivery import FILE_BYTES_MAX
from rondel.surfaces.discord.slash import SUBCOMMANDS
from rondel.testing import Pause, Scripted, ScriptedImages, call, say
from rondel.testing.discord import Channel, Json, permission_bits, text_of
from rondel.testing.png import draw_png
from rondel.text.redaction import Redactor
from rondel.tools.ask_user import ask_user
from rondel.values import Media, ModelFacts, Options, Usage

from .harness import QUIET, World, loopback, message_in


async def ask(world: World, name: str, person=None, channel=None, /, **options):  # type: ignore[no-untyped-def]
    made = await world.discord.command(person or world.ann, channel or world.general, name, **options)
    return await world.discord.answered(made)


async def test_chat_answers_in_the_channel_or_for_one_person_only():
    """A11: /ai chat. A04: nobody is notified, also by a client that would let mentions through."""
    async with loopback() as world:
        client = commands.Bot(
            "!", intents=discord.Intents.all(), connector=world.discord.connector(), guild_ready_timeout=0.01
        )
        loud = f"@everyone {'word ' * 900} <@{world.bob.id}>"
        async with world.running("Hello.", "A secret.", loud, client=client):
            shown = await ask(world, "ai chat", message="hi there")
            await world.idle()
            assert (shown.text, shown.is_private) == ("Hello.", False)
            hidden = await ask(world, "ai chat", message="psst", private=True)
            await world.idle()
            assert (hidden.text, hidden.is_private) == ("A secret.", True)
            assert len(world.engine.prompts[-1].messages) == 1  # a conversation of their own
            long = await ask(world, "ai chat", message="long", private=True)
            await world.discord.until(lambda: len(long.answers) == 3)
            await world.idle()
            assert all(message["flags"] & 64 for message in long.answers)
            assert str(world.bob.id) in long.answers[-1]["content"]


@pytest.mark.parametrize("private", [False, True])
async def test_each_request_says_that_nobody_is_notified(private: bool):
    """A04: a client of somebody else's bot has no default for that. Every message of an answer is edited while it
    streams."""
    async with loopback() as world:
        aside = world.discord.channel(world.guild, "aside")
        intents, connector = discord.Intents.all(), world.discord.connector()
        client = commands.Bot("!", intents=intents, connector=connector, guild_ready_timeout=0.01)
        before, after = f"<@{world.bob.id}> {'word ' * 700}", f"{'more ' * 20} <@{world.bob.id}> @everyone"
        pauses = [Pause(before, after), Pause(before, after)]
        async with world.running(*pauses, client=client):
            made = await world.discord.command(world.ann, world.general, "ai chat", message="go", private=private)
            await world.discord.until(lambda: len(made.answers) == 2)
            pauses[0].release()
            await world.discord.until(lambda: "@everyone" in made.text)
            await world.idle()
            await world.say("@bot go", channel=aside)
            await world.discord.said(aside, 2)
            pauses[1].release()
            await world.discord.until(lambda: "@everyone" in world.discord.bot_messages(aside)[-1]["content"])
            await world.idle()
        messages = [body for one in world.discord.requests if (body := message_in(one))]
        assert len(messages) >= 6
        assert [body["allowed_mentions"] for body in messages] == [QUIET] * len(messages)
        edits = {one.path.rpartition("/")[2] for one in world.discord.sent("PATCH", "/webhooks/")}
        assert {"@original", made.answers[1]["id"]} <= edits


def models(message: Json) -> list[str]:
    return [line.strip("*").split(" · ")[1] for line in text_of(message).splitlines() if line.startswith("**")]


async def test_usage_shows_windows_models_and_people_page_by_page_with_a_chart():
    """A11: /ai usage needs Manage Server; windows, models, people; paged; a server sees its own only."""
    async with loopback() as world:
        robo = world.discord.guild("Other", world.bob, world.ann)
        elsewhere = world.discord.channel(robo, "there")
        steps = [say(f"{n}", usage=Usage(1000 * n, 10)) for n in range(1, 9)]
        agents = [Agent(f"a{n}", engine=Scripted(steps[n], name=f"scripted:model-{n}")) for n in range(8)]
        async with world.running(agents=agents):
            for n in range(7):
                await ask(world, "ai agent", name=f"a{n}")
                await world.say("@bot go")
                await world.answers(n + 1)
            await ask(world, "ai agent", world.bob, elsewhere, name="a7")
            await world.say("@bot go", world.bob, elsewhere)
            await world.answers(channel=elsewhere)
            await world.app.ledger.lifetime_totals()
            denied = await ask(world, "ai usage", world.bob)
            assert denied.text == "This needs the permission Manage Server."
            page = await ask(world, "ai usage", by="model", window="month")
            (message,) = page.answers
            shown = text_of(message).splitlines()
            assert shown[0] == "### Usage in Community by month and model"
            assert models(message) == [f"model-{n}" for n in range(5)]
            assert shown[2] == "1,000 in · 10 out · 1 call"
            assert shown[-1].startswith("-# Page 1 of 2")
            assert "attachment://usage.png" in str(message["components"])
            (file,) = message["attachments"]
            data = world.discord.world.files[file["url"].removeprefix("https://cdn.discordapp.com")][0]
            assert Image.open(io.BytesIO(data)).size[0] == 720
            await world.discord.answered(await world.discord.click(world.ann, message, "Older ▶"))
            await world.discord.until(lambda: "Page 2 of 2" in text_of(message))
            assert models(message) == ["model-5", "model-6"]  # and not what the other server used
            refused = await world.discord.answered(await world.discord.click(world.bob, message, "◀ Newer"))
            assert refused.text == "This needs the permission Manage Server."
            assert models(message) == ["model-5", "model-6"]
            (message,) = (await ask(world, "ai usage", rows=3)).answers
            assert models(message) == ["model-0", "model-1", "model-2"]
            await world.discord.answered(await world.discord.click(world.ann, message, "Older ▶"))
            await world.discord.until(lambda: "Page 2 of 3" in text_of(message))
            assert models(message) == ["model-3", "model-4", "model-5"]
            people = await ask(world, "ai usage", by="person", window="lifetime")
            assert "· Ann**" in people.text


def bars(png: bytes) -> list[float]:
    """Return how long each bar of a chart is, against the first one."""
    image, lengths = Image.open(io.BytesIO(png)).convert("RGB"), list[int]()
    for index in range((image.height - TOP - GAP) // (BAR + GAP)):
        middle = TOP + index * (BAR + GAP) + BAR // 2
        colour = ImageColor.getrgb(COLOURS[index % len(COLOURS)])
        ends = (x for x in range(LEFT, image.width) if image.getpixel((x, middle)) != colour)
        lengths.append(next(ends) - LEFT)
    return [length / lengths[0] for length in lengths]


async def test_the_chart_has_a_bar_for_each_row_and_the_rows_have_names():
    """A11: channels, roles and people by their names, also those of them that are gone, by their ids."""
    async with loopback() as world:
        role = world.discord.role(world.guild, "helpers", world.ann)
        rooms = [world.discord.channel(world.guild, name) for name in ("first", "second", "gone")]
        steps = [say(f"{n}", usage=Usage(n * 1_000 - 10, 10)) for n in (2, 4, 1)]
        async with world.running(*steps):
            for room in rooms:
                await world.say("@bot go", world.ann if room is rooms[0] else world.bob, room)
                await world.answers(channel=room)
            await world.discord.delete_channel(rooms[2])
            await world.app.ledger.lifetime_totals()
            for by, names, lengths in (
                ("channel", {"first", "second", str(rooms[2].id)}, [1, 1 / 2, 1 / 4]),
                ("role", {"helpers"}, [1]),
                ("person", {"Ann", "Bob"}, [1, 2 / 5]),
                ("model", {"test"}, [1]),
            ):
                (message,) = (await ask(world, "ai usage", by=by)).answers
                assert set(models(message)) == names, by
                found = bars(world.discord.data_of(message["attachments"][0]))
                assert found == pytest.approx(lengths, abs=0.01), by
            assert str(role.id) not in text_of(message)


async def test_a_model_and_an_agent_are_chosen_for_a_channel_by_those_who_may():
    """A11: /ai model and /ai agent."""
    other = Scripted("From another.", name="other:large")

    def make_engine(name: str) -> Scripted:
        if name != other.name:
            raise RondelError(f"there is no engine {name!r}")
        return other

    async with loopback() as world:
        guide = Agent("guide", description="knows the way", engine=Scripted("From the guide."))
        agents = [Agent("helper", engine=world.engine), guide]
        async with world.running("From my own.", agents=agents, make_engine=make_engine):
            for command, name in (("ai model", "other:large"), ("ai agent", "guide")):
                refused = await ask(world, command, world.bob, name=name)
                assert refused.text == "This needs the permission Manage Channels."
            assert (await ask(world, "ai model", name="nonsense")).text == "There is no engine 'nonsense'"
            chosen = await ask(world, "ai model", name="other:large")
            assert chosen.text == "other:large answers here from the next message on."
            await world.say("@bot hi")
            assert await world.answers() == ["From another."]
            back = await ask(world, "ai model", name="default")
            assert back.text == "scripted:test answers here from the next message on."
            await world.say("@bot hi")
            assert (await world.answers(2))[-1] == "From my own."
            assert (await ask(world, "ai agent")).text == "Agents:\n▸ **helper**\n· **guide** knows the way"
            assert (await ask(world, "ai agent", name="guide")).text == "guide answers here from the next message on."
            await world.say("@bot hi")
            assert (await world.answers(3))[-1] == "From the guide."


async def test_a_mode_is_chosen_for_a_channel_by_those_who_may():
    """A12: named presets (model, instructions, options) that are kept and selected per channel."""
    async with loopback() as world:
        mode = ModeSettings(instructions="Talk like a pirate.", options=Options(temperature=0.9))
        agents = [Agent("helper", engine=world.engine, options=Options(tokens_max=50))]
        async with world.running("Arr.", "Hello.", agents=agents, modes={"pirate": mode}) as bot:
            refused = await ask(world, "ai mode", world.bob, name="pirate")
            assert refused.text == "This needs the permission Manage Channels."
            wrong = await ask(world, "ai mode", name="pirat")
            assert wrong.text == "There is no mode 'pirat'; did you mean 'pirate'?"
            chosen = await ask(world, "ai mode", name="pirate")
            assert chosen.text == "This channel now uses the mode pirate."
            await world.say("@bot hi")
            assert await world.answers() == ["Arr."]
            prompt = world.engine.prompts[-1]
            assert prompt.messages[0].text == "Talk like a pirate."
            assert prompt.options.temperature == 0.9
            assert prompt.options.tokens_max == 50  # what the mode does not set stays the agent's
            with pytest.raises(RondelError, match=r"'options\.temperatur' is not known; did you mean 'temperature'"):
                await bot.modes.save("wrong", ModeSettings(options={"temperatur": 1}))  # type: ignore[arg-type]
            with pytest.raises(RondelError, match="no agent is named 'nobody'"):
                await bot.modes.save("wrong", ModeSettings(agent="nobody"))
            assert "wrong" not in bot.modes.all
            await bot.modes.save("poet", ModeSettings(instructions="Rhyme."))
            await ask(world, "ai mode", name="poet")
        async with world.running("Rhyme!", "Plain."):  # both are kept
            await world.say("@bot hi")
            assert (await world.answers(2))[-1] == "Hello."
            assert world.engine.prompts[-1].messages[0].text == "Rhyme."
            assert "▸ **poet**" in (await ask(world, "ai mode")).text
            await ask(world, "ai mode", name="off")
            await world.say("@bot hi")
            await world.answers(3)
            assert "Rhyme." not in [message.text for message in world.engine.prompts[-1].messages]
            assert (await ask(world, "ai model")).text == "scripted:test answers here."


async def test_a_model_is_chosen_for_a_channel_and_is_kept():
    """A11: /ai model. A12: kept and selected per channel."""
    other = Scripted("From the other.", name="scripted:other")

    def make(name: str) -> Scripted:
        if name != "scripted:other":
            raise RondelError(f"there is no engine {name!r}")
        return other

    async with loopback() as world:
        quiet = world.discord.channel(world.guild, "quiet")
        async with world.running("From the agent's own.", make_engine=make, context_messages=0):
            refused = await ask(world, "ai model", world.bob, name="scripted:other")
            assert refused.text == "This needs the permission Manage Channels."
            assert (await ask(world, "ai model", name="scripted:none")).text == "There is no engine 'scripted:none'"
            chosen = await ask(world, "ai model", name="scripted:other")
            assert chosen.text == "scripted:other answers here from the next message on."
            await world.say("@bot hi", channel=quiet)
            assert await world.answers(channel=quiet) == ["From the agent's own."]
        async with world.running("Again my own.", make_engine=make, context_messages=0):
            assert (await ask(world, "ai model")).text == "scripted:other answers here."
            await world.say("@bot hi")
            assert await world.answers() == ["From the other."]
            await ask(world, "ai model", name="default")
            await world.say("@bot hi")
            assert (await world.answers(2))[-1] == "Again my own."


async def test_an_agent_is_chosen_by_those_who_may():
    """A11: /ai agent."""
    async with loopback() as world:
        agents = [Agent("helper", engine=world.engine), Agent("poet", engine=Scripted("A poem."), description="Rhymes")]
        async with world.running("Help.", agents=agents):
            assert (await ask(world, "ai agent")).text == "Agents:\n▸ **helper**\n· **poet** Rhymes"
            refused = await ask(world, "ai agent", world.bob, name="poet")
            assert refused.text == "This needs the permission Manage Channels."
            assert "did you mean 'poet'" in (await ask(world, "ai agent", name="pote")).text
            await world.say("@bot hi")
            assert await world.answers() == ["Help."]
            assert (await ask(world, "ai agent", name="poet")).text == "poet answers here from the next message on."
            await world.say("@bot hi")
            assert (await world.answers(2))[-1] == "A poem."


async def test_in_direct_messages_usage_is_one_s_own():
    """A11: what a server or another person used is not shown there."""
    async with loopback() as world:
        steps = [say("To all.", usage=Usage(1_000, 10)), *(say(who, usage=Usage(7, 3)) for who in ("Ann's.", "Bob's."))]
        async with world.running(*steps):
            await world.say("@bot hi")
            await world.answers()
            for person in (world.ann, world.bob):
                await world.say("hi", person, world.discord.dm(person))
                await world.answers(channel=world.discord.dm(person))
            (message,) = (await ask(world, "ai usage", world.bob, world.discord.dm(world.bob))).answers
            shown = text_of(message).splitlines()
            assert shown[0] == "### Your usage by day and model"
            assert shown[2] == "7 in · 3 out · 1 call"
            assert shown[-1] == "-# Page 1 of 1 · 10 tokens in total"


async def test_a_mode_of_the_configuration_wins_over_a_saved_one_of_the_same_name():
    """A12"""
    async with loopback() as world:
        async with world.running() as bot:
            await bot.modes.save("pirate", ModeSettings(instructions="Saved."))
        async with world.running("Arr.", modes={"pirate": ModeSettings(instructions="Configured.")}):
            await ask(world, "ai mode", name="pirate")
            await world.say("@bot hi")
            await world.answers()
            assert world.engine.prompts[-1].messages[0].text == "Configured."


async def test_reset_stop_jobs_trace_and_forget():
    """A11"""
    async with loopback() as world:
        pause = Pause("I begin ")
        async with world.running("One.", "Two.", pause, "Bob's.", whitelist=[world.general.id]):
            assert (await ask(world, "ai trace")).text == "Nothing was said here yet."
            await world.say("first")
            await world.answers()
            assert (await ask(world, "ai mode")).text == "There are no modes."
            assert (await ask(world, "ai reset")).text == "The next message here starts a new conversation."
            await world.say("second")
            await world.answers(2)
            assert len(world.engine.prompts[-1].messages) == 1  # the first conversation is over
            assert (await ask(world, "ai trace", world.bob)).text == "This needs the permission Manage Server."
            trace = await ask(world, "ai trace")
            await world.discord.until(lambda: trace.answers[0]["attachments"])
            page = world.discord.world.files[
                trace.answers[0]["attachments"][0]["url"][len("https://cdn.discordapp.com") :]
            ]
            assert b"Two." in page[0]
            assert (await ask(world, "ai stop")).text == "Nothing is running."
            await world.say("third")
            await pause.reached.wait()
            assert "Your request is still running" in (await ask(world, "ai jobs")).text
            assert (await ask(world, "ai stop")).text == "Stopped."
            await world.idle()
            assert pause.closed
            await world.say("me too", world.bob)
            await world.answers(4)
            forgotten = await ask(world, "ai forget me")
            await world.discord.until(lambda: "Deleted" in forgotten.text)
            expected = "Deleted 1 of your conversations. 1 with other people in them were kept."
            assert forgotten.text == expected


async def test_an_admin_s_trace_does_not_show_what_was_asked_in_private():
    """A11, B05: a private conversation is newer, and it is not the channel's."""
    async with loopback() as world, world.running("Public.", "A secret."):
        await world.say("@bot aloud")
        await world.answers()
        asked = await ask(world, "ai chat", world.bob, message="psst", private=True)
        await world.discord.until(lambda: asked.text == "A secret.")
        await world.idle()
        trace = await ask(world, "ai trace")
        await world.discord.until(lambda: trace.answers[0]["attachments"])
        url = trace.answers[0]["attachments"][0]["url"]
        page, _ = world.discord.world.files[url.removeprefix("https://cdn.discordapp.com")]
        assert b"Public." in page
        assert b"psst" not in page
        assert b"secret" not in page


async def test_stop_stops_one_s_own_answer_only():
    """A11"""
    async with loopback() as world:
        pause = Pause("It begins ", "and it ends.")
        async with world.running(pause):
            await world.say("@bot go")
            await pause.reached.wait()
            assert (await ask(world, "ai stop", world.bob)).text == "Nothing is running."
            pause.release()
            assert await world.answers() == ["It begins and it ends."]


async def test_a_person_s_own_conversation_is_the_same_in_messages_and_commands_and_is_reset_everywhere():
    """A11: with `conversation = "user"`, what others said is neither seen nor reset."""
    async with loopback() as world:
        other = world.discord.channel(world.guild, "other")
        echo = [lambda prompt: f"knows {len(prompt.messages)}"] * 6
        async with world.running(*echo, conversation="user", context_messages=0):
            await world.say("@bot I am Ann")
            assert await world.answers() == ["knows 1"]
            asked = await ask(world, "ai chat", world.ann, other, message="Who am I?")
            await world.discord.until(lambda: asked.text == "knows 3")
            await world.idle()
            await world.say("@bot I am Bob", world.bob)
            assert (await world.answers(2))[1] == "knows 1"
            reset = await ask(world, "ai reset", world.ann, other)
            assert reset.text == "Your next message starts a new conversation."
            await world.say("@bot Who am I?")
            assert (await world.answers(3))[2] == "knows 1"
            asked = await ask(world, "ai chat", world.ann, other, message="And now?")
            await world.discord.until(lambda: asked.text == "knows 3")
            await world.idle()
            await world.say("@bot Who am I?", world.bob)
            assert (await world.answers(4))[3] == "knows 3"


async def test_forget_me_finds_all_conversations_however_many_they_are():
    """A11: a person who was answered every day for years has more of them than one page of the store's keys."""
    async with loopback() as world, world.running() as bot:
        count = KEYS_MAX + 5
        for number in range(count):
            bot.records.took_part(str(world.ann.id), f"old-{number}")
        assert len(await bot.records.conversations_of(str(world.ann.id))) == count
        assert await bot.records.conversations_of(str(world.ann.id)[:-1]) == []


async def test_each_command_can_be_switched_off_and_channels_are_opened_by_admins():
    """A11: each removable. A01: lists changed by an admin command."""
    async with loopback() as world:
        async with world.running("Open.", "Mentioned.", slash=["channels"]) as bot:
            (group,) = world.discord.world.commands[0]
            assert [option["name"] for option in group["options"]] == ["channels"]
            refused = await ask(world, "ai channels", world.bob, action="open")
            assert refused.text == "This needs the permission Manage Server."
            shown = await ask(world, "ai channels", action="open")
            assert f"<#{world.general.id}>" in shown.text
            assert bot.gate.whitelist == [world.general.id]
            await world.say("no mention")
            assert await world.answers() == ["Open."]
            closed = await ask(world, "ai channels", action="close")
            assert "I answer every message in: no channel." in closed.text
            await world.say("no mention")
            await world.say("@bot a mention")
            assert await world.answers(2) == ["Open.", "Mentioned."]
        world.discord.world.commands.clear()
        async with world.running(slash=[]):
            assert world.discord.world.commands == {}
        async with world.running():
            (group,) = world.discord.world.commands[0]
            names = [option["name"] for option in group["options"]]
            assert set(names) == {*DISCORD_COMMANDS} - {"imagine"}  # the app has no image engine
    assert [*SUBCOMMANDS] == [*DISCORD_COMMANDS]  # one that only slash.py knows could not be switched on


@pytest.mark.parametrize("scope", ["person", "role", "channel", "guild"])
async def test_a_limit_of_a_person_a_role_a_channel_or_a_server_is_a_friendly_answer(scope: str):
    """Limits through the ledger; TokenLimitError shown as text."""
    async with loopback() as world:
        role = world.discord.role(world.guild, "guests", world.bob, permissions=permission_bits())
        values = {"person": world.bob.id, "role": role.id, "channel": world.general.id, "guild": world.guild.id}
        rule = Rule({scope: str(values[scope])}, "day", tokens=50, mode="block", message="Come back tomorrow.")
        steps = [say("First.", usage=Usage(40, 20)), "Never.", "Other."]
        async with world.running(*steps, rules=[rule], conversation="user", context_messages=0):
            await world.say("@bot hi", world.bob)
            await world.answers()
            await world.say("@bot again", world.bob)
            assert await world.answers(2) == ["First.", "Come back tomorrow."]
            if scope in ("person", "role"):  # others are not affected
                await world.say("@bot hi")
                assert (await world.answers(3))[-1] == "Never."


async def test_imagine_attaches_a_picture_and_a_limit_is_a_friendly_answer():
    """A11, L05: `/ai imagine` is there if the app has an image engine, and is charged to the person."""
    async with loopback() as world:
        rule = Rule({"kind": "image"}, "day", tokens=1_200, mode="block", message="No more pictures today.")
        async with world.running(rules=[rule], images=ScriptedImages()):
            made = await ask(world, "ai imagine", prompt="a red fox")
            await world.discord.until(lambda: made.answers and made.answers[0]["attachments"])
            attached = made.answers[0]["attachments"][0]
            assert attached["filename"] == "a-red-fox.png"
            data = world.discord.world.files[attached["url"][len("https://cdn.discordapp.com") :]][0]
            assert data.startswith(b"\x89PNG")
            assert (await world.app.ledger.totals(by="person", value=str(world.ann.id))).calls == 1
            again = await ask(world, "ai imagine", prompt="a red fox")
            await world.discord.until(lambda: again.answers)
            assert again.text == "No more pictures today."


async def test_imagine_obeys_the_rules_of_the_place_and_counts_for_it():
    """A01, L05: who is not answered gets no pictures, and limits of a channel, a server or a role cover them."""
    async with loopback() as world:
        members = world.discord.role(world.guild, "members", world.ann)
        rule = DiscordRule(person=world.bob.id, enabled=False)
        async with world.running(images=ScriptedImages(), rules_of_discord=[rule]):
            refused = await ask(world, "ai imagine", world.bob, prompt="a red fox")
            assert refused.text == "I do not answer in this channel."
            made = await ask(world, "ai imagine", prompt="a red fox")
            await world.discord.until(lambda: made.answers and made.answers[0]["attachments"])
            charged = {"person": world.ann, "role": members, "channel": world.general, "guild": world.guild}
            for by, who in charged.items():
                assert (await world.app.ledger.totals(by=by, value=str(who.id))).calls == 1, by


async def imagine(world: World, prompt: str) -> Json:
    """Let Ann ask for a picture, and return the message that has it."""
    made = await ask(world, "ai imagine", prompt=prompt)
    await world.discord.until(lambda: made.answers and made.answers[0]["attachments"])
    (picture,) = made.answers
    return picture


def heard(prompt: Prompt) -> list[tuple[str, str, int]]:
    """The role, the text and the number of pictures of each message."""
    shown = lambda message: sum(isinstance(part, Media) for part in message.parts)  # noqa: E731
    return [(message.role, message.text, shown(message)) for message in prompt.messages]


@pytest.mark.parametrize("is_open", [False, True])
async def test_a_picture_is_part_of_the_conversation_of_its_channel(is_open: bool):
    """A11: who replies to it continues the conversation, in which it is kept; nothing of it is there twice."""
    async with loopback() as world:
        opened = [world.general.id] if is_open else []
        async with world.running("A fox.", "Red.", images=ScriptedImages(), whitelist=opened, context_messages=0):
            picture = await imagine(world, "a red fox")
            await world.say("what did you draw?", world.bob, reply_to=picture)
            assert (await world.answers(2))[1:] == ["A fox."]
            said = [
                ("user", "Ann: Make a picture: a red fox", 1),
                ("assistant", "I made the picture a-red-fox.png: it is above.", 0),
                ("user", "Bob: what did you draw?", 0),
            ]
            assert heard(world.engine.prompts[-1]) == said
            id = f"discord-{world.bot.id}-c{world.general.id}"
            transcript = await world.app.conversation(id).transcript()
            (kept,) = (part for message in transcript.messages for part in message.parts if isinstance(part, Media))
            assert kept.data == world.discord.data_of(picture["attachments"][0])
            assert (transcript.turn_calls, transcript.rounds) == (0, 1)  # no model was asked for the picture's turn
        async with world.running(images=ScriptedImages(), whitelist=opened, context_messages=0):
            await world.say("and in which colour?", reply_to=picture)
            await world.answers(3)
            expected = [*said, ("assistant", "A fox.", 0), ("user", "Ann: and in which colour?", 0)]
            assert heard(world.engine.prompts[-1]) == expected
            forgotten = await ask(world, "ai forget me")
            await world.discord.until(lambda: "Deleted 0" in forgotten.text)  # Bob spoke there, too
            assert "1 with other people in them were kept" in forgotten.text


async def test_who_made_a_picture_deletes_it_with_forget_me():
    async with loopback() as world, world.running(images=ScriptedImages()):
        await imagine(world, "a red fox")
        await world.idle()
        forgotten = await ask(world, "ai forget me")
        await world.discord.until(lambda: "Deleted 1" in forgotten.text)


async def test_a_model_without_eyes_gets_the_name_of_a_picture():
    blind = Scripted("I cannot see it.", facts=ModelFacts(images=False))
    async with loopback() as world:
        agents = [Agent("helper", engine=blind)]
        async with world.running(agents=agents, images=ScriptedImages(), context_messages=0):
            await world.say("what is it?", reply_to=await imagine(world, "a red fox"))
            await world.answers(2)
            assert heard(blind.prompts[-1])[:2] == [
                ("user", "Ann: Make a picture: a red fox", 0),
                ("assistant", "I made the picture a-red-fox.png.", 0),
            ]


async def test_nobody_lists_the_jobs_of_another_persons_own_conversation():
    started, go = asyncio.Event(), asyncio.Event()

    @tool(background=True)
    async def report() -> str:
        "Make a report."
        started.set()
        await go.wait()
        return "42 rows"

    async with loopback() as world:
        agents = [Agent("helper", engine=world.engine, tools=[report])]
        async with world.running(call("report"), "Started.", "It is ready.", agents=agents, conversation="user"):
            await world.say("@bot report")
            await started.wait()
            await world.discord.said(world.general)
            assert " · " in (await ask(world, "ai jobs")).text  # a row of the table
            assert (await ask(world, "ai jobs", world.bob)).text == "Working on the report command for Ann."
            go.set()
            await world.answers(2)


async def test_a_trace_has_no_known_secret():
    async with loopback() as world, world.running("The key is sk-canary-4711.") as bot:
        bot.hide = Redactor(["sk-canary-4711"]).text
        await world.say("@bot first")
        await world.answers()
        trace = await ask(world, "ai trace")
        await world.discord.until(lambda: trace.answers[0]["attachments"])
        url = trace.answers[0]["attachments"][0]["url"]
        page = world.discord.world.files[url.removeprefix("https://cdn.discordapp.com")][0]
        assert b"The key is ***." in page
        assert b"canary" not in page


async def test_a_picture_of_a_tool_is_attached_to_the_answer():
    """A04: what a conversation shows, Discord shows."""
    steps = (call("generate_image", prompt="a red fox"), "Here it is.")
    async with loopback() as world:
        agents = [Agent("helper", engine=Scripted(*steps), tools=[generate_image])]
        async with world.running(agents=agents, images=ScriptedImages(), whitelist=[world.general.id]):
            await world.say("draw a fox")
            assert sorted(await world.answers(2)) == ["*a-red-fox.png*", "Here it is."]
            (picture,) = (one for one in world.discord.bot_messages(world.general) if one["attachments"])
            assert picture["attachments"][0]["filename"] == "a-red-fox.png"


async def test_a_picture_that_is_too_large_for_discord_is_named():
    """A04"""

    @tool
    async def scan() -> Media:
        "Scan a page."
        return Media("image", "image/png", draw_png().ljust(FILE_BYTES_MAX + 1, b"\0"), name="page.png")

    async with loopback() as world:
        agents = [Agent("helper", engine=Scripted(call("scan"), "Scanned."), tools=[scan])]
        async with world.running(agents=agents):
            await world.say("@bot scan it")
            assert sorted(await world.answers(2)) == ["*page.png is too large for Discord.*", "Scanned."]


def expire_commands(world: World) -> None:
    """Refuse answers to slash commands, as Discord does after 15 minutes."""
    for method in ("POST", "PATCH", "DELETE"):
        world.discord.fail(method, "/webhooks/", 401, 50027, "Invalid Webhook Token", times=20)


@pytest.mark.parametrize("private", [False, True])
async def test_what_comes_after_a_slash_command_has_expired_is_not_lost(private: bool):
    """A04: a person answers a question after half an hour, and the answer comes in the channel or, if it is private, as
    a direct message."""
    async with loopback() as world:
        question = call("ask_user", "q", question="Which colour?", options=["red", "blue"])
        agents = [Agent("painter", engine=world.engine, tools=[ask_user])]
        async with world.running(question, "It is red now.", agents=agents):
            asked = await ask(world, "ai chat", message="paint it", private=private)
            await world.idle()
            expire_commands(world)
            await world.discord.click(world.ann, asked.answers[-1], "red")
            place = world.discord.dm(world.ann) if private else world.general
            await world.discord.until(lambda: shown(world, place).endswith("It is red now."))
            await world.idle()
            assert "Which colour?" in shown(world, place)
            assert "It is red now." not in shown(world, world.general if private else world.discord.dm(world.ann))


def shown(world: World, channel: Channel) -> str:
    messages = (one for one in world.discord.bot_messages(channel) if not one["flags"] & 64)
    return "\n".join(text_of(message) for message in messages)


@pytest.mark.parametrize("private", [False, True])
async def test_an_answer_that_streams_while_its_command_expires_is_finished(private: bool):
    async with loopback() as world:
        pause = Pause("It begins ", "and it ends.")
        async with world.running(pause):
            made = await ask(world, "ai chat", message="go", private=private)
            assert made.text.strip() == "It begins"
            expire_commands(world)
            pause.release()
            place = world.discord.dm(world.ann) if private else world.general
            await world.discord.until(lambda: "It begins and it ends." in shown(world, place))
            await world.idle()
