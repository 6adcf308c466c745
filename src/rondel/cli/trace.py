"""`rondel trace`: what happened in a conversation, as a tree, a page, Markdown, JSON or live lines."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from ..errors import ConfigError
from ..files.private import write_private
from ..project.config import prices_of, secrets_in
from ..project.folder import open_store
from ..surfaces.commands import find_conversation
from ..surfaces.outline import trace_outline
from ..surfaces.terminal.views import render
from ..text.redaction import Redactor
from ..trace import TraceNode, markdown, only_turn, read
from ..trace.redact import without_secrets
from ._options import as_json, conversation_id, flag, string
from ._output import console, show, tell, write_json
from ._trust import load_config


class View(msgspec.Struct, frozen=True):
    turn: str
    as_json: bool
    markdown: bool
    html: bool
    short: bool
    watch: bool
    output: Path | None


@click.command()
@conversation_id
@string("--turn", help="only this turn: its number, its id, or last")
@flag("--short", help="only turns and calls")
@flag("--markdown", help="print Markdown")
@flag("--html", help="print a page for a browser, in one file")
@as_json
@click.option("--output", "-o", type=click.Path(path_type=Path), help="write to this file")
@flag("--watch", help="print lines as things happen, until Ctrl-C")
def trace(id: str, **options: Any) -> None:
    """Show what happened in a conversation, as a tree."""
    view = View(**options)
    if view.as_json + view.markdown + view.html + view.watch > 1:
        raise ConfigError("use only one of --json, --markdown, --html and --watch")
    if view.watch and (view.turn or view.short or view.output):
        raise ConfigError("--watch shows everything as it happens and takes no other option")
    if view.html and view.output is None and sys.stdout.isatty():
        raise ConfigError("a page is for a browser; write it to a file, for example with `--html --output trace.html`")
    if view.watch:
        asyncio.run(_watch(id))
        return
    is_shared = view.output is not None or view.html  # a file may be: it needs all secrets, to leave them out
    root, hide = asyncio.run(_read(id, only_reads=not is_shared))
    if view.turn:
        root = only_turn(root, view.turn)
    if is_shared:
        root = without_secrets(root, hide)
    if view.output is not None:
        _write(view.output, _text(root, view))
    elif view.as_json:
        write_json(_text(root, view).rstrip("\n"))
    elif view.markdown or view.html:
        sys.stdout.write(_text(root, view))
    else:
        show(render(trace_outline(root, short=view.short)))


def _text(root: TraceNode, view: View) -> str:
    if view.as_json:
        return msgspec.json.format(root.to_json(), indent=2).decode() + "\n"
    if view.html:
        from ..trace.page import page

        return page(root)
    return markdown(root, short=view.short)


def _write(path: Path, text: str) -> None:
    try:
        write_private(path, text)
    except OSError as error:
        raise ConfigError(f"the trace cannot be written to {str(path)!r}: {error.strerror}") from None
    tell(f"The trace is in {path}.")


async def _read(id: str, *, only_reads: bool) -> tuple[TraceNode, Callable[[str], str]]:
    """Return the trace, and what removes known secrets from a text."""
    config = load_config(only_reads=only_reads)
    hide = Redactor(secrets_in(config, os.environ)).text
    async with contextlib.aclosing(open_store(config)) as store:
        return await read(store, await find_conversation(store, id), price=prices_of(config).paid), hide


async def _watch(id: str) -> None:
    from ..text.printable import one_line
    from ..trace.follow import follow

    shown, config = console(), load_config(only_reads=True)
    with contextlib.suppress(asyncio.CancelledError):  # Ctrl-C stops it
        async with contextlib.aclosing(open_store(config)) as store:
            id = await find_conversation(store, id)
            async for line in follow(store, id, price=prices_of(config).paid):
                shown.print(one_line(line, 400), soft_wrap=True)
