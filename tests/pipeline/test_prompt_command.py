"""`rondel prompt`: the assembly of a prompt, step by step, as a person and as a program sees it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rondel.prompt import HISTORY, Node, Prompt
from rondel.trace.provenance import changes, sent_messages
from rondel.values import ROLES, Message, ToolSpec, user
from tests.cli.conftest import Place

AGENTS = """
agents:
  helper:
    engine: anthropic:claude-sonnet-5-5
    prompt:
      - id: system
        role: system
        caption: The rules
        text: "You help. "
        children:
          - {id: tone, text: Be kind.}
          - {id: humour, text: Be funny., enabled: false}
      - id: history
    tools: [calculate, other]
    plugins:
      - position: {target: tone, text: "First of all: "}
        id: opening
      - position: {target: nowhere, text: x}
        id: lost
      - broken_of_test:Broken
  other: {prompt: Help., engine: openai, plugins: ["broken_of_test:Closed"]}
"""
BROKEN = """
from rondel import Plugin

class Broken(Plugin):
    async def on_prompt(self, turn, prompt):
        raise ValueError("no luck")

class Closed(Plugin):
    def lifespan(self, app):
        raise RuntimeError("this plugin belongs to another agent")
"""


@pytest.fixture
def project(place: Place) -> Iterator[Place]:
    place.write("rondel.toml", "")
    place.write("agents/a.yaml", AGENTS)
    place.write("broken_of_test.py", BROKEN)
    yield place
    sys.modules.pop("broken_of_test", None)


def shown(project: Place, *arguments: str) -> Any:
    done = project.rondel("prompt", *arguments, "--json")
    assert (done.code, done.err) == (0, "")
    return json.loads(done.out)


def test_every_step_and_its_progress_is_shown(project: Place):
    """P11: plugin x n, finalize, flatten, complete, with progress (i+1)/(n+2) to 1 and the messages so far."""
    steps = shown(project, "helper", "Hello there")["steps"]
    plugins = [step["plugin"] for step in steps if step["step"] == "plugin"]
    assert plugins == ["limits", "position", "position", "broken", "trim"]
    total = len(plugins) + 2
    assert [step["step"] for step in steps] == [*["plugin"] * len(plugins), "finalize", "flatten", "complete"]
    assert [step["progress"] for step in steps] == [
        *(pytest.approx(number / total) for number in range(1, total)),
        1.0,
        1.0,
    ]
    assert {step["messages"] for step in steps} == {2}


def test_each_plugin_is_shown_with_what_it_did(project: Place):
    view = shown(project, "helper", "Hello there")
    opening, lost, broken = (step for step in view["steps"] if step["plugin"] in ("position", "broken"))
    assert opening["changes"] == [
        {
            "what": "added",
            "kind": "node",
            "id": "opening-tone",
            "tokens": 4,
            "text": "First of all: ",
            "source": ["plugins", "opening"],
            "position": "in system",
        }
    ]
    assert lost["changes"] == []
    assert lost["notes"][0].startswith("there is no node 'nowhere' in the prompt")
    assert broken["notes"] == ["failed: ValueError: no luck"]


def test_each_message_leads_back_to_what_it_was_made_of(project: Place):
    """P10: the sources are paths of ids, which insertions do not shift; what a plugin inserted names its entry."""
    system, question = shown(project, "helper", "Hello there")["messages"]
    assert (system["role"], system["text"]) == ("system", "You help. First of all: Be kind.")
    assert system["source"] == ["prompts", "system"]
    assert [piece["source"] for piece in system["pieces"]] == [
        ["prompts", "system"],
        ["plugins", "opening"],
        ["prompts", "system", "children", "tone"],
    ]
    assert (question["text"], question["tokens"]) == ("Hello there", 3)
    assert question["source"] == ["prompts", "history", "children", "message"]


def test_no_key_is_needed_and_the_facts_of_the_model_are_known(project: Place):
    view = shown(project, "helper", "Hello there")
    assert view["engine"].startswith("anthropic:")
    assert view["tools"] == ["calculate", "other"]
    assert view["tokens"]["total"] == sum(message["tokens"] for message in view["messages"]) + view["tokens"]["tools"]


def test_an_agent_without_any_engine_and_the_built_in_one_are_shown_all_the_same(
    project: Place, monkeypatch: pytest.MonkeyPatch
):
    import rondel.project.engines

    monkeypatch.setattr(rondel.project.engines, "has_runtime", lambda: False)
    project.write("agents/b.yaml", "agents: {plain: {prompt: You are plain.}}")
    view = shown(project, "plain", "Hello")
    assert [message["text"] for message in view["messages"]] == ["You are plain.", "Hello"]
    assert shown(project, "rondel", "Hello")["messages"][0]["text"].startswith("You are Rondel")


def test_it_is_good_to_look_at_in_a_terminal_of_80_columns(project: Place):
    screen = project.terminal("prompt", "helper", "Hello there", rows=40)
    screen.wait_for("About")
    screen.wait_end()
    text = screen.text
    assert all(len(line) <= 80 for line in text.splitlines())
    for line in (
        "  system [system] (The rules)  You help.                                       3",
        "    humour  Be funny.                                                        off",
        "  2 position opening",
        "      + opening-tone in system  First of all:                                 +4",
        "      ! failed: ValueError: no luck",
        "  1 system  prompts › system + plugins › opening                               8",
        "    You help. First of all: Be kind.",
        "  2 user  prompts › history                                                    3",
    ):
        assert line in text, text


def test_what_a_file_says_cannot_move_the_cursor(project: Place):
    project.write("agents/b.yaml", 'agents: {plain: {prompt: "You \\e[2J are \\e]0;x\\a plain."}}')
    out = project.rondel("prompt", "plain", "Hi \x1b[31m there").out
    assert "You  are  plain." in out
    assert "\x1b" not in out
    assert "\x07" not in out


def test_wrong_usage_is_one_sentence(project: Place):
    assert "there is no agent 'helpr'; did you mean 'helper'?" in project.rondel("prompt", "helpr", "Hi").err
    assert "the message is empty" in project.rondel("prompt", "helper", " ").err


def test_the_message_may_come_from_stdin(project: Place):
    project.write("agents/b.yaml", "agents: {plain: {prompt: You are plain., engine: echo}}")
    done = project.spawn("prompt", "plain", "-", "--json", stdin=b"Is anybody there?")
    assert json.loads(done.out)["messages"][-1]["text"] == "Is anybody there?"


# --- what changed, and what was told, of any prompt -------------------------------------------------------------------


def test_a_changed_a_moved_and_a_removed_piece_are_told():
    a, b = Node("a", "one", "system"), Node("b", "two")
    before = Prompt((a, b, Node(HISTORY, children=(user("Hi", id="m1"), user("Ho", id="m2")))), (ToolSpec("t"),))
    after = Prompt(
        (Node("a", "one two", "system", (b,)), Node(HISTORY, children=(user("Hi", id="history-0"),))), (ToolSpec("u"),)
    )
    assert [(c.what, c.kind, c.id, c.tokens, c.position) for c in changes(before, after)] == [
        ("changed", "node", "a", 1, ""),
        ("changed", "node", "b", 0, "in a"),
        ("removed", "message", "m2", -1, ""),
        ("added", "tool", "u", 2, ""),
        ("removed", "tool", "t", -2, ""),
    ]
    assert changes(before, before) == ()


_IDS = st.sampled_from(["a", "b", "c", "history"])
_MESSAGES = st.builds(user, st.text("x ", max_size=3), id=_IDS) | st.just(Message("error", id="e"))
_TREES = st.recursive(
    st.builds(Node, _IDS, st.text("x ", max_size=3), st.sampled_from([None, *ROLES]), enabled=st.booleans()),
    lambda inner: st.builds(
        Node,
        _IDS,
        st.text("x ", max_size=3),
        st.sampled_from([None, None, *ROLES]),
        st.lists(inner | _MESSAGES, max_size=4).map(tuple),
        enabled=st.sampled_from([True, True, False]),
    ),
    max_leaves=12,
)


@given(st.lists(_TREES | _MESSAGES, max_size=4).map(tuple))
def test_the_pieces_belong_to_the_messages_that_are_sent(nodes: tuple[Node | Message, ...]):
    """P10: every message knows its pieces, whatever the tree."""
    prompt = Prompt(nodes)
    made = sent_messages(prompt)
    assert tuple(item.message for item in made) == prompt.messages
    for item in made:
        assert "".join(piece.text for piece in item.pieces).strip().split() == item.message.text.split()
