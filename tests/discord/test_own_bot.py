"""A bot of discord.py with cogs, as people have had it for years, to which Rondel is attached."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import discord
import pytest
from discord import app_commands
from discord.ext import commands

from rondel import Agent, RondelError, user
from rondel.discord import ChatReply, Extras, ReplyContext, attach
from rondel.testing import call
from rondel.values import Message, ToolResult

from .harness import World, loopback


class Celsius(app_commands.Transformer):
    async def transform(self, interaction: discord.Interaction[Any], value: Any, /) -> float:
        if not value.endswith(("C", "F")):
            raise app_commands.TransformerError(value, self.type, self)
        degrees = float(value[:-1])
        return degrees if value.endswith("C") else (degrees - 32) / 1.8


class Sure(discord.ui.View):
    @discord.ui.button(label="Sure")
    async def sure(self, interaction: discord.Interaction[Any], button: discord.ui.Button[Any]) -> None:
        await interaction.response.defer()
        self.stop()


class Tools(commands.Cog):
    @app_commands.command(description="Choose a size")
    @app_commands.choices(size=[app_commands.Choice(name="Large", value=3), app_commands.Choice(name="Small", value=1)])
    async def size(self, i: discord.Interaction[Any], size: app_commands.Choice[int]) -> None:
        await i.response.send_message(f"{size.name} is {size.value}")

    @app_commands.command(description="A temperature in Celsius")
    async def degrees(self, i: discord.Interaction[Any], text: app_commands.Transform[float, Celsius]) -> None:
        await i.response.send_message(f"{text:.1f} degrees")

    @commands.hybrid_command(description="Repeat a text")
    async def echo(self, ctx: commands.Context[Any], *, text: str) -> None:
        await ctx.send(f"{ctx.author.display_name} said {text}")

    @commands.hybrid_group(description="Tags", fallback="get")
    async def tag(self, ctx: commands.Context[Any], text: str) -> None:
        await ctx.send(f"the tag {text}")

    @tag.command(description="Create a tag")
    async def create(self, ctx: commands.Context[Any], text: str, count: commands.Range[int, 1, 3] = 1) -> None:
        await ctx.defer()
        await ctx.reply(f"created {text} {count}")

    @app_commands.command(description="Says something in private, and changes it")
    async def whisper(self, i: discord.Interaction[Any]) -> None:
        await i.response.send_message("one", ephemeral=True)
        first = await i.original_response()
        await first.edit(content=f"{first.content}, changed")
        second = await i.followup.send("two", ephemeral=True, wait=True)
        await i.followup.send("three", ephemeral=True)
        await second.delete()

    @app_commands.command(description="Says nothing at first")
    async def later(self, i: discord.Interaction[Any]) -> None:
        await i.response.defer()
        await i.delete_original_response()
        await i.followup.send("at last")

    @app_commands.command(description="Works without a word")
    async def quiet(self, i: discord.Interaction[Any]) -> None:
        await i.response.defer(ephemeral=True)
        await i.delete_original_response()

    @app_commands.command(description="Mentions people")
    async def loud(self, i: discord.Interaction[Any]) -> None:
        everybody = discord.AllowedMentions.all()
        await i.response.send_message(f"{i.user.mention} @everyone", allowed_mentions=everybody)
        await i.edit_original_response(content=f"{i.user.mention} @here", allowed_mentions=everybody)
        await i.followup.send(f"again {i.user.mention}", allowed_mentions=everybody)

    @app_commands.command(description="Breaks in the middle")
    async def half(self, i: discord.Interaction[Any]) -> None:
        await i.response.send_message("Starting.")
        raise ValueError("it broke")

    @app_commands.command(description="Asks")
    async def confirm(self, i: discord.Interaction[Any]) -> None:
        view = Sure(timeout=60)
        await i.response.send_message("Sure?", view=view)
        timed_out = await view.wait()
        await i.edit_original_response(content="Too late." if timed_out else "Confirmed.", view=None)

    @app_commands.command(description="Sends a file")
    async def chart(self, i: discord.Interaction[Any], extra: discord.Attachment | None = None) -> None:
        await i.response.defer()
        file = discord.File(io.BytesIO(b"1,2"), "chart.csv")
        await i.edit_original_response(content="Here.", attachments=[file], embed=discord.Embed(title="Today"))


class OwnBot(commands.Bot):
    async def setup_hook(self) -> None:
        await self.add_cog(Tools())


def own_bot(world: World) -> OwnBot:
    intents = discord.Intents.all()
    return OwnBot("!", intents=intents, connector=world.discord.connector(), guild_ready_timeout=0.01)


@asynccontextmanager
async def called(name: str, **arguments: Any) -> AsyncIterator[World]:
    """The model calls a command in the name of Bob and then says 'Done.'."""
    async with loopback() as world:
        steps = [call(name, **arguments), "Done."]
        async with world.running(*steps, client=own_bot(world), commands=["*"], command_s=10):
            await world.say("@bot please", world.bob)
            yield world


async def done(world: World) -> list[str]:
    """Wait for the end, and return what the channel shows before it."""
    await world.discord.until(lambda: "Done." in shown(world))
    await world.idle()
    return shown(world)[:-1]


def shown(world: World) -> list[str]:
    return [message["content"] for message in world.discord.bot_messages(world.general)]


def result(world: World) -> ToolResult:
    parts = [part for message in world.engine.prompts[-1].messages for part in message.parts]
    (found,) = (part for part in parts if isinstance(part, ToolResult))
    return found


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("size", {"size": 3}, "Large is 3"),
        ("size", {"size": "large"}, "Large is 3"),
        ("degrees", {"text": "212F"}, "100.0 degrees"),
        ("echo", {"text": "hi there"}, "Bob said hi there"),
        ("tag_get", {"text": "rules"}, "the tag rules"),
        ("tag_create", {"text": "rules", "count": 2}, "created rules 2"),
        ("later", {}, "at last"),
        ("chart", {}, "Here."),
    ],
)
async def test_commands_of_cogs_run_as_their_authors_wrote_them(name: str, arguments: dict[str, Any], expected: str):
    """B07: choices, transformers, hybrid commands and groups, deferred and deleted answers, files."""
    async with called(name, **arguments) as world:
        assert await done(world) == [expected]
        assert result(world).text.startswith(expected)
        assert not result(world).is_error


async def test_a_value_that_a_transformer_refuses_is_an_error_that_the_model_reads():
    """B07"""
    async with called("degrees", text="warm") as world:
        assert await done(world) == []
        assert result(world).text == "/degrees failed: Failed to convert warm to Celsius"


async def test_private_answers_can_be_read_changed_and_deleted_by_their_command():
    """B05, B07: they are in the person's direct messages, and so is what the command does with them."""
    async with called("whisper") as world:
        assert await done(world) == []
        private = world.discord.bot_messages(world.discord.dm(world.bob))
        assert [message["content"] for message in private] == ["one, changed", "three"]
        assert "one" not in result(world).text


