"""Mounts the surface on a client of discord.py: our own, or one that a bot's author has made."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

import aiohttp
import discord
import msgspec
from discord import app_commands
from discord.ext import commands

from ...app.app import App
from ...errors import ConfigError, RondelError, nearest
from ...project.config.discord import discord_mistakes
from ...project.settings import DiscordSettings
from ...text.document import Checker, Document
from .bot import DiscordBot
from .outlet import NOBODY, RETRY_S_MAX

log = logging.getLogger("rondel.discord")

# discord.py opens a connection for every request of a rush: each costs a TLS handshake and 256 KB of buffers. Discord
# takes 50 requests a second, so these are enough.
CONNECTIONS_MAX = 64
SHARDS = 16  # each has a connection, too; this is for those that Discord counts itself


def intents() -> discord.Intents:
    """Return the intents that the bot needs: messages with their text, members by name, and servers."""
    wanted = discord.Intents.default()
    wanted.message_content = True
    wanted.members = True
    wanted.typing = wanted.presences = False
    return wanted


class RondelClient(commands.AutoShardedBot):
    """The client of `rondel discord`. Its messages notify no one, and it has no prefix commands."""

    def __init__(self, *, extensions: Sequence[str] = (), **options: Any) -> None:
        options = {"intents": intents(), "allowed_mentions": NOBODY, "chunk_guilds_at_startup": False, **options}
        both = app_commands.AppCommandContext(guild=True, dm_channel=True)
        super().__init__(command_prefix=_no_prefix, help_command=None, allowed_contexts=both, **options)
        self._wanted = tuple(extensions)
        self.hear: Callable[[discord.Message], None] | None = None
        """Hears each message when it comes: discord.py makes a task for it, even for those of the bot itself."""

    async def login(self, token: str) -> None:
        if self.http.connector is discord.utils.MISSING:
            self.http.connector = aiohttp.TCPConnector(limit=CONNECTIONS_MAX + (self.shard_count or SHARDS))
        await super().login(token)

    async def setup_hook(self) -> None:
        for name in self._wanted:
            try:
                await self.load_extension(name)
            except commands.ExtensionError as error:
                raise ConfigError(f"the extension {name!r} cannot be loaded: {error}") from error

    def dispatch(self, event_name: str, /, *args: Any, **kwargs: Any) -> None:
        handler = f"on_{event_name}"
        if event_name == "message" and self.hear is not None:
            try:
                self.hear(*args)
            except Exception:  # of any kind: an error that leaves this would end the connection
                log.exception("could not handle a message")
        elif hasattr(self, handler):
            return super().dispatch(event_name, *args, **kwargs)
        # Without a listener there is nothing to do: discord.py makes an event of everything that it receives.
        if handler in self.extra_events or event_name in self._listeners:  # pyright: ignore[reportUnknownMemberType]
            super().dispatch(event_name, *args, **kwargs)

    async def on_message(self, message: discord.Message, /) -> None:
        """No message is a command: the surface hears them all."""


async def _no_prefix(client: Any, message: discord.Message) -> list[str]:
    return []


def attach(client: discord.Client, app: App, settings: DiscordSettings | None = None, **given: Any) -> DiscordBot:
    """Let the app answer on this client: `attach(client, app, whitelist=[42])`, then `client.run(token)`.

    The app is started with the client if it has not been started. Call this before the client logs in. Handlers of your
    own for the same events are called, too.
    """
    bot = DiscordBot(client, app, settings_of(given, settings))
    mount(bot)
    life = _Life(bot)
    _wrap(client, "setup_hook", life.begin, last=True)  # theirs may load extensions with commands
    client.close = life.end
    return bot


def settings_of(given: dict[str, Any], base: DiscordSettings | None = None) -> DiscordSettings:
    """Return settings that are given in code, checked as those of a file are. They win over those of `base`."""
    base = base or DiscordSettings()
    if not given:
        return base
    for name in given:
        if name not in DiscordSettings.__struct_fields__:
            raise RondelError(f"Discord has no setting {name!r}{nearest(name, DiscordSettings.__struct_fields__)}")
    checker = Checker(Document("", {}))
    plain = msgspec.json.decode(msgspec.json.encode(given))  # rules and modes may be structs, lists may be tuples
    fields = checker.fields(DiscordSettings, plain, ())
    settings = msgspec.structs.replace(base, **fields)
    checker.report(*discord_mistakes(checker.document, settings))
    return settings


def mount(bot: DiscordBot) -> None:
    """Give a bot its tools and its slash commands."""
    from .bridge import CommandBridge
    from .slash import add_slash_commands

    tree = tree_of(bot.client)
    if tree is not None and bot.settings.slash:
        add_slash_commands(bot, tree)
    if tree is not None and bot.settings.commands:
        bot.bridge = CommandBridge(bot, tree)
        bot.app.registry.add_plugin(bot.bridge)


def tree_of(client: discord.Client) -> app_commands.CommandTree[Any] | None:
    """Return the client's tree of commands, wherever its author has put it."""
    return client._connection._command_tree  # pyright: ignore[reportPrivateUsage]


