"""A prompt is a tree that plugins edit and that flattens to messages."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rondel import Agent, App, Plugin, Prompt, Reply, tool
from rondel.errors import EngineDenied, RondelError
from rondel.events import Event, Outcome, PluginFailed, TurnFinished, Warned
from rondel.machine.turn import Turn
from rondel.plugins.history import History
from rondel.plugins.position import Position
from rondel.prompt import HISTORY, Node, flatten, source_paths
from rondel.testing import Scripted, call
from rondel.values import Message, PartDelta, ToolCall, ToolResult, assistant, system, user

from ..helpers import events_after, of, play, result_of, scripted

MANY = 10_000


def told(*nodes: Node | Message) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in Prompt(nodes).messages]


def sent(prompt: Prompt) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in prompt.messages]


def ask(agent: Agent, text: str = "Hello") -> list[Event]:
    return play(events_after(text), agent)


# --- nodes ------------------------------------------------------------------------------------------------------------


def test_a_node_has_all_that_an_author_may_say_of_it():
    """P01: id, caption, enabled, role, tags, text, children, source."""
    child = Node("child", text="inner")
    node = Node("tone", "Be kind.", "system", (child,), "Tone", False, ("style",), ("prompts", "tone"))
    assert (node.id, node.text, node.role, node.children) == ("tone", "Be kind.", "system", (child,))
    assert (node.caption, node.enabled, node.tags, node.source) == ("Tone", False, ("style",), ("prompts", "tone"))
    assert Node("plain") == Node("plain", text="", role=None, children=(), caption="", enabled=True, tags=(), source=())


def test_an_unknown_role_is_refused_with_the_nearest_one():
    """P01: unknown role rejected."""
    unknown: Any = "assistent"
    with pytest.raises(RondelError, match="node 'tone' has the unknown role 'assistent'; did you mean 'assistant'"):
        Node("tone", role=unknown)


def test_a_node_and_its_children_without_a_role_are_one_message():
    """P02: joined with nothing between, stripped."""
    parent = Node("p", "Parent text ", children=(Node("a", "Child 1 text "), Node("b", "Child 2 text ")))
    assert told(parent) == [("system", "Parent text Child 1 text Child 2 text")]


def test_each_descendant_with_a_role_is_a_message_after_its_ancestor():
    """P03: depth first; also those inside of one another and inside of nodes without a role."""
    tree = Node(
        "root",
        "root ",
        children=(
            Node("u", "asked ", "user", (Node("a", "answered", "assistant"), Node("more", "more"))),
            Node("plain", "plain ", children=(Node("deep", "deep", "user"), Node("tail", "tail"))),
        ),
    )
    assert told(tree) == [
        ("system", "root plain tail"),
        ("user", "asked more"),
        ("assistant", "answered"),
        ("user", "deep"),
    ]


def test_blank_nodes_go_unless_they_have_a_role():
    """P03: no role is system; a blank node without a role is dropped, one with a role stays."""
    blank = (Node("a", " \n"), Node("b"), Node("c", "", "user"), Node("d", children=(Node("e", " "),)))
    assert told(*blank) == [("user", "")]
    assert told(Node("f", children=(Node("g", "only a child says something"),))) == [
        ("system", "only a child says something")
    ]


@pytest.mark.parametrize("depth", [0, 1, 2, 5])
def test_a_disabled_node_is_left_out_with_all_that_is_in_it(depth: int):
    """P04: at any depth, with or without a role, with messages inside."""
    off = Node("off", "hidden", children=(Node("in", "hidden", "user"), user("hidden")), enabled=False)
    role_off = Node("off2", "hidden", "assistant", enabled=False)
    tree = (off, role_off)
    for level in range(depth):
        tree = (Node(f"level-{level}", f"{level}.", children=tree),)
    assert not any("hidden" in text for _, text in told(*tree, user("Hello")))
    assert told(*tree, user("Hello"))[-1] == ("user", "Hello")


def test_a_disabled_child_is_not_sent_to_the_model():
    """P04: through the top."""
    prompt = Node("system", "Be brief.", "system", (Node("secret", " Be rude.", enabled=False),))
    agent, engine = scripted("Yes.", prompt=prompt)
    ask(agent)
    assert sent(engine.prompts[0]) == [("system", "Be brief."), ("user", "Hello")]


def test_a_node_is_found_with_its_siblings_and_its_place():
    """P05: the node, the list that it stands in, its index; none when it is not there."""
    inner = (Node("a"), Node("b", children=(Node("c"),)), user("hi", id="m1"))
    prompt = Prompt((Node("first"), Node("root", children=inner)))
    found = prompt.find("b")
    assert found is not None
    assert (found.child, found.siblings, found.index) == (inner[1], inner, 1)
    top, message = prompt.find("root"), prompt.find("m1")
    assert top is not None
    assert (top.siblings, top.index) == (prompt.nodes, 1)
    assert message is not None
    assert (message.child, message.index) == (inner[2], 2)
    assert prompt.find("missing") is None


def test_editing_returns_a_new_prompt_and_leaves_the_old_one():
    prompt = Prompt((Node("root", children=(Node("a"), Node("b"))),))
    edited = (
        prompt.insert_before("a", Node("0")).insert_after("b", Node("c")).replace_node("a", Node("A1"), Node("A2"))
    ).insert_into("c", Node("d"))
    root = edited.nodes[0]
    assert isinstance(root, Node)
    assert [child.id for child in root.children] == ["0", "A1", "A2", "b", "c"]
    assert edited.find("d") is not None
    assert prompt == Prompt((Node("root", children=(Node("a"), Node("b"))),))


def test_an_edit_at_a_target_that_is_not_there_changes_nothing():
    prompt = Prompt((Node("root"),))
    for edit in (prompt.insert_before, prompt.insert_after, prompt.insert_into, prompt.replace_node):
        assert edit("missing", Node("new")) is prompt


def test_the_first_of_several_nodes_with_one_id_is_edited():
    """A duplicate id is an author's mistake, which must not insert anything twice."""
    prompt = Prompt((Node("twin", "one"), Node("twin", "two"))).insert_before("twin", Node("new", "new"))
    assert [child.id for child in prompt.nodes] == ["new", "twin", "twin"]


