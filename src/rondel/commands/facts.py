"""`rondel facts`: what agents have learned in a conversation, with the values before."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from rich.text import Text

from ..config import load
from ..surfaces.terminal.clean import one_line
from ..surfaces.terminal.listing import Listing
from ..surfaces.terminal.slash import find_conversation
from ..transcript import Transcript
from ._output import show, show_json, tell
from ._project import open_store

VALUE_CHARS_MAX = 200


def facts(id: str, *, as_json: bool) -> None:
    transcript = asyncio.run(_read(id))
    if as_json:
        show_json([_row(transcript, name) for name in transcript.facts])
    elif transcript.facts:
        show(_table(transcript))
    else:
        tell("No agent has learned a fact in this conversation.")


async def _read(id: str) -> Transcript:
    store = open_store(load())
    try:
        return Transcript(entry.event for entry in await store.read(await find_conversation(store, id)))
    finally:
        await store.aclose()


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
    """What an agent learned is somebody's words: it cannot command the terminal."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return Text(one_line(text, VALUE_CHARS_MAX))
