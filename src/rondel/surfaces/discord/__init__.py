"""The Discord surface. `pip install 'rondel[discord]'`.

bot.py hears and answers; gate.py decides who is answered; context.py gathers what the model gets; fold.py, delivery.py
and outlet.py show the answer; questions.py asks; bridge.py offers slash commands to the model; slash.py has our own.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...project.settings import DiscordRule, DiscordSettings, ModeSettings
    from .bot import ActiveTask, DiscordBot
    from .hooks import ChatReply, ReplyContext
    from .mounting import RondelClient, attach
    from .outlet import Extras

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

_HOMES = {
    ".mounting": "RondelClient attach",
    ".bot": "ActiveTask DiscordBot",
    ".hooks": "ChatReply ReplyContext",
    ".outlet": "Extras",
    "...project.settings": "DiscordRule DiscordSettings ModeSettings",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if home := _HOME_OF.get(name):
        from ...errors import RondelError

        try:
            return getattr(import_module(home, __name__), name)
        except ImportError as error:
            if error.name not in ("discord", "aiohttp"):
                raise
            raise RondelError("Discord needs discord.py: run pip install 'rondel[discord]'") from error
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
