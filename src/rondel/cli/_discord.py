"""The bot as commands run it: its settings, its token, and its life. `rondel discord` and `rondel serve` share this."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from importlib.util import find_spec

from ..app.app import App
from ..errors import ConfigError, RondelError, install_extra
from ..project.config import secrets_in
from ..project.settings import Config, DiscordSettings
from ..text.printable import one_line
from ..text.redaction import Redactor
from ._output import tell
from ._project import models_of

VARIABLE = "DISCORD_TOKEN"


def check_installed() -> None:
    if find_spec("discord") is None:
        raise RondelError(f"Discord needs discord.py: run {install_extra('discord')}")


def settings_of(config: Config) -> DiscordSettings:
    return config.discord or DiscordSettings()


def token_of(config: Config) -> str:
    token = (settings_of(config).token or os.environ.get(VARIABLE, "")).strip()
    if not token:
        raise ConfigError(
            f"there is no token: set {VARIABLE}, or `token` under [discord]; "
            "`rondel discord --sandbox` tries the bot without one"
        )
    return token.removeprefix("Bot ")


def allow_extensions(config: Config) -> None:
    """Let extensions be modules beside rondel.toml. Only for projects that the user trusts."""
    config.check_trusted()
    if settings_of(config).extensions and config.project and config.project not in sys.path:
        sys.path.insert(0, config.project)


class Bot:
    """The bot beside whatever else the app does."""

    def __init__(self, app: App, config: Config) -> None:
        from ..surfaces.discord.mounting import RondelClient, attach

        settings = settings_of(config)
        shards = {"shard_count": settings.shards} if settings.shards else {}
        self._client = RondelClient(extensions=settings.extensions, **shards)
        self._stop = asyncio.Event()
        self._bot = attach(self._client, app, settings)
        self._bot.hide = Redactor({*secrets_in(config, os.environ), token_of(config)}).text
        self._bot.models = models_of(config)

    def stop_soon(self, number: int = 0) -> None:
        self._stop.set()

    async def run(self, token: str) -> None:
        """Run until `stop_soon`. Raises ConfigError if Discord does not let the bot in."""
        from ..surfaces.discord.mounting import connect

        async with asyncio.TaskGroup() as group:
            telling = group.create_task(self._tell_ready())
            group.create_task(self._close())
            try:
                await connect(self._client, token, self._stop)
            finally:
                self._stop.set()
                telling.cancel()

    async def _close(self) -> None:
        await self._stop.wait()
        if not self._client.is_closed() and self._client.is_ready():
            tell("Stopping the bot; answers that are being written are finished first.")
        await self._client.close()

    async def _tell_ready(self) -> None:
        await self._bot.connected.wait()
        count = len(self._client.guilds)
        where = f"in {count} server{'' if count == 1 else 's'}"
        if not count:
            where = "in no server yet: `rondel discord invite`"
        tell(f"{one_line(self._bot.name, 60)} is connected, {where}. Ctrl-C stops it.")


def log_to_stderr() -> None:
    """Show what goes wrong while the bot runs."""
    for name in ("rondel.discord", "discord"):
        logger = logging.getLogger(name)
        if logging.lastResort is not None and logging.lastResort not in logger.handlers:
            logger.addHandler(logging.lastResort)  # writes warnings and errors to whatever stderr is then
    logging.getLogger("discord.client").setLevel(logging.ERROR)  # it warns that voice is not installed
