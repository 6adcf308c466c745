"""Tables that stay readable in a narrow terminal: cells that do not fit move below the row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

GAP = 2
GROWING_MIN = 12  # the smallest useful width of a column


def cut(text: str) -> Text:
    """Return a cell that stays on one line and ends with an ellipsis if it does not fit."""
    return Text(text, no_wrap=True, overflow="ellipsis")


class Listing:
    """A table, with or without headings. The last `growing` columns take the space that is left; the others are never
    cut, because people copy them: ids, names, states."""

    def __init__(self, *headings: str, growing: int = 1) -> None:
        self._headings, self._growing = headings, growing
        self._rows: list[tuple[Text, ...]] = []

    def add_row(self, *cells: str | Text) -> None:
        self._rows.append(tuple(Text(cell) if isinstance(cell, str) else cell for cell in cells))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._rows:
            fits = self._width() <= options.max_width
            yield from [self._table()] if fits else self._cards(options.max_width - GAP)

    def _width(self) -> int:
        widths = self._widths()
        fixed, growing = widths[: -self._growing], widths[-self._growing :]
        return sum(fixed) + sum(min(width, GROWING_MIN) for width in growing) + GAP * (len(widths) - 1)

    def _widths(self) -> list[int]:
        rows: Sequence[Sequence[str]] = [self._headings, *([cell.plain for cell in row] for row in self._rows)]
        widths = [0] * max(map(len, rows))
        for row in rows:
            for index, cell in enumerate(row):
                widths[index] = max(widths[index], *(cell_len(line) for line in cell.split("\n")))
        return widths

    def _table(self) -> Table:
        made = Table(box=None, pad_edge=False, header_style="bold", show_header=any(self._headings))
        count = len(self._widths())
        for index in range(count):
            heading = self._headings[index] if index < len(self._headings) else ""
            made.add_column(heading, no_wrap=index < count - self._growing, overflow="fold")
        for row in self._rows:
            made.add_row(*row)
        return made

    def _cards(self, width: int) -> Iterator[RenderableType]:
        """Yield each row on several lines: first the columns that are never cut, below them the rest."""
        count, gap = len(self._widths()), Text(" " * GAP)
        for row in self._rows:
            fixed, growing = row[: count - self._growing], row[count - self._growing :]
            yield gap.join(cell for cell in fixed if cell.plain)
            rest = [cell for cell in growing if cell.plain]
            joined = gap.join(rest)
            for cell in [joined] if len(rest) > 1 and cell_len(joined.plain) <= width else rest:
                yield Padding(cell, (0, 0, 0, GAP))
