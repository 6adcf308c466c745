"""Our own slash commands, `/ai …`. Each can be switched off: `slash = ["chat", "usage"]`."""

from __future__ import annotations

import io
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import discord
import msgspec
from discord import app_commands

from ...contracts.images import ImageRequest
from ...contracts.window import Window
from ...errors import RondelError
from ...trace import read as read_trace
from ...trace.page import page as trace_page
from ...trace.redact import without_secrets
from ..views import jobs_table
from .chunks import LIMIT, chunks, sentence_of
from .gate import Gate
from .mapping import person_of, place_of, scope_of, speaker_of
from .outlet import NOBODY
from .pending import Selected
from .usage import By, UsagePage

if TYPE_CHECKING:
    from .bot import DiscordBot

log = logging.getLogger("rondel.discord")

Interaction = discord.Interaction[Any]
T = TypeVar("T")
CHOICES_MAX = 25
PROMPT_CHARS_MAX = 4_000


def add_slash_commands(bot: DiscordBot, tree: app_commands.CommandTree[Any]) -> None:
    """Add the group `/ai` with the subcommands that the settings want."""
    group = app_commands.Group(name="ai", description="Talk to the assistant, and set it up")
    for name, add in SUBCOMMANDS.items():
        if name in bot.settings.slash:
            add(group, bot)
    if group.commands and tree.get_command("ai") is None:
        tree.add_command(group)


async def _answer(interaction: Interaction, text: str, **more: Any) -> None:
    """Answer privately, in one message."""
    shown = (chunks(text, LIMIT) or ["(nothing)"])[0]
    if interaction.response.is_done():
        await interaction.followup.send(shown, ephemeral=True, allowed_mentions=NOBODY, **more)
    else:
        await interaction.response.send_message(shown, ephemeral=True, allowed_mentions=NOBODY, **more)


async def _guarded(interaction: Interaction, work: Awaitable[str | None]) -> None:
    """Answer with what the work returns, or with why it failed: a sentence, also for a limit that was reached."""
    try:
        text = await work
    except RondelError as error:
        text = sentence_of(error)
    if text is not None:
        await _answer(interaction, text)


def _may(interaction: Interaction, permission: str) -> bool:
    return interaction.guild is None or bool(getattr(interaction.permissions, permission))


def _refusal(permission: str) -> str:
    return f"This needs the permission {permission}."


# --- talking ----------------------------------------------------------------------------------------------------------


async def _admitted(bot: DiscordBot, interaction: Interaction) -> bool:
    """Return whether the bot answers this person here; says so if it does not."""
    admits = bot.gate.admits(place_of(interaction), speaker_of(interaction.user), to_bot=True)
    if not admits:
        await _answer(interaction, "I do not answer in this channel.")
    return admits


def _add_chat(group: app_commands.Group, bot: DiscordBot) -> None:
    @group.command(name="chat", description="Ask the assistant something")
    @app_commands.describe(message="what to say", private="only you see the answer")
    async def chat(
        interaction: Interaction, message: app_commands.Range[str, 1, PROMPT_CHARS_MAX], private: bool = False
    ) -> None:
        if not await _admitted(bot, interaction):
            return
        await interaction.response.defer(thinking=True, ephemeral=private)
        try:
            await bot.answer_command(interaction, message, is_private=private)
        except RondelError as error:
            await _answer(interaction, sentence_of(error))


def _add_imagine(group: app_commands.Group, bot: DiscordBot) -> None:
    """Add the command if the app has an image engine."""
    images = bot.app.images
    if not images:
        return

    @group.command(name="imagine", description="Make a picture")
    @app_commands.describe(prompt="what to show")
    async def imagine(interaction: Interaction, prompt: app_commands.Range[str, 1, PROMPT_CHARS_MAX]) -> None:
        if not await _admitted(bot, interaction):
            return
        await interaction.response.defer(thinking=True)
        place = place_of(interaction)
        person = person_of(interaction.user, speaker_of(interaction.user), place)
        scope = scope_of(place)
        scope = msgspec.structs.replace(scope, person=person.id, roles=person.roles)
        try:
            (picture, *_) = (await images.make(ImageRequest(prompt), scope)).images
        except RondelError as error:  # also TokenLimitError, whose text is for people
            await _answer(interaction, sentence_of(error))
            return
        file = discord.File(io.BytesIO(picture.data), picture.name or "picture.png")
        posted = await interaction.followup.send(file=file, allowed_mentions=NOBODY, wait=True)
        await bot.keep_picture(interaction, prompt, picture, posted=posted.id)


def _add_stop(group: app_commands.Group, bot: DiscordBot) -> None:
    @group.command(name="stop", description="Stop what I am answering to you here")
    async def stop(interaction: Interaction) -> None:
        mine = [
            one
            for one in bot.deliveries.values()
            if one.channel.id == interaction.channel_id and one.pending.person.id == str(interaction.user.id)
        ]
        stopped = [one for one in mine if await one.stop()]
        await _answer(interaction, "Stopped." if stopped else "Nothing is running.")


