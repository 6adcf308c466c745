"""`rondel facts`: what agents learned in a conversation, with the previous values."""

from __future__ import annotations

from functools import partial
from typing import Any

import click
import msgspec
from rich.text import Text

from ..contracts.store import Store
from ..machine.transcript import Transcript
from ..surfaces.commands import find_conversation
from ..surfaces.terminal.listing import Listing
from ..text.printable import one_line
from ._options import as_json, conversation_id
from ._output import show, show_json, tell
from ._project import with_store

VALUE_CHARS_MAX = 200


@click.command()
@conversation_id
@as_json
def facts(id: str, as_json: bool) -> None:
    """Show what agents learned in a conversation."""
    transcript = with_store(partial(_read, wanted=id))
    if as_json:
        show_json([_row(transcript, name) for name in transcript.facts])
    elif transcript.facts:
        show(_table(transcript))
    else:
        tell("No agent has learned a fact in this conversation.")


async def _read(store: Store, wanted: str) -> Transcript:
    return Transcript(entry.event for entry in await store.read(await find_conversation(store, wanted)))


def _row(transcript: Transcript, name: str) -> dict[str, Any]:
    fact = transcript.facts[name]
    old = {"old": transcript.old_facts[name]} if name in transcript.old_facts else {}
    return {"name": name, "value": fact.value, **old, "scope": "local" if fact.local else "global", "tags": fact.tags}


def _table(transcript: Transcript) -> Listing:
    table = Listing("fact", "value", "before", "tags", growing=3)
    for name in transcript.facts:
        row = _row(transcript, name)
        shown = f"{name} (local)" if row["scope"] == "local" else name
        table.add_row(*map(_cell, (shown, row["value"], row.get("old", ""), ", ".join(row["tags"]))))
    return table


def _cell(value: Any) -> Text:
    """Return a value as one line. It may be anyone's text, so it must not control the terminal."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return Text(one_line(text, VALUE_CHARS_MAX))
