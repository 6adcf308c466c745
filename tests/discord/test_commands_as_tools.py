"""The bot's slash commands, called by the model in the name of the person who speaks."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from typing import Any, Literal

import discord
import pytest
from discord import app_commands

from rondel import Agent
from rondel.discord import RondelClient
from rondel.surfaces.discord.captured import describe
from rondel.testing import VirtualClock, call
from rondel.testing.discord import permission_bits, text_of
from rondel.tools.schedule import schedule
from rondel.values import ToolResult

from .harness import World, loopback


def client(world: World, *add: Callable[[app_commands.CommandTree[Any]], object]) -> RondelClient:
    made = RondelClient(connector=world.discord.connector(), guild_ready_timeout=0.01, shard_count=1)
    for one in add:
        one(made.tree)
    return made


def results(world: World) -> list[ToolResult]:
    messages = world.engine.prompts[-1].messages
    return [part for message in messages for part in message.parts if isinstance(part, ToolResult)]


def weather(tree: app_commands.CommandTree[Any]) -> None:
    @tree.command(description="The weather in a city")
    @app_commands.describe(city="where", days="how many days")
    async def weather(i: discord.Interaction, city: str, days: app_commands.Range[int, 1, 5] = 1) -> None:
        await i.response.send_message(f"{city}: sunny for {days} day(s), says {i.user.display_name} in {i.guild}")


def moderation(tree: app_commands.CommandTree[Any]) -> None:
    @tree.command(description="Only for those with a role")
    @app_commands.checks.has_role("mods")
    async def moderate(i: discord.Interaction) -> None:
        await i.response.send_message("moderated")


def tools(tree: app_commands.CommandTree[Any]) -> None:
    @tree.command(description="Ban somebody")
    @app_commands.default_permissions(ban_members=True)
    async def ban(i: discord.Interaction, who: discord.Member) -> None:
        await i.response.send_message(f"banned {who.display_name} ({len(who.roles)} roles)")

    @tree.command(description="Only for admins, by a check")
    @app_commands.checks.has_permissions(manage_guild=True)
    async def secret(i: discord.Interaction) -> None:
        await i.response.send_message("the secret", ephemeral=True)

    @tree.command(description="Not in direct messages")
    @app_commands.guild_only()
    async def here(i: discord.Interaction, channel: discord.TextChannel, role: discord.Role) -> None:
        await i.response.send_message(f"{channel.name} {role.name} {type(channel).__name__}")

    @tree.command(description="Never answers")
    async def hang(i: discord.Interaction) -> None:
        await asyncio.Event().wait()

    @tree.command(description="Ends without an answer")
    async def silent(i: discord.Interaction) -> None:
        pass

    @tree.command(description="Raises")
    async def broken(i: discord.Interaction) -> None:
        raise ValueError("it broke")

    @tree.command(description="Works for a while")
    async def slow(i: discord.Interaction, colour: Literal["red", "blue"]) -> None:
        await i.response.defer(thinking=True)
        await i.edit_original_response(content=f"{colour} soon")
        await i.edit_original_response(content=f"{colour} now")
        await i.followup.send("and more")

    @tree.command(description="Opens a form")
    async def form(i: discord.Interaction) -> None:
        await i.response.send_modal(discord.ui.Modal(title="Fill in"))

    @tree.command(description="Rich")
    async def rich(i: discord.Interaction) -> None:
        view = discord.ui.View(timeout=None)
        view.add_item(discord.ui.Button(label="Again", custom_id="again"))
        embed = discord.Embed(title="Scores", description="Of today").add_field(name="Ann", value="3")
        file = discord.File(io.BytesIO(b"a,b"), "scores.csv")
        await i.response.send_message("Here:", embed=embed, view=view, file=file)

    @tree.command(description="Not for everybody", nsfw=True)
    async def adult(i: discord.Interaction) -> None:
        await i.response.send_message("only for adults")

    @tree.command(description="In direct messages")
    @app_commands.allowed_contexts(guilds=False, dms=True)
    async def between_us(i: discord.Interaction) -> None:
        await i.response.send_message("only for you")

    admin = app_commands.Group(
        name="admin", description="For admins", default_permissions=discord.Permissions(manage_guild=True)
    )

    @admin.command(description="Restart")
    async def restart(i: discord.Interaction) -> None:
        await i.response.send_message("restarted")

    tree.add_command(admin)
    group = app_commands.Group(name="list", description="Lists")

    @group.command(description="Add a thing")
    async def add(i: discord.Interaction, thing: str, urgent: bool = False) -> None:
        await i.response.send_message(f"added {thing} {urgent}")

    tree.add_command(group)


def typed(tree: app_commands.CommandTree[Any]) -> None:
    @tree.command(description="Pour some litres for somebody")
    async def pour(i: discord.Interaction, litres: float, whom: discord.Member | discord.Role) -> None:
        roles = "" if isinstance(whom, discord.Role) else f" ({len(whom.roles)} roles)"
        await i.response.send_message(f"{litres!r} for {type(whom).__name__} {whom.name}{roles}")

    @tree.command(description="In a channel for text")
    async def write(i: discord.Interaction, where: discord.TextChannel) -> None:
        await i.response.send_message(f"in {where.name}")

    @tree.command(description="Shows a card")
    async def show(i: discord.Interaction) -> None:
        section = discord.ui.Section("Ann: 3", accessory=discord.ui.Button(label="More", custom_id="more"))
        frame = discord.ui.Container(discord.ui.TextDisplay("# Scores"), section)
        view = discord.ui.LayoutView(timeout=None)
        view.add_item(frame)
        await i.response.send_message(view=view)

    @tree.command(description="Answers, and then never ends")
    async def linger(i: discord.Interaction) -> None:
        await i.response.send_message("the beginning")
        await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("pour", {"litres": 2.5, "whom": "bob"}, "2.5 for Member bob (1 roles)"),
        ("pour", {"litres": "0.25", "whom": "Mods"}, "0.25 for Role mods"),
        ("pour", {"litres": 2, "whom": "<@&{role}>"}, "2.0 for Role mods"),
        ("write", {"where": "#general"}, "in general"),
        ("show", {}, '# Scores\nAnn: 3\n\nInteractive Components:\nRow 1: Button label="More"'),
        ("linger", {}, "the beginning"),
    ],
)
async def test_options_of_every_type_and_answers_of_every_kind(name: str, arguments: dict[str, Any], expected: str):
    """B07, B08: numbers, people or roles, cards; a command that goes on after its answer has answered."""
    async with loopback() as world:
        role = world.discord.role(world.guild, "mods", world.ann)
        given = {
            key: value.format(role=role.id) if isinstance(value, str) else value for key, value in arguments.items()
        }
        steps, made = [call(name, **given), "Done."], client(world, typed)
        async with world.running(*steps, client=made, commands=["*"], command_s=0.2):
            await world.say("@bot do it")
            await world.answers(2)
            (result,) = results(world)
            assert (result.text, result.is_error) == (expected, False)
            assert text_of(world.discord.bot_messages(world.general)[0]) == expected.partition("\n\n")[0]


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("write", {"where": "ideas"}, "option 'where' cannot be the channel 'ideas'"),
        ("pour", {"litres": "much", "whom": "mods"}, "option 'litres' is 'much'; it must be a number"),
        ("pour", {"litres": 1, "whom": "nobody"}, "option 'whom': there is no mentionable 'nobody' here"),
    ],
)
async def test_an_option_of_another_type_is_an_error_that_the_model_reads(
    name: str, arguments: dict[str, Any], expected: str
):
    """B07: a command for text channels gets no forum."""
    async with loopback() as world:
        world.discord.channel(world.guild, "ideas", forum=True)
        async with world.running(call(name, **arguments), "No.", client=client(world, typed), commands=["*"]):
            await world.say("@bot do it")
            assert await world.answers() == ["No."]
            (result,) = results(world)
            assert (expected in result.text, result.is_error) == (True, True)


async def test_no_command_is_offered_unless_it_is_allowed():
    """B06: allow list of commands; default none."""
    async with loopback() as world:
        async with world.running("a", client=client(world, weather, tools)):
            await world.say("@bot hi")
            await world.answers()
            assert world.engine.prompts[-1].tools == ()
        async with world.running("b", client=client(world, weather, tools), commands=["weather", "/list/add"]):
            await world.say("@bot hi")
            await world.answers(2)
            assert [spec.name for spec in world.engine.prompts[-1].tools] == ["weather", "list_add"]
            schema = world.engine.prompts[-1].tools[0].schema
            assert schema["properties"]["days"] == {
                "type": "integer",
                "description": "how many days",
                "minimum": 1,
                "maximum": 5,
            }
            assert schema["required"] == ["city"]
        async with world.running("c", client=client(world, weather, tools), commands=["*"]):
            await world.say("@bot hi")
            await world.answers(3)
            assert {"weather", "ban", "list_add"} <= {spec.name for spec in world.engine.prompts[-1].tools}
            assert not any(spec.name.startswith("ai") for spec in world.engine.prompts[-1].tools)


async def test_no_command_is_offered_that_would_ask_the_model_again_or_needs_a_file():
    """B06: although the list names them."""
    async with loopback() as world:

        def upload(tree: app_commands.CommandTree[Any]) -> None:
            @tree.command(description="Takes a file")
            async def upload(i: discord.Interaction, file: discord.Attachment) -> None:
                await i.response.send_message(file.filename)

        allowed = ["ai chat", "ai jobs", "upload", "weather"]
        async with world.running("a", client=client(world, weather, upload), commands=allowed):
            await world.say("@bot hi")
            await world.answers()
            assert sorted(spec.name for spec in world.engine.prompts[-1].tools) == ["ai_jobs", "weather"]


async def test_a_command_runs_with_the_rights_of_the_person_and_its_answer_is_shown():
    """B06: permission bits; B07: typed options and member search through a genuine interaction."""
    async with loopback() as world:
        mods = world.discord.role(world.guild, "mods", permissions=permission_bits("ban_members"))
        eve = world.discord.person("eve_x", "Eve")
        await world.discord.join(world.guild, eve)
        steps = [
            call("ban", who="eve"),
            "I may not.",
            call("ban", who=f"<@{eve.id}>"),
            "Gone.",
            call("ban", who="<@123456789012345678>"),
            "Nobody.",
            call("weather", city="Porto", days=2),
            "Sun.",
        ]
        async with world.running(*steps, client=client(world, weather, tools), commands=["*"]):
            await world.say("@bot ban eve", world.bob)
            assert await world.answers() == ["I may not."]
            assert "Bob does not have permission to use /ban" in results(world)[0].text
            await world.say("@bot ban Eve")  # Ann owns the server
            assert await world.answers(3) == ["I may not.", "banned Eve (1 roles)", "Gone."]
            await world.say("@bot ban somebody")
            assert (await world.answers(4))[-1] == "Nobody."
            assert "there is no user '<@123456789012345678>' here" in results(world)[0].text
            await world.say("@bot weather?", world.bob)
            shown = await world.answers(6)
            assert shown[4] == "Porto: sunny for 2 day(s), says Bob in Community"
            assert mods.name == "mods"


@pytest.mark.parametrize("named", ["Eve", "@eve_x", "id"])
async def test_in_a_large_server_people_are_asked_for(named: str):
    """B07: Discord sends its members only then."""
    async with loopback() as world:
        eve, ann = world.discord.person("eve_x", "Eve"), world.ann
        evelyn = world.discord.person("evelyn")
        guild = world.discord.guild("Large", ann, evelyn, eve, large=True)
        channel = world.discord.channel(guild, "here")
        steps = [call("ban", who=str(eve.id) if named == "id" else named), "Gone.", call("ban", who="nobody"), "Who?"]
        async with world.running(*steps, client=client(world, tools), commands=["ban"]) as bot:
            assert [member.id for member in bot.client.get_guild(guild.id).members] == [world.discord.world.bot.id]
            await world.say("@bot ban her", channel=channel)
            assert await world.answers(2, channel) == ["banned Eve (1 roles)", "Gone."]
            await world.say("@bot and now?", channel=channel)
            assert await world.answers(3, channel) == ["banned Eve (1 roles)", "Gone.", "Who?"]
            assert "there is no user 'nobody' here" in results(world)[-1].text


async def test_a_scheduled_command_has_the_rights_of_the_person_who_scheduled_it():
    """Whoever spoke last in the channel has nothing to do with it."""
    clock = VirtualClock()
    async with loopback() as world:
        eve = world.discord.person("eve_x", "Eve")
        await world.discord.join(world.guild, eve)
        steps = [
            call("schedule", say="Ban Eve.", at="in 20m"),
            "Later.",
            "Hello, Ann.",
            call("ban", who="Eve"),
            "I could not.",
        ]
        agents = [Agent("helper", engine=world.engine, tools=[schedule])]
        made, general = client(world, tools), [world.general.id]
        async with world.running(*steps, agents=agents, clock=clock, client=made, commands=["*"], whitelist=general):
            await world.say("ban Eve in 20 minutes", world.bob)
            assert await world.answers() == ["Later."]
            await world.say("good morning")  # Ann owns the server
            assert await world.answers(2) == ["Later.", "Hello, Ann."]
            clock.advance(21 * 60)
            while len(world.engine.prompts) < len(steps):
                await asyncio.sleep(0.001)
            assert "Bob does not have permission to use /ban" in results(world)[-1].text
            assert not any("banned" in text for text in await world.answers(2))


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("hang", {}, "/hang did not answer within 0.2 s"),
        ("silent", {}, "/silent ended without an answer"),
        ("broken", {}, "/broken failed: it broke"),
        ("form", {}, "/form opens a form, which only a person can fill in"),
        ("secret", {}, "/secret failed: You are missing Manage Server permission(s) to run this command."),
        ("moderate", {}, "/moderate failed: Role 'mods' is required to run this command."),
        ("slow", {"colour": "green"}, "Option \"colour\" must be one of: red, blue; received 'green'"),
        ("weather", {"city": "Porto", "days": 9}, "option 'days' must be 1 to 5"),
        ("weather", {"city": "Porto", "days": "soon"}, "option 'days' is 'soon'; it must be a whole number"),
        ("weather", {}, "'city' is missing"),
        ("list_add", {"thing": "milk", "urgent": "perhaps"}, "option 'urgent' must be true or false, not 'perhaps'"),
        ("weather", {"town": "Porto"}, "option 'town' is not known"),
        ("here", {"channel": "nowhere", "role": "mods"}, "there is no channel 'nowhere' here"),
        ("adult", {}, "/adult works in age-restricted channels only"),
        ("between_us", {}, "/between_us works in direct messages only"),
        ("admin_restart", {}, "Bob does not have permission to use /admin restart"),
    ],
)
async def test_a_call_that_cannot_work_is_an_error_that_the_model_reads(
    name: str, arguments: dict[str, Any], expected: str
):
    """B06, B07: rights and kinds of channels; choices are enforced; a command that never replies ends with a time-out
    error."""
    async with loopback() as world:
        made = client(world, weather, tools, moderation)
        steps = [call(name, **arguments), "I could not."]
        async with world.running(*steps, client=made, commands=["*"], command_s=0.2):
            await world.say("@bot do it", world.bob)
            assert await world.answers() == ["I could not."]
            assert expected in results(world)[0].text
            assert results(world)[0].is_error


async def test_deferred_edited_and_followed_up_answers_and_groups_work():
    """B07"""
    async with loopback() as world:
        role = world.discord.role(world.guild, "mods", world.ann)
        steps = [
            call("slow", colour="red"),
            "Done.",
            call("list_add", thing="milk", urgent="yes"),
            "Listed.",
            call("here", channel=f"<#{world.general.id}>", role="MODS"),
            "Here.",
            call("moderate"),
            "Done.",
        ]
        async with world.running(*steps, client=client(world, tools, moderation), commands=["*"]):
            await world.say("@bot slow one")
            assert await world.answers(3) == ["red now", "and more", "Done."]
            assert results(world)[0].text == "red now\n\nand more"
            await world.say("@bot add milk")
            assert (await world.answers(5))[3:] == ["added milk True", "Listed."]
            await world.say("@bot here")
            assert (await world.answers(7))[5:] == ["general mods TextChannel", "Here."]
            await world.say("@bot moderate")
            assert (await world.answers(9))[7:] == ["moderated", "Done."]
            assert role.id


async def test_embeds_components_and_files_are_described_for_the_model_and_shown_to_people():
    """B08: embeds, components, files described in text."""
    async with (
        loopback() as world,
        world.running(call("rich"), "See above.", client=client(world, tools), commands=["rich"]),
    ):
        await world.say("@bot scores")
        await world.answers(2)
        shown = world.discord.bot_messages(world.general)[0]
        assert shown["embeds"][0]["title"] == "Scores"
        assert shown["attachments"][0]["filename"] == "scores.csv"
        assert shown["components"][0]["components"][0]["label"] == "Again"
        assert results(world)[0].text == (
            'Here:\n\nEmbed Content:\nEmbed 1 · title "Scores"\nDescription: Of today\nField — Ann: 3\n\n'
            'Interactive Components:\nRow 1: Button label="Again"\n\n'
            "Files (shown to the person, do not repeat them): scores.csv"
        )
    assert describe({"content": "plain"}) == "plain"


async def test_a_private_answer_goes_to_the_person_only():
    """B05, B06: what a command says privately is neither shown to others nor repeated by the model."""
    async with (
        loopback() as world,
        world.running(call("secret"), "Told.", client=client(world, tools), commands=["secret"]),
    ):
        await world.say("@bot the secret?")
        assert await world.answers() == ["Told."]
        assert await world.answers(channel=world.discord.dm(world.ann)) == ["the secret"]
        assert "the secret" not in results(world)[0].text
        assert "privately" in results(world)[0].text


async def test_a_command_for_servers_does_not_run_in_direct_messages():
    """B06: DM flag."""
    async with loopback() as world:
        steps = [call("here", channel="x", role="y"), "No."]
        async with world.running(*steps, client=client(world, tools), commands=["*"]):
            await world.say("here?", channel=world.discord.dm(world.ann))
            assert await world.answers(channel=world.discord.dm(world.ann)) == ["No."]
            assert "I can't use /here in direct messages" in results(world)[0].text
