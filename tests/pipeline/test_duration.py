"""Results of tools that are sent for so many rounds, and kept all the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rondel import Agent, App, Plugin, Prompt, tool
from rondel.errors import RondelError, ToolError
from rondel.events import MessageAdded
from rondel.machine.transcript import Transcript
from rondel.plugins.duration import Duration
from rondel.testing import Scripted, Step, call, calls
from rondel.tools.finish import finish
from rondel.values import Media, Message, Text, Thinking, ToolCall, ToolResult, user

from ..helpers import play, result_of


@tool(repeatable=True)
def look(at: str = "") -> str:
    return f"seen {at}"


@tool(repeatable=True)
def read(at: str = "") -> str:
    return f"read {at}"


@tool
def fail() -> str:
    raise ToolError("it failed")


def talk(*steps: Step, plugins: Sequence[Plugin], says: Sequence[str] = ("Go",)) -> tuple[list[Prompt], Transcript]:
    engine = Scripted(*steps)

    async def scene(app: App) -> Transcript:
        conversation = app.conversation()
        for text in says:
            await (await conversation.send(text)).result()
        return await conversation.transcript()

    transcript = play(scene, Agent("helper", "", engine, [look, read, fail, finish], plugins))
    engine.check_done()
    for prompt in engine.prompts:
        check_pairs(prompt.messages)
    return engine.prompts, transcript


def check_pairs(messages: Sequence[Message]) -> None:
    """No call without its result, no result without its call, in the order in which models want them."""
    unanswered: list[str] = []
    for message in messages:
        results = [part.call_id for part in message.parts if isinstance(part, ToolResult)]
        if results:
            assert sorted(results) == sorted(unanswered)
            unanswered = []
        else:
            assert unanswered == []
        unanswered += [part.id for part in message.parts if isinstance(part, ToolCall)]
        assert message.parts
    assert unanswered == []


def seen(prompt: Prompt) -> list[str]:
    """The results in a prompt."""
    return [part.text for message in prompt.messages for part in message.parts if isinstance(part, ToolResult)]


def five_rounds(*plugins: Plugin) -> tuple[list[list[str]], Transcript]:
    prompts, transcript = talk(
        *(call("look", at=str(n)) for n in range(4)), "Done.", plugins=plugins, says=["Look four times"]
    )
    return [seen(prompt) for prompt in prompts], transcript


def test_without_a_duration_results_are_always_sent():
    """P15: none is always."""
    results, _ = five_rounds(Duration())
    assert results[-1] == ["seen 0", "seen 1", "seen 2", "seen 3"]


def test_with_a_duration_of_nothing_results_are_never_sent_but_kept():
    """P15: 0 is never sent but kept."""
    results, transcript = five_rounds(Duration(results=0))
    assert results == [[]] * 5
    assert [m.role for m in transcript.messages] == ["user", *["assistant", "tool"] * 4, "assistant"]


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_a_result_is_sent_for_so_many_rounds(rounds: int):
    """P15: N is N rounds."""
    results, _ = five_rounds(Duration(results=rounds))
    for asked, now in enumerate(results):
        assert now == [f"seen {n}" for n in range(max(0, asked - rounds), asked)]


async def test_rounds_count_and_messages_do_not():
    """P15: what people and plugins say between two rounds makes nothing expire."""
    engine = Scripted(call("look", at="here"), "Seen.", "Still seen.")
    async with App(Agent("helper", "", engine, [look], [Duration(results=2)])) as app:
        conversation = app.conversation()
        await (await conversation.send("Look")).result()
        for n in range(5):
            await (await app.journals.open(conversation.id)).append(MessageAdded(user(f"note {n}")))
        await (await conversation.send("And now?")).result()
    assert seen(engine.prompts[2]) == ["seen here"]
    assert len(engine.prompts[2].messages) == 4 + 5 + 1


def test_a_kept_result_keeps_only_its_own_call():
    """P15: by the call's id. The original kept every call of the same tool, and so sent calls without results."""
    prompts, _ = talk(
        calls(call("look", "a", at="a"), call("read", "b", at="b")),
        call("look", "c", at="c"),
        "Done.",
        plugins=[Duration(tools={"look": 1})],
    )
    last = prompts[2].messages
    assert [[c.id for c in message.calls] for message in last] == [[], ["b"], [], ["c"], []]
    assert seen(prompts[2]) == ["read b", "seen c"]


def test_ids_that_a_model_repeats_are_paired_in_order():
    """P15: a model that gives every call the same id has one result for each."""
    results, _ = five_rounds(Duration(results=2))  # `call` gives all of them the id "call-look"
    assert results[-1] == ["seen 2", "seen 3"]