async def test_a_command_that_removes_its_answer_has_worked():
    """B07"""
    async with called("quiet") as world:
        assert await done(world) == []
        assert result(world).text == "(The command has removed its answer.)"
        assert not result(world).is_error


async def test_a_command_that_a_model_calls_notifies_nobody():
    """A04, B07: whatever its author allows; a stranger can talk a model into any command. `loopback` checks it."""
    async with called("loud") as world:
        assert await done(world) == [f"<@{world.bob.id}> @here", f"again <@{world.bob.id}>"]
        sent = world.discord.sent("POST", "/messages") + world.discord.sent("PATCH", "/messages/")
        assert [request.body["allowed_mentions"]["parse"] for request in sent] == [[]] * len(sent)


async def test_the_model_learns_that_a_command_failed_after_its_first_answer():
    """B08"""
    async with called("half") as world:
        assert await done(world) == ["Starting."]
        assert result(world).text == "Starting.\n\n(The command failed.)"


async def test_a_command_can_wait_for_a_click():
    """B07: its buttons work while it runs."""
    async with called("confirm") as world:
        await world.discord.said(world.general)
        await world.discord.until(lambda: world.bot.client._connection._view_store._views)  # pyright: ignore[reportPrivateUsage]
        await world.discord.click(world.bob, world.discord.bot_messages(world.general)[0], "Sure")
        assert await done(world) == ["Confirmed."]
        assert result(world).text == "Confirmed."


