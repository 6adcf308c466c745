"""`rondel conversations`: the conversations, newest first."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing

import click

from ..contracts.store import ConversationInfo
from ..project.folder import open_store
from ..surfaces.terminal.views import render
from ..surfaces.views import conversations_table
from ._options import as_json, limit
from ._output import show, show_json
from ._trust import load_config


@click.command()
@limit(20)
@as_json
def conversations(limit: int, as_json: bool) -> None:
    """List the conversations, newest first."""
    infos = asyncio.run(_read(limit))
    if as_json:
        show_json(infos)
    else:
        show(render(conversations_table(infos, time.time())))


async def _read(limit: int) -> list[ConversationInfo]:
    async with aclosing(open_store(load_config())) as store:
        return await store.conversations(limit=limit)
