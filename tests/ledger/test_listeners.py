"""Who hears of what is spent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rondel.charge import Scope
from rondel.contracts.ledger import Rule
from rondel.errors import RondelError
from rondel.ledger.ledger import Ledger
from rondel.stores.memory import MemoryStore
from rondel.testing import VirtualClock
from rondel.values import Usage

from .conftest import Bench

X = Scope("chat", "X")


async def test_listeners_hear_every_charge_once_or_no_more(bench: Bench):
    """L04: usage.recorded and usage.limitReached, with on, once and off."""
    async with bench.ledger(Rule({"model": "X"}, tokens=100)) as ledger:
        heard: list[tuple[str, int, int]] = []

        def every(recorded: Any) -> None:
            heard.append(("every", recorded.charge.tokens, recorded.totals["day"].tokens))

        ledger.on("usage.recorded", every)
        ledger.once("usage.recorded", lambda recorded: heard.append(("once", recorded.charge.tokens, 0)))
        ledger.on("usage.limitReached", lambda r: heard.append(("limit", r.breaches[0].exceeded_by, 0)))
        for tokens in (60, 50):
            await ledger.record(X, Usage(tokens, 0))
        ledger.off("usage.recorded", every)
        await ledger.record(X, Usage(1, 0))
        assert heard == [
            ("every", 60, 60), ("once", 60, 0), ("every", 50, 110), ("limit", 10, 0), ("limit", 11, 0)]  # fmt: skip


async def test_a_settled_call_is_heard_of_when_it_is_written(bench: Bench):
    async with bench.ledger() as ledger:
        heard = asyncio.get_running_loop().create_future()
        ledger.on("usage.recorded", heard.set_result)
        ledger.settle(await ledger.reserve(X, tokens=lambda: (1, 1)), Usage(70, 7))
        recorded = await asyncio.wait_for(heard, 5)
        assert (recorded.charge.tokens, recorded.totals["lifetime"].tokens) == (77, 77)


async def test_hooks_are_listeners_from_the_beginning():
    """L04: hooks."""
    heard: list[str] = []
    ledger = Ledger(
        MemoryStore().ledger_store,
        rules=[Rule(tokens=1)],
        clock=VirtualClock(),
        on_recorded=lambda _: heard.append("recorded"),
        on_limit_reached=lambda _: heard.append("reached"),
    )
    await ledger.record(X, Usage(5, 5))
    assert heard == ["recorded", "reached"]


async def test_a_listener_that_fails_keeps_nobody_from_hearing(bench: Bench, caplog: pytest.LogCaptureFixture):
    async with bench.ledger() as ledger:
        heard: list[int] = []

        def broken(_: Any) -> None:
            raise ValueError("no")

        ledger.on("usage.recorded", broken)
        ledger.on("usage.recorded", lambda r: heard.append(r.charge.tokens))
        await ledger.record(X, Usage(5, 0))
        assert heard == [5]
        assert "a listener to usage.recorded failed" in caplog.text


async def test_an_event_that_there_is_not_is_told(bench: Bench):
    async with bench.ledger() as ledger:
        with pytest.raises(RondelError, match=r"did you mean 'usage\.recorded'"):
            ledger.on("usage.record", print)  # pyright: ignore[reportArgumentType]
