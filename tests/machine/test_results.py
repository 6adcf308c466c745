"""What a turn's result says: only what this turn said, and how it ended."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from rondel import Agent, AgentResult, App, Limits, Outcome, Plugin, Reply, tool
from rondel.contracts.ledger import Rule
from rondel.errors import EngineOverloaded, LimitReached
from rondel.events import CallFinished, DurableEvent, JobFinished, TurnFinished
from rondel.ledger.ledger import Ledger
from rondel.machine.turn import Turn
from rondel.prompt import Prompt
from rondel.testing import MemoryStore, Pause, Scripted, call, say
from rondel.values import Message, Thinking, Usage
from tests.helpers import events_of, of, play, scripted, talking

FIRST = "The first answer."


@tool
async def look(at: int = 0) -> str:
    return f"seen {at}"


def after_an_answer(*steps: Any, **fields: Any) -> tuple[AgentResult, TurnFinished]:
    """The result of a second turn, in a conversation whose first turn answered `FIRST`."""
    agent, _ = scripted(FIRST, *steps, tools=[look], **fields)

    async def scene(app: App) -> tuple[AgentResult, TurnFinished]:
        conversation = app.conversation()
        assert (await (await conversation.send("one")).result(check=False)).output == FIRST
        view = await conversation.send("two")
        events = await events_of(view)
        return await view.result(check=False), of(TurnFinished, events)[-1]

    return play(scene, agent)


class GoesOn(Plugin):
    """Lets every turn but the first go on by itself."""

    async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
        return reply if reply.text == FIRST else msgspec.structs.replace(reply, next="self")


class Refuses(Plugin):
    required = True

    async def on_prompt(self, turn: Turn, prompt: Prompt) -> Prompt:
        if turn.transcript.rounds:
            raise LimitReached("limits.mine", "enough for today")
        return prompt


def looks(times: int) -> list[Reply]:
    return [call("look", f"c{n}", at=n) for n in range(times)]


@pytest.mark.parametrize(
    ("steps", "fields", "limit", "output"),
    [
        (looks(2), {"limits": Limits(rounds=2)}, "limits.rounds", ""),
        (looks(3), {"limits": Limits(tree_rounds=2)}, "limits.tree_rounds", ""),
        (looks(3), {"limits": Limits(tree_calls=1)}, "limits.tree_calls", ""),
        (looks(1), {"limits": Limits(tree_tokens=0)}, "limits.tree_tokens", ""),
        (["a", "b"], {"limits": Limits(continuations=1), "plugins": [GoesOn()]}, "limits.continuations", "b"),
        ([], {"plugins": [Refuses()]}, "limits.mine", ""),
    ],
    ids=["rounds", "tree_rounds", "tree_calls", "tree_tokens", "continuations", "plugin"],
)
def test_a_turn_that_a_limit_ends_says_so_and_not_what_an_earlier_one_said(
    steps: list[Any], fields: dict[str, Any], limit: str, output: str
):
    """Trust 4, F03: the result has what this turn said, the limit's name and its sentence."""
    if limit == "limits.tree_tokens":  # of the second turn only
        fields = {"limits": Limits(tree_tokens=5)}
        steps = [msgspec.structs.replace(step, usage=Usage(5, 5)) for step in steps]
    result, finished = after_an_answer(*steps, **fields)
    assert (result.output, result.limit) == (output, limit)
    assert result.error
    assert result.error == finished.reason
    assert finished.outcome is Outcome.LIMITED
    assert finished.state == "completed"  # F03: a completed state that says so
    assert result.ran == bool(steps)


async def test_a_turn_that_the_ledger_blocks_has_no_answer_but_the_sentence():
    """Trust 4, L02."""
    store = MemoryStore()
    ledger = Ledger(store.ledger_store, rules=[Rule({"model": "test"}, tokens=10, mode="block")])
    engine = Scripted(say(FIRST, usage=Usage(10, 5)))
    async with talking(Agent("helper", engine=engine), store=store, ledger=ledger) as conversation:
        assert (await (await conversation.send("one")).result(check=False)).output == FIRST
        result = await (await conversation.send("two")).result(check=False)
    sentence = "The day token limit of 10 for model test has been reached."
    assert result == AgentResult("", sentence, False, "helper", limit="ledger.limits", outcome=Outcome.LIMITED)
    assert str(result) == f"[helper failed: {sentence}]"


@pytest.mark.parametrize(
    "step",
    [Message("assistant", (Thinking("hm"),)), Message("assistant"), EngineOverloaded("busy")],
    ids=["only_thinking", "empty", "failed"],
)
def test_a_turn_that_said_nothing_has_no_answer(step: Any):
    """Trust 4: siblings of a limit."""
    result, _ = after_an_answer(step)
    assert (result.output, bool(result.error)) == ("", isinstance(step, Exception))


