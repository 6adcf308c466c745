"""`rondel trace`: what happened in a conversation, as a tree, a page, Markdown or JSON, or line by line as it comes."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec

from ..config import load
from ..errors import ConfigError
from ..prices import Prices
from ..surfaces.terminal.slash import find_conversation
from ..surfaces.terminal.views import trace_tree
from ..trace import TraceNode, markdown, only_turn, read
from ._output import console, show, tell
from ._project import open_store

POLL_S = 0.5
"""How often a store is looked at that another process writes."""


class View(msgspec.Struct, frozen=True):
    """How a trace is shown, and of what."""

    turn: str = ""
    json: bool = False
    markdown: bool = False
    html: bool = False
    short: bool = False
    watch: bool = False
    output: Path | None = None


def trace(id: str, view: View) -> None:
    if view.json + view.markdown + view.html + view.watch > 1:
        raise ConfigError("--json, --markdown, --html and --watch exclude each other; give one of them")
    if view.watch and (view.turn or view.short or view.output):
        raise ConfigError("--watch goes with no other option; it shows every line as it comes")
    if view.html and view.output is None and sys.stdout.isatty():
        raise ConfigError("a page is for a browser: name a file for it, such as `--html --output trace.html`")
    if view.watch:
        asyncio.run(_watch(id))
        return
    root = asyncio.run(_read(id))
    if view.turn:
        root = only_turn(root, view.turn)
    if view.output is not None:
        _write(view.output, _text(root, view))
    elif view.json or view.markdown or view.html:
        sys.stdout.write(_text(root, view))
    else:
        show(trace_tree(root, short=view.short))


def _text(root: TraceNode, view: View) -> str:
    if view.json:
        return msgspec.json.format(root.to_json(), indent=2).decode() + "\n"
    if view.html:
        from ..trace.page import page

        return page(root)
    return markdown(root, short=view.short)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(
            f"the trace cannot be written to {str(path)!r}: {error.strerror}; name another file"
        ) from None
    tell(f"The trace is in {path}.")


async def _read(id: str) -> TraceNode:
    store = open_store(load())
    try:
        return await read(store, await find_conversation(store, id), price=Prices().paid)
    finally:
        await store.aclose()


async def _watch(id: str) -> None:
    from ..surfaces.terminal.clean import one_line
    from ..trace.follow import follow

    shown = console()
    store = open_store(load())
    try:
        id = await find_conversation(store, id)
        async for line in follow(store, id, lambda: asyncio.sleep(POLL_S), price=Prices().paid):
            shown.print(one_line(line, 400), soft_wrap=True)
    except asyncio.CancelledError:  # Ctrl-C is how it ends
        return
    finally:
        await store.aclose()
