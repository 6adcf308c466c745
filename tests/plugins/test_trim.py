"""What of a long conversation a model is sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rondel import Agent, Prompt, tool
from rondel.events import Trimmed
from rondel.machine.tokens import MEDIA_TOKENS, breakdown, estimate_tokens, message_tokens
from rondel.plugins.trim import Trim, newest_within
from rondel.prompt import HISTORY, Node
from rondel.testing import Scripted, call
from rondel.values import Media, Message, ModelFacts, Text, ToolCall, ToolResult, ToolSpec, assistant, user
from tests.helpers import talking

from ..helpers import of


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("a", 1),
        ("abcd", 1),
        ("abcde", 2),
        ("汉字", 2),
        ("汉字abcde", 4),
        ("é" * 8, 2),
        ("한국어", 3),
        ("ひらがな", 4),
    ],
)
def test_tokens_are_estimated_from_characters(text: str, tokens: int):
    """P16: a CJK character is one, four others are one, rounded up."""
    assert estimate_tokens(text) == tokens


def chat(rounds: int, chars: int = 40) -> list[str]:
    return [f"{number:02}".ljust(chars, ".") for number in range(rounds)]


def texts(prompt: Prompt) -> list[str]:
    return [message.text[:2] for message in prompt.history]


async def test_the_newest_messages_within_the_share_of_the_window_are_kept():
    """P16: newest within 70 % of the window, in order; the rest dropped and reported; the transcript is not edited."""
    said = chat(6)
    engine = Scripted(*said, facts=ModelFacts(window_tokens=100))  # 70 tokens; each message has 10
    async with talking(Agent("helper", engine=engine)) as conversation:
        for text in said:
            await (await conversation.send(text)).result()
        entries = [entry.event for entry in await conversation.entries()]
        trimmed, messages = of(Trimmed, entries), len((await conversation.transcript()).messages)
    assert texts(engine.prompts[3]) == ["00", "00", "01", "01", "02", "02", "03"]
    assert texts(engine.prompts[4]) == ["01", "01", "02", "02", "03", "03", "04"]
    assert texts(engine.prompts[5]) == ["02", "02", "03", "03", "04", "04", "05"]
    assert trimmed == [Trimmed(2, 20, 100), Trimmed(4, 40, 100)]
    assert messages == 12


@pytest.mark.parametrize(("tokens", "kept"), [(345, 3), (346, 2)])
async def test_seventy_percent_of_the_window_is_the_limit_to_the_token(tokens: int, kept: int):
    """P16: 70 %."""
    engine = Scripted("y" * 4 * 345, "z", facts=ModelFacts(window_tokens=1_000))
    async with talking(Agent("helper", engine=engine)) as conversation:
        await (await conversation.send("x" * 4 * tokens)).result()
        await (await conversation.send("w" * 4 * 10)).result()
    assert len(engine.prompts[1].history) == kept


async def test_a_given_window_and_share_count_and_instructions_and_tools_take_their_part():
    """P16: the given window beats the model's; what is fixed is taken off first."""

    @tool
    def look() -> str:
        return ""

    said = chat(3)
    engine = Scripted(*said, facts=ModelFacts(window_tokens=10_000))
    fixed = message_tokens(user("x" * 40)) + breakdown(Prompt(tools=(look.spec,))).tools
    agent = Agent("helper", "x" * 40, engine, [look], [Trim(share=0.5, window_tokens=2 * (30 + fixed))])
    async with talking(agent) as conversation:
        for text in said:
            await (await conversation.send(text)).result()
    assert texts(engine.prompts[2]) == ["01", "01", "02"]
    assert engine.prompts[2].messages[0].text == "x" * 40


async def test_nothing_is_trimmed_when_no_window_is_known():
    """P16: an unknown window is no window of zero."""
    engine = Scripted("a", "b")
    async with talking(Agent("helper", engine=engine)) as conversation:
        await (await conversation.send("x" * 1_000_000)).result()
        await (await conversation.send("y")).result()
    assert len(engine.prompts[1].history) == 3


async def test_in_a_long_turn_the_question_and_the_newest_results_stay():
    """P16: a call is never parted from its results, and the newest user message always stays."""

    @tool
    def read(page: int) -> str:
        return str(page) * 40

    steps = [call("read", f"call-{page}", page=page) for page in range(4)]
    engine = Scripted(*steps, "done", facts=ModelFacts(window_tokens=100))
    async with talking(Agent("helper", engine=engine, tools=[read])) as conversation:
        await (await conversation.send("Read it all, please. Every page.")).result()
        entries = [entry.event for entry in await conversation.entries()]
    last = engine.prompts[-1].history
    assert last[0].role == "user"
    assert [message.role for message in last[1:]] == ["assistant", "tool"] * ((len(last) - 1) // 2)
    assert len(last) < 9
    assert last[-2].calls[0].id == "call-3"
    counts = [event.messages for event in of(Trimmed, entries)]
    assert counts == sorted(set(counts))
    assert counts[-1] == 9 - len(last)


def test_what_never_fits_is_sent_all_the_same():
    """P16: the newest message stays even when it alone is too much."""
    history = (user("a" * 400), assistant("b"), user("c" * 4_000))
    assert newest_within(history, [message_tokens(m) for m in history], 10) == [2]


@given(st.lists(st.sampled_from("uact"), max_size=30), st.integers(-10, 300), st.data())
def test_what_is_kept_fits_and_is_whole(kinds: list[str], budget: int, data: st.DataObject):
    """P16: results never stand without their call, order is kept, and the rest is within the budget."""
    history: list[Message] = []
    for number, kind in enumerate(kinds):
        if kind == "c":
            history.append(assistant(ToolCall(str(number), "t")))
            history.append(Message("tool", (ToolResult(str(number)),)))
        else:
            history.append(user("x") if kind == "u" else assistant("y"))
    costs = data.draw(st.lists(st.integers(0, 50), min_size=len(history), max_size=len(history)))
    kept = newest_within(history, costs, budget)
    assert kept == sorted(set(kept))
    for place in kept:
        if history[place].role == "tool":
            assert place - 1 in kept
        if history[place].calls:
            assert place + 1 in kept
    users = [place for place, message in enumerate(history) if message.role == "user"]
    assert not users or users[-1] in kept
    if history:
        assert len(history) - 1 in kept
    must = {len(history) - 1, len(history) - 2 if history and history[-1].role == "tool" else len(history) - 1}
    must |= set(users[-1:])
    assert sum(costs[place] for place in kept) <= max(budget, sum(costs[place] for place in must if place >= 0))


def test_the_breakdown_says_what_the_tokens_are_spent_on():
    """P17: counts per system, tools, user, assistant and results, total and limit."""
    image = Media("image", url="https://example.org/a.png")
    prompt = Prompt(
        (
            Node("rules", "r" * 40, role="system"),
            Node(
                HISTORY,
                children=(
                    user("u" * 8, image),
                    assistant("a" * 12, ToolCall("1", "look", {"at": "x"})),
                    Message("tool", (ToolResult("1", (Text("汉字"), image)),)),
                ),
            ),
        ),
        tools=(ToolSpec("look", "d" * 16, {}),),
    )
    spent = breakdown(prompt, 8_000)
    assert (spent.system, spent.user, spent.assistant) == (10, 2 + MEDIA_TOKENS, 3 + 1 + 3)
    assert spent.results == 2 + MEDIA_TOKENS
    assert spent.tools == 1 + 4 + 1
    assert spent.total == spent.system + spent.user + spent.assistant + spent.results + spent.tools
    assert spent.limit == 8_000
    assert breakdown(Prompt()).limit is None
