"""How commands print: results on stdout, everything else on stderr, colour only where somebody sees it."""

from __future__ import annotations

import os
import sys
from typing import IO, TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:  # to draw is not cheap to learn, and most commands only write lines
    from rich.console import Console, RenderableType

WIDTH_WITHOUT_TERMINAL = 120


def console(target: IO[str] | None = None) -> Console:
    """A console for stdout, or for what is given. What it prints is never read as markup."""
    from rich.console import Console

    shown = target or sys.stdout
    return Console(
        file=shown,
        markup=False,
        highlight=False,
        emoji=False,
        no_color=bool(os.environ.get("NO_COLOR")) or None,
        width=None if shown.isatty() else WIDTH_WITHOUT_TERMINAL,
        legacy_windows=False,
    )


def show(renderable: RenderableType) -> None:
    console().print(renderable)


def show_json(value: Any) -> None:
    """One JSON document, indented for people."""
    text = msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2)
    sys.stdout.write(text.decode() + "\n")


def tell(text: str) -> None:
    """A sentence for the person, on stderr."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
