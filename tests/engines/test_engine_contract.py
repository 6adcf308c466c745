"""The contract of engines: every engine, and every wrapper around one, passes these tests unchanged.

A new engine is a row in ENGINES, a new wrapper one in WRAPPERS.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Literal, NamedTuple

import msgspec
import pytest
from scripted_http import Close, ScriptedServer, Silence, Step, answer, head

from rondel import values
from rondel.charge import Scope
from rondel.contracts.endpoint import Endpoint
from rondel.dialects import DIALECTS
from rondel.engine import Closes, Engine, EngineInfo, Relays, UnavailableEngine, Wrapper, close, dialect_of
from rondel.engines.fallback import Fallback
from rondel.engines.http import HttpEngine
from rondel.engines.local.weights import CATALOG
from rondel.engines.retry import Retry
from rondel.engines.transform import Transformed
from rondel.engines.transform.options import CustomParams
from rondel.errors import EngineDenied, EngineError, EngineOverloaded
from rondel.fetching.engine import FetchImages
from rondel.ledger.ledger import Ledger
from rondel.project.engines import NeedsWeights
from rondel.prompt import Prompt
from rondel.stores.memory import MemoryStore
from rondel.testing import Pause, Scripted

CHAT = "openai-chat"
PROMPT = Prompt.of(values.user("Hi"))
REPLY = values.Reply(values.assistant("Hello"), usage=values.Usage(7, 5), model="m-1", id="r-1")

Behaviour = Literal["answers", "fails", "stalls"]
"""What the model does with one call: it says Hello, is overloaded, or says some text and then nothing more."""


class Subject(NamedTuple):
    engine: Engine
    left: Callable[[], Awaitable[object]]  # Waits until the model has seen that a call which stalls was given up


Opener = Callable[..., AbstractAsyncContextManager[Subject]]
"""Opens an engine whose calls get these behaviours, one after the other."""


# --- engines ----------------------------------------------------------------------------------------------------------


class Counted(Wrapper):
    """Counts the streams that are open."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.open = 0

    async def stream(self, prompt: Prompt) -> AsyncIterator[values.Delta]:
        self.open += 1
        deltas = self._engine.stream(prompt)
        try:
            async for delta in deltas:
                yield delta
        finally:
            self.open -= 1
            await close(deltas)


@asynccontextmanager
async def scripted(*behaviours: Behaviour) -> AsyncIterator[Subject]:
    steps: dict[Behaviour, Any] = {"answers": REPLY, "fails": EngineOverloaded("full"), "stalls": Pause("Hel")}
    engine = Counted(Scripted(*(steps[behaviour] for behaviour in behaviours)))

    async def left() -> None:
        assert engine.open == 0

    yield Subject(engine, left)


@asynccontextmanager
async def over_http(dialect: str, *behaviours: Behaviour) -> AsyncIterator[Subject]:
    async with ScriptedServer(*(_script(dialect, behaviour) for behaviour in behaviours)) as server:
        endpoint = Endpoint("test", server.url, dialect, key="sk-test")
        engine = HttpEngine(endpoint, DIALECTS[dialect](), "model")
        yield Subject(engine, server.left.wait)
        await engine.aclose()


def _script(dialect: str, behaviour: Behaviour) -> list[Step]:
    if behaviour == "fails":
        return [answer('{"error": {"message": "full"}}', 503)]
    writer = DIALECTS[dialect]().reply_writer(model="m-1", id="r-1")
    events = [event for delta in values.deltas_of(REPLY) if (event := writer.feed(delta))]
    if behaviour == "stalls":
        text = next(n for n, event in enumerate(events) if b"Hel" in event)
        return [head(), *events[: text + 1], Silence()]
    return [head(), *events, Close()]


ENGINES: dict[str, Opener] = {"scripted": scripted, **{f"http {name}": partial(over_http, name) for name in DIALECTS}}


