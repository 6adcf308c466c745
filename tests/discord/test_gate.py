"""Who is answered."""

from __future__ import annotations

import asyncio

import pytest

from rondel import Agent
from rondel.discord import DiscordRule
from rondel.project.settings import DiscordSettings
from rondel.surfaces.discord.gate import Gate, Place, Speaker
from rondel.testing import Scripted

from .harness import loopback


async def test_only_what_is_said_to_the_bot_is_answered():
    """A01: own messages ignored; a direct message and the whitelist are open; else a mention or a reply."""
    async with loopback() as world, world.running("Hello!", "Again!", "Still here.", "In private.") as bot:
        await world.say("just chatting")
        first = await world.say("hi @bot")
        assert await world.answers() == ["Hello!"]
        answer = world.discord.bot_messages(world.general)[0]
        assert answer["message_reference"]["message_id"] == first["id"]
        await world.say("and you?", reply_to=answer)
        assert await world.answers(2) == ["Hello!", "Again!"]
        await world.say("and without a ping?", reply_to=answer, pings=False)
        assert await world.answers(3) == ["Hello!", "Again!", "Still here."]
        await world.say("psst", channel=world.discord.dm(world.ann))
        assert await world.answers(channel=world.discord.dm(world.ann)) == ["In private."]
        assert world.engine.left == 0
        assert bot.deliveries == {}


async def test_the_bot_does_not_answer_itself_although_it_answers_bots():
    """A01: own messages ignored, in a channel in which every message is for the bot."""
    async with (
        loopback() as world,
        world.running("a", "b", "never", answer_bots=True, whitelist=[world.general.id]),
    ):
        await world.say("hi")
        assert await world.answers() == ["a"]
        await world.say("and now?")
        assert await world.answers(2) == ["a", "b"]
        assert [prompt.messages[-1].text for prompt in world.engine.prompts] == ["Ann: hi", "Ann: and now?"]


async def test_restrict_wins_over_the_whitelist_and_both_can_be_changed_at_run_time():
    """A01: restrict wins over whitelist; lists editable at run time, returned as copies."""
    async with loopback() as world:
        other = world.discord.channel(world.guild, "other")
        async with world.running("one", "two", "three", whitelist=[world.general.id]) as bot:
            await world.say("no mention needed")
            assert await world.answers() == ["one"]
            bot.gate.add_restrict(other.id)
            await world.say("@bot not here any more")  # whitelisted, and outside of the restriction
            await world.say("@bot here", channel=other)
            assert await world.answers(channel=other) == ["two"]
            for copy in (bot.gate.whitelist, bot.gate.restrict):
                copy.append(1)
            bot.gate.restrict_guilds.clear()
            assert (bot.gate.whitelist, bot.gate.restrict) == ([world.general.id], [other.id])
            bot.gate.remove_restrict(str(other.id))
            bot.gate.remove_whitelist(world.general.id)
            await world.say("without a mention")
            await world.say("@bot with one")
            assert await world.answers(2) == ["one", "three"]


async def test_a_restriction_to_channels_does_not_close_direct_messages():
    """A01: `restrict` is about the channels of servers."""
    async with loopback() as world:
        other = world.discord.channel(world.guild, "other")
        async with world.running("In private.", restrict=[other.id]):
            await world.say("@bot not here")
            await world.say("psst", channel=world.discord.dm(world.ann))
            assert await world.answers(channel=world.discord.dm(world.ann)) == ["In private."]


async def test_an_admin_restricts_the_own_server_only_and_cannot_lift_the_owner_s_restriction():
    """A01: lists changed by an admin command, kept over a restart."""
    async with loopback() as world:
        elsewhere = world.discord.channel(world.discord.guild("Elsewhere", world.bob), "general")
        quiet = world.discord.channel(world.guild, "quiet")
        async with world.running("Here.", keep_lists=True):
            restricted = await world.discord.command(world.ann, quiet, "ai channels", action="restrict")
            assert f"I answer only in: <#{quiet.id}>." in (await world.discord.answered(restricted)).text
            await world.say("@bot hi")
            await world.say("@bot hi", world.bob, elsewhere)
            assert await world.answers(channel=elsewhere) == ["Here."]
        async with world.running("Still here.", keep_lists=True):
            await world.say("@bot hi")
            await world.say("@bot hi", world.bob, elsewhere)
            assert await world.answers(2, channel=elsewhere) == ["Here.", "Still here."]
            assert world.discord.bot_messages(world.general) == []
        async with world.running(restrict=[quiet.id]) as bot:
            for action in ("unrestrict", "restrict", "unrestrict"):
                changed = await world.discord.command(world.ann, quiet, "ai channels", action=action)
                await world.discord.answered(changed)
                assert bot.gate.restrict_guilds == {quiet.id: 0}


