"""Fallback: who is asked next, which error is told, and which engine answered."""

from __future__ import annotations

import json
import time

import msgspec
import pytest
from engines_in_steps import ANSWER, FINISHED, PART, STARTED, Stepping, collect, notices
from scripted_http import ScriptedServer, answer, free_port, run

from rondel.contracts.endpoint import Endpoint
from rondel.dialects import DIALECTS
from rondel.engine import Engine
from rondel.engines.fallback import Fallback
from rondel.engines.http import HttpEngine
from rondel.engines.retry import Retry
from rondel.errors import (
    EngineDenied,
    EngineError,
    EngineOverloaded,
    EngineTimeout,
    EngineUnreachable,
    PromptRejected,
    ReplyTooLong,
)
from rondel.values import Delta, PartDelta, ReplyStarted, assistant
from rondel.values import Reply as WholeReply


def test_fallback_is_an_engine_with_the_name_and_facts_of_the_first() -> None:
    engine = Fallback(Stepping("a:m"), Stepping("bb:m"))
    assert isinstance(engine, Engine)
    assert (engine.name, engine.facts) == ("a:m", Stepping("a:m").facts)


def test_the_first_engine_that_answers_is_the_only_one_asked() -> None:
    second = Stepping("b:m")
    assert run(collect(Fallback(Stepping("a:m", ANSWER), second))) == ANSWER
    assert second.asked == 0


@pytest.mark.parametrize(
    "kind", [EngineOverloaded, EngineUnreachable, EngineTimeout, EngineDenied, PromptRejected, EngineError]
)
def test_any_failure_before_the_first_token_goes_on_to_the_next(kind: type[EngineError]) -> None:
    """R09: an HTTP error and a network error both go on, a refused key too."""
    engine = Fallback(Stepping("a:m", [kind("no")]), Stepping("b:m", [STARTED, kind("no")]), Stepping("c:m", ANSWER))
    assert run(collect(engine)) == [msgspec.structs.replace(STARTED, engine="c:m"), *ANSWER[1:]]


async def test_real_network_and_http_errors_go_on_in_order() -> None:
    """R09: nothing listens at the first, the second answers 500, the third answers; its model is reported."""
    dialect = DIALECTS["anthropic"]()
    reply = WholeReply(assistant("Hello"))
    body = dialect.reply_writer(model="third", id="r").write_whole(reply)
    async with ScriptedServer([answer("{}", 500)]) as second, ScriptedServer([answer(json.dumps(body))]) as third:
        bases = (f"http://127.0.0.1:{free_port()}", second.url, third.url)
        engine = Fallback(*(HttpEngine(Endpoint("p", base, "anthropic"), dialect, "m") for base in bases))
        deltas = await collect(engine)
        await engine.aclose()
        started = deltas[0]
    assert isinstance(started, ReplyStarted)
    assert started.model == "third"


async def test_an_error_that_an_engine_raises_again_says_the_same_again() -> None:
    down, gone = EngineError("down"), EngineError("gone")
    chain = Fallback(Stepping("a:m", [down], [down]), Stepping("b:m", [gone], [gone]))
    for _ in range(2):
        with pytest.raises(EngineError, match=r"^a:m failed: down; then b:m failed: gone$"):
            await collect(chain)


async def test_a_reason_that_is_cut_shows_no_part_of_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    error = EngineError("x" * 580 + " https://u:CANARY0123456789@host")
    with pytest.raises(EngineError) as caught:
        await collect(Fallback(Stepping("a:m", [error]), Stepping("b:m", [EngineError("gone")])))
    assert "CANARY" not in str(caught.value) + caplog.text


def test_after_the_first_token_the_error_is_raised() -> None:
    second = Stepping("b:m")
    engine = Fallback(Stepping("a:m", [STARTED, PART, PartDelta(0, "x"), EngineUnreachable("reset")]), second)
    with pytest.raises(EngineUnreachable, match="reset"):
        run(collect(engine))
    assert second.asked == 0


def test_when_all_fail_the_first_error_is_raised_and_says_why_each_failed() -> None:
    """R09: the original error if all fail."""
    engine = Fallback(
        Stepping("a:m", [EngineOverloaded("busy", code="429")]),
        Stepping("b:m", [EngineDenied("no key")]),
        Stepping("c:m", [EngineUnreachable("no network")]),
    )
    with pytest.raises(EngineOverloaded) as caught:
        run(collect(engine))
    assert caught.value.code == "429"
    assert str(caught.value) == "a:m failed: busy; then b:m failed: no key; then c:m failed: no network"


