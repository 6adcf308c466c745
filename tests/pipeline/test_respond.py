"""Answers in a frame of response nodes."""

from __future__ import annotations

from collections.abc import Sequence

from rondel import Agent, App, tool
from rondel.events import Event, RoundFinished, Warned
from rondel.plugins.respond import Respond
from rondel.project.lookup import find_plugin
from rondel.prompt import Node
from rondel.testing import Scripted, Step, call, say
from rondel.values import AgentResult, PartDelta, Thinking

from ..helpers import events_of, of, play

FRAME = (
    Node("greeting", "Dear reader,"),
    Node("response"),
    Node("advert", "Buy now!", enabled=False),
    Node("signature", "  Yours, the helper  ", children=(Node("draft", "(draft)", enabled=False),)),
)


@tool
def look() -> str:
    return "green"


def answered(respond: Respond, *steps: Step, text: str = "Hello") -> tuple[AgentResult, list[Event]]:
    async def scene(app: App) -> tuple[AgentResult, list[Event]]:
        view = await app.conversation().send(text)
        events = await events_of(view)
        return await view.result(), events

    return play(scene, Agent("helper", "", Scripted(*steps), [look], [respond]))


def test_the_answer_is_the_enabled_nodes_with_the_models_text_in_the_target():
    """P08: joined by blank lines, stripped; a disabled node is left out at any depth."""
    result, events = answered(Respond(nodes=FRAME), "  It is green.\n")
    framed = "Dear reader,\n\nIt is green.\n\nYours, the helper"
    assert result.output == framed
    assert "".join(delta.text for delta in of(PartDelta, events)) == framed  # nobody saw it without its frame
    assert of(RoundFinished, events)[0].message.text == framed


def test_the_text_of_the_target_gives_way_and_it_may_stand_inside_another():
    """P08"""
    tree = Node("letter", "Dear reader, ", children=(Node("body", "(here)", children=(Node("old", "old"),)),))
    result, _ = answered(Respond(nodes=[tree], target="body"), "it is green.")
    assert result.output == "Dear reader, it is green."


def test_a_disabled_target_hides_what_the_model_said():
    """P08: only enabled nodes are in the answer."""
    result, _ = answered(Respond(nodes=[Node("response", enabled=False), Node("sorry", "No comment.")]), "Secret")
    assert result.output == "No comment."


def test_a_reply_that_calls_tools_is_no_answer_yet():
    result, events = answered(Respond(nodes=FRAME), call("look", saying="Let me see."), "Green.")
    assert [finished.message.text for finished in of(RoundFinished, events)] == [
        "Let me see.",
        "Dear reader,\n\nGreen.\n\nYours, the helper",
    ]
    assert result.output.startswith("Dear reader")


def test_thinking_stays_before_the_framed_answer():
    _, events = answered(Respond(nodes=FRAME), say("Green.", thinking="Hmm."))
    parts = of(RoundFinished, events)[0].message.parts
    assert parts[0] == Thinking("Hmm.")
    assert len(parts) == 2


def test_an_empty_reply_gets_no_frame():
    result, _ = answered(Respond(nodes=FRAME), say(" "))
    assert result.output == " "


def test_a_missing_target_warns_and_the_answer_stays():
    """P08"""
    result, events = answered(Respond(nodes=FRAME, target="answer"), "Green.")
    assert result.output == "Green."
    assert "there is no response node 'answer'" in of(Warned, events)[0].message


def test_a_file_gives_the_nodes_as_plain_values():
    nodes: Sequence[dict[str, str]] = [{"id": "response"}, {"id": "signature", "text": "Yours"}]
    plugin = find_plugin("respond", {"nodes": nodes})
    assert isinstance(plugin, Respond)
    assert answered(plugin, "Green.")[0].output == "Green.\n\nYours"
