"""`rondel discord`: a bot for Discord, its invitation, and a sandbox to try it in."""

from __future__ import annotations

import asyncio
import sys

import click

from ..project.config.ledger import rules_of
from ..surfaces.terminal.signals import signals
from ._discord import Bot, allow_extensions, check_installed, log_to_stderr, settings_of, token_of
from ._options import CommandGroup, engine, flag, string
from ._output import tell
from ._project import load_project, models_of, open_app
from ._trust import load_config

INTERRUPTED = 130


@click.group(cls=CommandGroup, default="run")
def discord() -> None:
    """Run a Discord bot."""


@discord.command()
@string("--agent", help="the agent that answers; by default, the configured one")
@engine
@flag("--sandbox", help="try the bot in a Discord on this machine; needs no token")
def run(agent: str, engine: str, sandbox: bool) -> int:
    """Run the bot until a signal stops it; `rondel discord` does the same."""
    log_to_stderr()
    if sandbox:
        return asyncio.run(_sandbox(agent, engine))
    from ..gateway.server.serving import run_fast

    return run_fast(_run(agent, engine))


@discord.command()
def invite() -> None:
    """Print the link that adds the bot to a server."""
    check_installed()
    from ..surfaces.discord.check import client_id_in, invite_url

    sys.stdout.write(invite_url(client_id_in(token_of(load_config()))) + "\n")


async def _run(agent: str, engine: str) -> int:
    check_installed()
    from ..surfaces.discord.check import client_id_in

    project = load_project()
    token, settings = token_of(project.config), settings_of(project.config)
    client_id_in(token)  # report a text that is not a token before anything starts
    allow_extensions(project.config)
    async with open_app(project, agent or settings.agent, engine, recover=True, is_public=True) as opened:
        tell(opened.model_line)
        bot = Bot(opened.app, project.config)
        with signals(bot.stop_soon, "SIGINT", "SIGTERM"):
            await bot.run(token)
    return 0


async def _sandbox(agent: str, engine: str) -> int:
    check_installed()
    from ..stores.memory import MemoryStore
    from ._sandbox import play

    project = load_project()
    settings = settings_of(project.config)
    allow_extensions(project.config)
    limited = (rule.scope.get("role", "") for rule in rules_of(project.config))
    named = {*settings.approvers, *(rule.role for rule in settings.rules), *limited}
    # A store of its own, so that trials are not among the conversations and the usage of the real bot.
    async with open_app(project, agent or settings.agent, engine, is_public=True, store=MemoryStore()) as opened:
        roles = sorted(int(role) for role in named if str(role).isdecimal())
        was_interrupted = await play(opened, settings, models_of(project.config), roles)
    return INTERRUPTED if was_interrupted else 0
