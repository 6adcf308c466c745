"""Slash commands as tools: the model calls them in the name of the person who speaks to it, with that person's rights.

A command runs through a genuine `discord.Interaction`, so its checks, transformers, error handlers, `defer` and
`followup` work. Reads two private attributes of discord.py, `CommandTree._call` and `Client._connection`.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import re
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, cast

import discord
import msgspec
from discord import app_commands
from discord.webhook.async_ import async_context

from ...errors import ToolError, nearest
from ...machine.turn import Turn
from ...plugin import Plugin
from ...prompt import Prompt
from ...tool import CallContext, Tool
from ...values import Person
from .captured import CapturedAnswers
from .context import origin_of
from .mentions import tidy_name

if TYPE_CHECKING:
    from .bot import DiscordBot

log = logging.getLogger("rondel.discord")

AnyCommand = app_commands.Command[Any, ..., Any]
OptionType = discord.AppCommandOptionType
OPTION_TYPES = {
    OptionType.string: "string",
    OptionType.integer: "integer",
    OptionType.boolean: "boolean",
    OptionType.number: "number",
}
TRUE = frozenset(("1", "true", "t", "yes", "y", "on", "enable", "enabled"))
FALSE = frozenset(("0", "false", "f", "no", "n", "off", "disable", "disabled"))
NEVER = ("ai chat", "ai imagine")  # a model that asks itself would not end
ID = re.compile(r"<?[@#]?[!&]?(\d{15,20})>?")
FOUND_MAX = 5


class CommandBridge(Plugin):
    """Offers the allowed commands to the model, in conversations of Discord."""

    name = "discord_commands"

    def __init__(self, bot: DiscordBot, tree: app_commands.CommandTree[Any]) -> None:
        self._bot, self._tree = bot, tree
        self._allowed: dict[str, dict[int, AnyCommand]] = {}
        """The commands by the names of their tools, each for its server; 0 is for all."""

    def load(self) -> None:
        """Offer the commands that the tree has now; extensions may have added some."""
        self._allowed = {}
        known: list[str] = []
        for command, guild in self._commands():
            known.append(command.qualified_name)
            if self._is_allowed(command):
                name = re.sub(r"[^a-zA-Z0-9_-]", "_", command.qualified_name)[:64]
                self._allowed.setdefault(name, {})[guild] = command
        self.tools = [self._tool(name, next(iter(variants.values()))) for name, variants in self._allowed.items()]
        self._bot.app.registry.resolve_all()
        for wanted in self._wanted:
            if not any(fnmatchcase(name, wanted) for name in known):
                hint = nearest(wanted, known)
                log.warning("`commands` allows %r, and there is no such slash command%s", wanted, hint)

    def applies(self, turn: Turn) -> bool:
        return bool(self._allowed)

    async def on_prompt(self, turn: Turn, prompt: Prompt) -> Prompt:
        """Leave out the commands of other servers, and all of them outside of Discord."""
        where = origin_of(turn.transcript.messages)
        guild = getattr(self._bot.client.get_channel(where["channel"]), "guild", None) if where else None
        scopes = {0, guild.id if guild else 0} if where else set[int]()
        hidden = {name for name, variants in self._allowed.items() if scopes.isdisjoint(variants)}
        if not hidden:
            return prompt
        return msgspec.structs.replace(prompt, tools=tuple(spec for spec in prompt.tools if spec.name not in hidden))

    @property
    def _wanted(self) -> list[str]:
        return [" ".join(one.strip("/").replace("/", " ").split()) for one in self._bot.settings.commands]

    def _commands(self) -> Iterator[tuple[AnyCommand, int]]:
        guilds: dict[int, Any] = getattr(self._tree, "_guild_commands", {})
        for guild in (0, *guilds):
            where = discord.Object(guild) if guild else None
            for command in self._tree.walk_commands(guild=where, type=discord.AppCommandType.chat_input):
                if isinstance(command, app_commands.Command):
                    yield command, guild

    def _is_allowed(self, command: AnyCommand) -> bool:
        name = command.qualified_name
        if name in NEVER or any(one.required and one.type is OptionType.attachment for one in command.parameters):
            return False
        if name.startswith("ai ") and name not in self._wanted:
            return False
        return any(fnmatchcase(name, one) for one in self._wanted)

    def _tool(self, name: str, command: AnyCommand) -> Tool:
        async def run(arguments: dict[str, Any], context: CallContext) -> str:
            return await self._run(command.qualified_name, self._allowed[name], arguments, context)

        return Tool(
            name=name,
            run=run,
            description=f"{command.description} (The slash command /{command.qualified_name}.)",
            schema=schema_of(command),
            timeout_s=0,  # `command_s` is its limit
            parallel=False,
            origin=f"discord:{command.qualified_name}",
        )

    # --- a call -------------------------------------------------------------------------------------------------------

    async def _run(
        self, name: str, variants: dict[int, AnyCommand], given: dict[str, Any], context: CallContext
    ) -> str:
        where = origin_of(context.turn.transcript.messages)
        channel = await self._bot.channel(where["channel"]) if where else None
        if channel is None:
            raise ToolError(f"/{name} works in Discord only")
        guild: discord.Guild | None = getattr(channel, "guild", None)
        person = await _speaker(self._bot.client, guild, context.turn.person)
        guild_id = guild.id if guild is not None and guild.id in variants else 0
        if (command := variants.get(guild_id)) is None:
            raise ToolError(f"/{name} is a command of another server")
        check_rights(command, person, channel)
        options, resolved = await CommandOptions(command, guild, channel).resolve(given)
        raw = interaction_data(self._bot.client, command, person, channel, options, resolved, guild_id)
        answers = CapturedAnswers(
            self._bot.client, channel.id, person.id, reply_to=where["message"], is_dm=guild is None
        )
        interaction = _ToolInteraction(data=cast(Any, raw), state=self._bot.client._connection)  # pyright: ignore[reportPrivateUsage]
        await self._invoke(interaction, answers, command)
        return self._result(interaction, answers, command)

    async def _invoke(self, interaction: _ToolInteraction, answers: CapturedAnswers, command: AnyCommand) -> None:
        seconds = self._bot.settings.command_s
        own = contextvars.copy_context()
        own.run(async_context.set, answers)
        try:
            async with asyncio.timeout(seconds or None), asyncio.TaskGroup() as group:
                group.create_task(self._called(interaction), context=own)
        except TimeoutError:
            if not answers.has_answer:
                raise ToolError(f"/{command.qualified_name} did not answer within {seconds:g} s") from None

    async def _called(self, interaction: _ToolInteraction) -> None:
        try:
            await self._tree._call(interaction)  # pyright: ignore[reportPrivateUsage]
        except app_commands.AppCommandError as error:
            interaction.failure = error
        except discord.HTTPException as error:
            interaction.failure = error

    def _result(self, interaction: _ToolInteraction, answers: CapturedAnswers, command: AnyCommand) -> str:
        name, failure = command.qualified_name, interaction.failure
        if answers.has_answer or answers.private_failed:
            return f"{answers.text}\n\n(The command failed.)" if interaction.command_failed else answers.text
        if answers.opened_form:
            raise ToolError(f"/{name} opens a form, which only a person can fill in; ask them to use the command")
        if failure is not None:
            cause = getattr(failure, "original", failure)
            raise ToolError(f"/{name} failed: {cause}")
        if interaction.command_failed:
            raise ToolError(f"/{name} was refused for this person")
        if answers.was_deleted:
            return "(The command has removed its answer.)"
        raise ToolError(f"/{name} ended without an answer")


class _ToolInteraction(discord.Interaction[Any]):
    """An interaction that a model started. discord.py sets `command_failed` where it handles the error, so this learns
    which error it was."""

    failure: Exception | None = None
    _has_failed = False

    @property
    def command_failed(self) -> bool:
        return self._has_failed

    @command_failed.setter
    def command_failed(self, value: bool) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self._has_failed = value
        error = sys.exc_info()[1]
        if value and isinstance(error, Exception):
            self.failure = error


# --- rights -----------------------------------------------------------------------------------------------------------


def check_rights(command: AnyCommand, person: discord.User | discord.Member, channel: Any) -> None:
    """Raise ToolError if the person could not use the command there. Discord itself checks only what people type."""
    name, in_guild = command.qualified_name, isinstance(person, discord.Member)
    levels: list[Any] = [command]
    while levels[-1].parent is not None:
        levels.append(levels[-1].parent)
    contexts = next((level.allowed_contexts for level in levels if level.allowed_contexts is not None), None)
    needs_guild = any(level.guild_only for level in levels) if contexts is None else not contexts.dm_channel
    if not in_guild and needs_guild:
        raise ToolError(f"I can't use /{name} in direct messages")
    if in_guild and contexts is not None and not contexts.guild:
        raise ToolError(f"/{name} works in direct messages only")
    if any(level.nsfw for level in levels) and in_guild and not channel.is_nsfw():
        raise ToolError(f"/{name} works in age-restricted channels only")
    needed = next((level.default_permissions for level in levels if level.default_permissions is not None), None)
    if in_guild and needed is not None:
        held = channel.permissions_for(person)
        if not (held.administrator or held.is_superset(needed)):
            raise ToolError(f"{tidy_name(person.display_name)} does not have permission to use /{name}")


async def _speaker(
    client: discord.Client, guild: discord.Guild | None, person: Person
) -> discord.User | discord.Member:
    """Return the person for whom the turn runs. It need not be the one who spoke last: a schedule or a finished job
    starts a turn for the person who created it."""
    if person.origin != "discord":
        raise ToolError("commands only run for a person on Discord, and this turn has none")
    id = int(person.id)
    try:
        if guild is None:
            return client.get_user(id) or await client.fetch_user(id)
        return guild.get_member(id) or await guild.fetch_member(id)
    except discord.HTTPException:
        raise ToolError("the person who asked is no longer here") from None


# --- arguments --------------------------------------------------------------------------------------------------------


def schema_of(command: AnyCommand) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for one in command.parameters:
        if one.type is OptionType.attachment:
            continue
        found: dict[str, Any] = {"type": OPTION_TYPES.get(one.type, "string")}
        about = str(one.description) if str(one.description) != "…" else ""
        if one.type not in OPTION_TYPES:
            about = f"{about} (a name or an id of a {one.type.name})".strip()
        found |= {"description": about} if about else {}
        if one.choices:
            found["enum"] = [choice.value for choice in one.choices]
        low, high = ("minLength", "maxLength") if one.type is OptionType.string else ("minimum", "maximum")
        found |= {key: value for key, value in ((low, one.min_value), (high, one.max_value)) if value is not None}
        properties[one.display_name] = found
    required = [one.display_name for one in command.parameters if one.required]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


class CommandOptions:
    """A call's arguments as the options of an interaction, with the data of the people, channels and roles in them."""

    def __init__(self, command: AnyCommand, guild: discord.Guild | None, channel: Any) -> None:
        self._command, self._guild, self._channel = command, guild, channel
        self._resolved: dict[str, dict[str, Any]] = {}

    async def resolve(self, given: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        parameters = {one.display_name: one for one in self._command.parameters}
        for name in given:
            if name not in parameters:
                raise ToolError(f"option {name!r} is not known{nearest(name, list(parameters))}")
        for name, one in parameters.items():
            if one.required and given.get(name) is None:
                raise ToolError(f"option {name!r} is missing")
        options = [
            {"name": name, "type": parameters[name].type.value, "value": await self._value(parameters[name], value)}
            for name, value in given.items()
            if value is not None
        ]
        return options, self._resolved

    async def _value(self, one: app_commands.Parameter, value: Any) -> Any:
        name, text = one.display_name, value if isinstance(value, str) else msgspec.json.encode(value).decode()
        if one.choices:
            for choice in one.choices:
                if text.casefold() in (str(choice.value).casefold(), choice.name.casefold()):
                    return choice.value
            known = ", ".join(str(choice.value) for choice in one.choices)
            raise ToolError(f'Option "{name}" must be one of: {known}; received {text!r}')
        match one.type:
            case OptionType.string:
                return self._in_range(one, text, len(text))
            case OptionType.integer | OptionType.number:
                return self._in_range(one, number := _number(one, text), number)
            case OptionType.boolean:
                if text.casefold() not in TRUE | FALSE:
                    raise ToolError(f"option {name!r} must be true or false, not {text!r}")
                return text.casefold() in TRUE
            case _:
                return await self._object(one, text)

    def _in_range(self, one: app_commands.Parameter, value: Any, size: float) -> Any:
        low, high = one.min_value, one.max_value
        if (low is not None and size < low) or (high is not None and size > high):
            what = "characters" if one.type is OptionType.string else ""
            raise ToolError(f"option {one.display_name!r} must be {low} to {high} {what}".strip())
        return value

    async def _object(self, one: app_commands.Parameter, text: str) -> str:
        """Return the id of a person, a channel or a role that is named, and note its data."""
        kind = one.type
        if kind in (OptionType.user, OptionType.mentionable) and (person := await self._person(text)) is not None:
            return self._note_person(person)
        if kind in (OptionType.role, OptionType.mentionable) and (role := self._named(self._roles, text)) is not None:
            self._resolved.setdefault("roles", {})[str(role.id)] = role_data(role)
            return str(role.id)
        if kind is OptionType.channel and (channel := self._named(self._channels, text)) is not None:
            types = one.channel_types
            if types and channel.type not in types:
                raise ToolError(f"option {one.display_name!r} cannot be the channel {text!r}")
            self._resolved.setdefault("channels", {})[str(channel.id)] = channel_data(channel)
            return str(channel.id)
        raise ToolError(f"option {one.display_name!r}: there is no {kind.name} {text!r} here")

    @property
    def _roles(self) -> list[Any]:
        return list(self._guild.roles) if self._guild else []

    @property
    def _channels(self) -> list[Any]:
        return [*self._guild.channels, *self._guild.threads] if self._guild else []

    def _named(self, things: list[Any], text: str) -> Any:
        if found := ID.fullmatch(text.strip()):
            return next((one for one in things if one.id == int(found[1])), None)
        wanted = text.strip().lstrip("#@").casefold()
        return next((one for one in things if one.name.lstrip("@").casefold() == wanted), None)

    async def _person(self, text: str) -> Any:
        guild, found = self._guild, ID.fullmatch(text.strip())
        if found:
            try:
                return (guild.get_member(int(found[1])) or await guild.fetch_member(int(found[1]))) if guild else None
            except discord.HTTPException:
                return None
        wanted = text.strip().lstrip("@").casefold()
        people: list[Any] = list(guild.members) if guild else list(getattr(self._channel, "recipients", ()))
        for person in people:
            if wanted in (person.name.casefold(), person.display_name.casefold()):
                return person
        if guild is None or not wanted:
            return None
        with contextlib.suppress(discord.HTTPException, asyncio.TimeoutError, discord.ClientException):
            for person in await guild.query_members(wanted, limit=FOUND_MAX):
                if wanted in (person.name.casefold(), person.display_name.casefold()):
                    return person
        return None

    def _note_person(self, person: Any) -> str:
        id = str(person.id)
        self._resolved.setdefault("users", {})[id] = user_data(person)
        if isinstance(person, discord.Member):
            self._resolved.setdefault("members", {})[id] = member_data(person, self._channel)
        return id


def _number(one: app_commands.Parameter, text: str) -> float:
    try:
        return int(text) if one.type is OptionType.integer else float(text)
    except ValueError:
        what = "a whole number" if one.type is OptionType.integer else "a number"
        raise ToolError(f"option {one.display_name!r} is {text!r}; it must be {what}") from None


# --- an interaction as Discord sends it -------------------------------------------------------------------------------


def interaction_data(
    client: discord.Client,
    command: AnyCommand,
    person: discord.User | discord.Member,
    channel: Any,
    options: list[dict[str, Any]],
    resolved: dict[str, Any],
    guild_id: int,
) -> dict[str, Any]:
    names = command.qualified_name.split()
    for name in reversed(names[1:]):
        is_group = any("options" in one for one in options)
        options = [{"name": name, "type": 2 if is_group else 1, "options": options}]
    data: dict[str, Any] = {"id": "1", "name": names[0], "type": 1, "options": options, "resolved": resolved}
    if guild_id:
        data["guild_id"] = str(guild_id)
    raw: dict[str, Any] = {
        "id": str(discord.utils.time_snowflake(discord.utils.utcnow())),
        "application_id": str(client.application_id),
        "type": 2,
        "token": "tool",
        "version": 1,
        "channel_id": str(channel.id),
        "channel": channel_data(channel),
        "locale": "en-US",
        "entitlements": [],
        "authorizing_integration_owners": {},
        "attachment_size_limit": 10 << 20,
        "context": 0 if isinstance(person, discord.Member) else 1,
        "data": data,
    }
    if isinstance(person, discord.Member):
        held = channel.permissions_for(person.guild.me)
        raw |= {"guild_id": str(person.guild.id), "app_permissions": str(held.value)}
        return raw | {"member": member_data(person, channel) | {"user": user_data(person)}}
    return raw | {"user": user_data(person), "app_permissions": "0"}


def user_data(person: discord.User | discord.Member) -> dict[str, Any]:
    return {
        "id": str(person.id),
        "username": person.name,
        "global_name": person.global_name,
        "discriminator": person.discriminator,
        "avatar": person.avatar.key if person.avatar else None,
        "bot": person.bot,
    }


def member_data(member: discord.Member, channel: Any) -> dict[str, Any]:
    return {
        "roles": [str(role.id) for role in member.roles if not role.is_default()],
        "nick": member.nick,
        "joined_at": member.joined_at.isoformat() if member.joined_at else None,
        "premium_since": None,
        "deaf": False,
        "mute": False,
        "flags": 0,
        "pending": member.pending,
        "communication_disabled_until": member.timed_out_until.isoformat() if member.timed_out_until else None,
        "permissions": str(channel.permissions_for(member).value),
    }


def role_data(role: discord.Role) -> dict[str, Any]:
    return {
        "id": str(role.id),
        "name": role.name,
        "permissions": str(role.permissions.value),
        "color": role.color.value,
        "colors": {"primary_color": role.color.value, "secondary_color": None, "tertiary_color": None},
        "hoist": role.hoist,
        "position": role.position,
        "managed": role.managed,
        "mentionable": role.mentionable,
        "flags": 0,
    }


def channel_data(channel: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"id": str(channel.id), "type": channel.type.value, "permissions": "0"}
    guild: discord.Guild | None = getattr(channel, "guild", None)
    if guild is None:
        return found | {"recipients": [user_data(one) for one in getattr(channel, "recipients", ())]}
    parent = getattr(channel, "parent_id", None) or getattr(channel, "category_id", None)
    found |= {"name": channel.name, "guild_id": str(guild.id), "parent_id": str(parent) if parent else None}
    found |= {"position": 0, "permission_overwrites": [], "nsfw": channel.is_nsfw()}
    if isinstance(channel, discord.Thread):
        when = discord.utils.utcnow().isoformat()
        metadata = {"archived": channel.archived, "locked": channel.locked, "archive_timestamp": when}
        metadata |= {"auto_archive_duration": channel.auto_archive_duration}
        found |= {"thread_metadata": metadata, "owner_id": str(channel.owner_id), "message_count": 0, "member_count": 1}
    return found