# --- trees beyond all measure -----------------------------------------------------------------------------------------


def test_a_tree_ten_thousand_deep_is_searched_edited_and_flattened():
    tree = Node("bottom", "deep")
    for level in range(MANY):
        tree = Node(f"n{level}", "x", children=(tree,))
    prompt = Prompt((tree, user("Hello"))).insert_after("bottom", Node("below", "est", "user"))
    assert sent(prompt) == [("system", "x" * MANY + "deep"), ("user", "est"), ("user", "Hello")]
    assert not prompt.is_blank


def test_a_tree_ten_thousand_wide_is_searched_edited_and_flattened():
    tree = Node("root", children=tuple(Node(f"n{n}", "x") for n in range(MANY)))
    last = f"n{MANY - 1}"
    prompt = Prompt((tree,)).insert_before(last, Node("new", "y")).insert_into(last, Node("role", "z", "user"))
    assert sent(prompt) == [("system", "x" * (MANY - 1) + "yx"), ("user", "z")]
    assert len(source_paths(prompt.nodes)) == MANY + 3


def test_an_author_who_nests_too_deep_is_told():
    tree = Node("bottom")
    for level in range(200):
        tree = Node(f"n{level}", children=(tree,))
    with pytest.raises(RondelError, match="a prompt is nested 201 levels deep; use at most 100"):
        play(lambda app: app.conversation().send("Hello"), Agent("deep", tree, Scripted()))


# --- roles ------------------------------------------------------------------------------------------------------------


@tool
def look(at: str) -> str:
    return f"{at} is green"


def rounds_with(*plugins: Plugin) -> list[list[tuple[str, str]]]:
    """What is sent after a turn that failed: in the round that calls a tool, and in the round after it."""
    engine = Scripted(
        EngineDenied("the key is wrong"), call("look", "c1", saying="Looking.", at="grass"), "It is green."
    )

    async def scene(app: App) -> None:
        conversation = app.conversation()
        for text in ("Hello", "What colour?"):
            await (await conversation.send(text)).result(check=False)

    play(scene, Agent("helper", "Be brief.", engine, [look], plugins))
    return [sent(prompt) for prompt in engine.prompts[1:]]


FAILED_TURN = [("system", "Be brief."), ("user", "Hello"), ("user", "The turn failed: the key is wrong")]


def test_roles_are_the_models_own_by_default():
    """P09: user, assistant and system stay, results have the native role, an error is told as the user's."""
    first, second = rounds_with()
    assert first == [*FAILED_TURN, ("user", "What colour?")]
    assert second == [*FAILED_TURN[:2], ("user", "What colour?"), ("assistant", "Looking."), ("tool", "")]


def test_roles_can_be_plain_so_that_results_are_the_users_words():
    """P09: tool and error become user, and the call that a result answers is text as well."""
    first, second = rounds_with(History(roles="plain"))
    assert first == [*FAILED_TURN, ("user", "What colour?")]
    assert second == [
        *FAILED_TURN[:2],
        ("user", "What colour?"),
        ("assistant", 'Looking.\n<tool_use name="look">{"at":"grass"}</tool_use>'),
        ("user", "<functions_result>\nTool: look\nResult: grass is green\n</functions_result>\n"),
    ]