def _add_reset(group: app_commands.Group, bot: DiscordBot) -> None:
    @group.command(name="reset", description="Start a new conversation in this channel")
    async def reset(interaction: Interaction) -> None:
        is_own = await bot.reset(place_of(interaction), interaction.user)
        await _answer(
            interaction, f"{'Your next message' if is_own else 'The next message here'} starts a new conversation."
        )


# --- who answers ------------------------------------------------------------------------------------------------------


async def _select(bot: DiscordBot, interaction: Interaction, **changes: str) -> None:
    place = place_of(interaction)
    channel = place.parent or place.channel
    await bot.records.select(channel, msgspec.structs.replace(await bot.records.selected(channel), **changes))


async def _selected(bot: DiscordBot, interaction: Interaction) -> Selected:
    place = place_of(interaction)
    return await bot.records.selected(place.parent or place.channel)


def _choices(names: Iterable[str], typed: str) -> list[app_commands.Choice[str]]:
    found = [name for name in names if typed.casefold() in name.casefold()]
    return [app_commands.Choice(name=name[:100], value=name[:100]) for name in found[:CHOICES_MAX]]


def _rows(title: str, names: Iterable[tuple[str, str, bool]]) -> list[str]:
    """Return a title and a line for each name, with the current one marked; nothing if there are no names."""
    rows = [f"{'▸' if is_current else '·'} **{name}** {about}".rstrip() for name, about, is_current in names]
    return [title, *rows] if rows else []


def _listed(title: str, names: Iterable[tuple[str, str]], current: str) -> str:
    rows = _rows(f"{title}:", ((name, about, name == current) for name, about in names))
    return "\n".join(rows) or f"There are no {title.lower()}."


def _add_model(group: app_commands.Group, bot: DiscordBot) -> None:
    @group.command(name="model", description="Show which model answers here, or choose another")
    @app_commands.describe(name="provider:model, or an engine in rondel.toml; 'default' for the agent's own")
    async def model(interaction: Interaction, name: str = "") -> None:
        async def work() -> str:
            place = place_of(interaction)
            chosen = await bot.chosen(place, speaker_of(interaction.user))
            agent = bot.modes.agent_of(chosen)
            if not name:
                current = bot.app.registry.resolve(agent, chosen.model).engine.name
                offered = [(one, about, current in (one, about)) for one, about in bot.models.offered.items()]
                return "\n".join((f"{current} answers here.", *_rows("Models:", offered)))
            if not _may(interaction, "manage_channels"):
                return _refusal("Manage Channels")
            wanted = "" if name == "default" else name
            if wanted and bot.models.check is not None:
                bot.models.check(wanted)  # the registry makes an engine that says what is wrong only when it is asked
            engine = bot.app.registry.resolve(agent, wanted).engine.name  # raises for a wrong name
            await _select(bot, interaction, model=wanted)
            return f"{engine} answers here from the next message on."

        await _guarded(interaction, work())

    @model.autocomplete("name")
    async def names(interaction: Interaction, typed: str) -> list[app_commands.Choice[str]]:
        return _choices((*bot.models.offered, "default"), typed)


def _add_agent(group: app_commands.Group, bot: DiscordBot) -> None:
    @group.command(name="agent", description="Show who answers here, or choose another agent")
    async def agent(interaction: Interaction, name: str = "") -> None:
        async def work() -> str:
            place = place_of(interaction)
            chosen = await bot.chosen(place, speaker_of(interaction.user))
            if not name:
                agents = [(one.name, one.description) for one in bot.app.registry.agents]
                return _listed("Agents", agents, bot.modes.agent_of(chosen))
            if not _may(interaction, "manage_channels"):
                return _refusal("Manage Channels")
            bot.app.registry.resolve(name)
            await _select(bot, interaction, agent=name, mode="")
            return f"{name} answers here from the next message on."

        await _guarded(interaction, work())

    @agent.autocomplete("name")
    async def names(interaction: Interaction, typed: str) -> list[app_commands.Choice[str]]:
        return _choices((one.name for one in bot.app.registry.agents), typed)


def _add_mode(group: app_commands.Group, bot: DiscordBot) -> None:
    @group.command(name="mode", description="Show the modes, or choose one for this channel")
    @app_commands.describe(name="a mode; 'off' for none")
    async def mode(interaction: Interaction, name: str = "") -> None:
        async def work() -> str:
            if not name:
                current = (await _selected(bot, interaction)).mode
                return _listed("Modes", [(one, "") for one in bot.modes.all], current)
            if not _may(interaction, "manage_channels"):
                return _refusal("Manage Channels")
            if name != "off":
                bot.modes.check(name)
            await _select(bot, interaction, mode="" if name == "off" else name)
            return "This channel no longer uses a mode." if name == "off" else f"This channel now uses the mode {name}."

        await _guarded(interaction, work())

    @mode.autocomplete("name")
    async def names(interaction: Interaction, typed: str) -> list[app_commands.Choice[str]]:
        return _choices((*bot.modes.all, "off"), typed)


# --- what happened ----------------------------------------------------------------------------------------------------


