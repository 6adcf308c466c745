"""`rondel config`: what is in force, and where each value came from. No secret is shown."""

from __future__ import annotations

from rich.text import Text

from ..config import explain, load
from ..surfaces.terminal.views import table
from ._output import show, show_json, tell


def config(*, as_json: bool) -> None:
    loaded = load()
    rows = explain(loaded)
    if as_json:
        show_json([{"key": key, "value": value, "source": source} for key, value, source in rows])
        return
    show(Text(f"From {loaded.path}" if loaded.path else "No rondel.toml was found: these are the defaults."))
    made = table("key", "value", "source")
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    show(made)
    for warning in loaded.warnings:
        tell(f"rondel: {warning}")
