"""Foreign requests without a server: each is one turn of the loop, on a conversation that its caller has itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from rondel import Agent, App, Message, Plugin
from rondel.contracts.store import Store
from rondel.engine import Engine
from rondel.events import HistoryGiven, TurnStarted
from rondel.machine import resolved as resolved
from rondel.machine.journal import Journal
from rondel.machine.loop import run_turn
from rondel.machine.turn import Turn
from rondel.testing import MemoryStore, Scripted, VirtualClock
from rondel.values import Media, Messages, Person

_REQUESTS = count(1)


class Caller:
    """A program with a key that sends its whole conversation with each request."""

    def __init__(self, app: App, *, key: str = "ann", project: str = "", session: str = "s1", **more: str) -> None:
        self.app, self.key, self.project, self.session, self._more = app, key, project, session, more

    async def asks(self, *history: Message) -> Turn:
        id = f"request-{next(_REQUESTS)}"
        place = f"gateway.{self.key}.{self.session}" if self.session else f"gateway-{id}"
        caller = resolved.Caller(
            Person(self.key, origin="key"), self.session, self.project, dialect="any", **self._more
        )
        journal = Journal(place, MemoryStore(), self.app.clock)
        await journal.append(TurnStarted(id, "gateway"), HistoryGiven(Messages(history)), wait=False)
        turn = Turn(self.app, journal, id=id, agent="gateway", caller=caller)
        await run_turn(turn)
        assert turn.failure is None, turn.failure
        return turn


@asynccontextmanager
async def behind(
    model: Engine,
    *plugins: Plugin,
    engines: Sequence[Scripted] = (),
    store: Store | None = None,
    clock: VirtualClock | None = None,
    tools: Sequence[Any] = (),
    make_engine: Callable[[str], Engine] | None = None,
) -> AsyncIterator[App]:
    """An app that has these plugins; its other engines go by their names. In the end all scripts must be used up."""
    known = {engine.name: engine for engine in engines}
    make = make_engine or known.__getitem__
    agent = Agent("gateway", prompt="You are a coding agent.", engine=model, plugins=list(plugins), tools=list(tools))
    async with App(agent, store=store, clock=clock or VirtualClock(), make_engine=make) as app:
        yield app
    for engine in (model, *engines):
        if isinstance(engine, Scripted):
            engine.check_done()


def png(name: str) -> Media:
    return Media("image", "image/png", b"\x89PNG\r\n\x1a\n" + name.encode())