def test_an_unknown_way_to_map_roles_is_refused():
    with pytest.raises(RondelError, match="'plane' is not a way to map roles; did you mean 'plain'"):
        History(roles="plane")


class HandOver(Plugin):
    async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
        return msgspec.structs.replace(reply, next="agent:second")


def test_what_another_agent_said_is_sent_as_assistant():
    """P09: agent becomes assistant; who spoke is the author."""
    first, _ = scripted("Over to you.", name="first", plugins=[HandOver()])
    second, engine = scripted("Here I am.", name="second")

    play(result_of("Help", agent="first"), first, second)
    assert [(m.role, m.author) for m in engine.prompts[0].messages] == [("user", ""), ("assistant", "first")]


# --- where each piece comes from --------------------------------------------------------------------------------------


def test_every_piece_knows_the_path_to_its_source():
    """P10: ids on the way, so that an insertion shifts no path; what a plugin inserts leads to its entry."""
    own = Node("mine", " Mine.", source=("somewhere", "else"))
    tree = Node("system", "Be kind.", "system", (Node("tone", " Softly."), Node("rules", " Obey."), own))
    position = Position(target="rules", text=" Now!")
    position.entry = "shout"
    agent, engine = scripted("Yes.", prompt=(tree, Node(HISTORY)), plugins=[position])
    ask(agent)
    prompt = engine.prompts[0]
    sources = {child.id: child.source for _, child in _nodes(prompt)}
    assert sources == {
        "system": ("prompts", "system"),
        "tone": ("prompts", "system", "children", "tone"),
        "shout-rules": ("plugins", "shout"),
        "rules": ("prompts", "system", "children", "rules"),
        "mine": ("somewhere", "else"),
        HISTORY: ("prompts", HISTORY),
    }


def test_source_paths_map_ids_to_where_they_are_written():
    """P10: id -> ("prompts", …, "children", …) and ("plugins", id); the same after siblings were inserted."""
    tree = Node("system", children=(Node("tone"), Node("rules", children=(Node("first"),))))
    prompt = Prompt((tree,))
    before = source_paths(prompt.nodes, ["shout"])
    assert before == {
        "system": ("prompts", "system"),
        "tone": ("prompts", "system", "children", "tone"),
        "rules": ("prompts", "system", "children", "rules"),
        "first": ("prompts", "system", "children", "rules", "children", "first"),
        "shout": ("plugins", "shout"),
    }
    after = source_paths(prompt.insert_before("tone", Node("x")).insert_before("first", Node("y")).nodes, ["shout"])
    assert before.items() <= after.items()


def _nodes(prompt: Prompt) -> list[tuple[int, Node]]:
    pending, found = list(prompt.nodes), list[tuple[int, Node]]()
    while pending:
        child = pending.pop()
        if isinstance(child, Node):
            found.append((len(found), child))
            pending.extend(child.children)
    return found


# --- how it comes about -----------------------------------------------------------------------------------------------


class Mark(Plugin):
    """Writes down each hook that is called, and says its letter in the prompt."""

    holds_stream = False  # it only looks

    def __init__(self, letter: str, seen: list[str]) -> None:
        self.letter, self.seen = letter, seen

    def _note(self, hook: str) -> None:
        self.seen.append(f"{self.letter}.{hook}")

    async def on_turn_start(self, turn: Turn) -> None:
        self._note("on_turn_start")

    async def on_prompt(self, turn: Turn, prompt: Prompt) -> Prompt:
        self._note("on_prompt")
        return prompt.instruct(self.letter)

    async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
        self._note("on_reply")
        return reply

    async def on_tool_call(self, turn: Turn, call: ToolCall) -> ToolCall:
        self._note("on_tool_call")
        return call

    async def on_tool_result(self, turn: Turn, call: ToolCall, result: ToolResult) -> ToolResult:
        self._note("on_tool_result")
        return result

    async def on_turn_end(self, turn: Turn, outcome: Outcome) -> None:
        self._note("on_turn_end")

    def on_event(self, turn: Turn, event: Event) -> None:
        if isinstance(event, (PartDelta, TurnFinished)):
            self._note(f"on_event:{type(event).__name__}")


async def test_the_assembly_is_a_stream_of_steps():
    """P11: a step for each plugin, then finalize, flatten, complete; progress (i+1)/(n+2) to 1; the prompt so far."""
    seen: list[str] = []
    agent, engine = scripted(prompt="Be brief.", plugins=[Mark("a", seen), Mark("b", seen)])
    async with App(agent, plugins=[]) as app:
        steps = [step async for step in app.preview("helper", user("Hello"))]
    assert [(step.step, step.plugin) for step in steps] == [
        ("plugin", "mark"),
        ("plugin", "mark"),
        ("finalize", ""),
        ("flatten", ""),
        ("complete", ""),
    ]
    assert [step.progress for step in steps] == [1 / 4, 2 / 4, 3 / 4, 1.0, 1.0]
    assert [[message.text for message in step.messages] for step in steps] == [
        ["Be brief.", "a", "Hello"],
        *[["Be brief.", "a", "b", "Hello"]] * 4,
    ]
    assert all(step.messages == step.prompt.messages for step in steps)
    assert engine.prompts == []


