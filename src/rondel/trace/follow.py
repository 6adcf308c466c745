"""A trace as it grows: each line when it is written, and again when it changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import msgspec

from ..contracts.store import Store
from .node import Price, TraceNode
from .text import CUT_OFF, DEEPER, line_of
from .tree import read

AT_WORK = "at work"
READ_S = 0.5
"""How often a running turn is read although its own log has not changed: the agents that work for it have logs of their
own."""


async def follow(store: Store, conversation: str, *, price: Price | None = None) -> AsyncIterator[str]:
    """Yield the lines of a conversation, whichever process writes it. Never ends."""
    shown_lines: dict[tuple[int, ...], str] = {}
    changed = asyncio.Event()
    subscription = store.subscribe(conversation, changed.set)
    try:
        while True:
            changed.clear()  # before the read: a change during the read needs another one
            root = await read(store, conversation, price=price)
            for path, line in _lines(root):
                if shown_lines.get(path) != line:
                    shown_lines[path] = line
                    yield line
            with suppress(TimeoutError):
                async with asyncio.timeout(READ_S if root.outcome == CUT_OFF else None):
                    await changed.wait()
    finally:
        subscription.close()


def _lines(root: TraceNode) -> Iterator[tuple[tuple[int, ...], str]]:
    """Yield every line with its path in the tree. A journal only grows, so a path always means the same thing."""
    pending: list[tuple[tuple[int, ...], int, TraceNode]] = [((), 0, root)]
    while pending:
        path, depth, node = pending.pop()
        shown = msgspec.structs.replace(node, outcome=AT_WORK) if node.outcome == CUT_OFF else node
        if line := line_of(shown, depth):
            yield path, line
        inner = [((*path, i), depth + (child.kind in DEEPER), child) for i, child in enumerate(node.children)]
        pending += reversed(inner)