async def test_the_commands_of_a_server_are_offered_and_run_there_only():
    """B06: `copy_global_to` gives a server its own copy, which must not hide the command from the others."""
    async with loopback() as world:
        elsewhere = world.discord.channel(world.discord.guild("Elsewhere", world.bob), "general")

        class PerServer(OwnBot):
            async def setup_hook(self) -> None:
                await super().setup_hook()
                own = app_commands.Command(name="own", description="Of one server", callback=say_own)
                self.tree.add_command(own, guild=world.guild)
                self.tree.copy_global_to(guild=world.guild)

        async def say_own(i: discord.Interaction[Any]) -> None:
            await i.response.send_message("of this server")

        steps = [call("own"), call("size", size=1), "Done.", call("own"), call("size", size=3), "Done."]
        client = PerServer(
            "!", intents=discord.Intents.all(), connector=world.discord.connector(), guild_ready_timeout=0.01
        )
        async with world.running(*steps, client=client, commands=["own", "size"]):
            await world.say("@bot please", world.bob)
            assert await world.answers(3) == ["of this server", "Small is 1", "Done."]
            assert {spec.name for spec in world.engine.prompts[-1].tools} == {"own", "size"}
            await world.say("@bot please", world.bob, elsewhere)
            assert await world.answers(2, elsewhere) == ["Large is 3", "Done."]
            assert [spec.name for spec in world.engine.prompts[-1].tools] == ["size"]
            parts = [part for message in world.engine.prompts[-1].messages for part in message.parts]
            assert [part.is_error for part in parts if isinstance(part, ToolResult)] == [True, False]


async def test_an_allowed_command_that_does_not_exist_is_reported(caplog: pytest.LogCaptureFixture):
    """B06: a typo in the list would silently take a tool from the model."""
    async with loopback() as world, world.running(client=own_bot(world), commands=["/tag/creat", "size", "ech*", "x*"]):
        pass
    told = [record.getMessage() for record in caplog.records if record.name == "rondel.discord"]
    typo, pattern = told
    assert typo == "`commands` allows 'tag creat', and there is no such slash command; did you mean 'tag create'?"
    assert pattern.startswith("`commands` allows 'x*', and there is no such slash command; available: ai agent, ")


async def test_a_prefix_command_of_the_bot_is_not_answered_by_the_model_as_well():
    """A01"""
    async with loopback() as world, world.running("Hello.", client=own_bot(world), whitelist=[world.general.id]):
        await world.say("!echo hi")
        await world.discord.said(world.general)
        await world.say("!hello")  # no command of this bot
        assert await world.answers(2) == ["Ann said hi", "Hello."]


async def test_a_chat_hook_that_makes_a_new_message_keeps_the_commands():
    """A07, B06: the model calls commands in the name of the person, whatever the hook made of the message."""
    async with loopback() as world:
        steps = [call("size", size=1), "Done."]
        async with world.running(*steps, client=own_bot(world), commands=["size"]) as bot:
            bot.hooks.on("chat", lambda messages: [user("another text")])
            await world.say("@bot please", world.bob)
            assert await done(world) == ["Small is 1"]
            assert result(world).text == "Small is 1"
            assert world.engine.prompts[0].messages[-1].text == "another text"


