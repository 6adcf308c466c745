"""Crash at every append: each scenario is run again with the power cut before and after append n, for all n.

Engines here answer by what they are asked, not by how often: a round that was cut off is asked again. The transcript at
the end must be the one of a run without a crash, and what must not run twice has run at most once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from rondel import Agent, App, Hold, Message, Plugin, Prompt, Question, Reply, tool
from rondel.contracts.runtime import Job
from rondel.events import DurableEvent, TurnStarted
from rondel.machine.turn import Turn
from rondel.stores.memory import MemoryStore
from rondel.testing import Scripted, VirtualClock, call, calls, say
from rondel.tool import CallContext
from rondel.values import ToolResult, user


class PowerCut(MemoryStore):
    """Dies at append n, before or after it is written; from then on nothing is written and nothing returns. With
    `counts_all`, it dies at the nth write of any kind: also of a job, of a job's end, and of what is stored by key."""

    def __init__(self, disk: MemoryStore, at: int, *, written: bool, counts_all: bool = False) -> None:
        super().__init__()
        self.disk = disk
        self.ledger_store, self._key_values = disk.ledger_store, disk._key_values
        self._queue, self._worker = disk._queue, disk._worker
        self.left = at
        self.written, self.counts_all = written, counts_all
        self.dead = asyncio.Event()
        self.posted: list[tuple[str, int, tuple[DurableEvent, ...], float]] = []
        self.soon: list[tuple[str, str, bytes | None, float | None]] = []

    async def _die(self) -> None:
        self.dead.set()
        await asyncio.Event().wait()

    async def append(
        self, conversation: str, seq: int, events: tuple[DurableEvent, ...], *, at: float, wait: bool = True
    ) -> None:
        if self.dead.is_set():
            await self._die()
        self.left -= 1
        self.posted.append((conversation, seq, events, at))
        if self.left == 0 and not self.written:
            await self._die()  # and all that nobody waited for is lost with it
        if wait or self.left == 0:
            await self.flush()
        if self.left == 0:
            await self._die()

    async def put(self, namespace: str, key: str, value: bytes, *, until: float | None = None) -> None:
        self.put_soon(namespace, key, value, until=until)
        if self.dead.is_set():
            await self._die()
        await self.flush()

    def put_soon(self, namespace: str, key: str, value: bytes | None, *, until: float | None = None) -> None:
        if self.dead.is_set():
            return
        self.left -= self.counts_all
        if self.left > 0 or self.written:
            self.soon.append((namespace, key, value, until))  # and lost, if it dies before the next write
        if self.left == 0:
            self.dead.set()
            if self.written:
                self._write_soon()

    def _write_soon(self) -> None:
        for namespace, key, value, until in self.soon:
            self.disk.put_soon(namespace, key, value, until=until)
        self.soon.clear()

    async def flush(self) -> None:
        self._write_soon()
        for conversation, seq, events, at in self.posted:
            await self.disk.append(conversation, seq, events, at=at)
        self.posted.clear()

    async def put_job(self, job: Job) -> bool:
        if self.dead.is_set():
            await self._die()
        self.left -= self.counts_all
        if self.left == 0 and not self.written:
            await self._die()
        await self.flush()
        put = await self.disk.put_job(job)
        if self.left == 0:
            await self._die()
        return put

    def finish_job(self, id: str) -> None:
        if self.dead.is_set():
            return
        self.left -= self.counts_all
        if self.left == 0 and not self.written:
            self.dead.set()
            return
        self.disk.finish_job(id)
        if self.left == 0:
            self.dead.set()

    async def read(self, conversation: str, after: int = 0):
        return await self.disk.read(conversation, after)

    async def last_seq(self, conversation: str) -> int:
        return await self.disk.last_seq(conversation) + sum(len(e) for c, _, e, _ in self.posted if c == conversation)

    async def aclose(self) -> None:
        pass


class Scenario:
    """What is told to which agents, and how a person answers."""

    def __init__(self, *agents: Agent, says: tuple[str, ...] = ("go",), answers: str = "") -> None:
        self.agents, self.says, self.answers = agents, says, answers

    async def drive(self, store: MemoryStore) -> None:
        """Say what has not been said yet, answer what is asked, and wait until nothing is under way."""
        async with App(*self.agents, store=store, clock=VirtualClock()) as app:
            conversation = app.conversation("c")
            for number, text in enumerate(self.says):
                await self._settle(app)
                if f"m{number}" not in (await conversation.transcript()).ids:
                    await conversation.send(text, id=f"m{number}")
            await self._settle(app)

    async def _settle(self, app: App) -> None:
        conversation = app.conversation("c")
        while True:
            await app.drain()
            if not (questions := await conversation.questions()):
                return
            await conversation.answer(questions[0].id, self.answers, by="ann")


async def plain_run(scenario: Scenario) -> tuple[list[Message], int]:
    store = CountingStore()
    await scenario.drive(store)
    return await transcript_of(store), store.appends