async def test_a_turn_with_a_blank_prompt_has_no_answer_and_the_next_one_ran():
    """Trust 4, F08: neither the answer nor `ran` is that of another turn."""

    class Blank(Plugin):
        async def on_prompt(self, turn: Turn, prompt: Prompt) -> Prompt:
            return Prompt() if turn.messages[0].text == "two" else prompt

    agent, _ = scripted(FIRST, "third", plugins=[Blank()])
    async with talking(agent) as conversation:
        results = [await (await conversation.send(text)).result() for text in ("one", "two", "three")]
    assert [(r.output, r.ran) for r in results] == [(FIRST, True), ("", False), ("third", True)]


async def test_a_turn_that_waits_or_is_stopped_has_what_it_said_and_never_an_older_answer():
    """Trust 4."""
    agent, engine = scripted(FIRST)
    async with App(agent) as app:
        pause = Pause("Half of ")
        engine.add(pause)
        conversation = app.conversation()
        await (await conversation.send("one")).result()
        view = await conversation.send("two")
        queued = await conversation.send("three")
        await pause.reached.wait()
        await queued.stop()
        await view.stop()
        stopped, queued = await view.result(), await queued.result()
    assert (stopped.output, stopped.error) == ("Half of ", "the turn was stopped")
    assert (queued.output, queued.error, queued.ran) == ("", "the turn was stopped before it began", False)


async def test_an_agent_that_reaches_a_limit_is_an_error_to_the_one_that_asked_it():
    """Trust 4: its caller reads the sentence, and no answer of an earlier call."""
    worker = Agent("worker", engine=Scripted(FIRST, *looks(1)), tools=[look], limits=Limits(rounds=1))
    boss, engine = scripted(call("worker", "w1", input="a"), call("worker", "w2", input="b"), "ok", tools=["worker"])
    async with App(boss, worker) as app:
        first, second = of(CallFinished, await events_of(await app.conversation().send("go")))
    assert (first.result.text, first.result.is_error) == (FIRST, False)
    assert second.result.is_error
    assert second.result.text == (
        "agent 'worker' stopped: the turn used its only round; raise limits.rounds or ask for less"
    )
    engine.check_done()


class CutBeforeJobsEnd(MemoryStore):
    """Loses its power just before the end of a job is written."""

    def __init__(self) -> None:
        super().__init__()
        self.dead = asyncio.Event()

    async def append(
        self, conversation: str, seq: int, events: tuple[DurableEvent, ...], *, at: float, wait: bool = True
    ) -> None:
        if any(isinstance(event, JobFinished) for event in events):
            self.dead.set()
            await asyncio.Event().wait()
        await super().append(conversation, seq, events, at=at, wait=wait)


@pytest.mark.parametrize("cut", [False, True], ids=["", "crash"])
@pytest.mark.parametrize("waits", [False, True], ids=["limit", "question"])
async def test_a_job_that_a_limit_or_a_question_ended_has_failed_also_when_a_crash_came_first(waits: bool, cut: bool):
    """Trust 4: a job's digest is what its own turn came to, in words that say why."""

    @tool(approval="confirm", idempotent=True)
    async def ask(at: int = 0) -> str:
        return "asked"

    worker = Agent("worker", engine=Scripted(*looks(1)), tools=[look], limits=Limits(rounds=1))
    asker = Agent("asker", engine=Scripted(call("ask")), tools=[ask])
    name = "asker" if waits else "worker"
    boss, _ = scripted(call(name, input="a"), "started", tools=["worker", "asker"], background=["worker", "asker"])
    store: MemoryStore = CutBeforeJobsEnd() if cut else MemoryStore()
    async with asyncio.timeout(20), App(boss, worker, asker, store=store) as app:
        await app.conversation("c").send("go")
        await (store.dead.wait() if isinstance(store, CutBeforeJobsEnd) else app.drain())
    async with asyncio.timeout(20), App(boss, worker, asker, store=store.reopen()) as app:
        await app.drain()
        entries = await app.conversation("c").entries()
        finished = of(JobFinished, [entry.event for entry in entries])[0]
    assert finished.status == "failed"
    assert ("it needs an answer" if waits else "limits.rounds") in finished.digest.summary


class ForgetsNoJob(MemoryStore):
    """Loses its power just before a job that is over is forgotten."""

    def finish_job(self, *_: Any) -> None:
        pass


async def test_a_turn_that_a_limit_ended_has_the_same_result_after_a_crash():
    """Trust 4: whoever goes on with the job that was left is told the limit's name and sentence, and no answer."""
    agent, _ = scripted(FIRST, *looks(2), tools=[look], limits=Limits(rounds=2))
    store = ForgetsNoJob()
    async with asyncio.timeout(20), App(agent, store=store) as app:
        await (await app.conversation("c").send("one")).result(check=False)
        result = await (await app.conversation("c").send("two")).result(check=False)
    async with asyncio.timeout(20), App(agent, store=store.reopen(), recover=False) as app:
        view = await app.conversation("c").resume()
        again = await view.result(check=False) if view else None
    assert (result.output, result.limit) == ("", "limits.rounds")
    assert again == result
