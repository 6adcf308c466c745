"""`rondel usage`: tokens and cost by model, agent, person and time, and the limits."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import aclosing, suppress
from typing import Any

import click
import msgspec
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ..contracts.ledger import Totals, dimensions_in
from ..contracts.window import Window, day_number
from ..errors import ConfigError, RondelError
from ..ledger.ledger import Ledger
from ..ledger.spending import LimitState, cost_text, dollars
from ..project.config import make_ledger
from ..project.folder import open_store
from ..project.settings import Config
from ..surfaces.terminal.console import live
from ..surfaces.terminal.listing import Listing
from ..surfaces.usage import UsageReport, plain_row, sums_of, to_csv
from ..surfaces.usage import report as usage_report
from ..text.printable import one_line
from ._options import as_json, flag, limit, string
from ._output import console, show, show_json
from ._trust import load_config

BAR_CELLS = 24
WIDTH_MAX = 1_000
REFRESH_S = 1.0
TITLES = {"day": "today", "week": "this week", "month": "this month", "lifetime": "all time"}
UNITS = {"d": 1, "w": 7, "m": 30}


class View(msgspec.Struct, frozen=True):
    by: str
    window: str
    since: str
    limit: int
    as_json: bool
    as_csv: bool
    watch: bool


@click.command()
@string("--by", default="model", help="model, agent, person, key, ...; several with a comma")
@string("--window", "-w", help="one row per day, week, month or lifetime")
@string("--since", help="start at this date, 2026-02-28, or this long ago: 30d, 6w, 3m")
@limit(20)
@as_json
@flag("--csv", "as_csv", help="print all rows for a spreadsheet")
@flag("--watch", help="refresh every second, until Ctrl-C")
def usage(**options: Any) -> None:
    """Show tokens and cost, who used them, and the limits."""
    view = View(**options)
    if view.as_json and view.as_csv:
        raise ConfigError("use either --json or --csv")
    if view.watch and (view.as_json or view.as_csv or not sys.stdout.isatty()):
        raise ConfigError("--watch needs a terminal and cannot be used with --json or --csv")
    try:
        dimensions_in(view.by)
    except RondelError as error:
        raise ConfigError(str(error)) from None
    view = msgspec.structs.replace(view, since=_date(view.since, time.time()))
    asyncio.run(_usage(view, load_config(only_reads=True)))


def _date(since: str, now: float) -> str:
    """Return a date; `30d`, `6w` and `3m` are that long ago."""
    count, unit = since[:-1], since[-1:]
    if count.isdigit() and unit in UNITS:
        from datetime import UTC, datetime, timedelta

        day = datetime.fromtimestamp(now, UTC) - timedelta(days=min(int(count), 20_000) * UNITS[unit])
        return day.date().isoformat()
    if since:
        try:
            day_number(since)
        except ValueError:
            raise ConfigError(
                f"--since {since!r} is not a date; use 2026-11-16 or an age such as 30d, 6w or 3m"
            ) from None
    return since


async def _usage(view: View, config: Config) -> None:
    async with aclosing(open_store(config)) as store:
        ledger = make_ledger(store.ledger_store, config)
        if view.watch:
            await _watch(ledger, view)
            return
        report = await _report(ledger, view)
        if view.as_csv:
            sys.stdout.write(to_csv(report))
        elif view.as_json:
            show_json(_plain(report))
        else:
            show(_shown(report))


async def _watch(ledger: Ledger, view: View) -> None:
    with live(console(), _shown(await _report(ledger, view))) as picture, suppress(asyncio.CancelledError):
        while True:
            await asyncio.sleep(REFRESH_S)
            picture.update(_shown(await _report(ledger, view)), refresh=True)


async def _report(ledger: Ledger, view: View) -> UsageReport:
    most = None if view.as_csv else view.limit
    return await usage_report(ledger, by=view.by, window=view.window, since=view.since, limit=most)


# --- for people -------------------------------------------------------------------------------------------------------


def _shown(report: UsageReport) -> RenderableType:
    parts: list[RenderableType] = []
    if not report.totals["lifetime"].calls:
        parts.append(Text("No usage yet."))
    else:
        if report.overview:
            parts += [_totals_table(report.totals), Text()]
            parts.append(Text(f"{TITLES[report.window]}, by {' and '.join(dimensions_in(report.by)) or 'all'}", "bold"))
        rows = _Fitting(_rows_table(report, bars=True), _rows_table(report, bars=False))
        parts.append(rows if report.rows else Text("none", "dim"))
    if report.limits:
        limits = _Fitting(_limits_table(report.limits), _limits_list(report.limits))
        parts += [Text(), Text("limits", "bold"), limits]
    return Group(*parts)


class _Fitting:
    """A table with bars if it fits, otherwise one without."""

    def __init__(self, wide: Table, narrow: RenderableType) -> None:
        self._wide, self._narrow = wide, narrow

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wanted = Measurement.get(console, options.update(max_width=WIDTH_MAX), self._wide).maximum
        yield self._wide if wanted <= options.max_width else self._narrow


def _totals_table(totals: dict[Window, Totals]) -> Table:
    table = _table(("", "left"), ("tokens in", "right"), ("out", "right"), ("calls", "right"), ("cost", "right"))
    for window, sums in totals.items():
        table.add_row(TITLES[window], f"{sums.tokens_in:,}", f"{sums.tokens_out:,}", f"{sums.calls:,}", cost_text(sums))
    return table


def _rows_table(report: UsageReport, *, bars: bool) -> Table:
    most = max((row.totals.tokens for row in report.rows), default=0)
    when = () if report.overview or report.window == "lifetime" else ((report.window, "left"),)
    names = dimensions_in(report.by)
    bar = (("", "left"),) if bars else ()
    table = _table(*when, *((name, "left") for name in names), *bar, ("tokens", "right"), ("cost", "right"))
    for row in report.rows:
        values = [Text(one_line(value, 40)) for value in row.values] if names else []
        key = [row.key] if when else []
        drawn = [_bar(row.totals.tokens, most)] if bars else []
        table.add_row(*key, *values, *drawn, f"{row.totals.tokens:,}", cost_text(row.totals))
    return table


def _limits_table(limits: Sequence[LimitState]) -> Table:
    table = _table(("", "left"), ("", "left"), ("", "left"), ("", "left"))
    table.show_header = False
    for state in limits:
        for used, most, text in _standing(state):
            style = "red" if used >= most and state.rule.mode == "block" else "yellow" if used >= most else "green"
            table.add_row(_whose(state), _bar(used, most, style), text, state.rule.mode)
    return table


def _limits_list(limits: Sequence[LimitState]) -> Listing:
    made = Listing()
    for state in limits:
        for _, _, text in _standing(state):
            made.add_row(_whose(state), f"{text}, {state.rule.mode}")
    return made


def _standing(state: LimitState) -> Iterable[tuple[int, int, str]]:
    rule, balance = state.rule, state.balance
    if rule.tokens is not None:
        yield balance.tokens, rule.tokens, f"{balance.tokens:,} of {rule.tokens:,} tokens"
    if rule.cost_nanousd is not None:
        text = f"{dollars(balance.cost_nanousd)} of {dollars(rule.cost_nanousd)}"
        yield balance.cost_nanousd, rule.cost_nanousd, text


def _whose(state: LimitState) -> Text:
    names, values = dimensions_in(state.account.dimension), state.account.value.split("\x1f")
    whom = ", ".join(f"{name} {one_line(value, 40)}" for name, value in zip(names, values, strict=False))
    return Text(f"{state.account.window}{f', {whom}' if whom else ''}")


def _bar(part: int, whole: int, style: str = "cyan") -> Text:
    share = min(part / whole, 1.0) if whole else float(part > 0)
    cells = round(share * BAR_CELLS) or (1 if part else 0)
    return Text("█" * cells, style).append("░" * (BAR_CELLS - cells), "dim")


def _table(*columns: tuple[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading, justify in columns:
        whole = heading in ("tokens", "cost", "")
        table.add_column(heading, justify=justify, no_wrap=whole, overflow="fold")  # type: ignore[arg-type]
    return table


# --- for programs -----------------------------------------------------------------------------------------------------


def _plain(report: UsageReport) -> dict[str, Any]:
    return {
        "by": report.by,
        "window": report.window,
        "totals": {window: sums_of(totals) for window, totals in report.totals.items()},
        "rows": [plain_row(row) for row in report.rows],
        "limits": [
            {
                **msgspec.structs.asdict(state.rule),
                "window_key": state.window_key,
                "value": state.account.value.replace("\x1f", " "),
                "tokens_used": state.balance.tokens,
                "cost_usd": state.balance.cost_nanousd / 1e9,
                "remaining_tokens": state.remaining_tokens,
                "blocked": state.blocked,
            }
            for state in report.limits
        ],
    }