async def test_what_holds_for_a_channel_holds_for_its_threads_and_posts():
    """A01: whitelist, restriction and rules name a channel or a forum."""
    async with loopback() as world:
        forum = world.discord.channel(world.guild, "questions", forum=True)
        rule = DiscordRule(channel=forum.id, agent="expert")
        agents = [Agent("helper", engine=world.engine), Agent("expert", engine=Scripted("An expert's."))]
        lists = {"whitelist": [forum.id, world.general.id], "restrict": [forum.id]}
        async with world.running(agents=agents, rules_of_discord=(rule,), **lists):
            outside = await world.discord.start_thread(world.general, "a thread", world.ann)
            await world.say("@bot not here", channel=outside)
            post, _ = await world.discord.forum_post(world.ann, forum, "How?", "Nobody is mentioned.")
            assert await world.answers(channel=post) == ["An expert's."]
            assert world.discord.bot_messages(outside) == []


async def test_bots_are_ignored_unless_wanted_and_then_so_many_times_in_a_row():
    """A01: bots ignored; answering them has a cap that a person resets."""
    async with loopback() as world:
        robot = world.discord.person("robot", bot=True)
        await world.discord.join(world.guild, robot)
        async with world.running(*"abcd", answer_bots=True, bot_turns_max=2, whitelist=[world.general.id]):
            for number in range(4):
                await world.say(f"beep {number}", robot)
            assert await world.answers(2) == ["a", "b"]
            await world.say("a person speaks")
            assert await world.answers(3) == ["a", "b", "c"]
            await world.say("beep again", robot)
            assert await world.answers(4) == ["a", "b", "c", "d"]
        async with world.running("yes", whitelist=[world.general.id]):
            await world.say("hello from a bot", robot)
            await world.say("hello from a person")
            assert (await world.answers(5))[-1] == "yes"
            assert world.engine.left == 0


async def test_an_agent_a_model_and_a_switch_for_each_server_channel_role_and_person():
    """A01: per guild, channel, role and user: agent, model, on or off; the last rule that matches wins."""
    async with loopback() as world:
        vip = world.discord.role(world.guild, "VIP", world.bob)
        quiet, lab = (world.discord.channel(world.guild, name) for name in ("quiet", "lab"))
        elsewhere = world.discord.channel(world.discord.guild("Elsewhere", world.ann), "general")
        poet, other = Scripted("A poem."), Scripted("From the lab.", name="scripted:lab")
        agents = [
            Agent("helper", engine=world.engine),
            Agent("poet", engine=poet),
            Agent("guest", engine=Scripted("A guest's.")),
        ]
        rules = (
            DiscordRule(agent="guest"),
            DiscordRule(guild=world.guild.id, agent="helper"),
            DiscordRule(channel=str(quiet.id), enabled=False),
            DiscordRule(channel=lab.id, model="scripted:lab"),
            DiscordRule(role=vip.id, agent="poet"),
            DiscordRule(channel=quiet.id, person=world.bob.id, enabled=True),
        )
        given = {"agents": agents, "rules_of_discord": rules, "make_engine": lambda name: other}
        async with world.running("Help.", **given):
            await world.say("@bot hi", channel=quiet)  # switched off there
            await world.say("@bot hi")
            assert await world.answers() == ["Help."]
            await world.say("@bot hi", channel=elsewhere)
            assert await world.answers(channel=elsewhere) == ["A guest's."]
            await world.say("@bot hi", channel=lab)
            assert await world.answers(channel=lab) == ["From the lab."]
            await world.say("@bot hi", world.bob, quiet)
            assert await world.answers(channel=quiet) == ["A poem."]
            assert world.discord.bot_messages(quiet)[0]["content"] == "A poem."