def _add_usage(group: app_commands.Group, bot: DiscordBot) -> None:
    @group.command(name="usage", description="Show the tokens that were used, and by whom")
    @app_commands.describe(window="the length of a period", by="what to count", rows="rows on a page")
    async def usage(
        interaction: Interaction,
        window: Literal["day", "week", "month", "lifetime"] = "day",
        by: Literal["model", "person", "channel", "role", "agent"] = "model",
        rows: app_commands.Range[int, 1, 20] = 5,
    ) -> None:
        if not _may(interaction, "manage_guild"):
            await _answer(interaction, _refusal("Manage Server"))
            return
        period: Window = window
        dimension: By = by
        page = UsagePage(bot, interaction.guild, interaction.user.id, period, dimension)
        fields = await page.show(rows=rows)
        await interaction.response.send_message(ephemeral=True, allowed_mentions=NOBODY, **fields)


def _add_trace(group: app_commands.Group, bot: DiscordBot) -> None:
    @group.command(name="trace", description="Get a page that shows how the last answer here was made")
    async def trace(interaction: Interaction) -> None:
        if not _may(interaction, "manage_guild"):
            await _answer(interaction, _refusal("Manage Server"))
            return
        id = await bot.last_conversation(place_of(interaction), interaction.user)
        if await bot.app.store.info(id) is None:
            await _answer(interaction, "Nothing was said here yet.")
            return
        await interaction.response.defer(thinking=True, ephemeral=True)
        root = without_secrets(await read_trace(bot.app.store, id, price=bot.app.ledger.paid), bot.hide)
        file = discord.File(io.BytesIO(trace_page(root).encode()), "trace.html")
        await interaction.followup.send("Open it in a browser.", file=file, ephemeral=True, allowed_mentions=NOBODY)


def _add_jobs(group: app_commands.Group, bot: DiscordBot) -> None:
    @group.command(name="jobs", description="List what runs in the background here")
    async def jobs(interaction: Interaction) -> None:
        async def work() -> str:
            place = place_of(interaction)
            id = await bot.last_conversation(place, interaction.user)
            table = jobs_table(await bot.app.background.jobs(id), await bot.app.timetable.schedules(id))
            tasks = bot.task_lines(place.channel, interaction.user.id)
            if isinstance(table, str):
                return "\n".join(tasks) or table
            return "\n".join((*tasks, *(" · ".join(filter(None, row)) for row in table.rows)))

        await _guarded(interaction, work())


def _add_forget(group: app_commands.Group, bot: DiscordBot) -> None:
    forget = app_commands.Group(name="forget", description="Delete what is stored about you", parent=group)

    @forget.command(name="me", description="Delete your conversations with me")
    async def me(interaction: Interaction) -> None:
        await interaction.response.defer(thinking=True, ephemeral=True)
        deleted, shared = await bot.forget(interaction.user.id)
        kept = f" {shared} with other people in them were kept." if shared else ""
        await _answer(interaction, f"Deleted {deleted} of your conversations.{kept}")


def _add_channels(group: app_commands.Group, bot: DiscordBot) -> None:
    @group.command(name="channels", description="Show or change the channels in which I answer")
    @app_commands.describe(action="what to do", channel="which channel; this one by default")
    async def channels(
        interaction: Interaction,
        action: Literal["list", "open", "close", "restrict", "unrestrict"] = "list",
        channel: discord.TextChannel | discord.ForumChannel | None = None,
    ) -> None:
        if interaction.guild is None or not interaction.permissions.manage_guild:
            await _answer(interaction, _refusal("Manage Server"))
            return
        guild, id = interaction.guild, channel.id if channel else interaction.channel_id or 0
        changes: dict[str, Callable[[Gate], None]] = {
            "open": lambda gate: gate.add_whitelist(id),
            "close": lambda gate: gate.remove_whitelist(id),
            # An admin of one server decides for no other.
            "restrict": lambda gate: gate.add_restrict(id, guild.id),
            "unrestrict": lambda gate: gate.remove_restrict(id, guild.id),
        }
        if action in changes:
            await bot.change_lists(changes[action])
        here = [one.id for one in guild.channels]
        opened = [f"<#{one}>" for one in bot.gate.whitelist if one in here]
        only = [f"<#{one}>" for one in bot.gate.restrict if one in here]
        lines = [f"I answer every message in: {', '.join(opened) or 'no channel'}."]
        lines.append(
            f"I answer only in: {', '.join(only)}." if only else "I answer in all other channels if mentioned."
        )
        await _answer(interaction, "\n".join(lines))


SUBCOMMANDS: dict[str, Callable[[app_commands.Group, DiscordBot], None]] = {
    "chat": _add_chat,
    "imagine": _add_imagine,
    "usage": _add_usage,
    "model": _add_model,
    "agent": _add_agent,
    "mode": _add_mode,
    "reset": _add_reset,
    "stop": _add_stop,
    "trace": _add_trace,
    "jobs": _add_jobs,
    "forget": _add_forget,
    "channels": _add_channels,
}
"""The settings know the same names: `DISCORD_COMMANDS`."""
