"""`rondel usage` and `--cost`, as a person types them."""

from __future__ import annotations

import csv
import io
import json

import pytest

from rondel.contracts.ledger import Row, Totals
from rondel.surfaces.usage import UsageReport, to_csv
from tests.cli.conftest import Place, place  # noqa: F401  # pyright: ignore[reportUnusedImport]

LIMITS = """
engine = "echo"
[[ledger.limits]]
scope = {model = "echo"}
tokens = 1_000
mode = "block"
[[ledger.limits]]
scope = {agent = "*"}
window = "month"
tokens = 5
message = "Slow down."
[[ledger.limits]]
money = 5
"""


@pytest.fixture
def desk(place: Place) -> Place:  # noqa: F811
    place.write("rondel.toml", LIMITS)
    return place


def test_nothing_is_spent_at_first_and_limits_are_shown_all_the_same(desk: Place):
    shown = desk.rondel("usage")
    assert (shown.code, shown.err) == (0, "")
    assert "No usage yet." in shown.out
    assert "day, model echo" in shown.out
    assert "0 of 1,000 tokens" in shown.out


def test_a_turn_says_what_it_cost_when_asked(desk: Place):
    said = desk.rondel("run", "rondel", "one two three", "--cost")
    assert (said.code, said.out) == (0, "one two three\n")
    assert "3 out, price unknown" in said.err
    assert "price" not in desk.rondel("run", "rondel", "one two three").err


def test_what_was_spent_is_shown_by_window_and_by_whom(desk: Place):
    desk.rondel("run", "rondel", "one two three")
    second = desk.rondel("run", "rondel", "four five")
    assert "Slow down." in second.err
    overview = desk.rondel("usage").out
    for line in ("today", "this week", "this month", "all time", "this month, by model", "echo", "█", "limits"):
        assert line in overview
    assert "month, agent rondel" in overview
    listed = desk.rondel("usage", "--by", "agent,model", "--window", "day").out
    assert listed.split()[:3] == ["day", "model", "agent"]
    assert "rondel" in listed


def test_programs_get_json_and_csv(desk: Place):
    for text in ("one two three", "four"):
        desk.rondel("run", "rondel", text)
    shown = json.loads(desk.rondel("usage", "--json").out)
    assert shown["totals"]["lifetime"]["calls"] == 2
    assert shown["totals"]["lifetime"]["cost_usd"] is None
    assert [(row["model"], row["tokens_out"]) for row in shown["rows"]] == [("echo", 4)]
    assert [(limit["window"], limit["mode"], limit["blocked"]) for limit in shown["limits"]] == [
        ("day", "block", False), ("month", "warn", False), ("day", "warn", False)]  # fmt: skip
    rows = list(csv.DictReader(io.StringIO(desk.rondel("usage", "--csv", "--by", "kind", "--window", "day").out)))
    assert [(row["kind"], row["calls"], row["tokens_out"], row["cost_usd"]) for row in rows] == [("chat", "2", "4", "")]


def test_a_limit_that_blocks_ends_a_run_with_its_sentence(desk: Place):
    desk.write("rondel.toml", LIMITS.replace("1_000", "900"))
    desk.rondel("run", "rondel", "hi " * 450)
    refused = desk.rondel("run", "rondel", "hello again")
    assert (refused.code, refused.out) == (4, "")
    assert refused.err == "rondel: The day token limit of 900 for model echo has been reached.\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--by", "modle"], "nothing is counted by 'modle'; did you mean 'model'?"),
        (["--window", "dya"], "there is no window 'dya'; did you mean 'day'?"),
        (["--since", "tomorrow"], "--since 'tomorrow' is not a date; use 2026-11-16 or an age such as 30d, 6w or 3m"),
        (["--json", "--csv"], "use either --json or --csv"),
        (["--watch"], "--watch needs a terminal and cannot be used with --json or --csv"),
    ],
)
def test_a_wrong_word_is_one_sentence(desk: Place, arguments: list[str], sentence: str):
    said = desk.rondel("usage", *arguments)
    assert said.code != 0
    assert said.err == f"rondel: {sentence}\n"


def test_it_can_be_watched_in_a_terminal_until_ctrl_c(desk: Place):
    with desk.terminal("usage", "--watch") as screen:
        screen.wait_for("No usage yet.")
        desk.spawn("run", "rondel", "one two three")
        screen.wait_for("this month, by model")
        screen.press("\x03")
        assert screen.wait_end() == 0


def test_the_chat_says_after_each_turn_what_it_cost(desk: Place):
    said = desk.spawn("chat", "--cost", stdin=b"one two three\n")
    assert "3 out, price unknown" in said.out


def test_a_name_that_begins_like_a_formula_is_text_in_a_spreadsheet():
    row = Row("agent", "=1+1", "day", "2026-11-18", Totals(calls=1))
    (shown,) = csv.DictReader(io.StringIO(to_csv(UsageReport("agent", "day", {}, (row,), ()))))
    assert (shown["agent"], shown["calls"]) == ("'=1+1", "1")