class CountingStore(MemoryStore):
    appends = 0

    async def append(
        self, conversation: str, seq: int, events: tuple[DurableEvent, ...], *, at: float, wait: bool = True
    ) -> None:
        self.appends += 1
        await super().append(conversation, seq, events, at=at)

    async def aclose(self) -> None:
        pass


async def transcript_of(store: MemoryStore) -> list[Message]:
    from rondel.machine.transcript import Transcript

    transcript = Transcript(entry.event for entry in await store.read("c"))
    return [msgspec.structs.replace(message, id="") for message in transcript.messages]


async def until_dead(work: Coroutine[Any, Any, None], dying: PowerCut) -> bool:
    """Let something run until its store dies. Return whether it did."""
    async with asyncio.TaskGroup() as group:
        main, dead = group.create_task(work), group.create_task(dying.dead.wait())
        await asyncio.wait((main, dead), return_when=asyncio.FIRST_COMPLETED)
        main.cancel()
        dead.cancel()
    return dying.dead.is_set()


async def disk_after_a_crash(scenario: Scenario, at: int, **how: bool) -> tuple[MemoryStore, bool]:
    """Return what a run left when it was cut off at this append, and whether it got that far."""
    disk = MemoryStore()
    dying = PowerCut(disk, at, **how)
    has_died = await until_dead(scenario.drive(dying), dying)
    return disk.reopen(), has_died


async def survives(make: Callable[[], Scenario], *, written: bool) -> list[Message]:
    """Crash a scenario at every append; each time the transcript must be that of a run without a crash. Return it."""
    async with asyncio.timeout(60):
        expected, appends = await plain_run(make())
        for at in range(1, appends + 1):
            assert await crashed_run(make(), at, written=written) == expected, f"crash at append {at} of {appends}"
    return expected


async def crashed_run(scenario: Scenario, at: int, *, written: bool) -> list[Message]:
    disk, _ = await disk_after_a_crash(scenario, at, written=written)
    await scenario.drive(disk)
    return await transcript_of(disk.reopen())


async def resumed_run(scenario: Scenario, at: int, *, written: bool) -> tuple[list[Message], int, bool]:
    """Crash at a write of any kind, then let a person resume the conversation, answer and say what was not said."""
    disk, has_died = await disk_after_a_crash(scenario, at, written=written, counts_all=True)
    async with App(*scenario.agents, store=disk, clock=VirtualClock(), recover=False) as app:
        conversation = app.conversation("c")
        for number, text in enumerate(scenario.says):
            for _ in range(10):
                while (view := await conversation.resume()) is not None:
                    assert [event async for event in view], "the view ends, and so does its result"
                    await view.result()
                if not (questions := await conversation.questions()):
                    break
                view = await conversation.answer(questions[0].id, scenario.answers, by="ann")
                await view.result()
            view = await conversation.send(text, id=f"m{number}")  # once more: what is known adds nothing
            await view.result()
        await scenario._settle(app)
        started = [entry for entry in await conversation.entries() if isinstance(entry.event, TurnStarted)]
    return await transcript_of(disk.reopen()), len(started), has_died


# --- the scenarios ----------------------------------------------------------------------------------------------------


def by_history(answer: Callable[[Prompt], Reply | str]) -> Scripted:
    return Scripted(*[lambda prompt: answer(prompt)] * 50)  # type: ignore[arg-type]


def rounds_of(prompt: Prompt) -> int:
    return sum(message.role == "assistant" for message in prompt.messages)


@tool(idempotent=True)
async def look(where: str) -> str:
    return f"saw {where}"


def plain() -> Scenario:
    return Scenario(Agent("a", engine=by_history(lambda p: f"answer to {p.messages[-1].text}")), says=("one", "two"))


def tool_rounds() -> Scenario:
    def answer(prompt: Prompt) -> Reply | str:
        n = rounds_of(prompt)
        return call("look", f"l{n}", where=f"place {n}") if n < 3 else "seen all"

    return Scenario(Agent("a", engine=by_history(answer), tools=[look]))


def parallel_calls() -> Scenario:
    def answer(prompt: Prompt) -> Reply | str:
        if rounds_of(prompt):
            return "all three"
        return calls(*(call("look", f"l{n}", where=str(n)) for n in range(3)))

    return Scenario(Agent("a", engine=by_history(answer), tools=[look]))


def self_rounds() -> Scenario:
    class Thrice(Plugin):
        async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
            if turn.transcript.turn_rounds == 0:
                return msgspec.structs.replace(reply, next="self", next_message=user("go on", author="thrice"))
            return msgspec.structs.replace(reply, next="self" if turn.transcript.turn_rounds == 1 else "human")

    return Scenario(Agent("a", engine=by_history(lambda p: f"part {rounds_of(p)}"), plugins=[Thrice()]))


