"""Texts that an agent's file puts at a place in the prompt, and the time."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rondel import Agent, Plugin, Prompt
from rondel.errors import RondelError
from rondel.events import Event, PluginFailed, Warned
from rondel.plugins.clock import Clock
from rondel.plugins.position import Position
from rondel.project.lookup import find_plugin
from rondel.prompt import HISTORY, Node
from rondel.testing import Scripted, VirtualClock

from ..helpers import events_after, of, play

TREE = (
    Node("system", "Be kind.", "system", (Node("tone", " Softly."), Node("rules", " Obey."))),
    Node(HISTORY),
    Node("closing", "Remember that."),
)
NOON = 1_000_036_800.0  # Sunday, 9 September 2001, 12:00 in UTC


def asked(*plugins: Plugin, clock: VirtualClock | None = None) -> tuple[Prompt, list[Event]]:
    engine = Scripted("Yes.")

    events = play(
        events_after("Hello"), Agent("helper", TREE, engine, plugins=plugins), clock=clock or VirtualClock(NOON)
    )
    return engine.prompts[0], events


def texts(*plugins: Plugin) -> list[str]:
    return [message.text for message in asked(*plugins)[0].messages]


def ids_around(prompt: Prompt, id: str) -> list[str]:
    found = prompt.find(id)
    return [child.id for child in found.siblings] if found else []


@pytest.mark.parametrize(
    ("position", "text"),
    [
        ("before", "Be kind. Now! Softly. Obey."),
        ("after", "Be kind. Softly. Now! Obey."),
        ("child", "Be kind. Softly. Now! Obey."),
        ("relative", "Be kind. Softly. Now! Obey."),
    ],
)
def test_a_text_is_inserted_at_its_place(position: str, text: str):
    """P06: a sibling before, a sibling after, the last child; `relative` is the original's word for a child."""
    assert texts(Position(target="tone", position=position, text=" Now!"))[0] == text


def test_a_child_stands_last_inside_its_target_and_a_sibling_beside_it():
    """P06"""
    inside, _ = asked(Position(target="system", position="child", text=" Now!", id="now"))
    assert ids_around(inside, "now") == ["tone", "rules", "now"]
    beside, _ = asked(Position(target="system", position="after", text="Now!", id="now"))
    assert ids_around(beside, "now") == ["system", "now", HISTORY, "closing"]


def test_before_is_the_default_and_a_role_makes_a_message_of_its_own():
    prompt, _ = asked(Position(target=HISTORY, text="An example.", role="user", caption="Example", id="example"))
    assert [(m.role, m.text) for m in prompt.messages] == [
        ("system", "Be kind. Softly. Obey."),
        ("user", "An example."),
        ("user", "Hello"),
        ("system", "Remember that."),
    ]
    found = prompt.find("example")
    assert found is not None
    assert isinstance(found.child, Node)
    assert (found.child.caption, found.child.source) == ("Example", ("plugins", "position"))


def test_two_entries_insert_exactly_one_node_each():
    """P06: although they share a plugin's name, each configured entry acts exactly once."""
    first, second = Position(target="tone", text=" One."), Position(target="tone", position="after", text=" Two.")
    first.entry, second.entry = "first", "second"
    prompt, events = asked(first, second)
    assert ids_around(prompt, "tone") == ["first-tone", "tone", "second-tone", "rules"]
    assert prompt.messages[0].text == "Be kind. One. Softly. Two. Obey."
    sources = [
        found.child.source
        for id in ("first-tone", "second-tone")
        if (found := prompt.find(id)) and isinstance(found.child, Node)
    ]
    assert sources == [("plugins", "first"), ("plugins", "second")]
    assert not of(Warned, events)


def test_a_target_that_another_entry_inserted_is_found():
    prompt, _ = asked(
        Position(target="rules", text=" One.", id="one"), Position(target="one", position="child", text=" Two.")
    )
    assert prompt.messages[0].text == "Be kind. Softly. One. Two. Obey."


def test_a_missing_target_warns_and_changes_nothing():
    """P06"""
    prompt, events = asked(Position(target="tune", text="Now!"))
    [warned] = of(Warned, events)
    assert warned == Warned(
        "position", "there is no node 'tune' in the prompt, so nothing was inserted; give the id of one"
    )
    assert prompt == asked()[0].with_history(prompt.history)


