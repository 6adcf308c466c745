"""The contract of `Services`: every implementation passes these tests unchanged. Add yours to `SERVICES`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from rondel import Agent, App, Outcome, RondelError
from rondel.charge import Scope
from rondel.engine import Engine
from rondel.events import Event, UsageRecorded
from rondel.gateway.bridge.services import RequestServices
from rondel.machine.journal import EphemeralJournal
from rondel.machine.loop import run_turn
from rondel.machine.services import Services
from rondel.machine.turn import Turn
from rondel.prompt import Prompt
from rondel.testing import Scripted, call, say
from rondel.values import Usage, user

SERVICES: dict[str, Callable[[App], Services]] = {
    "an app": lambda app: app,
    "a gateway request": lambda app: RequestServices(app, app.registry.engine, lambda engine: engine),
}


Serve = Callable[..., AbstractAsyncContextManager[Services]]


@pytest.fixture(params=SERVICES)
def serve(request: pytest.FixtureRequest) -> Serve:
    @asynccontextmanager
    async def serve(*agents: Agent, **engines: Scripted) -> AsyncIterator[Services]:
        def make(name: str) -> Engine:
            if name not in engines:
                raise RondelError(f"no engine is named {name!r}")
            return engines[name]

        async with App(*agents, make_engine=make, environment={"PATH": "/bin"}) as app:
            yield SERVICES[request.param](app)

    return serve


async def ask(engine: Engine) -> None:
    async for _ in engine.stream(Prompt.of(user("hello"))):
        pass


async def test_ids_are_unique_and_in_the_order_of_time(serve: Serve) -> None:
    async with serve(Agent("helper", engine=Scripted())) as services:
        ids = [services.new_id("x") for _ in range(15)]
        assert ids == sorted(set(ids))
        assert all(id.startswith("x_") for id in ids)


async def test_an_engine_is_charged_by_its_name_and_itself(serve: Serve) -> None:
    other, own = Scripted(say("hi", usage=Usage(3, 2))), Scripted(say("hi", usage=Usage(3, 4)))
    async with serve(Agent("helper", engine=own), other=other) as services:
        told: list[Event] = []
        await ask(services.charge("other", Scope("summary"), told.append))
        await ask(services.charge(services.registry.resolve("helper").engine, lambda: Scope("chat"), told.append))
        charges = [event.charge for event in told if isinstance(event, UsageRecorded)]
        assert [(charge.scope.kind, charge.tokens) for charge in charges] == [("summary", 5), ("chat", 7)]
        with pytest.raises(RondelError, match="no engine is named 'nobody'"):
            services.charge("nobody", Scope())


async def test_processes_of_tools_get_the_given_environment(serve: Serve) -> None:
    async with serve(Agent("helper", engine=Scripted())) as services:
        assert services.environment == {"PATH": "/bin"}


async def test_a_conversation_has_one_journal_at_a_time(serve: Serve) -> None:
    async with serve(Agent("helper", engine=Scripted())) as services:
        assert services.journals.get("c") is None
        opened = await services.journals.open("c")
        assert await services.journals.open("c") is opened is services.journals.get("c")
        services.journals.close("c")
        assert services.journals.get("c") is None
        assert await services.journals.current("c") is opened


async def test_a_turn_runs_with_them_and_agents_work_for_it(serve: Serve) -> None:
    inner = Agent("inner", engine=Scripted("in"))
    async with serve(Agent("helper", engine=Scripted(call("inner", input="x"), "out"), tools=[inner])) as services:
        turn = Turn(services, EphemeralJournal("c"), id="t", agent="helper", messages=(user("hi", id="m"),))
        assert await run_turn(turn) is Outcome.DONE
        assert turn.result().output == "out"
        assert (await services.journals.open("c/call-inner")).transcript.output == "in"


async def test_a_turn_that_is_queued_has_a_result(serve: Serve) -> None:
    async with serve(Agent("helper", engine=Scripted("hello"))) as services:
        assert await services.turns.start("c", "helper", user("hi", id="m"), turn="t")
        assert not await services.turns.start("c", "helper", user("hi", id="m"), turn="t")
        assert services.turns.is_under_way("t")
        assert (await services.turns.end_of("t")).result.output == "hello"
        assert not services.turns.is_under_way("t")
