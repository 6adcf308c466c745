"""A trace as it grows: each line as it comes, and once more when it changes. Knows no clock: somebody else waits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import msgspec

from ..store import Store
from .node import Price, TraceNode
from .text import CUT_OFF, DEEPER, line_of
from .tree import read

AT_WORK = "at work"


async def follow(
    store: Store, conversation: str, wait: Callable[[], Awaitable[None]], *, price: Price | None = None
) -> AsyncIterator[str]:
    """The lines of a conversation that another process may be writing, for as long as somebody listens."""
    told: dict[tuple[int, ...], str] = {}
    seq, working = -1, True
    while True:
        info = await store.info(conversation)
        if working or (info.seq if info else 0) != seq:
            root = await read(store, conversation, price=price)
            seq, working = info.seq if info else 0, root.outcome == CUT_OFF
            for path, line in _lines(root):
                if told.get(path) != line:
                    told[path] = line
                    yield line
        await wait()


def _lines(root: TraceNode) -> Iterator[tuple[tuple[int, ...], str]]:
    """Every line with its place in the tree. A journal only grows, so a place is always that of the same thing."""
    pending: list[tuple[tuple[int, ...], int, TraceNode]] = [((), 0, root)]
    while pending:
        path, depth, node = pending.pop()
        shown = msgspec.structs.replace(node, outcome=AT_WORK) if node.outcome == CUT_OFF else node
        if line := line_of(shown, depth):
            yield path, line
        inner = [((*path, i), depth + (child.kind in DEEPER), child) for i, child in enumerate(node.children)]
        pending += reversed(inner)
