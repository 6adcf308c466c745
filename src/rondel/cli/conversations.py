"""`rondel conversations`: lists, searches, renames, exports and deletes them."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import aclosing
from pathlib import Path

import click

from ..contracts.store import ConversationInfo, Found, Store
from ..errors import ConfigError, RondelError
from ..events import Renamed
from ..files.private import write_private
from ..project.folder import open_store
from ..surfaces.commands import find_conversation
from ..surfaces.export import export as export_document
from ..surfaces.terminal.views import render
from ..surfaces.views import conversations_table, found_table, short_id
from ..text.printable import one_line
from ._options import WHICH, CommandGroup, as_json, complete_conversation, limit
from ._output import show, show_json, tell
from ._trust import load_config

_id = click.argument("id", help=WHICH, shell_complete=complete_conversation)


@click.group(cls=CommandGroup, invoke_without_command=True)
@limit(20)
@as_json
@click.pass_context
def conversations(context: click.Context, limit: int, as_json: bool) -> None:
    """List the conversations, newest first."""
    if context.invoked_subcommand is not None:
        return
    infos = asyncio.run(_list(limit))
    if as_json:
        show_json(infos)
    else:
        show(render(conversations_table(infos, time.time())))


async def _list(limit: int) -> list[ConversationInfo]:
    async with aclosing(_store()) as store:
        return await store.conversations(limit=limit)


@conversations.command()
@click.argument("words", help="the words; a conversation is found if one message has all of them")
@limit(20)
@as_json
def search(words: str, limit: int, as_json: bool) -> None:
    """Find conversations by words that were said in them."""
    found = asyncio.run(_search(words, limit))
    if as_json:
        show_json(found)
    else:
        show(render(found_table(found, time.time())))


async def _search(words: str, limit: int) -> list[Found]:
    async with aclosing(_store()) as store:
        return await store.search(words, limit=limit)


@conversations.command()
@_id
@click.argument("title", help="the new title; an empty one is replaced by the next message")
def rename(id: str, title: str) -> None:
    """Give a conversation a title."""
    asyncio.run(_rename(id, title))


async def _rename(wanted: str, title: str) -> None:
    async with aclosing(_store()) as store:
        id = await find_conversation(store, wanted)
        renamed = Renamed(" ".join(title.split()))
        await store.append(id, await store.last_seq(id) + 1, (renamed,), at=time.time())
        tell(f"{short_id(id)} is now called {one_line(renamed.title, 80)!r}.")


@conversations.command()
@_id
@as_json
@click.option("--output", "-o", default="", help="the file to write; by default, it is printed")
def export(id: str, as_json: bool, output: str) -> None:
    """Print a conversation as Markdown or JSON."""
    text = asyncio.run(_export(id, "json" if as_json else "markdown"))
    if not output:
        sys.stdout.write(text)
        return
    try:
        write_private(Path(output), text)
    except OSError as error:
        raise RondelError(f"{output!r} cannot be written: {error.strerror or error}") from None


async def _export(wanted: str, format: str) -> str:
    async with aclosing(_store()) as store:
        return (await export_document(store, await find_conversation(store, wanted), format)).text


@conversations.command()
@click.argument(
    "ids",
    nargs=-1,
    required=True,
    help="the conversations: each an id, part of an id, or last",
    shell_complete=complete_conversation,
)
@click.option("--yes", "-y", is_flag=True, help="do not ask")
def delete(ids: tuple[str, ...], yes: bool) -> int:
    """Delete conversations with everything that was said in them."""
    return asyncio.run(_delete(ids, asks=not yes))


async def _delete(wanted: tuple[str, ...], *, asks: bool) -> int:
    async with aclosing(_store()) as store:
        found = [await store.info(await find_conversation(store, one)) for one in wanted]
        doomed = {info.id: info for info in found if info is not None}
        for info in doomed.values():
            if info.state == "working" or await store.is_claimed(info.id):
                raise RondelError(f"{short_id(info.id)} is at work; `rondel stop {short_id(info.id)}` stops it")
        if asks and not _agrees([*doomed.values()]):
            tell("Nothing was deleted.")
            return 1
        for id in doomed:
            await store.delete(id)
        tell(f"Deleted {len(doomed)} conversation{'s'[: len(doomed) > 1]}.")
        return 0


def _agrees(doomed: list[ConversationInfo]) -> bool:
    if sys.stdin is None or not sys.stdin.isatty():  # pyright: ignore[reportUnnecessaryComparison]
        raise ConfigError("deleting cannot be undone; add --yes to do it without a question")
    for info in doomed:
        tell(f"{short_id(info.id)}  {one_line(info.title, 60) or '(empty)'}  ({info.messages} messages)")
    tell("Delete for good? [y/N] ")
    return sys.stdin.readline().strip().casefold() in ("y", "yes")


def _store() -> Store:
    return open_store(load_config())
