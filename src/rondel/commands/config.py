"""`rondel config`: what is in force, and where each value came from. No secret is shown."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from ..config import explain, load
from ..surfaces.terminal.listing import Listing
from ._output import show, show_json, tell


def config(*, as_json: bool) -> None:
    loaded = load()
    rows = explain(loaded)
    if as_json:
        show_json([{"key": key, "value": value, "source": source} for key, value, source in rows])
        return
    show(Text(f"From {loaded.path}" if loaded.path else "No rondel.toml was found: these are the defaults."))
    made = Listing("key", "value", "source", growing=2)
    for row in rows:
        made.add_row(*row[:-1], row[-1].replace(loaded.path, Path(loaded.path).name) if loaded.path else row[-1])
    show(made)
    for warning in loaded.warnings:
        tell(f"rondel: {warning}")
