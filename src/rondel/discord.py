"""`rondel.discord.attach(client, app)`: agents in a Discord bot. See docs/discord.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .surfaces import discord as _surface

if TYPE_CHECKING:
    from .surfaces.discord import (
        ActiveTask,
        ChatReply,
        DiscordBot,
        DiscordRule,
        DiscordSettings,
        Extras,
        ModeSettings,
        ReplyContext,
        RondelClient,
        attach,
    )

__all__ = [
    "ActiveTask",
    "ChatReply",
    "DiscordBot",
    "DiscordRule",
    "DiscordSettings",
    "Extras",
    "ModeSettings",
    "ReplyContext",
    "RondelClient",
    "attach",
]


def __getattr__(name: str) -> Any:
    return getattr(_surface, name)
