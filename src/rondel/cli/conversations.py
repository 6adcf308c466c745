"""`rondel conversations`: lists, searches, renames, exports and deletes them."""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path

import click

from ..contracts.store import ConversationInfo, Store
from ..errors import ConfigError, RondelError
from ..events import Renamed
from ..files.private import write_private
from ..surfaces.commands import find_conversation
from ..surfaces.export import export as export_document
from ..surfaces.terminal.views import render
from ..surfaces.views import conversations_table, found_table, short_id
from ..text.printable import one_line
from ._options import WHICH, CommandGroup, as_json, complete_conversation, limit
from ._output import agrees, can_ask, show, show_json, tell
from ._project import with_store

_id = click.argument("id", help=WHICH, shell_complete=complete_conversation)


@click.group(cls=CommandGroup)
def conversations() -> None:
    """Manage and search the conversations."""


@conversations.command(name="list")
@limit(20)
@as_json
def list_conversations(limit: int, as_json: bool) -> None:
    """List the conversations, newest first."""
    infos = with_store(lambda store: store.conversations(limit=limit))
    if as_json:
        show_json(infos)
    else:
        show(render(conversations_table(infos, time.time())))


@conversations.command()
@click.argument("words", help="the words; a conversation is found if one message has all of them")
@limit(20)
@as_json
def search(words: str, limit: int, as_json: bool) -> None:
    """Find conversations by words in their messages."""
    found = with_store(lambda store: store.search(words, limit=limit))
    if as_json:
        show_json(found)
    else:
        show(render(found_table(found, time.time())))


@conversations.command()
@_id
@click.argument("title", help="the new title; an empty one is replaced by the next message")
def rename(id: str, title: str) -> None:
    """Give a conversation a title."""
    with_store(partial(_rename, wanted=id, title=title))


async def _rename(store: Store, wanted: str, title: str) -> None:
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
    text = with_store(partial(_export, wanted=id, format="json" if as_json else "markdown"))
    if not output:
        sys.stdout.write(text)
        return
    try:
        write_private(Path(output), text)
    except OSError as error:
        raise RondelError(f"{output!r} cannot be written: {error.strerror or error}") from None


async def _export(store: Store, wanted: str, format: str) -> str:
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
    """Delete conversations with all their messages."""
    return with_store(partial(_delete, wanted=ids, asks=not yes))


async def _delete(store: Store, wanted: tuple[str, ...], *, asks: bool) -> int:
    found = [await store.info(await find_conversation(store, one)) for one in wanted]
    doomed = {info.id: info for info in found if info is not None}
    for info in doomed.values():
        if info.state == "working" or await store.is_claimed(info.id):
            raise RondelError(f"{short_id(info.id)} is running; `rondel stop {short_id(info.id)}` stops it")
    if asks and not _is_agreed([*doomed.values()]):
        tell("Nothing was deleted.")
        return 1
    for id in doomed:
        await store.delete(id)
    tell(f"Deleted {len(doomed)} conversation{'s'[: len(doomed) > 1]}.")
    return 0


def _is_agreed(doomed: list[ConversationInfo]) -> bool:
    if not can_ask():
        raise ConfigError("deleting cannot be undone; add --yes to delete without a question")
    for info in doomed:
        tell(f"{short_id(info.id)}  {one_line(info.title, 60) or '(empty)'}  ({info.messages} messages)")
    return agrees("Delete for good?")
