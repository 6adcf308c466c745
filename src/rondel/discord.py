"""`rondel.discord.attach(client, app)`: agents in a Discord bot. See docs/discord.md.

Importing this does not import discord.py; using one of its names does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import RondelError, install_extra

if TYPE_CHECKING:
    from .project.settings import DiscordRule as DiscordRule
    from .project.settings import DiscordSettings as DiscordSettings
    from .project.settings import ModeSettings as ModeSettings
    from .surfaces.discord.active import ActiveTask as ActiveTask
    from .surfaces.discord.bot import DiscordBot as DiscordBot
    from .surfaces.discord.hooks import ChatReply as ChatReply
    from .surfaces.discord.hooks import ReplyContext as ReplyContext
    from .surfaces.discord.mounting import RondelClient as RondelClient
    from .surfaces.discord.mounting import attach as attach
    from .surfaces.discord.outlet import Extras as Extras

_HOMES = {
    ".project.settings": "DiscordRule DiscordSettings ModeSettings",
    ".surfaces.discord.active": "ActiveTask",
    ".surfaces.discord.bot": "DiscordBot",
    ".surfaces.discord.hooks": "ChatReply ReplyContext",
    ".surfaces.discord.mounting": "RondelClient attach",
    ".surfaces.discord.outlet": "Extras",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
__all__ = sorted(_HOME_OF)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if (home := _HOME_OF.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(home, __package__), name)
    except ImportError as error:
        if error.name not in ("discord", "aiohttp"):
            raise
        raise RondelError(f"Discord needs discord.py: run {install_extra('discord')}") from error