def test_a_message_that_only_called_goes_and_one_that_said_something_stays():
    """P15: without its calls, a message with no text is left out; thoughts that led to a call go with it."""
    silent = Message("assistant", (Thinking("hm"), ToolCall("t", "look", {"at": "x"})))
    prompts, _ = talk(
        call("look", "a", saying="Let me see.", at="a"), silent, "Done.", "More.", plugins=[Duration(results=1)],
        says=("Go", "On"),
    )  # fmt: skip
    assert [(m.role, m.text) for m in prompts[3].messages] == [
        ("user", "Go"),
        ("assistant", "Let me see."),
        ("assistant", "Done."),
        ("user", "On"),
    ]


def test_errors_may_last_longer_than_results():
    """P15: errors have a duration of their own."""
    plugin = Duration(results=1, tools={"fail": 0}, errors=2)
    prompts, _ = talk(
        call("fail", "f"), call("look", "a", at="a"), call("look", "b", at="b"), "Done.", plugins=[plugin]
    )
    assert [seen(prompt) for prompt in prompts] == [[], ["it failed"], ["it failed", "seen a"], ["seen b"]]


def test_a_tool_may_always_be_sent_when_others_expire():
    prompts, _ = talk(
        call("read", "r", at="r"), call("look", "a", at="a"), "Done.", "More.",
        plugins=[Duration(results=1, tools={"read": None})], says=("Go", "On"),
    )  # fmt: skip
    assert seen(prompts[3]) == ["read r"]


def test_two_entries_count_the_same_rounds():
    """P15, P06: a round whose messages one entry left out is still a round for the other."""
    prompts, _ = talk(
        *(calls(call("look", f"l{n}", at=str(n)), *([call("read", "r", at="r")] if n == 0 else [])) for n in range(4)),
        "Done.",
        plugins=[Duration(tools={"look": 0}), Duration(tools={"read": 2})],
    )
    assert [seen(prompt) for prompt in prompts] == [[], ["read r"], ["read r"], [], []]


def test_what_a_finish_tool_said_is_no_round():
    prompts, _ = talk(
        call("look", "a", at="a"), call("finish", text="Over."), "Seen.", "Gone.", plugins=[Duration(results=2)],
        says=("Go", "On", "On"),
    )  # fmt: skip
    assert ["seen a" in seen(prompt) for prompt in prompts] == [False, True, True, False]


def test_a_message_that_expired_takes_no_half_of_a_pair_along():
    """P15: whoever gave a message with calls a duration, no model sees a result without its call."""

    class Short(Plugin):
        async def on_reply(self, turn: Any, reply: Any) -> Any:
            return replace(reply, message=replace(reply.message, duration=1)) if reply.message.calls else reply

    prompts, _ = talk(call("look", "a", at="a"), call("look", "b", at="b"), "Done.", plugins=[Short(), Duration()])
    assert seen(prompts[2]) == ["seen b"]


def test_results_of_a_foreign_prompt_expire_by_its_own_rounds():
    """P15: what another program sent is in no transcript."""

    class Foreign(Plugin):
        async def on_prompt(self, turn: Any, prompt: Prompt) -> Prompt:
            pairs = (
                (Message("assistant", (ToolCall(id, "look"),)), Message("tool", (ToolResult(id, (Text(id),), "look"),)))
                for id in "abc"
            )
            return Prompt((user("Look"), *(message for pair in pairs for message in pair)))

    prompts, _ = talk("Done.", plugins=[Foreign(), Duration(results=2)])
    assert seen(prompts[0]) == ["b", "c"]


def test_images_stay_with_their_result():
    @tool
    def draw() -> Any:
        return [Text("a picture"), Media("image", "image/png", b"png")]

    engine = Scripted(call("draw"), "Nice.")

    play(result_of("Draw!"), Agent("helper", "", engine, [draw], [Duration(results=1)]))
    [result] = engine.prompts[1].messages[-1].parts
    assert isinstance(result, ToolResult)
    assert len(result.parts) == 2


@given(
    rounds=st.lists(st.lists(st.sampled_from(["look", "read"]), min_size=1, max_size=3), max_size=6),
    results=st.one_of(st.none(), st.integers(0, 3)),
    looks=st.one_of(st.none(), st.integers(0, 3)),
)
def test_whatever_expires_no_call_and_no_result_is_ever_sent_alone(
    rounds: list[list[str]], results: int | None, looks: int | None
):
    """P15"""
    steps: list[Step] = [calls(*(call(name, f"{name}-{at}") for at, name in enumerate(names))) for names in rounds]
    prompts, transcript = talk(*steps, "Done.", plugins=[Duration(results=results, tools={"look": looks})])
    assert len(transcript.messages) == 2 + 2 * len(rounds)
    kept = [len(seen(prompt)) for prompt in prompts]
    assert kept[0] == 0
    if results is None and looks is None:
        assert kept[-1] == sum(map(len, rounds))


def test_a_duration_below_nothing_is_refused():
    with pytest.raises(RondelError, match="'look' cannot last -1 rounds; give 0 or more, or nothing for always"):
        Duration(tools={"look": -1})


def test_it_says_that_it_moves_the_prefix():
    assert Duration.moves_prefix
