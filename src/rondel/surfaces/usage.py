"""What was spent, as a value that every surface shows: totals of the current windows, rows by dimension, the limits."""

from __future__ import annotations

import csv
import io
import sys
from typing import Any

import msgspec

from ..charge import EACH, Scope
from ..contracts.ledger import PAGE_MAX, Row, Rule, Totals, dimensions_in
from ..contracts.window import WINDOWS, Window, day_number
from ..errors import ConfigError, nearest
from ..ledger.ledger import Ledger
from ..ledger.spending import LimitState
from ..values import Value

FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # a cell that begins with one of these would be a formula in a spreadsheet


class UsageReport(Value, frozen=True):
    """`overview` has one row for each value; otherwise there is one for each value and window."""

    by: str
    window: Window
    totals: dict[Window, Totals]
    rows: tuple[Row, ...]
    limits: tuple[LimitState, ...]
    overview: bool = False


async def report(
    ledger: Ledger, *, by: str = "model", window: str = "", since: str = "", limit: int | None = 50
) -> UsageReport:
    """Return what was spent by each value of a dimension: in this month, or with a window or a date, in each of them.

    `since` is a date such as 2026-11-16. Without a limit, all rows are returned.
    """
    if window and window not in WINDOWS:
        raise ConfigError(f"there is no window {window!r}{nearest(window, WINDOWS)}")
    if since:
        try:
            day_number(since)
        except ValueError as error:
            raise ConfigError(str(error)) from None
    totals: dict[Window, Totals] = {one: await ledger.totals(window=one) for one in WINDOWS}
    limits = tuple([state for rule in ledger.rules for state in await _states(ledger, rule)])
    overview = not window and not since
    chosen: Window = "month" if overview else window or "day"  # type: ignore[assignment]
    if overview and limit is not None:
        rows = await ledger.top(by=by, window=chosen, limit=min(limit, PAGE_MAX))
    else:
        rows = await _rows(ledger, by, chosen, since, sys.maxsize if limit is None else limit)
    return UsageReport(by, chosen, totals, tuple(rows), limits, overview)


def sums_of(totals: Totals) -> dict[str, Any]:
    """Return totals as plain values. The cost is null if no call has a known price."""
    sums = msgspec.structs.asdict(totals)
    del sums["cost_nanousd"], sums["updated_at"]
    known = totals.calls > totals.unpriced or not totals.calls
    return {**sums, "cost_usd": totals.cost_usd if known else None}


def plain_row(row: Row) -> dict[str, Any]:
    values = zip(dimensions_in(row.dimension), row.values, strict=False)
    return {"window": row.key, **dict(values), **sums_of(row.totals)}


def to_csv(report: UsageReport) -> str:
    """Return the rows of a report for a spreadsheet."""
    columns = ["window", *dimensions_in(report.by), *sums_of(Totals())]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for cells in map(plain_row, report.rows):
        writer.writerow([_cell(cells[column]) for column in columns])
    return out.getvalue()


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULAS) else value


async def _rows(ledger: Ledger, by: str, window: Window, since: str, most: int) -> list[Row]:
    rows: list[Row] = []
    cursor = ""
    while len(rows) < most:
        limit = min(most - len(rows), PAGE_MAX)
        page = await ledger.summary(by=by, window=window, since=since, cursor=cursor, limit=limit)
        rows += page.rows
        if not (cursor := page.cursor):
            break
    return rows


async def _states(ledger: Ledger, rule: Rule) -> list[LimitState]:
    """Return how much of a limit is used; if each value has a limit of its own, by the three largest."""
    names = rule.dimensions
    scopes = [dict(rule.scope)]
    if EACH in rule.scope.values():
        top = await ledger.top(by="+".join(names), window=rule.window, limit=PAGE_MAX)
        found = [dict(zip(names, row.values, strict=True)) for row in top]
        scopes = [one for one in found if all(rule.scope[n] in (EACH, one[n]) for n in names)][:3]
    states: list[LimitState] = []
    for scope in scopes:
        for state in await ledger.limit_state(_scope(scope)):
            if state.rule is rule and state not in states:
                states.append(state)
    return states


def _scope(values: dict[str, str]) -> Scope:
    fields: dict[str, Any] = {name: value for name, value in values.items() if name != "role"}
    if "role" in values:
        fields["roles"] = (values["role"],)
    return Scope(**fields)