class NeedsTwo(EngineError):
    def __init__(self, name: str, message: str) -> None:
        self.name = name
        super().__init__(message)


@pytest.mark.parametrize("error", [NeedsTwo("n", "mine"), ReplyTooLong("limits.reply_tokens", "mine")])
def test_an_error_with_a_constructor_of_its_own_says_why_each_failed(error: EngineError) -> None:
    error.__cause__ = OSError("below")
    with pytest.raises(type(error), match=r"^a:m failed: mine; then b:m failed: no key$") as caught:
        run(collect(Fallback(Stepping("a:m", [error]), Stepping("b:m", [EngineDenied("no key")]))))
    assert caught.value.name in ("n", "limits.reply_tokens")
    assert str(caught.value.__cause__) == "below"


def test_an_error_that_is_long_and_hostile_holds_nothing_up() -> None:
    error = EngineError("eyJ-" * 500_000)
    start = time.process_time()
    with pytest.raises(EngineError):
        run(collect(Fallback(Stepping("a:m", [error]), Stepping("b:m", [EngineDenied("no key")]))))
    assert time.process_time() - start < 0.2


def test_a_caller_who_wants_one_engine_reads_nothing_of_the_others() -> None:
    engine = Fallback(Stepping("a:m", [EngineOverloaded("busy")]), Stepping("b:m", [EngineDenied("no key")]), wanted=1)
    with pytest.raises(EngineDenied, match=r"^no key$"):
        run(collect(engine))


def test_the_only_engine_s_error_is_raised_as_it_is() -> None:
    with pytest.raises(EngineOverloaded, match=r"^busy$"):
        run(collect(Fallback(Stepping("a:m", [EngineOverloaded("busy")]))))


@pytest.mark.parametrize("said", [[ReplyStarted("m-1"), FINISHED], [FINISHED]])
def test_the_engine_that_answered_is_named_if_it_is_not_the_one_that_was_asked(said: list[Delta]) -> None:
    started = next((delta for delta in said if isinstance(delta, ReplyStarted)), ReplyStarted())
    failing = [EngineUnreachable("no")]
    assert run(collect(Fallback(Stepping("a:m", said), Stepping("b:m")))) == [started, FINISHED]
    answered = [msgspec.structs.replace(started, engine="b:m"), FINISHED]
    assert run(collect(Fallback(Stepping("a:m", failing), Stepping("b:m", said)))) == answered
    assert run(collect(Fallback(Stepping("a:m", failing), Stepping("a:m", said)))) == [started, FINISHED]


def test_a_chain_in_a_chain_names_the_engine_inside_that_answered() -> None:
    failing = [EngineUnreachable("no")]
    inner = Fallback(Stepping("b:m", failing), Retry(Stepping("c:m", ANSWER)))
    started, *_ = run(collect(Fallback(Stepping("a:m", failing), inner)))
    assert isinstance(started, ReplyStarted)
    assert started.engine == "c:m"


def test_each_step_to_the_next_engine_is_told() -> None:
    engine = Fallback(Stepping("a:m", [EngineUnreachable("no")]), Stepping("b:m", ANSWER))
    assert run(notices(engine)) == ["a:m failed: no (asking b:m instead)"]


def test_the_log_says_on_one_line_why_an_engine_failed_and_shows_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    error = EngineDenied(f"no\x1b[2J\nsuch key: sk-abcdefghijkl {'x' * 10_000}")
    engine = Fallback(Stepping("a:m", [error]), Stepping("b:m", [EngineUnreachable("")]), Stepping("c:m", ANSWER))
    run(collect(engine))
    first, second = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    assert first.startswith("a:m failed: no such key: *** xxx")
    assert first.endswith("… (asking b:m instead)")
    assert len(first) < 1_000
    assert second == "b:m failed: EngineUnreachable (asking c:m instead)"


def test_no_engines_is_refused() -> None:
    with pytest.raises(ValueError, match="no engine"):
        Fallback()


def test_closing_the_wrapper_closes_every_engine() -> None:
    engines = (Stepping("a:m"), Stepping("b:m"))
    run(Fallback(*engines).aclose())
    assert all(engine.engine_closed for engine in engines)