async def connect(client: discord.Client, token: str, stop: asyncio.Event) -> None:
    """Connect until the client is closed; wait for a Discord that is down, until `stop` is set. Raises ConfigError with
    what to do if it does not let the bot in."""
    wait_s = 1.0
    while not stop.is_set():
        try:
            return await client.start(token)
        except discord.LoginFailure:
            raise ConfigError("Discord refuses the token; `rondel doctor` says what to do") from None
        except discord.PrivilegedIntentsRequired:
            raise ConfigError("the bot lacks a required intent; `rondel doctor` says what to click") from None
        except (discord.HTTPException, OSError) as error:
            # Once it is logged in, discord.py reconnects by itself.
            if client.user is not None or not isinstance(error, (discord.DiscordServerError, OSError)):
                raise ConfigError(f"Discord cannot be reached: {error}") from None
            log.warning("Discord cannot be reached (%s); the next attempt is in %g s", error, wait_s)
        await client.http.close()
        client.http.connector = discord.utils.MISSING  # it was closed; the next login makes one
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await stop.wait()
        wait_s = min(wait_s * 2, RETRY_S_MAX)


class _Life:
    """The life of an attached bot: a task that owns the app and all other tasks, from `setup_hook` to `close`."""

    def __init__(self, bot: DiscordBot) -> None:
        self._bot = bot
        self._close = bot.client.close
        self._task: asyncio.Task[None] | None = None
        self._ready, self._end = asyncio.Event(), asyncio.Event()

    async def begin(self) -> None:
        # discord.py owns the loop and has no place for a task group; `end` waits for this task.
        self._task = asyncio.create_task(self._own())  # noqa: TID251
        self._task.add_done_callback(lambda task: task.cancelled() or task.exception())  # `_own` has logged it
        ready = asyncio.create_task(self._ready.wait())  # noqa: TID251
        await asyncio.wait((self._task, ready), return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if self._task.done():
            self._task.result()  # raises why the app did not start
        listen(self._bot)
        if self._bot.bridge is not None:
            self._bot.bridge.load()
        if self._bot.settings.slash and (tree := tree_of(self._bot.client)) is not None:
            await sync(tree)

    async def _own(self) -> None:
        try:
            async with contextlib.AsyncExitStack() as life:
                if not _has_started(self._bot.app):
                    await life.enter_async_context(self._bot.app)
                # After the bot, because answers that are being written need the connection; before the app, because
                # what is said while that closes could not be kept.
                life.push_async_callback(self._close)
                await life.enter_async_context(self._bot.running())
                self._ready.set()
                await self._end.wait()
        except Exception:
            if self._ready.is_set():  # else `begin` says why
                log.exception("the bot has ended by an error; its connection is closed")
            raise

    async def end(self) -> None:
        self._end.set()
        try:
            if self._task is not None and not self._task.cancelled():
                await self._task
        finally:
            await self._close()


def _has_started(app: App) -> bool:
    try:
        return bool(app.runtime)
    except RondelError:
        return False


async def sync(tree: app_commands.CommandTree[Any]) -> None:
    """Tell Discord the commands. Without that the bot still answers messages."""
    try:
        await tree.sync()
    except discord.HTTPException as error:
        log.error("the slash commands cannot be registered: %s", error)


def _has_new_text(event: discord.RawMessageUpdateEvent) -> bool:
    """Whether a person has edited the text. Discord sends the same event when it adds the preview of a link."""
    if event.cached_message is not None:
        return event.cached_message.content != event.message.content
    return event.message.edited_at is not None


def listen(bot: DiscordBot) -> None:
    """Hear the client's events, besides the handlers that it has."""

    async def on_raw_message_edit(event: discord.RawMessageUpdateEvent) -> None:
        if _has_new_text(event):
            await bot.on_message_edit(event.message)

    async def on_raw_message_delete(event: discord.RawMessageDeleteEvent) -> None:
        await bot.on_message_delete(event.message_id)

    async def on_raw_bulk_message_delete(event: discord.RawBulkMessageDeleteEvent) -> None:
        for message in event.message_ids:
            await bot.on_message_delete(message)

    async def on_guild_remove(guild: discord.Guild) -> None:
        await bot.on_guild_remove(guild.id)

    async def on_guild_channel_delete(channel: discord.abc.GuildChannel) -> None:
        await bot.on_channel_delete(channel.id)

    async def on_raw_thread_delete(event: discord.RawThreadDeleteEvent) -> None:
        await bot.on_channel_delete(event.thread_id)

    handlers = (
        bot.on_message,
        on_raw_message_edit,
        on_raw_message_delete,
        on_raw_bulk_message_delete,
        on_guild_remove,
        on_guild_channel_delete,
        on_raw_thread_delete,
        bot.on_interaction,
        bot.on_ready,
    )
    client: Any = bot.client
    kind: Any = type(bot.client)
    for handler in handlers:
        name = handler.__name__
        is_free = getattr(kind, name, None) is getattr(RondelClient, name, None) and name not in vars(client)
        if is_free and handler == bot.on_message and isinstance(client, RondelClient):
            client.hear = bot.hear
        elif is_free:
            setattr(client, name, handler)  # it has none of its own; a listener would be a second task for each event
        elif hasattr(client, "add_listener"):  # a `commands.Bot`
            client.add_listener(handler, name)
        else:
            _wrap(client, name, handler)


def _wrap(client: discord.Client, name: str, handler: Callable[..., Any], *, last: bool = False) -> None:
    """Call our handler before the one that the client has, or after it."""
    theirs: Any = getattr(client, name, None)
    handlers = [one for one in ((theirs, handler) if last else (handler, theirs)) if one is not None]

    async def both(*given: Any) -> None:
        for one in handlers:
            await one(*given)

    both.__name__ = name
    setattr(client, name, both)