# --- wrappers ---------------------------------------------------------------------------------------------------------


async def no_wait(seconds: float) -> None:
    pass


async def no_images(*_: object) -> Any:
    raise AssertionError("there are no images")


class HasWeights(NeedsWeights):
    problem = ""  # pyright: ignore[reportAssignmentType]


WRAPPERS: dict[str, Callable[[Engine], Engine]] = {
    "retry": lambda engine: Retry(engine, 2, sleep=no_wait),
    "fallback": lambda engine: Fallback(engine),
    "transformed": lambda engine: Transformed(engine, [CustomParams({"seed": 1})], dialect_of(engine)),
    "images": lambda engine: FetchImages(engine, DIALECTS[dialect_of(engine) or CHAT](), no_images),
    "weights": lambda engine: HasWeights(engine, CATALOG[0]),
    "charged": lambda engine: Ledger(MemoryStore().ledger_store).charge(engine, Scope("chat")),
    "all": lambda engine: WRAPPERS["charged"](WRAPPERS["images"](WRAPPERS["fallback"](WRAPPERS["retry"](engine)))),
}


class Case(NamedTuple):
    open: Opener
    wrap: Callable[[Engine], Engine]


CASES = {
    **{name: Case(open, lambda engine: engine) for name, open in ENGINES.items()},
    **{
        f"{wrap} of {name}": Case(ENGINES[name], WRAPPERS[wrap])
        for wrap in WRAPPERS
        for name in ("scripted", f"http {CHAT}")
    },
}


RELAYING = [name for name in CASES if "http" in name and "weights" not in name]


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@asynccontextmanager
async def wrapped(case: Case, *behaviours: Behaviour) -> AsyncIterator[Subject]:
    async with case.open(*behaviours) as subject:
        yield Subject(case.wrap(subject.engine), subject.left)


@asynccontextmanager
async def opened(case: Case, *behaviours: Behaviour) -> AsyncIterator[Engine]:
    async with wrapped(case, *behaviours) as subject:
        yield subject.engine


async def reply_of(engine: Engine) -> list[values.Delta]:
    return [delta async for delta in engine.stream(PROMPT) if not isinstance(delta, values.Notice)]


# --- every engine -----------------------------------------------------------------------------------------------------


async def test_an_engine_is_known_by_its_name_and_its_facts(case: Case) -> None:
    """A06: info and features, the same for every engine and for the fake."""
    async with opened(case, "answers") as engine:
        assert isinstance(engine, Engine)
        name, facts = engine.name, engine.facts
        assert name
        assert ":" in name
        await reply_of(engine)
        assert (engine.name, engine.facts) == (name, facts)


async def test_what_is_shown_of_an_engine_cannot_be_called(case: Case) -> None:
    async with opened(case) as engine:
        info = EngineInfo.of(engine)
        assert (info.name, info.facts, info.dialect) == (engine.name, engine.facts, dialect_of(engine))
        assert not hasattr(info, "stream")
        assert not hasattr(info, "relay")
        assert not isinstance(info, Engine)


async def test_a_reply_has_a_start_whole_parts_and_an_end(case: Case) -> None:
    """A06: chat; engines for three protocols, and a fake."""
    async with opened(case, "answers") as engine:
        deltas = await reply_of(engine)
    first, *parts, last = deltas
    assert isinstance(first, values.ReplyStarted)
    assert isinstance(last, values.ReplyFinished)
    assert [type(delta) for delta in parts if not isinstance(delta, values.PartDelta)] == [
        values.PartStarted,
        values.PartFinished,
    ]
    assert "".join(delta.text for delta in parts if isinstance(delta, values.PartDelta)) == "Hello"
    builder = values.ReplyBuilder()
    for delta in deltas:
        builder.add(delta)
    assert (builder.reply().text, builder.reply().usage) == ("Hello", values.Usage(7, 5))


