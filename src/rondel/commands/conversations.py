"""`rondel conversations`: what there is, newest first."""

from __future__ import annotations

import asyncio
import time

from ..config import load
from ..store import ConversationInfo
from ..surfaces.terminal.views import conversations_table
from ._output import show, show_json
from ._project import open_store


def conversations(*, limit: int, as_json: bool) -> None:
    infos = asyncio.run(_read(limit))
    if as_json:
        show_json(infos)
    else:
        show(conversations_table(infos, time.time()))


async def _read(limit: int) -> list[ConversationInfo]:
    store = open_store(load())
    try:
        return await store.conversations(limit=limit)
    finally:
        await store.aclose()
