"""What most tests of the machine need: an app with one scripted agent, driven through the top."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from rondel import Agent, AgentResult, App
from rondel.engines.local.weights import DEFAULT, Weights, path_of, pull
from rondel.events import Event, LimitHit, MessageAdded, Outcome, RoundFinished, TurnFinished
from rondel.machine.conversation import Conversation, TurnView
from rondel.testing import Scripted, Step

T = TypeVar("T")


STORED_ENTRIES = "log, json_each('[' || entries || ']')"
"""The entries in the file of a SQLite store, as the tables of a query: `value` is the JSON of one."""


def rest_slow(cases: Iterable[Any], always: int = 1) -> list[Any]:
    """Cases for `parametrize`: the first ones always run, the others among the slow tests."""
    first, others = list(cases)[:always], list(cases)[always:]
    slow = (case if isinstance(case, tuple) else (case,) for case in others)
    return [*first, *(pytest.param(*case, marks=pytest.mark.slow) for case in slow)]


def play(scene: Callable[[App], Awaitable[T]], *agents: Agent, timeout_s: float = 20.0, **settings: Any) -> T:
    """Run a scene in an app; the bound is there so that a test that hangs says so."""

    async def main() -> T:
        async with asyncio.timeout(timeout_s), App(*agents, **settings) as app:
            return await scene(app)

    return asyncio.run(main())


@asynccontextmanager
async def talking(*agents: Agent, **settings: Any) -> AsyncIterator[Conversation]:
    """A new conversation in an app."""
    async with App(*agents, **settings) as app:
        yield app.conversation()


async def events_of(view: TurnView) -> list[Event]:
    return [event async for event in view]


async def whole_turn(view: TurnView) -> list[Event]:
    """The events of a turn that does not wait; its result must tell the same end."""
    events = await events_of(view)
    result, finished = await view.result(check=False), of(TurnFinished, events)[-1]
    why = finished.failure.message if finished.failure else finished.reason
    if finished.outcome is Outcome.DONE:
        assert (result.error, result.limit) == ("", "")
    elif finished.outcome is Outcome.LIMITED:
        assert (result.error, result.limit) == (why, of(LimitHit, events)[-1].name)
    elif finished.outcome is Outcome.FAILED:
        assert (result.error, result.output) == (why, "")
    said = [event.message.text for event in of(RoundFinished, events) if event.next != "again"]
    said += [event.message.text for event in of(MessageAdded, events) if event.message.role == "assistant"]
    assert result.output in ("", *said), "a turn's answer is something that it said itself"
    return events


def result_of(said: str, *where: Any, **more: Any) -> Callable[[App], Awaitable[AgentResult]]:
    """A scene: say something, and return how that turn ended."""

    async def scene(app: App) -> AgentResult:
        return await (await app.conversation(*where, **more).send(said)).result(check=False)

    return scene


def output_of(said: str, *where: Any, **more: Any) -> Callable[[App], Awaitable[str]]:
    async def scene(app: App) -> str:
        return (await result_of(said, *where, **more)(app)).output

    return scene


def events_after(said: str, *where: Any, **more: Any) -> Callable[[App], Awaitable[list[Event]]]:
    """A scene: say something, and return the events of that turn."""

    async def scene(app: App) -> list[Event]:
        return await events_of(await app.conversation(*where, **more).send(said))

    return scene


def turn_after(said: str, *where: Any, **more: Any) -> Callable[[App], Awaitable[list[Event]]]:
    async def scene(app: App) -> list[Event]:
        return await whole_turn(await app.conversation(*where, **more).send(said))

    return scene


def pull_weights(weights: Weights = DEFAULT) -> Path:
    """Download weights into the user's cache folder, unless they are there."""

    async def main() -> None:
        async for _ in pull(weights):
            pass

    asyncio.run(main())
    return path_of(weights)


def scripted(*steps: Step, name: str = "helper", **fields: Any) -> tuple[Agent, Scripted]:
    engine = Scripted(*steps)
    return Agent(name, engine=engine, **fields), engine


def of(kind: type[T], events: list[Any]) -> list[T]:
    return [event for event in events if isinstance(event, kind)]
