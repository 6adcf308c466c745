"""Foreign requests without a server: each is one turn of the loop, on a conversation that its caller has itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Any

from rondel import Agent, App, Message, Plugin
from rondel.engine import Engine
from rondel.events import HistoryGiven, TurnStarted
from rondel.journal import Journal
from rondel.loop import run_turn
from rondel.store import Store
from rondel.testing import MemoryStore, Scripted, VirtualClock
from rondel.turn import Turn
from rondel.values import Media, Messages

_REQUESTS = count(1)


class Caller:
    """A program with a key that sends its whole conversation with each request."""

    def __init__(self, app: App, *, key: str = "ann", project: str = "", session: str = "s1", **inputs: str) -> None:
        self.app, self.key, self.project, self.session, self._inputs = app, key, project, session, inputs

    async def asks(self, *history: Message) -> Turn:
        id = f"request-{next(_REQUESTS)}"
        place = f"gateway/{self.key}/{self.session}" if self.session else f"gateway/{id}"
        inputs: dict[str, Any] = {
            "key": self.key,
            "project": self.project,
            "session": self.session,
            "dialect": "any",
            **self._inputs,
        }
        journal = Journal(place, MemoryStore(), self.app.clock)
        await journal.append(TurnStarted(id, "gateway", inputs=inputs), HistoryGiven(Messages(history)), wait=False)
        turn = Turn(self.app, journal, id=id, agent="gateway", inputs=inputs)
        await run_turn(turn)
        assert turn.failure is None, turn.failure
        return turn


def behind(
    scene: Callable[[App], Awaitable[None]],
    model: Engine,
    *plugins: Plugin,
    engines: Sequence[Scripted] = (),
    store: Store | None = None,
    clock: VirtualClock | None = None,
    tools: Sequence[Any] = (),
    make_engine: Callable[[str], Engine] | None = None,
) -> None:
    """A scene in an app that has these plugins; its other engines go by their names."""
    known = {engine.name: engine for engine in engines}
    make = make_engine or known.__getitem__

    async def main() -> None:
        agent = Agent(
            "gateway", prompt="You are a coding agent.", engine=model, plugins=list(plugins), tools=list(tools)
        )
        clock_ = clock or VirtualClock()
        async with asyncio.timeout(20), App(agent, store=store, clock=clock_, make_engine=make) as app:
            await scene(app)

    asyncio.run(main())
    for engine in (model, *engines):
        if isinstance(engine, Scripted):
            engine.check_done()


def png(name: str) -> Media:
    return Media("image", "image/png", b"\x89PNG\r\n\x1a\n" + name.encode())
