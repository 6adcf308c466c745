"""`rondel config`: the effective settings and where each comes from. Secrets are not shown."""

from __future__ import annotations

from pathlib import Path

import click
from rich.text import Text

from ..project.config import explain
from ..surfaces.terminal.listing import Listing
from ._options import as_json
from ._output import show, show_json, tell
from ._trust import look_at_config, not_looked_at


@click.command()
@as_json
def config(as_json: bool) -> None:
    """Show the effective settings and where each comes from."""
    loaded = look_at_config()
    rows = explain(loaded)
    if not loaded.is_trusted:
        tell(f"rondel: {not_looked_at(loaded)}; variables are shown by name")
    if as_json:
        show_json([{"key": key, "value": value, "source": source} for key, value, source in rows])
        return
    show(Text(f"From {loaded.path}" if loaded.path else "No rondel.toml found: these are the defaults."))
    made = Listing("key", "value", "source", growing=2)
    for row in rows:
        made.add_row(*row[:-1], row[-1].replace(loaded.path, Path(loaded.path).name) if loaded.path else row[-1])
    show(made)
    for warning in loaded.warnings:
        tell(f"rondel: {warning}")