def hand_off() -> Scenario:
    class Pass(Plugin):
        async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
            return msgspec.structs.replace(reply, next="agent:b") if turn.agent.name == "a" else reply

    first = Agent("a", engine=by_history(lambda p: "over to b"), plugins=[Pass()])
    return Scenario(first, Agent("b", engine=by_history(lambda p: "b knows")), says=("one", "two"))


def chosen_hand_off() -> Scenario:
    """The model chooses who takes over, and calls another tool in the same round."""

    def first(prompt: Prompt) -> Reply:
        turn = str(len(prompt.messages))
        return calls(call("hand_off", f"h{turn}", agent="b"), call("look", f"l{turn}", where="here"))

    b = Agent("b", engine=by_history(lambda p: "b knows"))
    return Scenario(Agent("a", engine=by_history(first), tools=[look], handoffs=[b]), says=("one", "two"))


def inner_agent() -> Scenario:
    def outer(prompt: Prompt) -> Reply | str:
        return (
            f"inner said {prompt.messages[-1].parts[0].text}" if rounds_of(prompt) else call("inner", "i1", input="x")
        )  # type: ignore[union-attr]

    def inner(prompt: Prompt) -> Reply | str:
        return "deep" if rounds_of(prompt) else call("look", "l1", where="inside")

    helper = Agent("inner", engine=by_history(inner), tools=[look])
    return Scenario(Agent("a", engine=by_history(outer), tools=[helper]))


def held_call() -> Scenario:
    @tool(idempotent=True)
    async def ask(context: CallContext) -> str | Hold:
        if context.answer is not None:
            return f"{context.answer.by} said {context.answer.text}"
        return Hold(Question(f"q-{context.call.id}", "ask", "Which colour?", call_id=context.call.id))

    def answer(prompt: Prompt) -> Reply | str:
        return "thanks" if rounds_of(prompt) else calls(call("ask", "a1"), call("look", "l1", where="meanwhile"))

    return Scenario(Agent("a", engine=by_history(answer), tools=[ask, look]), answers="blue")


def held_inside_an_inner_agent() -> Scenario:
    inner = held_call().agents[0]
    helper = Agent("inner", engine=inner.engine, tools=inner.tools)

    def outer(prompt: Prompt) -> Reply | str:
        return "all well" if rounds_of(prompt) else call("inner", "i1", input="x")

    return Scenario(Agent("a", engine=by_history(outer), tools=[helper]), answers="green")


SCENARIOS = [
    plain,
    tool_rounds,
    parallel_calls,
    self_rounds,
    hand_off,
    chosen_hand_off,
    inner_agent,
    held_call,
    held_inside_an_inner_agent,
]


@pytest.mark.parametrize("make", SCENARIOS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("written", [False, True], ids=["lost", "written"])
async def test_a_crash_at_any_append_leaves_the_same_transcript(make: Callable[[], Scenario], written: bool):
    """Q02: nothing is lost and nothing is said twice."""
    assert (await survives(make, written=written))[-1].role == "assistant"


@pytest.mark.parametrize("make", SCENARIOS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("written", [False, True], ids=["lost", "written"])
def test_after_a_crash_at_any_write_resume_returns_and_what_is_sent_again_adds_nothing(
    make: Callable[[], Scenario], written: bool
):
    """Trust 3: also when the turn had ended and only its job was not forgotten yet, or when it waits for a person."""

    async def main() -> None:
        async with asyncio.timeout(60):
            expected, _ = await plain_run(make())
            for at in range(1, 100):
                scenario = make()
                messages, started, died = await resumed_run(scenario, at, written=written)
                assert messages == expected, f"crash at write {at}"
                assert started <= len(scenario.says) + 2 * bool(scenario.answers) + 1, f"crash at write {at}"
                if not died:
                    return
            raise AssertionError("the scenario has more writes than were cut")

    asyncio.run(main())


@pytest.mark.parametrize("written", [False, True], ids=["lost", "written"])
async def test_what_must_not_run_twice_runs_at_most_once_and_the_model_is_told(written: bool):
    ran: list[str] = []

    def make() -> Scenario:
        @tool
        async def pay(context: CallContext) -> str:
            ran.append(context.key)
            return "paid"

        def answer(prompt: Prompt) -> Reply | str:
            last = prompt.messages[-1]
            return say(f"model read: {last.parts[0].text}") if last.role == "tool" else call("pay", "p1")  # type: ignore[union-attr]

        return Scenario(Agent("a", engine=by_history(answer), tools=[pay]))

    _, appends = await plain_run(make())
    assert ran == ["c:p1"]
    told: list[str] = []
    for at in range(1, appends + 1):
        ran.clear()
        messages = await crashed_run(make(), at, written=written)
        assert len(ran) <= 1, f"paid twice after a crash at append {at}"
        result = next(part for message in messages for part in message.parts if isinstance(part, ToolResult))
        assert messages[-1].text == f"model read: {result.text}"
        if not ran:
            assert result.is_error
        told.append(result.text)
    assert any("interrupted" in text for text in told)
    assert "paid" in told
