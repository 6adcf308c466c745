"""Consoles for styled output that remove control characters from all text.

Every console of Rondel is a `SafeConsole`, and every live display is made by `live` or `progress_bar`.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from ...text.printable import clean, guard_streams, raw_stream

if TYPE_CHECKING:
    from rich.live import Live
    from rich.progress import Progress, ProgressColumn


class SafeConsole(Console):
    """A console whose text cannot control the terminal, whatever is printed. Nothing is read as markup."""

    def __init__(self, file: IO[str] | None = None, **settings: Any) -> None:
        shown = raw_stream(file if file is not None else sys.stdout)
        super().__init__(file=shown, markup=False, highlight=False, emoji=False, legacy_windows=False, **settings)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control is None and (text := clean(segment.text)) != segment.text:
                segment = Segment(text, segment.style)
            yield segment


@contextmanager
def live(console: SafeConsole, renderable: RenderableType | None = None, **settings: Any) -> Generator[Live]:
    from rich.live import Live

    with Live(renderable, console=console, auto_refresh=False, **settings) as shown:
        guard_streams()  # Live replaces stdout and stderr with streams that interpret styling
        yield shown


@contextmanager
def progress_bar(console: SafeConsole, *columns: ProgressColumn, **settings: Any) -> Generator[Progress]:
    from rich.progress import Progress

    with Progress(*columns, console=console, transient=True, **settings) as bar:
        guard_streams()
        yield bar
