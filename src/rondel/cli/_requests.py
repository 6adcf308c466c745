"""Shows the gateway's requests: a line each, or a live table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import tzinfo

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..gateway.relay.record import Record, Records, Speed
from ..gateway.server.log import LogLine, line_of
from ..ledger.spending import dollars
from ..text.printable import one_line

NAME_MAX, ERROR_MAX = 40, 200
SESSIONS_SHOWN = REASONS_SHOWN = 3
FRAME_ROWS = 6  # rows of the screen that show no requests: the heading, the speeds, the shell's prompt


def request_line(line: LogLine) -> str:
    """Return one line of text without control characters."""
    at = line.at.astimezone()
    if line.event != "request":
        return f"{at:%H:%M:%S} {one_line(line.event, 20)}: {one_line(line.said, ERROR_MAX)}"
    words = [f"{at:%H:%M:%S}", _status(line), _name(line.key), _models(line)]
    if line.rule:
        words.append(f"({one_line(line.rule, 20)})")
    if line.tokens_in or line.tokens_out:
        words.append(f"in {line.tokens_in:,} out {line.tokens_out:,} cached {line.tokens_cached:,}")
    if line.cost_nanousd is not None:
        words.append(_cost(line))
    if line.first_token_s is not None and line.streams:
        words.append(f"first {line.first_token_s:.2f} s")
    if line.tokens_per_s is not None:
        words.append(f"{line.tokens_per_s:.0f} tok/s")
    words.append(f"{line.seconds:.2f} s")
    if line.error:
        words.append(f"– {one_line(line.error, ERROR_MAX)}")
    return " ".join(word for word in words if word)


COLUMNS: tuple[str, ...] = (
    "time",
    "key",
    "asked → answered",
    "rule",
    "in",
    "out",
    "cached",
    "cost",
    "first",
    "tok/s",
    "status",
)
LEFT = COLUMNS[:4]
MODELS = COLUMNS[2]
MODELS_MIN = 24
FIRST_TO_GO = ("cached", "tok/s", "first", "key", "rule", "cost", "in")
"""Columns that a narrow terminal leaves out, in this order, so that no number is cut."""


def request_table(lines: Iterable[LogLine], width: int, zone: tzinfo | None = None) -> Table:
    """Return a table with a row for each request, at most `width` wide, without empty columns."""
    rows = [dict(zip(COLUMNS, _cells(line, zone), strict=True)) for line in lines]
    used = [name for name in COLUMNS if not rows or name == MODELS or any(row[name].plain for row in rows)]
    widths = {name: max([len(name), *(row[name].cell_len for row in rows)]) for name in used}
    for name in FIRST_TO_GO:
        if _room(widths, width) >= MODELS_MIN:
            break
        widths.pop(name, None)
    models_max = max(MODELS_MIN, _room(widths, width))
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name in widths:
        most = min(widths[name], models_max) if name == MODELS else widths[name]
        table.add_column(name, justify="left" if name in LEFT else "right", no_wrap=True, width=most)
    for row in rows:
        table.add_row(*(row[name] for name in widths))
    return table


def failure_reasons(lines: Iterable[LogLine], zone: tzinfo | None = None) -> list[Text]:
    """Return why the newest requests failed, a line each, cut at the end of the terminal's line."""
    failed = [line for line in lines if line.error and line.status >= 400][-REASONS_SHOWN:]
    return [
        Text(
            f"{line.at.astimezone(zone):%H:%M:%S} {line.status} {one_line(line.error, ERROR_MAX)}",
            style="red",
            no_wrap=True,
            overflow="ellipsis",
        )
        for line in failed
    ]


def _room(widths: dict[str, int], width: int) -> int:
    return width - sum(size + 2 for name, size in widths.items() if name != MODELS)


def _cells(line: LogLine, zone: tzinfo | None) -> list[Text]:
    first = f"{line.first_token_s:.2f} s" if line.first_token_s is not None and line.streams else ""
    cells = [
        f"{line.at.astimezone(zone):%H:%M:%S}",
        _name(line.key),
        _models(line),
        one_line(line.rule, 20),
        f"{line.tokens_in:,}" if line.tokens_in else "",
        f"{line.tokens_out:,}" if line.tokens_out else "",
        f"{line.tokens_cached:,}" if line.tokens_cached else "",
        _cost(line),
        first,
        f"{line.tokens_per_s:.0f}" if line.tokens_per_s is not None else "",
    ]
    style = {"done": "", "open": "dim"}.get(line.outcome, "red")
    return [*(Text(cell) for cell in cells), Text(_status(line), style=style)]


def _models(line: LogLine) -> str:
    asked, answered = one_line(line.asked, NAME_MAX), one_line(line.engine, NAME_MAX)
    return f"{asked} → {answered}" if answered and answered != asked else asked


def _name(text: str) -> str:
    return one_line(text, 16)


def _cost(line: LogLine) -> str:
    return "" if line.cost_nanousd is None else dollars(line.cost_nanousd)


def _status(line: LogLine) -> str:
    if line.outcome == "open":
        return "…"
    return "left" if line.outcome == "left" else str(line.status or "–")


# --- live -------------------------------------------------------------------------------------------------------------


class Watching:
    """The live view of `rondel serve --watch`: the newest requests, and the sessions that streamed last."""

    def __init__(self, records: Records, console: Console, now: Callable[[], float], title: str) -> None:
        self._records, self._console, self._now, self._title = records, console, now, title

    def __rich__(self) -> RenderableType:
        width, height = self._console.size
        newest = list(self._records.newest)[-max(1, height - FRAME_ROWS - SESSIONS_SHOWN - REASONS_SHOWN) :]
        lines = [line_of(record) for record in newest]
        shown = request_table(lines, width)
        return Group(Text(self._title, style="dim"), shown, *failure_reasons(lines), *self._speeds())

    def _speeds(self) -> list[Text]:
        newest = list(self._records.speeds.items())[-SESSIONS_SHOWN:]
        return [Text(speed_line(session, speed, self._now()), style="dim") for session, speed in reversed(newest)]


def speed_line(session: str, speed: Speed, now: float) -> str:
    live, average, first_s = speed.live(now), speed.average, speed.first_token_s
    said = [
        f"now {live:.0f} tok/s" if live is not None else "",
        f"average {average:.0f} tok/s" if average is not None else "",
        f"first token {first_s:.2f} s" if first_s is not None else "",
    ]
    return f"session {one_line(session, 24)}: {', '.join(text for text in said if text) or 'nothing yet'}"


def line_watcher(say: Callable[[str], None]) -> Callable[[Record], None]:
    def watch(record: Record) -> None:
        if record.outcome != "open":
            say(request_line(line_of(record)))

    return watch