@pytest.mark.parametrize("setting", ["auto", "channel", "user", "thread", "reply"])
async def test_a_rule_says_what_a_conversation_is_in_each_channel(setting: str):
    """A01, A02: whatever the setting, and `reply` also where every message is answered."""
    kinds = ("reply", "channel", "user", "thread")
    async with loopback() as world:
        rooms = {kind: world.discord.channel(world.guild, f"room-{kind}") for kind in kinds}
        rules = tuple(DiscordRule(channel=room.id, conversation=kind) for kind, room in rooms.items())  # type: ignore[arg-type]
        given = {"whitelist": [room.id for room in rooms.values()], "conversation": setting}
        known = [lambda prompt: f"knows {len(prompt.messages)}"] * 16
        async with world.running(*known, rules_of_discord=rules, **given):
            for kind in ("reply", "channel", "user"):
                room = rooms[kind]
                for number, person in enumerate((world.ann, world.bob, world.ann), 1):
                    await world.say("hello", person, room)
                    await world.answers(number, room)
                await world.say("go on", world.bob, room, reply_to=world.discord.bot_messages(room)[0])
            assert await world.answers(4, rooms["reply"]) == ["knows 1", "knows 1", "knows 1", "knows 3"]
            assert await world.answers(4, rooms["channel"]) == ["knows 1", "knows 3", "knows 5", "knows 7"]
            assert await world.answers(4, rooms["user"]) == ["knows 1", "knows 1", "knows 3", "knows 3"]
            asked = await world.say("hello", channel=rooms["thread"])
            thread = await world.discord.until(lambda: world.discord.world.channels.get(int(asked["id"])))
            assert await world.answers(channel=thread) == ["knows 1"]
            await world.say("go on", world.bob, thread)
            assert await world.answers(2, thread) == ["knows 1", "knows 3"]


async def test_lists_survive_a_restart_if_wished():
    """A01"""
    async with loopback() as world:
        async with world.running(keep_lists=True) as bot:
            await bot.change_lists(lambda gate: gate.add_whitelist(world.general.id))
        async with world.running("open", keep_lists=True):
            await world.say("no mention")
            assert await world.answers() == ["open"]
        async with world.running() as bot:
            assert bot.gate.whitelist == []


def test_a_rule_holds_only_where_all_that_it_names_is_so() -> None:
    here, speaker = Place(guild=1, channel=5), Speaker(7, (9,))
    for fits, other in (({"guild": 1}, {"guild": 2}), ({"channel": 5}, {"channel": 6}), ({"role": 9}, {"role": 8})):
        for rule, agent in ((fits, "clerk"), (other, ""), (fits | {"person": 7}, "clerk"), (fits | {"person": 3}, "")):
            gate = Gate(DiscordSettings(rules=(DiscordRule(agent="clerk", **rule),)))
            assert gate.choose(here, speaker).agent == agent, rule


def test_a_rule_that_chooses_an_agent_or_a_model_ends_the_mode_of_the_rules_before_it() -> None:
    rules = (
        DiscordRule(mode="pirate"),
        DiscordRule(channel=5, agent="clerk"),
        DiscordRule(channel=6, model="echo"),
        DiscordRule(channel=7, agent="clerk", mode="brief"),
    )
    gate = Gate(DiscordSettings(rules=rules))
    modes = {channel: gate.choose(Place(1, channel), Speaker(9)).mode for channel in (4, 5, 6, 7)}
    assert modes == {4: "pirate", 5: "", 6: "", 7: "brief"}


async def test_a_missing_permission_is_said_once_and_no_model_is_asked():
    async with loopback() as world, world.running("never", "elsewhere") as bot:
        await world.discord.deny(world.general, "send_messages")
        while bot.client.get_channel(world.general.id).permissions_for(bot.client.guilds[0].me).send_messages:
            await asyncio.sleep(0)
        for _ in range(3):
            await world.say("@bot hello?", world.bob)
        told = await world.answers(channel=world.discord.dm(world.bob))
        assert told == ["I cannot answer in #general: I lack a permission there. Please ask an admin."]
        assert world.engine.prompts == []
        assert world.discord.bot_messages(world.general) == []
        assert world.discord.typed == []
