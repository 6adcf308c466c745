"""Prompt trees and plugin entries in agents' files: what is read, and every mistake with its line."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rondel import Agent, App
from rondel.plugin import Plugin
from rondel.project.config import load, plugins_of
from rondel.prompt import DEPTH_MAX, source_paths
from rondel.testing import Scripted
from tests.config.files import agents_in, said_of, write

TWO_POSITIONS = """
    agents:
      a:
        prompt:
          - {id: system, role: system, children: [{id: tone, text: Be brief.}]}
          - id: history
        plugins:
          - position: {target: tone, text: "First. "}
          - position: {target: tone, text: "Second. "}
          - position: {target: tone, text: "Third. "}
            id: third
          - position: {target: tone, text: "Never. "}
            enabled: false
    """


def entries_of(agent: Agent) -> list[tuple[str, str]]:
    return [(plugin.name, plugin.entry) for plugin in agent.plugins if isinstance(plugin, Plugin)]


async def told(agent: Agent) -> Any:
    model = Scripted("Good.")
    async with asyncio.timeout(10), App(msgspec.structs.replace(agent, engine=model)) as app:
        await (await app.conversation().send("Hello")).result()
    return model.prompts[0]


def test_several_entries_of_one_plugin_each_act_once(tmp_path: Path) -> None:
    """P06: three entries insert three nodes; one that is not enabled inserts none."""
    (agent,) = agents_in(tmp_path, TWO_POSITIONS).values()
    assert entries_of(agent) == [("position", ""), ("position", "position-2"), ("position", "third")]
    prompt = asyncio.run(told(agent))
    assert prompt.messages[0].text == "First. Second. Third. Be brief."


def test_what_an_entry_inserts_leads_back_to_the_entry(tmp_path: Path) -> None:
    """P10: injected nodes carry ['plugins', entry], and the paths of what the author wrote do not shift."""
    (agent,) = agents_in(tmp_path, TWO_POSITIONS).values()
    prompt = asyncio.run(told(agent))
    (system, *_) = prompt.nodes
    assert [child.source for child in system.children] == [
        ("plugins", "position"),
        ("plugins", "position-2"),
        ("plugins", "third"),
        ("prompts", "system", "children", "tone"),
    ]
    paths = source_paths(agent.nodes, ["third"])
    assert paths["tone"] == ("prompts", "system", "children", "tone")
    assert paths["third"] == ("plugins", "third")


def test_entries_of_rondel_toml_are_told_apart_and_switched_off_too(tmp_path: Path) -> None:
    toml = """
    [[plugins]]
    name = "auto_reply"
    text = "Go on."
    [[plugins]]
    name = "auto_reply"
    text = "And then?"
    id = "curious"
    [[plugins]]
    name = "log"
    enabled = false
    """
    path = write(tmp_path / "rondel.toml", toml)
    made = plugins_of(load(path.parent, {"HOME": str(tmp_path)}))
    assert [(plugin.name, plugin.entry) for plugin in made] == [("auto_reply", ""), ("auto_reply", "curious")]


@pytest.mark.parametrize(
    ("node", "said"),
    [
        (
            "{id: a, role: sytem}",
            "a.yaml:4: 'agents.a.prompt[0].role' must be one of 'system', 'user', 'assistant', not 'sytem'; "
            "did you mean 'system'?",
        ),
        ("{id: a, txt: x}", "a.yaml:4: 'agents.a.prompt[0].txt' is not known; did you mean 'text'?"),
        ("{text: x}", "a.yaml:4: in 'agents.a.prompt[0]', 'id' is missing"),
        ("{id: '', text: x}", "a.yaml:4: 'prompt[0]' has an empty id; name it"),
        ("{id: a, enabled: maybe}", "a.yaml:4: 'agents.a.prompt[0].enabled' must be true or false, not 'maybe'"),
        ("{id: a, children: {id: b}}", "a.yaml:4: 'agents.a.prompt[0].children' must be a list"),
        (
            "{id: a}\n    - id: b\n      children:\n      - id: a",
            "a.yaml:7: two pieces of the prompt have the id 'a': on line 4 and here",
        ),
        ("&loop\n      id: a\n      children: [*loop]", "a.yaml:4: contains itself through its anchor; write it out"),
    ],
)
def test_a_node_that_is_wrong_is_refused_with_its_line(tmp_path: Path, node: str, said: str) -> None:
    """P01: what a node cannot be is rejected in files, with the line and the nearest word."""
    assert said_of(tmp_path, f"agents:\n  a:\n    prompt:\n    - {node}\n").startswith(said)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (
            "position: {target: x, txt: y}",
            "a.yaml:4: the plugin 'position' has no parameter 'txt'; did you mean 'text'?",
        ),
        ("position: {target: x}", "a.yaml:4: the plugin 'position' needs the parameter 'text'"),
        ("position: {target: x, text: [y]}", "a.yaml:4: 'text' must be a text, not ['y']"),
        (
            "position: {target: x, text: y, position: befor}",
            "a.yaml:4: the plugin 'position' could not be made: 'befor' is not a position; did you mean 'before'?",
        ),
        ("positon: {target: x}", "a.yaml:4: there is no plugin 'positon'; did you mean 'position'?"),
        (
            "log: {enabled: false}",
            "a.yaml:4: the plugin 'log' has no parameter 'enabled'; write it beside the plugin's name",
        ),
        ("log:\n      enabled: 3", "a.yaml:5: 'agents.a.plugins[0].enabled' must be true or false, not 3"),
        ("log:\n      id: a b", "a.yaml:5: 'a b' is not a valid plugin id: use 1 to 64 letters"),
        ("log:\n      id: x\n    - todo:\n      id: x", "a.yaml:6: two plugins have the id 'x': on line 4 and here"),
    ],
)
def test_a_plugin_entry_that_is_wrong_is_refused_with_its_line(tmp_path: Path, entry: str, said: str) -> None:
    assert said_of(tmp_path, f"agents:\n  a:\n    plugins:\n    - {entry}\n").startswith(said)


async def test_response_nodes_are_a_tree_like_the_prompt(tmp_path: Path) -> None:
    """P08: the answer is framed by nodes that a file gives, below each other too."""
    (agent,) = agents_in(
        tmp_path,
        """
        agents:
          a:
            prompt: ""
            plugins:
              - respond:
                  nodes:
                    - id: frame
                      children: [{id: response}, {id: signature, role: assistant, text: The desk}]
        """,
    ).values()
    async with asyncio.timeout(10), App(msgspec.structs.replace(agent, engine=Scripted("Good."))) as app:
        assert (await (await app.conversation().send("Hello")).result()).output == "Good.\n\nThe desk"


def nested(levels: int) -> str:
    lines = ["agents:", "  a:", "    prompt:"]
    for level in range(levels):
        indent = " " * (4 + 2 * level)
        lines += [f"{indent}- id: n{level}", *([f"{indent}  children:"] if level + 1 < levels else [])]
    return "\n".join(lines)


def test_a_prompt_may_be_as_deep_as_prompts_may_be_and_no_deeper(tmp_path: Path) -> None:
    """P01: a hundred levels are read; one more, or ten thousand, are one sentence."""
    (agent,) = agents_in(tmp_path, nested(DEPTH_MAX)).values()
    assert len(agent.nodes[0].source) == 2
    line = 3 + 2 * DEPTH_MAX + 1
    said = said_of(tmp_path, nested(DEPTH_MAX + 1))
    assert said == f"a.yaml:{line}: the prompt is nested more than {DEPTH_MAX} levels deep; make it flatter"
    assert "is nested more than" in said_of(tmp_path, nested(DEPTH_MAX + 40))
    deep = "agents: {a: {prompt: " + "[{id: x, children: " * 10_000 + "[]" + "}]" * 10_000 + "}}"
    assert said_of(tmp_path, deep) == "a.yaml: is nested too deeply to be read"


@pytest.mark.slow
def test_a_prompt_may_be_ten_thousand_nodes_wide(tmp_path: Path) -> None:
    nodes = "".join(f"\n      - {{id: n{number}, text: x}}" for number in range(10_000))
    (agent,) = agents_in(tmp_path, f"agents:\n  a:\n    prompt:{nodes}\n").values()
    assert len(agent.nodes) == 10_001
    assert agent.nodes[9_999].source == ("prompts", "n9999")
