"""From round to round a prompt keeps its beginning: providers' prompt caches live on it.

The beginning of a prompt is everything up to the end of the conversation: the tools, the instructions, the history.
That of a round is the beginning of the next round's, which only adds what was said since. What plugins put behind the
conversation (the time, a list, passages) may change with every round.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from rondel import Agent, App, Plugin, Prompt, tool
from rondel.contracts.source import Passage
from rondel.dialects import DIALECTS
from rondel.plugins.clock import Clock
from rondel.plugins.duration import Duration
from rondel.plugins.history import History
from rondel.project.lookup import PLUGINS, plugin_class
from rondel.prompt import HISTORY, Node, flatten
from rondel.testing import Scripted, Step, VirtualClock, call, say
from rondel.values import Media, Message, ModelFacts, Text

from ..helpers import play

TREE = (
    Node("system", "Be kind.", "system", (Node("tone", " Softly."), Node("rules", " Obey."))),
    Node("example", "An example.", "user"),
)
NOTES = Media("file", "text/plain", b"Buy milk.", name="notes.txt")


class Shelf:
    """A source that finds another passage each time."""

    name = "shelf"

    def __init__(self) -> None:
        self._found = 0

    async def search(self, query: str, limit: int) -> Sequence[Passage]:
        self._found += 1
        return [Passage(f"passage {self._found} for {query}")]


def parameters() -> dict[str, dict[str, Any]]:
    """What the plugins that cannot be made without it are given."""
    return {
        "auto_reply": {"text": "Go on.", "max": 1},
        "position": {"target": "rules", "text": " Now!"},
        "reroll": {"search": "answer 5"},
        "respond": {"nodes": [Node("response"), Node("signature", "Yours")]},
        "retrieve": {"source": Shelf()},
    }


def make(name: str) -> Plugin:
    return plugin_class(name)(**parameters().get(name, {}))


def steps(prompt_count: int = 60) -> list[Step]:
    """Every third reply ends a turn; the others call a tool, a list's where there is one."""

    def reply(number: int) -> Step:
        def step(prompt: Prompt) -> Step:
            if number % 3 == 2:
                return say(f"answer {number}", thinking="hm")
            if number % 3 == 1 and any(spec.name == "write_todo" for spec in prompt.tools):
                return call("write_todo", f"c{number}", text=f"- [ ] step {number}")
            return call("look", f"c{number}", saying="Let me see.", at=str(number))

        return step

    return [reply(number) for number in range(prompt_count)]


def prompts_with(*plugins: Plugin, tools: bool = True) -> list[Prompt]:
    """What is sent in a conversation of four turns, each of several rounds, while time passes."""
    clock = VirtualClock()

    @tool(idempotent=True)
    async def look(at: str) -> str:
        clock.advance(100)
        return f"seen {at}"

    engine = Scripted(*steps(), facts=ModelFacts(tools=tools, images=True))

    async def scene(app: App) -> None:
        conversation = app.conversation()
        for number in range(4):
            await (await conversation.send([f"question {number}", *([NOTES] if number == 1 else [])])).result()

    play(scene, Agent("helper", TREE, engine, [look], plugins), clock=clock)
    assert len(engine.prompts) >= 12
    return engine.prompts


def parted(prompt: Prompt) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """The messages up to the end of the conversation, and those behind it."""
    at = next(place for place, child in enumerate(prompt.nodes) if isinstance(child, Node) and child.id == HISTORY)
    return tuple(flatten(prompt.nodes[: at + 1])), tuple(flatten(prompt.nodes[at + 1 :]))


def check_beginnings(prompts: Sequence[Prompt]) -> None:
    for before, after in pairwise(prompts):
        (first, tail), (second, _) = parted(before), parted(after)
        assert before.messages == (*first, *tail)
        assert second[: len(first)] == first
        assert (before.tools, before.options) == (after.tools, after.options)
        for name, dialect in DIALECTS.items():
            check_bodies(*(_body(dialect(), messages, after) for messages in (first, second)), name=name)


def _body(dialect: Any, messages: tuple[Message, ...], prompt: Prompt) -> tuple[Any, list[Any]]:
    body = dialect.write_prompt(prompt.replace(nodes=messages), model="model")
    return body, body.pop(dialect.messages_field)


def check_bodies(first: tuple[Any, list[Any]], second: tuple[Any, list[Any]], *, name: str) -> None:
    """The same on the wire: only the list of messages is longer."""
    assert first[0] == second[0], name
    assert second[1][: len(first[1])] == first[1], name


@pytest.mark.parametrize("tools", [True, False], ids=["native tools", "tools in words"])
@pytest.mark.parametrize("name", sorted(PLUGINS))
def test_a_plugin_keeps_the_beginning_of_a_prompt_or_says_that_it_moves_it(name: str, tools: bool):
    plugin = make(name)
    prompts = prompts_with(plugin, tools=tools)
    if not plugin.moves_prefix:
        check_beginnings(prompts)


def test_all_of_them_together_keep_it():
    kept = [plugin for name in PLUGINS if not (plugin := make(name)).moves_prefix]
    assert len(kept) >= 10
    prompts = prompts_with(*kept)
    check_beginnings(prompts)
    assert any(parted(prompts[-1])[1])


@pytest.mark.parametrize(
    "plugin",
    [
        Duration(results=1),
        Clock(zone="UTC", target=HISTORY, position="before"),
        Clock(zone="UTC", target="system", position="child"),
        History(empty="(nothing yet)"),
    ],
    ids=["duration", "clock before", "clock inside", "placeholder"],
)
def test_those_that_say_so_really_move_it(plugin: Plugin):
    """The proof has teeth: a beginning that moves is found."""
    assert plugin.moves_prefix
    with pytest.raises(AssertionError):
        check_beginnings(prompts_with(plugin))


def test_the_time_and_the_list_change_behind_the_conversation():
    tails = [parted(prompt)[1] for prompt in prompts_with(Clock(zone="UTC"), make("todo"))]
    assert len({tail[0].text for tail in tails}) > 4
    assert tails[-1][1].parts == (Text("<current_todo_list>\n- [ ] step 10\n</current_todo_list>"),)
