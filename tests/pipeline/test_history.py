"""The conversation in a node of the author's choice."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rondel import Agent, App, Plugin, Prompt, tool
from rondel.events import Warned
from rondel.plugins.history import History
from rondel.prompt import HISTORY, Node
from rondel.testing import Scripted, Step, call
from rondel.values import Media, Message

from ..helpers import of, play, result_of


@tool
def look(at: str) -> str:
    return f"{at} is green"


def talk(
    tree: Sequence[Node], *plugins: Plugin, steps: Sequence[Step] = ("One.", "Two."), says: Sequence[str] = ("a", "b")
) -> tuple[list[Prompt], list[Warned]]:
    engine = Scripted(*steps)

    async def scene(app: App) -> list[Warned]:
        conversation = app.conversation()
        for text in says:
            await (await conversation.send(text)).result()
        return of(Warned, [entry.event for entry in await conversation.entries()])

    warned = play(scene, Agent("helper", tuple(tree), engine, [look], plugins))
    engine.check_done()
    return engine.prompts, warned


def children(prompt: Prompt, id: str) -> list[tuple[str, str, str]]:
    found = prompt.find(id)
    assert found is not None
    assert isinstance(found.child, Node)
    return [(child.id, child.role or "", child.text) for child in found.child.children]


def sent(prompt: Prompt) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in prompt.messages]


@pytest.mark.parametrize("target", [HISTORY, "chat"])
def test_the_targets_children_become_the_conversation_and_its_text_goes(target: str):
    """P07: history-0…n with their roles, whatever stood there before."""
    tree = (Node("system", "Be kind."), Node(target, "(the talk)", children=(Node("old", "old"),)), Node("end", "End."))
    prompts, warned = talk(tree, History(target=target))
    assert children(prompts[1], target) == [
        ("history-0", "user", "a"),
        ("history-1", "assistant", "One."),
        ("history-2", "user", "b"),
    ]
    assert sent(prompts[1]) == [
        ("system", "Be kind."),
        ("user", "a"),
        ("assistant", "One."),
        ("user", "b"),
        ("system", "End."),
    ]
    assert warned == []


def test_a_target_deep_in_the_tree_holds_the_conversation_once():
    """P07, P13: the present message is there exactly once, in every round, also those of tools."""
    tree = (Node("system", "Be kind.", children=(Node("chat"), Node("tone", " Softly."))),)
    prompts, _ = talk(tree, History(target="chat"), steps=(call("look", at="grass"), "Green."), says=("Colour?",))
    assert sent(prompts[0]) == [("system", "Be kind. Softly."), ("user", "Colour?")]
    assert sent(prompts[1]) == [("system", "Be kind. Softly."), ("user", "Colour?"), ("assistant", ""), ("tool", "")]


def test_a_nested_node_named_history_holds_the_conversation_once():
    """P07, P13: although an agent without a history at the top is given one."""
    prompts, _ = talk((Node("system", "Be kind.", children=(Node(HISTORY),)),), History())
    assert sent(prompts[1]) == [("system", "Be kind."), ("user", "a"), ("assistant", "One."), ("user", "b")]


def test_while_nothing_was_said_before_a_placeholder_says_so():
    """P07: configurable; it stays for the whole first turn, and goes with the second."""
    placeholder = History(empty="(nothing was said yet)")
    prompts, _ = talk((), placeholder, steps=(call("look", at="grass"), "Green.", "Two."))
    assert sent(prompts[0]) == [("system", "(nothing was said yet)"), ("user", "a")]
    assert sent(prompts[1])[:2] == sent(prompts[0])
    assert [text for _, text in sent(prompts[2])] == ["a", "", "", "Green.", "b"]
    assert placeholder.moves_prefix
    assert not History().moves_prefix


def test_a_conversation_that_goes_on_keeps_its_names():
    says = [f"question {n}" for n in range(6)]
    prompts, _ = talk((), History(), steps=[f"answer {n}" for n in range(6)], says=says)
    for prompt in prompts:
        assert [id for id, _, _ in children(prompt, HISTORY)] == [f"history-{n}" for n in range(len(prompt.history))]
    assert [message.text for message in prompts[-1].history][::2] == says


def test_a_target_that_is_not_there_leaves_the_conversation_where_it_was():
    """P07: with a warning that names it."""
    prompts, warned = talk((Node("system", "Be kind."),), History(target="chatt"), steps=("One.",), says=("a",))
    assert sent(prompts[0]) == [("system", "Be kind."), ("user", "a")]
    assert [("'chatt'" in warning.message, warning.plugin) for warning in warned] == [(True, "history")]


def test_images_of_results_stay_images_when_roles_are_plain():
    @tool
    def draw() -> list[Media]:
        return [Media("image", "image/png", b"png")]

    engine = Scripted(call("draw"), "Nice.")

    play(result_of("Draw!"), Agent("helper", "", engine, [draw], [History(roles="plain")]))
    result: Message = engine.prompts[1].messages[-1]
    assert result.role == "user"
    assert Media("image", "image/png", b"png") in result.parts