@pytest.mark.parametrize("name", ["chat", "reply"])
async def test_a_hook_that_fails_costs_one_answer_and_not_the_bot(name: Any, caplog: pytest.LogCaptureFixture):
    """A07: nothing is said that the hook might have changed; the person reads that it did not work."""

    def broken(given: list[Message] | ReplyContext) -> None:
        raise ValueError("the author's mistake")

    async with loopback() as world, world.running(*["Hello."] * 3, client=own_bot(world)) as bot:
        bot.hooks.on(name, broken)
        await world.say("@bot hi")
        (told,) = await world.answers()
        assert told.startswith("Sorry, I could not answer that.")
        assert "the author's mistake" in caplog.text
        bot.hooks.off(name, broken)
        await world.say("@bot hi again")
        assert (await world.answers(2))[1] == "Hello."
        bot.hooks.on("reply", lambda context: 5)
        with pytest.raises(RondelError, match="a reply hook returned 5; it must be a text"):
            await bot.chat_sync("hi")
        bot.hooks.on("chat", broken)
        with pytest.raises(RondelError, match=r"the chat hook '.*broken' failed"):
            await bot.chat_sync("hi")


async def test_an_answer_that_cannot_be_delivered_does_not_end_the_others(caplog: pytest.LogCaptureFixture):
    async with loopback() as world, world.running("One.", "Two.", client=own_bot(world)) as bot:
        wrong = ChatReply("See the file.", Extras(files=("a path, not a file",)))  # type: ignore[arg-type]
        bot.hooks.on("reply", lambda context: wrong if context.text == "One." else None)
        await world.say("@bot first")
        while "cannot be finished" not in caplog.text:
            await asyncio.sleep(0.001)
        await world.say("@bot second")
        assert await world.answers() == ["Two."]


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"conversation": "chanel"}, "'conversation' must be .*did you mean 'channel'"),
        ({"whitelist": 100000000000000001}, "'whitelist' must be a list"),
        ({"whitelist": ["general"]}, "'general' is not an id of Discord"),
        ({"rules": [{"chanel": 1}]}, "'rules\\[0\\].chanel' is not known; did you mean 'channel'"),
        ({"slash": ["chat", "imagin"]}, "'/ai' has no subcommand 'imagin'; did you mean 'imagine'"),
        ({"edit_s": -1}, "it must be 0 or more"),
        ({"modes": {"a": {"options": {"temperatur": 1}}}}, "'modes.a.options.temperatur' is not known; did you mean"),
        ({"whitlist": []}, "Discord has no setting 'whitlist'; did you mean 'whitelist'"),
    ],
)
def test_settings_in_code_are_checked_as_those_of_a_file_are(given: dict[str, Any], complaint: str):
    from rondel import App
    from rondel.testing import Echo

    with pytest.raises(RondelError, match=complaint):
        attach(discord.Client(intents=discord.Intents.none()), App(Agent("helper", engine=Echo())), **given)


async def test_settings_in_code_may_be_plain_values_and_win_over_settings_that_are_given_too():
    async with loopback() as world:
        quiet = world.discord.channel(world.guild, "quiet")
        given: dict[str, Any] = {
            "rules_of_discord": [{"channel": quiet.id, "enabled": False}],
            "modes": {"pirate": {"instructions": "You talk like a pirate."}},
            "whitelist": {world.general.id},
        }
        async with world.running("Arr.", client=own_bot(world), **given):
            chosen = await world.discord.command(world.ann, world.general, "ai mode", name="pirate")
            await world.discord.answered(chosen)
            await world.say("@bot not here", channel=quiet)
            await world.say("here")
            assert await world.answers() == ["Arr."]
            assert world.engine.prompts[0].messages[0].text == "You talk like a pirate."


async def test_the_client_of_rondel_passes_events_to_every_kind_of_handler():
    async with loopback() as world, world.running("Hello.", whitelist=[world.general.id]) as bot:
        client: Any = bot.client
        heard: list[str] = []

        async def on_message(message: discord.Message) -> None:
            heard.append("a listener")

        @client.event
        async def on_socket_event_type(kind: str) -> None:
            heard.append("a method")

        client.add_listener(on_message)
        waiting = asyncio.ensure_future(client.wait_for("message", timeout=5))
        await asyncio.sleep(0)
        await world.say("Hello?")
        assert (await waiting).content == "Hello?"
        assert await world.answers() == ["Hello."]
    assert set(heard) == {"a listener", "a method"}
