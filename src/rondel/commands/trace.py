"""`rondel trace`: what happened in a conversation, as a tree."""

from __future__ import annotations

import asyncio
import sys

from ..config import load
from ..surfaces.terminal.slash import find_conversation
from ..surfaces.terminal.views import trace_tree
from ..trace import TraceNode, markdown, read
from ._output import show, show_json
from ._project import open_store


def trace(id: str, *, as_json: bool, as_markdown: bool, short: bool) -> None:
    root = asyncio.run(_read(id))
    if as_json:
        show_json(root)
    elif as_markdown:
        sys.stdout.write(markdown(root, short=short))
    else:
        show(trace_tree(root, short=short))


async def _read(id: str) -> TraceNode:
    store = open_store(load())
    try:
        return await read(store, await find_conversation(store, id))
    finally:
        await store.aclose()
