"""Lists in terminals of any width: what people copy is never cut, and nothing else is lost."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console
from rich.text import Text

from rondel.contracts.store import ConversationInfo
from rondel.surfaces.terminal.listing import Listing, cut
from rondel.surfaces.terminal.views import render
from rondel.surfaces.views import conversations_table
from tests.cli.conftest import Place


def drawn(shown: object, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None, markup=False, highlight=False)
    with console.capture() as captured:
        console.print(shown)
    return [line.rstrip() for line in captured.get().splitlines()]


def schedules() -> Listing:
    made = Listing("schedule", "agent", "when", "says", growing=2)
    made.add_row("s_22dae2847725", Text("guide"), "every day", "hi")
    made.add_row("s_9b53d813a352", "guide", "", "Say something nice to everybody in the morning")
    return made


def test_rows_stand_below_their_headings_where_there_is_room():
    assert drawn(schedules(), 60) == [
        "schedule        agent  when       says",
        "s_22dae2847725  guide  every day  hi",
        "s_9b53d813a352  guide             Say something nice to",
        "                                  everybody in the morning",
    ]


def test_what_does_not_fit_beside_a_row_stands_below_it():
    assert drawn(schedules(), 30) == [
        "s_22dae2847725  guide",
        "  every day  hi",
        "s_9b53d813a352  guide",
        "  Say something nice to",
        "  everybody in the morning",
    ]


def test_a_list_without_rows_is_nothing():
    assert drawn(Listing("id", "about"), 30) == []


@pytest.mark.parametrize("width", range(8, 120, 7))
def test_no_width_breaks_a_list_or_loses_a_word(width: int):
    letters = re.sub(r"\s", "", "".join(drawn(schedules(), width)))
    for word in ("s_22dae2847725", "s_9b53d813a352", "hi", "everybody", "morning"):
        assert word in letters


def test_the_id_of_a_conversation_is_whole_however_long_its_title_is():
    infos = [ConversationInfo("c_1a1e25fb3c4c7dfb7b2b91", "guide", "long " * 60, "done", updated_at=5.0)]
    for width in (40, 80, 120):
        lines = drawn(render(conversations_table(infos, now=10.0)), width)
        assert len(lines) == 2
        assert all(len(line) <= width for line in lines)
        assert re.search(r"7dfb7b2b91 +just now +done +guide", "\n".join(lines))
        assert "…" in lines[-1]


def test_a_cut_cell_shows_its_cut():
    made = Listing("id", "about")
    made.add_row("1", cut("word " * 9))
    assert drawn(made, 20)[-1] == "1   word word word …"


@pytest.mark.parametrize("columns", [80, 40])
def test_usage_has_bars_only_where_there_is_room_for_all_numbers(place: Place, columns: int):
    place.write(
        "rondel.toml",
        'engine = "echo"\n[[ledger.limits]]\nscope = {agent = "rondel"}\nwindow = "day"\ntokens = 50000\n',
    )
    assert place.rondel("run", "rondel", "hello there").code == 0
    with place.terminal("usage", columns=columns) as terminal:
        assert terminal.wait_end() == 0
        shown = terminal.all_text
    assert ("█" in shown) == (columns == 80)
    assert "unknown" in shown
    assert "…" not in shown
    assert re.search(r"day, agent rondel .*of\s+50,000", shown)