def test_nothing_can_stand_inside_a_message_and_the_turn_goes_on():
    prompt, events = asked(Greeted(), Position(target="greeting", position="child", text="Now!"))
    [failed] = of(PluginFailed, events)
    assert "nothing can be inserted into the message 'greeting'" in failed.message
    assert [m.text for m in prompt.messages][1:3] == ["Hello", "Remember that."]


class Greeted(Plugin):
    """Gives the newest message an id that can be named."""

    async def on_prompt(self, turn: Any, prompt: Prompt) -> Prompt:
        return prompt.with_history(replace(message, id="greeting") for message in prompt.history)


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"target": "tone", "text": "x", "position": "befor"}, "'befor' is not a position; did you mean 'before'?"),
        ({"target": "", "text": "x"}, "the target is empty; give the id of the node to insert at"),
        ({"target": "tone", "text": " "}, "the text to insert at 'tone' is blank; write one"),
        ({"target": "tone", "text": "x", "role": "sistem"}, "unknown role 'sistem'; did you mean 'system'?"),
    ],
)
def test_a_wrong_parameter_is_one_clear_sentence(parameters: dict[str, Any], sentence: str):
    with pytest.raises(RondelError) as raised:
        Position(**parameters)
    assert sentence in str(raised.value)


def test_a_file_that_names_a_wrong_parameter_is_told_the_nearest():
    with pytest.raises(RondelError, match="has no parameter 'targte'; did you mean 'target'"):
        find_plugin("position", {"targte": "tone", "text": "x"})
    with pytest.raises(RondelError, match="needs the parameter 'target'"):
        find_plugin("position", {"text": "x"})


# --- the time ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("precision", "told"),
    [
        ("minute", "It is Sunday, 09 September 2001, 14:00 (Europe/Berlin)."),
        ("hour", "It is Sunday, 09 September 2001, 14:00 (Europe/Berlin)."),
        ("day", "It is Sunday, 09 September 2001 (Europe/Berlin)."),
    ],
)
def test_the_model_is_told_the_time_at_the_end_of_the_prompt(precision: str, told: str):
    plugin = Clock(zone="Europe/Berlin", precision=precision)
    prompt, _ = asked(plugin)
    assert (prompt.messages[-1].role, prompt.messages[-1].text) == ("system", told)
    assert not plugin.moves_prefix


def test_an_hour_is_told_for_as_long_as_it_lasts():
    late = asked(Clock(zone="UTC", precision="hour"), clock=VirtualClock(NOON + 3_599))[0]
    assert late.messages[-1].text == "It is Sunday, 09 September 2001, 12:00 (UTC)."


def test_without_a_zone_the_time_is_the_machines_own():
    assert asked(Clock())[0].messages[-1].text.startswith("It is Sunday, 09 September 2001, ")


def test_the_time_can_stand_at_a_place_and_then_says_that_it_moves_the_prefix():
    inside = Clock(zone="UTC", target="system", position="child", precision="day")
    assert texts(inside)[0] == "Be kind. Softly. Obey.\nIt is Sunday, 09 September 2001 (UTC)."
    assert inside.moves_prefix
    before = Clock(zone="UTC", target=HISTORY, position="before", precision="day")
    assert texts(before)[1:3] == ["It is Sunday, 09 September 2001 (UTC).", "Hello"]
    assert before.moves_prefix
    behind = Clock(zone="UTC", target=HISTORY, precision="day")
    assert texts(behind)[1:] == ["Hello", "It is Sunday, 09 September 2001 (UTC).", "Remember that."]
    assert not behind.moves_prefix


def test_a_clock_without_its_target_warns():
    prompt, events = asked(Clock(zone="UTC", target="tune"))
    assert "there is no node 'tune'" in of(Warned, events)[0].message
    assert len(prompt.messages) == 3


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"zone": "Europe/Atlantis"}, "there is no time zone 'Europe/Atlantis'; did you mean 'Europe/Athens'?"),
        ({"zone": "../etc"}, "there is no time zone '../etc'"),
        ({"precision": "minutes"}, "'minutes' is not a precision; did you mean 'minute'?"),
        ({"position": "inside"}, "'inside' is not a position; available: after, before, child"),
    ],
)
def test_a_clock_that_cannot_be_set_says_why(parameters: dict[str, Any], sentence: str):
    with pytest.raises(RondelError) as raised:
        Clock(**parameters)
    assert sentence in str(raised.value)
