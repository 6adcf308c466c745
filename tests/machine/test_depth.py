"""Values that are nested a hundred thousand levels deep, wherever they come from: no turn fails or hangs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rondel import Agent, AgentResult, App, OutputSchema, tool
from rondel.agent import Fact
from rondel.errors import ConfigError, RondelError
from rondel.events import CallFinished, PluginFailed
from rondel.project.agents import load_agents
from rondel.project.config import load
from rondel.prompt import Node
from rondel.testing import call
from rondel.values import Message, ToolCall, ToolResult
from tests.helpers import events_of, of, play, scripted

LEVELS = 100_000
LISTS = "[" * LEVELS + "]" * LEVELS
SHALLOWER = "[" * 600 + "]" * 600  # Enough for the reader of YAML, which is slow
OBJECTS = '{"a":' * LEVELS + "1" + "}" * LEVELS


def deep(levels: int = LEVELS) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


class Unprintable:
    def __str__(self) -> str:
        raise ValueError("no words for it")


@tool
async def dig() -> list[Any]:
    return deep()


@tool
async def hide() -> Any:
    return Unprintable()


@tool
async def take(x: Any) -> str:
    return "took it"


def a_turn(*steps: Any, **fields: Any) -> tuple[AgentResult, list[ToolResult], list[PluginFailed]]:
    agent, _ = scripted(*steps, **fields)

    async def scene(app: App) -> tuple[AgentResult, list[ToolResult], list[PluginFailed]]:
        view = await app.conversation().send("go")
        events = await events_of(view)
        return await view.result(), [event.result for event in of(CallFinished, events)], of(PluginFailed, events)

    return play(scene, agent)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("dig", "its return value is nested too deeply to be encoded; return something flatter"),
        ("hide", "its return value cannot be encoded (ValueError: no words for it)"),
    ],
)
def test_a_result_that_cannot_be_written_down_is_an_error_that_the_model_reads(name: str, told: str):
    """Trust 19."""
    result, (answer,), _ = a_turn(call(name), "I see.", tools=[dig, hide])
    assert (result.output, result.error) == ("I see.", "")
    assert (answer.text, answer.is_error) == (told, True)


@pytest.mark.parametrize("levels", [101, 500, 960, 975, 990, LEVELS])
def test_arguments_that_are_nested_too_deeply_are_an_error_that_the_model_reads(levels: int):
    """Trust 19: at every depth, also at the edge of what the encoder takes."""
    result, (answer,), _ = a_turn(call("take", x=deep(levels)), "I see.", tools=[take])
    assert result.output == "I see."
    assert answer.text == "the arguments of 'take' are nested more than 100 levels deep; make them flatter"


def test_arguments_that_are_nested_a_little_are_fine():
    """Trust 19."""
    result, (answer,), _ = a_turn(call("take", x=deep(97)), "I see.", tools=[take])
    assert (result.output, answer.text) == ("I see.", "took it")


def test_arguments_as_text_are_an_error_that_the_model_reads():
    """Trust 19: the lenient reader does not recurse."""
    broken = Message("assistant", (ToolCall("c", "take", broken=f'{{"x": {LISTS}}}'),))
    result, (answer,), _ = a_turn(broken, "I see.", tools=[take])
    assert (result.output, answer.is_error) == ("I see.", True)


@pytest.mark.parametrize(
    "fields",
    [
        {"output": OutputSchema({"type": "object"})},
        {"facts": {"x": Fact("something")}, "plugins": ["facts"]},
        {"tools": [take], "plugins": ["text_tools"]},
    ],
    ids=["output_schema", "facts", "text_tools"],
)
def test_an_answer_that_is_deep_json_is_a_text(fields: dict[str, Any]):
    """Trust 19: with an output schema the result never came."""
    result, _, failed = a_turn(OBJECTS, '{"x": null}', **fields)
    assert (result.output, result.data, result.error) == (OBJECTS, None, "")
    assert failed == []


async def test_an_agent_whose_function_returns_something_deep_has_failed_with_a_sentence():
    """Trust 19: alone, and for another agent."""
    digs = Agent("digs", function=lambda: deep())
    outer = Agent("outer", template='It says {{ .Get "digs" }}')
    async with App(digs, outer) as app:
        alone, inside = [
            await (await app.conversation(agent=name).send("go")).result(check=False) for name in ("digs", "outer")
        ]
    sentence = "its return value is nested too deeply to be encoded; return something flatter"
    assert (alone.output, sentence in alone.error) == ("", True)
    assert inside.output == f"It says [error calling digs: {sentence}]"


def test_a_prompt_that_is_nested_too_deeply_is_refused_when_the_agent_is_made():
    """Trust 19."""
    node = Node("n", text="x")
    for n in range(LEVELS):
        node = Node(f"n{n}", children=(node,))
    agent, _ = scripted("ok", prompt=node)
    with pytest.raises(RondelError, match="a prompt is nested 100,001 levels deep; use at most 100"):
        play(lambda app: app.conversation().send("go"), agent)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("agents/a.yaml", f"prompt: hi\nlimits: {SHALLOWER}\n"),
        ("agents/a.md", f"---\nlimits: {SHALLOWER}\n---\nhi\n"),
        ("rondel.toml", f"[options]\nstop = {LISTS}\n"),
    ],
)
def test_a_file_that_is_nested_too_deeply_is_one_sentence(tmp_path: Path, file: str, text: str):
    """Trust 19."""
    (tmp_path / "agents").mkdir()
    (tmp_path / "rondel.toml").write_text("")
    (tmp_path / file).write_text(text)
    env = {"HOME": str(tmp_path)}
    with pytest.raises(ConfigError, match=f"{file}: is nested too deeply to be read"):
        load_agents(load(tmp_path, env), env)
