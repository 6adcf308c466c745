"""Conversations that go from a model of another dialect to one of their caller's own, as routes and fallbacks do."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from rondel.contracts.dialect import UNSIGNED

from .asked import asked
from .callers import Callers, question
from .served import SHORT
from .speech import Answer, Call, Say, Think, played, says
from .upstream import Upstream

SIGNING = ("anthropic", "openai-responses")
"""The dialects whose providers sign what their models think, and refuse what they have not signed."""
THOUGHT = Answer((Think("Hm, a."), Say("I look."), Call("c1", "look", {"at": "a"})))


def collecting(caller: str, answer: Any) -> dict[str, Any]:
    """The next request: all that was said, as the caller's SDK gives it, and what the tool gave."""
    fields = question(caller, "Hi", tools=True)
    if caller == "anthropic":
        result = {"type": "tool_result", "tool_use_id": "c1", "content": "seen a"}
        said = [block.model_dump() for block in answer.content]
        fields["messages"] += [{"role": "assistant", "content": said}, {"role": "user", "content": [result]}]
    else:
        result = {"type": "function_call_output", "call_id": "c1", "output": "seen a"}
        fields["input"] += [*(item.model_dump(exclude_none=True) for item in answer.output), result]
    return fields


def ask(callers: Callers, caller: str, model: str, fields: dict[str, Any], *, streams: bool) -> Any:
    if caller == "anthropic":
        if not streams:
            return cast(Any, callers.anthropic.messages.create(model=model, **fields))
        with callers.anthropic.messages.stream(model=model, **fields) as events:
            return events.get_final_message()
    if not streams:
        return cast(Any, callers.openai.responses.create(model=model, store=False, **fields))
    with callers.openai.responses.stream(model=model, store=False, **fields) as events:
        return events.get_final_response()


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("caller", SIGNING)
def test_what_another_model_thought_is_sent_to_no_provider_that_would_have_signed_it(
    caller: str, streams: bool, upstream: Upstream, callers: Callers
) -> None:
    thinker = upstream.plays(played("openai-chat", THOUGHT, streams))
    answer = ask(callers, caller, f"c:{thinker}", question(caller, "Hi", tools=True), streams=streams)
    again = collecting(caller, answer)
    assert "Hm, a." in json.dumps(again)

    own = upstream.plays(played(caller, says("It is there."), streams))
    ask(callers, caller, f"{SHORT[caller]}:{own}", again, streams=streams)
    body = upstream.visit(own).body
    assert UNSIGNED not in json.dumps(body)
    assert "Hm, a." not in json.dumps(body)
    seen = asked(caller, body)
    assert (seen.calls, seen.results) == ((("c1", "look", {"at": "a"}),), (("c1", "seen a"),))
    assert "I look." in json.dumps(body)


@pytest.mark.parametrize("caller", SIGNING)
def test_what_a_model_of_the_callers_dialect_thought_comes_back_to_it_as_it_was(
    caller: str, upstream: Upstream, callers: Callers
) -> None:
    name = upstream.plays(played(caller, THOUGHT, True), played(caller, says("It is there."), True))
    model = f"{SHORT[caller]}:{name}"
    answer = ask(callers, caller, model, question(caller, "Hi", tools=True), streams=True)
    ask(callers, caller, model, collecting(caller, answer), streams=True)
    body = json.dumps(upstream.visits(name, 2)[1].body)
    assert "Hm, a." in body
    assert ("c2lnbmVk" if caller == "anthropic" else "ZW5j") in body
