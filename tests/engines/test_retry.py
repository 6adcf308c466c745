"""Retry: what is asked again, when, and what never is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from engines_in_steps import ANSWER, FINISHED, PART, STARTED, Stepping, collect, notices, prompt
from scripted_http import run

from rondel import errors
from rondel.engines.retry import Retry
from rondel.prompt import Prompt
from rondel.values import Delta, PartDelta


class Waits(list[float]):
    """Sleeps that take no time and are remembered."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


@pytest.mark.parametrize(
    "kind", [errors.EngineOverloaded, errors.EngineUnreachable, errors.EngineTimeout, errors.EngineGarbled]
)
def test_an_error_that_may_pass_is_retried(kind: type[errors.EngineError]) -> None:
    """R10: 429, 5xx, the network and time-outs are asked again."""
    inner, waits = Stepping("a:m", [kind("no")], [STARTED, kind("no")], ANSWER), Waits()
    assert run(collect(Retry(inner, sleep=waits, random=lambda: 1.0))) == ANSWER
    assert waits == [1.0, 2.0]


@pytest.mark.parametrize("kind", [errors.EngineDenied, errors.PromptRejected])
def test_an_error_that_will_not_pass_is_raised_at_once(kind: type[errors.EngineError]) -> None:
    waits = Waits()
    with pytest.raises(kind):
        run(collect(Retry(Stepping("a:m", [kind("no")]), sleep=waits)))
    assert waits == []


def test_retry_after_is_obeyed() -> None:
    """R10: the server's own wish counts, to the second, and not the back-off."""
    waits = Waits()
    inner = Stepping("a:m", [errors.EngineOverloaded("busy", retry_after_s=17.5)], ANSWER)
    assert run(collect(Retry(inner, sleep=waits))) == ANSWER
    assert waits == [17.5]


def test_a_server_that_asks_for_more_than_a_minute_is_given_up_and_the_error_says_when() -> None:
    waits = Waits()
    with pytest.raises(errors.EngineOverloaded, match=r"^busy\. Try again in 5 min\.$") as caught:
        run(collect(Retry(Stepping("a:m", [errors.EngineOverloaded("busy", retry_after_s=300)]), sleep=waits)))
    assert waits == []
    assert caught.value.retry_after_s == 300


@pytest.mark.parametrize(
    ("seconds", "said"), [(61, "2 min"), (3_600, "1 h"), (5_193, "1 h 27 min"), (90_000.5, "1 d 2 h")]
)
def test_a_long_pause_is_told_as_people_say_it(seconds: float, said: str) -> None:
    busy = errors.EngineOverloaded("openai refused the request (429): Busy; try again later", retry_after_s=seconds)
    with pytest.raises(errors.EngineOverloaded) as caught:
        run(collect(Retry(Stepping("a:m", [busy]), sleep=Waits())))
    assert str(caught.value) == f"openai refused the request (429): Busy. Try again in {said}."


def test_the_back_off_doubles_is_random_and_has_a_cap() -> None:
    """R10: full jitter below 1, 2, 4… seconds, never above 30."""
    waits, failures = Waits(), [[errors.EngineUnreachable("no")] for _ in range(8)]
    with pytest.raises(errors.EngineUnreachable):
        run(collect(Retry(Stepping("a:m", *failures), 8, sleep=waits, random=lambda: 1.0)))
    assert waits == [1, 2, 4, 8, 16, 30, 30]
    waits, chances = Waits(), iter([0.5, 0.25])
    inner = Stepping("a:m", [errors.EngineUnreachable("no")], [errors.EngineUnreachable("no")], ANSWER)
    run(collect(Retry(inner, sleep=waits, random=lambda: next(chances))))
    assert waits == [0.5, 0.5]


def test_nothing_is_retried_after_the_first_token() -> None:
    """R10: what was shown is not taken back."""
    inner = Stepping("a:m", [STARTED, PART, PartDelta(0, "Hel"), errors.EngineUnreachable("reset")])
    seen: list[Delta] = []

    async def watch() -> None:
        async for delta in Retry(inner, sleep=Waits()).stream(prompt()):
            seen.append(delta)

    with pytest.raises(errors.EngineUnreachable, match="reset"):
        run(watch())
    assert seen == [STARTED, PART, PartDelta(0, "Hel")]
    assert inner.asked == 1


def test_a_reply_that_only_started_is_retried_and_starts_once() -> None:
    inner = Stepping("a:m", [STARTED, errors.EngineTimeout("silent")], ANSWER)
    assert run(collect(Retry(inner, sleep=Waits()))) == ANSWER


def test_an_empty_reply_is_a_reply() -> None:
    inner = Stepping("a:m", [STARTED, FINISHED])
    assert run(collect(Retry(inner, sleep=Waits()))) == [STARTED, FINISHED]


def test_the_last_error_is_raised_and_says_how_often_was_asked() -> None:
    inner = Stepping("a:m", [errors.EngineUnreachable("one")], [errors.EngineUnreachable("two")])
    with pytest.raises(errors.EngineUnreachable, match="two") as caught:
        run(collect(Retry(inner, 2, sleep=Waits())))
    assert caught.value.__notes__ == ["a:m was asked 2 times"]


def test_each_retry_is_told() -> None:
    inner = Stepping("a:m", [errors.EngineOverloaded("x")], [errors.EngineOverloaded("y", retry_after_s=3)], ANSWER)
    engine = Retry(inner, sleep=Waits(), random=lambda: 0.5)
    assert run(notices(engine)) == ["x (attempt 1 of 3; the next in 0.5 s)", "y (attempt 2 of 3; the next in 3.0 s)"]


async def test_a_stop_while_it_waits_is_not_retried() -> None:
    inner = Stepping("a:m", [errors.EngineOverloaded("busy")])
    waiting = asyncio.Event()

    async def forever(_: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(collect(Retry(inner, sleep=forever)))
        await waiting.wait()
        task.cancel()
    assert task.cancelled()
    assert inner.asked == 1


def test_an_iterator_without_aclose_can_be_wrapped() -> None:
    class Bare:
        name, facts = "a:m", Stepping("a:m").facts

        def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
            return BareIterator()

    class BareIterator:
        def __init__(self) -> None:
            self.left = list(ANSWER)

        def __aiter__(self) -> BareIterator:
            return self

        async def __anext__(self) -> Delta:
            if not self.left:
                raise StopAsyncIteration
            return self.left.pop(0)

    assert run(collect(Retry(Bare()))) == ANSWER


def test_no_attempts_is_refused() -> None:
    with pytest.raises(ValueError, match="`attempts` is 0"):
        Retry(Stepping("a:m"), 0)


def test_closing_the_wrapper_closes_the_engine() -> None:
    inner = Stepping("a:m")
    run(Retry(inner).aclose())
    assert inner.engine_closed
