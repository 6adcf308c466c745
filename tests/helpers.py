"""What most tests of the machine need: an app with one scripted agent, driven through the top."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from rondel import Agent, App
from rondel.conversation import TurnView
from rondel.events import Event
from rondel.testing import Scripted, Step

T = TypeVar("T")


def play(scene: Callable[[App], Awaitable[T]], *agents: Agent, timeout_s: float = 20.0, **settings: Any) -> T:
    """Run a scene in an app; the bound is there so that a test that hangs says so."""

    async def main() -> T:
        async with asyncio.timeout(timeout_s), App(*agents, **settings) as app:
            return await scene(app)

    return asyncio.run(main())


async def events_of(view: TurnView) -> list[Event]:
    return [event async for event in view]


def scripted(*steps: Step, name: str = "helper", **fields: Any) -> tuple[Agent, Scripted]:
    engine = Scripted(*steps)
    return Agent(name, engine=engine, **fields), engine


def of(kind: type[T], events: list[Any]) -> list[T]:
    return [event for event in events if isinstance(event, kind)]
