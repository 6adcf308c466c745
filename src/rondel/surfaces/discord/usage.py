"""`/ai usage`: what a server spent, by model, person, channel or role, page by page, with a chart.

A server sees its own usage only, and in direct messages a person sees theirs.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

import discord

from ...charge import DIMENSIONS
from ...contracts.ledger import Row
from ...contracts.window import Window
from ...ledger.ledger import Ledger
from .cards import card
from .chart import draw_bars
from .mentions import tidy_name
from .outlet import NOBODY

if TYPE_CHECKING:
    from .bot import DiscordBot

By: TypeAlias = Literal["model", "person", "channel", "role", "agent"]
PAGE_ROWS = 5
ROWS_MAX = 500
CHART_BARS = 8
PREFIX = "rondel-usage"
CHART = "usage.png"


class UsagePage:
    """One page: a card with numbers, a chart and buttons."""

    def __init__(self, bot: DiscordBot, guild: discord.Guild | None, person: int, window: Window, by: By) -> None:
        self._bot, self._guild, self._person = bot, guild, person
        self._window: Window = window
        self._by: By = by

    async def show(self, page: int = 0, rows: int = PAGE_ROWS) -> dict[str, Any]:
        """Return the fields of a message."""
        found = await rows_of(self._bot.app.ledger, self._by, self._window, self._whose)
        pages = max(1, -(-len(found) // rows))
        page = min(max(page, 0), pages - 1)
        shown = found[page * rows : (page + 1) * rows]
        whose = (
            f"Usage in {discord.utils.escape_markdown(tidy_name(self._guild.name))}" if self._guild else "Your usage"
        )
        lines: list[str] = []
        for row in shown:
            totals = row.totals
            money = f" · ${totals.cost_usd:,.4f}" if totals.cost_nanousd else ""
            calls = f"{totals.calls:,} call{'' if totals.calls == 1 else 's'}"
            text = f"{totals.tokens_in:,} in · {totals.tokens_out:,} out · {calls}{money}"
            lines.append(f"**{row.key} · {discord.utils.escape_markdown(self._label(row))}**"[:250] + f"\n{text}")
        view = card(
            f"### {whose} by {self._by if self._window == 'lifetime' else f'{self._window} and {self._by}'}",
            *(lines or ["Nothing was used yet."]),
            f"-# Page {page + 1} of {pages} · {sum(row.totals.tokens for row in found):,} tokens in total",
            image=CHART,
            controls=self._buttons(page, pages, rows),
        )
        return {"view": view, "file": discord.File(io.BytesIO(self._chart(found)), CHART)}

    @property
    def _whose(self) -> tuple[str, str]:
        return ("guild", str(self._guild.id)) if self._guild else ("person", str(self._person))

    def _chart(self, rows: list[Row]) -> bytes:
        newest = [row for row in rows if row.key == rows[0].key] if rows else []
        newest.sort(key=lambda row: -row.totals.tokens)
        bars = [(self._label(row, plain=True), row.totals.tokens) for row in newest[:CHART_BARS]]
        return draw_bars(f"Tokens by {self._by}{f', {rows[0].key}' if rows else ''}", bars)

    def _label(self, row: Row, *, plain: bool = False) -> str:
        value = value_of(row, self._by)
        guild = self._guild
        found: Any = None
        if value.isdigit() and guild is not None:
            lookups: dict[str, Any] = {"person": guild.get_member, "channel": guild.get_channel, "role": guild.get_role}
            found = lookups[self._by](int(value)) if self._by in lookups else None
        name = getattr(found, "display_name", None) or getattr(found, "name", None) or value or "?"
        return tidy_name(str(name))

    def _buttons(self, page: int, pages: int, rows: int) -> list[discord.ui.Button[Any]]:
        return [
            discord.ui.Button(
                label=label,
                custom_id=f"{PREFIX}:{self._window}:{self._by}:{target}:{rows}",
                disabled=not 0 <= target < pages,
            )
            for label, target in (("◀ Newer", page - 1), ("Older ▶", page + 1))
        ]


async def on_click(bot: DiscordBot, interaction: discord.Interaction[Any]) -> bool:
    """Turn a page. Returns False if the click is not about one."""
    data = cast("dict[str, Any]", interaction.data or {})
    words = str(data.get("custom_id", "")).split(":")
    if len(words) != 5 or words[0] != PREFIX or words[2] not in get_args(By):
        return False
    if not (words[3].lstrip("-").isdigit() and words[4].isdigit()):
        return False
    if interaction.guild is not None and not interaction.permissions.manage_guild:
        text = "This needs the permission Manage Server."
        await interaction.response.send_message(text, ephemeral=True, allowed_mentions=NOBODY)
        return True
    page = UsagePage(bot, interaction.guild, interaction.user.id, cast(Window, words[1]), cast(By, words[2]))
    fields = await page.show(int(words[3]), int(words[4]))
    given: dict[str, Any] = {"attachments": [fields["file"]], "view": fields["view"]}
    await interaction.response.edit_message(allowed_mentions=NOBODY, **given)
    return True


async def rows_of(ledger: Ledger, by: By, window: Window, whose: tuple[str, str]) -> list[Row]:
    """Return the rows of one guild or one person, newest windows first."""
    dimension, wanted = whose
    if by == dimension:
        page = await ledger.summary(by=by, value=wanted, window=window, limit=ROWS_MAX)
        return list(page.rows)
    names = sorted((by, dimension), key=DIMENSIONS.index)
    found: list[Row] = []
    cursor = ""
    while len(found) < ROWS_MAX:
        page = await ledger.summary(by="+".join(names), window=window, cursor=cursor, limit=ROWS_MAX)
        found += [row for row in page.rows if row.values[names.index(dimension)] == wanted]
        cursor = page.cursor
        if not cursor:
            break
    return found[:ROWS_MAX]


def value_of(row: Row, by: str) -> str:
    return row.values[row.dimension.split("+").index(by)]
