"""Tools whose names a vendor would refuse are offered under others, and neither their caller nor the loop notices."""

from __future__ import annotations

import re

import pytest

from rondel.dialects import DIALECTS
from rondel.dialects._names import name_sent
from rondel.prompt import Prompt
from rondel.values import (
    Message,
    Options,
    PartFinished,
    PartStarted,
    Reply,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
    assistant,
    deltas_of,
    user,
)

from .coding_agents import SCHEMA, Json
from .helpers import NAMES, written_stream
from .judges import judge_prompt

MAX = {"anthropic": 128, "openai-chat": 64, "openai-responses": 64}
LONG = "mcp__a_server_with_a_long_name__" + "a_tool_that_says_all_that_it_does_" * 4
ODD = ["files.read", "read file", "lies_mich_\u00e4", "\U0001f600", LONG, LONG + "2"]
GOOD = ["look", "7zip", "read-file", "_", "a" * 64]


def tool(name: str) -> ToolSpec:
    return ToolSpec(name, "Does it.", SCHEMA)


def prompt_with(*names: str, chosen: str = "") -> Prompt:
    call = ToolCall("c1", names[0], {"a": 1})
    messages = (user("Hi"), assistant(call), Message("tool", (ToolResult("c1", (Text("done"),)),)))
    options = Options(tokens_max=9, tool_choice=f"tool:{chosen}" if chosen else None)
    return Prompt.of(*messages, tools=map(tool, names), options=options)


def offered(body: Json) -> list[str]:
    return [raw.get("function", raw)["name"] for raw in body["tools"]]


def called(body: Json) -> str:
    if "input" in body:
        return next(item["name"] for item in body["input"] if item.get("type") == "function_call")
    message = body["messages"][1]
    return message["tool_calls"][0]["function"]["name"] if "tool_calls" in message else message["content"][0]["name"]


def wanted(body: Json) -> str:
    choice = body["tool_choice"]
    return choice.get("function", choice)["name"]


@pytest.mark.parametrize("target", NAMES)
def test_every_name_that_is_sent_is_one_that_the_vendor_takes(target: str) -> None:
    body = DIALECTS[target]().write_prompt(prompt_with(*ODD, *GOOD), model="m")
    judge_prompt(target, body, stream=True)
    names = offered(body)
    assert len(set(names)) == len(ODD) + len(GOOD)
    assert all(re.fullmatch(rf"[a-zA-Z0-9_-]{{1,{MAX[target]}}}", name) for name in names)
    assert names[len(ODD) :] == GOOD


@pytest.mark.parametrize("name", [*ODD, *GOOD])
@pytest.mark.parametrize("target", NAMES)
def test_tools_calls_and_the_choice_agree_on_a_name(target: str, name: str) -> None:
    first, later = (
        DIALECTS[target]().write_prompt(prompt_with(*names, chosen=name), model="m") for names in ([name], [name, "b"])
    )
    assert offered(first)[0] == called(first) == wanted(first)
    assert wanted(later) == wanted(first)


@pytest.mark.parametrize("name", [*ODD, *GOOD])
@pytest.mark.parametrize("target", NAMES)
def test_a_call_has_its_tools_own_name_again(target: str, name: str) -> None:
    dialect, tools = DIALECTS[target](), (tool("other"), tool(name))
    calls = (ToolCall("c1", name_sent(name, MAX[target]), {"a": 1}), ToolCall("c2", "other", {}))
    reply = Reply(Message("assistant", (Text("So."), *calls)), stop="calls", model="m", id="i")
    reader = dialect.reply_reader(tools)
    deltas = reader.feed(written_stream(dialect, deltas_of(reply), model="m", id="i")) + reader.finish()
    whole = dialect.reply_reader(tools).read_whole(dialect.reply_writer(model="m", id="i").write_whole(reply))
    for kind in (PartStarted, PartFinished):
        parts = [delta.part for delta in deltas if isinstance(delta, kind)]
        assert [part.name for part in parts if isinstance(part, ToolCall)] == [name, "other"]
    assert [call.name for call in whole.message.calls] == [name, "other"]


@pytest.mark.parametrize("target", NAMES)
def test_a_reply_that_is_sent_again_is_sent_as_the_model_made_it(target: str) -> None:
    dialect = DIALECTS[target]()
    sent = name_sent(LONG, MAX[target])
    said = Reply(Message("assistant", (ToolCall("c1", sent, {"a": 1}),)), stop="calls", model="m", id="i")
    read = dialect.reply_reader((tool(LONG),)).read_whole(dialect.reply_writer(model="m", id="i").write_whole(said))
    prompt = prompt_with(LONG)
    again = prompt.replace(nodes=(prompt.nodes[0], read.message, prompt.nodes[2]))
    assert called(dialect.write_prompt(again, model="m")) == sent


@pytest.mark.parametrize("name", [*ODD, *GOOD])
@pytest.mark.parametrize("caller", NAMES)
def test_a_caller_reads_the_name_that_it_gave(caller: str, name: str) -> None:
    dialect, reply = DIALECTS[caller](), Reply(assistant(ToolCall("c1", name, {"a": 1})), stop="calls")
    body = dialect.reply_writer(model="m", id="i", prompt=prompt_with(name)).write_whole(reply)
    assert [call.name for call in dialect.reply_reader().read_whole(body).message.calls] == [name]
