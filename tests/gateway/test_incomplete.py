"""An answer that was not finished never looks finished, in any dialect."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import openai
import pytest

from .callers import Callers, question
from .served import SHORT
from .speech import DIALECTS, END, STREAM, body, chunk, events_of, says, whole_of
from .upstream import Upstream

CUT = {"anthropic": "max_tokens", "openai-chat": "length", "openai-responses": "incomplete"}
"""How each caller is told that an answer is not whole. To a Responses caller no reason is made up."""
RESPONSE = "openai-responses"


def cut(answer: dict[str, Any], how: str) -> dict[str, Any]:
    """A response that is incomplete and does not say why."""
    details: dict[str, Any] = {"null": None, "empty": {}, "no_reason": {"reason": None}, "unknown": {"reason": "tired"}}
    answer = {**answer, "status": "incomplete", "incomplete_details": details.get(how)}
    if how == "absent":
        del answer["incomplete_details"]
    return answer


HOW = ("null", "absent", "empty", "no_reason", "unknown")


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("caller", DIALECTS)
def test_a_response_that_is_incomplete_for_no_reason_is_not_finished(
    caller: str, how: str, upstream: Upstream, callers: Callers
) -> None:
    """Trust 25: `status: incomplete` without details was a normal stop to callers of other dialects."""
    answer = cut(whole_of(RESPONSE, says("Hel")), how)
    name = upstream.plays([body(answer)])
    heard = callers.ask(caller, f"r:{name}", question(caller, "Hi"))
    assert (heard.text, heard.stop) == ("Hel", "tired" if (how, caller) == ("unknown", RESPONSE) else CUT[caller])


@pytest.mark.parametrize(
    ("event", "status"),
    [("response.incomplete", "incomplete"), ("response.incomplete", None), ("response.completed", "incomplete")],
)
@pytest.mark.parametrize("caller", ["anthropic", "openai-chat"])
def test_a_stream_that_is_incomplete_for_no_reason_is_not_finished(
    caller: str, event: str, status: str | None, upstream: Upstream, callers: Callers
) -> None:
    """Trust 25: the event says it, or the response does; one of them is enough."""
    *events, last = events_of(RESPONSE, says("Hel"))
    data = json.loads(last.partition(b"data: ")[2])
    data["type"], data["response"]["status"] = event, status
    last = f"event: {event}\ndata: {json.dumps(data)}\n\n".encode()
    name = upstream.plays([STREAM, *map(chunk, [*events, last]), END])
    heard = callers.ask(caller, f"r:{name}", question(caller, "Hi"), streams=True)
    assert (heard.text, heard.stop) == ("Hel", CUT[caller])


@pytest.mark.parametrize("caller", DIALECTS)
def test_a_response_that_was_cancelled_is_an_error(caller: str, upstream: Upstream, callers: Callers) -> None:
    """Trust 25: as in a stream, where it is one."""
    name = upstream.plays([body({**whole_of(RESPONSE, says("Hel")), "status": "cancelled"})])
    with pytest.raises((anthropic.APIStatusError, openai.APIStatusError), match="was cancelled"):
        callers.ask(caller, f"r:{name}", question(caller, "Hi"))


@pytest.mark.parametrize("word", ["error", "abort", "insufficient_system_resource"])
@pytest.mark.parametrize("caller", ["anthropic", "openai-responses"])
def test_a_chat_that_ended_for_no_good_reason_is_not_finished(
    caller: str, word: str, upstream: Upstream, callers: Callers
) -> None:
    """Trust 25: compatible servers have finish reasons of their own for answers that broke off."""
    answer = whole_of("openai-chat", says("Hel"))
    answer["choices"][0]["finish_reason"] = word
    name = upstream.plays([body(answer)])
    heard = callers.ask(caller, f"c:{name}", question(caller, "Hi"))
    assert (heard.text, heard.stop) == ("Hel", CUT[caller])


@pytest.mark.parametrize("caller", DIALECTS)
@pytest.mark.parametrize("model", DIALECTS)
def test_an_answer_that_reached_its_limit_is_not_finished(
    caller: str, model: str, upstream: Upstream, callers: Callers
) -> None:
    """Trust 25: the reason that all dialects have."""
    answer = says("Hel")._replace(stop="length")
    name = upstream.plays([body(whole_of(model, answer))])
    heard = callers.ask(caller, f"{SHORT[model]}:{name}", question(caller, "Hi"))
    assert heard.stop == (CUT | {RESPONSE: "max_output_tokens"})[caller]
