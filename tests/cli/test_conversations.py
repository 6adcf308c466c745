"""`rondel conversations`: search, rename, export and delete."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Place


@pytest.fixture
def two(place: Place) -> tuple[str, str]:
    """The ids of a conversation about Porto and a newer one about trains."""
    place.write("rondel.toml", 'engine = "echo"\n')
    place.rondel("How is the weather in Porto?")
    place.rondel("When does the train leave?")
    newer, older = json.loads(place.rondel("conversations", "--json").out)
    return older["id"], newer["id"]


def test_words_that_were_said_find_a_conversation(place: Place, two: tuple[str, str]):
    (found,) = json.loads(place.rondel("conversations", "search", "weather porto", "--json").out)
    assert found["info"]["id"] == two[0]
    assert "weather in Porto" in place.rondel("conversations", "search", "porto").out
    assert place.rondel("conversations", "search", "submarine").out == "Nothing was found.\n"


def test_a_conversation_gets_a_title(place: Place, two: tuple[str, str]):
    done = place.rondel("conversations", "rename", two[0][-8:], "My\ntrip")
    assert (done.code, done.out) == (0, "")
    assert done.err.endswith("is now called 'My trip'.\n")
    titles = {info["id"]: info["title"] for info in json.loads(place.rondel("conversations", "--json").out)}
    assert titles[two[0]] == "My trip"
    assert "My trip" in place.rondel("trace", two[0]).out
    assert len(json.loads(place.rondel("conversations", "search", "trip", "--json").out)) == 1


def test_a_conversation_is_exported_to_stdout_or_a_file(place: Place, two: tuple[str, str]):
    shown = place.rondel("conversations", "export", two[0]).out
    assert shown.startswith("# How is the weather in Porto?\n")
    exported = json.loads(place.rondel("conversations", "export", two[0], "--json").out)
    assert [message["role"] for message in exported["messages"]] == ["user", "assistant"]
    assert place.rondel("conversations", "export", two[0], "-o", "a.md").out == ""
    assert place.project.joinpath("a.md").read_text() == shown
    assert place.rondel("conversations", "export", two[0], "-o", "no/a.md").code == 1


def test_a_conversation_is_deleted_after_a_question_or_with_yes(place: Place, two: tuple[str, str]):
    refused = place.spawn("conversations", "delete", two[0])
    assert (refused.code, "--yes" in refused.err) == (2, True)
    with place.terminal("conversations", "delete", two[0]) as terminal:
        terminal.wait_for("Delete for good? [y/N]")
        terminal.type("n")
        assert terminal.wait_end() == 1
    with place.terminal("conversations", "delete", two[0]) as terminal:
        terminal.wait_for("Delete for good? [y/N]")
        terminal.press("\x03")
        assert terminal.wait_end() == 130
    assert place.rondel("conversations", "delete", *two, two[0], "--yes").err == "Deleted 2 conversations.\n"
    assert place.rondel("conversations").out == "No conversations yet.\n"
    assert place.rondel("conversations", "delete", "last", "--yes").code == 1


@pytest.mark.parametrize(
    "arguments",
    [["rename", "nope", "x"], ["export", "nope"], ["delete", "nope", "--yes"]],
)
def test_one_that_does_not_exist_is_one_sentence_and_1(place: Place, two: tuple[str, str], arguments: list[str]):
    done = place.rondel("conversations", *arguments)
    assert (done.code, done.out) == (1, "")
    assert done.err == "rondel: there is no conversation 'nope'; `rondel conversations` lists them\n"