async def test_a_plugin_that_raises_is_a_step_that_changed_nothing():
    """P11, P12: the assembly goes on."""

    class Broken(Plugin):
        async def on_prompt(self, turn: Turn, prompt: Prompt) -> Prompt:
            raise ValueError("no")

    agent, _ = scripted(plugins=[Broken(), Mark("a", [])])
    async with App(agent, plugins=[]) as app:
        steps = [step async for step in app.preview("helper", user("Hello"))]
    assert [len(step.messages) for step in steps] == [1, 2, 2, 2, 2]


def test_the_hooks_are_called_in_the_order_of_the_list():
    """P22: the original's hooks by our names, in registration order.

    | original | here |
    |---|---|
    | userMessageReceived | on_turn_start |
    | process (processPrompts) | on_prompt |
    | finalize (finalizePrompts) | on_prompt of the plugins that stand last: order is one visible list |
    | responseUpdate | on_event, with the deltas |
    | responseComplete, postProcess | on_reply |
    | toolExecuted | on_tool_result |
    | statusChanged | on_event, with TurnStarted, CallHeld, TurnFinished |

    Prompts and calls go down the list; replies and results come up, so that the plugin that was the last to see a
    prompt is the first to see its reply.
    """
    seen: list[str] = []
    agent, _ = scripted(call("look", at="grass"), "Green.", tools=[look], plugins=[Mark("a", seen), Mark("b", seen)])
    ask(agent)
    assert seen == [
        *("a.on_turn_start", "b.on_turn_start"),
        *("a.on_prompt", "b.on_prompt"),
        *("a.on_event:PartDelta", "b.on_event:PartDelta"),  # of the call's arguments
        *("b.on_reply", "a.on_reply"),
        *("a.on_tool_call", "b.on_tool_call", "b.on_tool_result", "a.on_tool_result"),
        *("a.on_prompt", "b.on_prompt"),
        *("a.on_event:PartDelta", "b.on_event:PartDelta"),
        *("b.on_reply", "a.on_reply"),
        *("b.on_turn_end", "a.on_turn_end"),
        *("a.on_event:TurnFinished", "b.on_event:TurnFinished"),
    ]


@pytest.mark.parametrize(
    "hook",
    [
        *("on_turn_start", "on_prompt", "on_reply", "on_tool_call", "on_tool_result", "on_turn_end", "on_event"),
        "applies",
    ],
)
def test_a_plugin_that_raises_in_a_hook_is_reported_and_the_next_one_still_called(hook: str):
    """P12, P22: in every hook in turn."""
    seen: list[str] = []

    def broken(self: Plugin, *_: object) -> None:
        raise ValueError(f"broken in {hook}")

    class Broken(Plugin):
        pass

    setattr(Broken, hook, broken if hook in ("on_event", "applies") else _as_async(broken))
    agent, _ = scripted(
        call("look", at="grass"), "Green.", tools=[look], plugins=[Mark("a", seen), Broken(), Mark("b", seen)]
    )
    events = ask(agent)
    failures = {(failed.plugin, failed.hook) for failed in of(PluginFailed, events)}
    assert failures == {("broken", hook)}
    assert of(TurnFinished, events)[0].outcome is Outcome.DONE
    called = "on_prompt" if hook == "applies" else hook
    assert {line.partition(":")[0] for line in seen} >= {f"a.{called}", f"b.{called}"}


def _as_async(raising: Any) -> Any:
    async def hook(self: Plugin, *values: object) -> None:
        raising(self, *values)

    return hook


def test_a_missing_target_is_a_warning_that_names_it_once_a_turn():
    agent, engine = scripted(
        call("look", at="grass"),
        "Green.",
        prompt="Be brief.",
        tools=[look],
        plugins=[Position(target="tune", text="Softly."), History(target="chat")],
    )
    warned = of(Warned, ask(agent))
    assert [(warning.plugin, "'tune'" in warning.message) for warning in warned] == [
        ("position", True),
        ("history", False),
    ]
    assert "'chat'" in warned[1].message
    assert sent(engine.prompts[0]) == [("system", "Be brief."), ("user", "Hello")]


def test_flattening_a_foreign_prompt_is_the_same():
    """A prompt that came from somebody else's program is a tree too."""
    prompt = Prompt.of(system("Be brief."), user("Hello"), assistant("Hi"))
    assert tuple(flatten(prompt.nodes)) == prompt.messages == prompt.nodes