async def test_calls_at_the_same_time_do_not_meet(case: Case) -> None:
    async with opened(case, "answers", "answers", "answers") as engine, asyncio.TaskGroup() as group:
        calls = [group.create_task(reply_of(engine)) for _ in range(3)]
    first = calls[0].result()
    assert len(first) > 3
    assert all(call.result() == first for call in calls)


async def test_a_failure_is_an_engine_error_and_shows_no_reply(case: Case) -> None:
    async with opened(case, "fails", "fails") as engine:
        seen: list[values.Delta] = []

        async def call() -> None:
            async for delta in engine.stream(PROMPT):
                seen.append(delta)

        with pytest.raises(EngineError):
            await call()
        assert all(isinstance(delta, values.Notice) for delta in seen)


async def test_a_stream_that_is_closed_early_closes_the_request(case: Case) -> None:
    """F05: at once, and not when it is collected as garbage."""

    async with wrapped(case, "stalls", "answers") as (engine, left):
        deltas = engine.stream(PROMPT)
        async for delta in deltas:
            if isinstance(delta, values.PartDelta):
                break
        await close(deltas)
        await left()
        assert isinstance((await reply_of(engine))[-1], values.ReplyFinished)


async def test_a_call_that_is_cancelled_ends_at_once_and_closes_the_request(case: Case) -> None:
    async with wrapped(case, "stalls", "answers") as (engine, left):
        begun = asyncio.Event()

        async def call() -> None:
            async for delta in engine.stream(PROMPT):
                if isinstance(delta, values.PartDelta):
                    begun.set()

        async with asyncio.TaskGroup() as group:
            task = group.create_task(call())
            await begun.wait()
            task.cancel()
        assert task.cancelled()
        await left()
        assert isinstance((await reply_of(engine))[-1], values.ReplyFinished)


async def test_any_engine_can_be_closed_and_twice(case: Case) -> None:
    async with opened(case, "answers") as engine:
        await reply_of(engine)
        await close(engine)
        await close(engine)


# --- those that relay -------------------------------------------------------------------------------------------------


def fields_of(**fields: Any) -> dict[str, msgspec.Raw]:
    return {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in fields.items()}


@pytest.mark.parametrize("case", RELAYING, indirect=True)
async def test_an_engine_with_a_dialect_passes_an_answer_on_as_bytes(case: Case) -> None:
    async with opened(case, "answers") as engine:
        assert isinstance(engine, Relays)
        assert engine.dialect
        asked = fields_of(model="x", stream=True, messages=[], input=[], max_tokens=9)
        relayed = await engine.relay(asked, {})
        data = b""
        while more := await relayed.read():
            data += more
        assert data.startswith((b"data:", b"event:"))
        assert b"Hello" in data
        assert data.endswith(b"\n\n")
        assert (relayed.status, relayed.model, relayed.finished, relayed.failure) == (200, "m-1", True, None)
        assert (relayed.usage.tokens_in, relayed.usage.tokens_out) == (7, 5)
        relayed.close()
        relayed.close()


@pytest.mark.parametrize("case", RELAYING, indirect=True)
async def test_an_answer_that_is_closed_early_closes_the_request(case: Case) -> None:
    async with wrapped(case, "stalls", "answers") as (engine, left):
        assert isinstance(engine, Relays)
        relayed = await engine.relay(fields_of(model="x", stream=True, messages=[], input=[]), {})
        assert await relayed.read()
        assert not relayed.finished
        relayed.close()
        await left()
        assert isinstance((await reply_of(engine))[-1], values.ReplyFinished)


async def test_an_engine_that_could_not_be_made_says_why_when_it_is_called() -> None:
    engine = UnavailableEngine("local:x", "there is no file x")
    assert isinstance(engine, Engine)
    assert not isinstance(engine, Closes)
    assert not dialect_of(engine)
    with pytest.raises(EngineDenied, match="there is no file x"):
        await reply_of(engine)
