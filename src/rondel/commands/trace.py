"""`rondel trace`: what happened in a conversation, as a tree, a page, Markdown or JSON, or line by line as it comes."""

from __future__ import annotations

import asyncio
import sys
from decimal import Decimal
from pathlib import Path

import msgspec

from ..charge import NANO
from ..config import load
from ..errors import ConfigError
from ..prices import Prices
from ..settings import Config
from ..surfaces.terminal.slash import find_conversation
from ..surfaces.terminal.views import trace_tree
from ..trace import Price, TraceNode, markdown, only_turn, read
from ..values import Usage
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
    config = load()
    store = open_store(config)
    try:
        return await read(store, await find_conversation(store, id), price=_price(config))
    finally:
        await store.aclose()


def _price(config: Config) -> Price:
    """What was paid, by the prices of its day. The lists are loaded when the first of them is needed."""
    prices = Prices()

    def price(engine: str, model: str, usage: Usage, at: float) -> Decimal | None:
        name, _, asked = engine.partition(":")
        settings = config.engines.get(name)
        provider = (settings.provider if settings else "") or name
        if not prices.lists(provider):
            return None
        if not prices.loaded:
            prices.load()
        cost = prices.cost_nanousd(provider, model or asked, usage, at)
        return None if cost is None else Decimal(cost) / NANO

    return price


async def _watch(id: str) -> None:
    from ..surfaces.terminal.clean import one_line
    from ..trace.follow import follow

    config, shown = load(), console()
    store = open_store(config)
    try:
        id = await find_conversation(store, id)
        async for line in follow(store, id, lambda: asyncio.sleep(POLL_S), price=_price(config)):
            shown.print(one_line(line, 400), soft_wrap=True)
    finally:
        await store.aclose()
