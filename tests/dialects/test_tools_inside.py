"""Tools inside namespaces, and inside items that add tools: they stay there in their own dialect, others have them."""

from __future__ import annotations

import pytest

from rondel.dialects import DIALECTS
from rondel.prompt import Prompt
from rondel.values import Message, PartFinished, Reply, ToolCall, deltas_of

from .coding_agents import SCHEMA, Json
from .judges import judge_prompt, judge_reply, judge_stream
from .test_coding_agents import same, sent_again

RESPONSES = "openai-responses"
OTHERS = [name for name in DIALECTS if name != RESPONSES]

READ: Json = {"type": "function", "name": "read", "description": "Reads.", "strict": False, "parameters": SCHEMA}
RUN: Json = {
    "type": "custom",
    "name": "exec",
    "description": "Runs code.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: SOURCE"},
}
CODE = {"type": "namespace", "name": "functions", "description": "", "tools": [RUN, READ]}
TEAM = {"type": "namespace", "name": "team", "description": "Agents.", "tools": [{**READ, "name": "list"}]}
ADDED = {"type": "additional_tools", "id": "at_1", "role": "developer", "tools": [CODE, TEAM]}
TOLD = {"type": "message", "id": "msg_1", "role": "developer", "content": [{"type": "input_text", "text": "Work."}]}
ASKED = {"type": "message", "id": "msg_2", "role": "user", "content": [{"type": "input_text", "text": "Fix it."}]}
CHOICE = {"tool_choice": "auto", "parallel_tool_calls": False}
STORED = {"stream": True, "store": False, "include": ["reasoning.encrypted_content"]}
BODIES: dict[str, Json] = {
    "in a namespace": {"model": "m", "input": [TOLD, ASKED], "tools": [CODE, TEAM], **CHOICE, **STORED},
    "in an item": {"model": "m", "input": [ADDED, TOLD, ASKED], **CHOICE, **STORED},
    "in an item without namespaces": {"model": "m", "input": [{**ADDED, "tools": [RUN, READ, TEAM]}, ASKED], **STORED},
}


def read(body: Json) -> Prompt:
    return DIALECTS[RESPONSES]().read_prompt(body)


def names(tools: list[Json]) -> list[str]:
    return [tool.get("function", tool)["name"] for tool in tools]


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_they_stay_where_they_came_in_their_own_dialect(body: Json) -> None:
    assert same(sent_again(RESPONSES, body)) == same(body)


@pytest.mark.parametrize("target", OTHERS)
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_each_is_a_tool_by_itself_in_another_dialect(body: Json, target: str) -> None:
    wire = DIALECTS[target]().write_prompt(read(body), model="m")
    judge_prompt(target, wire, stream=True)
    assert names(wire["tools"]) == ["exec", "read", "list"]
    assert not any(message["role"] == "assistant" for message in wire["messages"])


@pytest.mark.parametrize("body", [BODIES["in a namespace"], BODIES["in an item"]])
def test_a_call_comes_back_as_one_into_its_namespace(body: Json) -> None:
    dialect = DIALECTS[RESPONSES]()
    calls = ToolCall("c1", "exec", {"input": "1 + 1"}), ToolCall("c2", "list", {"path": "a"})
    reply = Reply(Message("assistant", calls), stop="calls")
    writer = dialect.reply_writer(model="m", id="i", prompt=read(body))
    raw = b"".join(writer.feed(delta) for delta in deltas_of(reply))
    judge_stream(RESPONSES, raw)
    whole = dialect.reply_writer(model="m", id="i", prompt=read(body)).write_whole(reply)
    judge_reply(RESPONSES, whole)
    custom, listed = whole["output"]
    assert (custom["type"], custom["namespace"], custom["input"]) == ("custom_tool_call", "functions", "1 + 1")
    assert (custom["id"][:4], listed["id"][:3]) == ("ctc_", "fc_")  # as the vendor's own, which its server checks
    assert (listed["type"], listed["namespace"], listed["name"]) == ("function_call", "team", "list")
    streamed = [delta.part for delta in dialect.reply_reader().feed(raw) if isinstance(delta, PartFinished)]
    assert tuple(streamed) == dialect.reply_reader().read_whole(whole).message.parts


@pytest.mark.parametrize("target", OTHERS)
def test_tools_of_one_name_in_two_namespaces_are_told_apart(target: str) -> None:
    mine, theirs = ({"type": "namespace", "name": name, "tools": [READ]} for name in ("mine", "theirs"))
    prompt = read({"model": "m", "input": "Hi", "tools": [mine, theirs]})
    assert names(DIALECTS[target]().write_prompt(prompt, model="m")["tools"]) == ["read", "theirs__read"]
    reply = Reply(Message("assistant", (ToolCall("c1", "theirs__read", {"path": "a"}),)), stop="calls")
    (call,) = DIALECTS[RESPONSES]().reply_writer(model="m", id="i", prompt=prompt).write_whole(reply)["output"]
    assert (call["namespace"], call["name"]) == ("theirs", "read")


@pytest.mark.parametrize("target", OTHERS)
def test_calls_that_were_made_into_namespaces_are_told_apart(target: str) -> None:
    mine, theirs = ({"type": "namespace", "name": name, "tools": [READ]} for name in ("mine", "theirs"))
    made = [
        {"type": "function_call", "call_id": f"c_{name}", "name": "read", "arguments": "{}", "namespace": name}
        for name in ("mine", "theirs")
    ]
    given = [{"type": "function_call_output", "call_id": call["call_id"], "output": "done"} for call in made]
    body = {"model": "m", "input": [ASKED, *made, *given], "tools": [mine, theirs], **STORED}
    assert same(sent_again(RESPONSES, body)) == same(body)
    wire = DIALECTS[target]().write_prompt(read(body), model="m")
    calls = wire["messages"][1].get("tool_calls") or wire["messages"][1]["content"]
    assert names(calls) == names(wire["tools"]) == ["read", "theirs__read"]


@pytest.mark.parametrize("inside", [None, "later", ["x"], [{"name": "x"}], [{"type": "function"}], []])
def test_a_namespace_that_cannot_be_read_breaks_nothing(inside: object) -> None:
    space = {"type": "namespace", "name": "later", "tools": inside}
    body = {"model": "m", "input": [{**ADDED, "tools": inside}, ASKED], "tools": [space], **STORED}
    assert same(sent_again(RESPONSES, body)) == same(body)
    for target in OTHERS:
        assert "tools" not in DIALECTS[target]().write_prompt(read(body), model="m")
