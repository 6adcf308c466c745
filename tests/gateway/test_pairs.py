"""One table for all pairs of dialects: what a caller asks in one of them arrives in the other, and what the model says
comes back in the caller's own, streamed and whole, to the vendors' own SDKs."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import pytest

from .asked import asked
from .callers import CITY, PDF, PNG, Callers, question
from .served import SHORT
from .speech import DIALECTS, STOPS, Answer, Call, Refuse, Say, Spent, Think, played
from .upstream import Upstream

PAIRS = [
    pytest.param(caller, model, id=f"{caller}-to-{model}") for caller, model in itertools.product(DIALECTS, DIALECTS)
]
STREAMS = [pytest.param(False, id="whole"), pytest.param(True, id="streamed")]
URL = "https://example.com/a"


class Case(NamedTuple):
    answer: Answer
    kinds: dict[str, Any]  # What the question holds


ONE = Call("c1", "look", {"at": "a"})
TWO = Call("c2", "look", {"at": "b \u00e9 \U0001f600"})

CASES = {
    "text": Case(Answer((Say("Hello there, \u00e4\U0001f600!"),)), {"system": "Be brief."}),
    "thinking": Case(Answer((Think("I should greet."), Say("Hello"))), {"thinking": True}),
    "one_call": Case(Answer((Say("Let me look."), ONE)), {"tools": True}),
    "a_call_alone": Case(Answer((ONE,)), {"tools": True}),
    "parallel_calls": Case(Answer((ONE, TWO)), {"tools": True}),
    "interleaved_calls": Case(Answer((ONE, TWO), interleaved=True), {"tools": True}),
    "call_without_arguments": Case(Answer((Call("c1", "look", {}),)), {"tools": True}),
    "thinking_and_calls": Case(Answer((Think("Hm."), Say("So."), ONE, TWO)), {"tools": True, "thinking": True}),
    "result": Case(Answer((Say("I see a."),)), {"tools": True, "result": True}),
    "image": Case(Answer((Say("A dot."),)), {"image": True}),
    "document": Case(Answer((Say("A paper."),)), {"document": True}),
    "citations": Case(Answer((Say("It is so", cites=URL),)), {}),
    "schema": Case(Answer((Say('{"city": "Oslo"}'),)), {"schema": True}),
    "usage": Case(Answer((Say("Hi"),), spent=Spent(7, 100, 30, 9)), {}),
    "length": Case(Answer((Say("Hel"),), stop="length"), {}),
    "stop_sequence": Case(Answer((Say("Hel"),), stop="stop_sequence"), {}),
    "refused": Case(Answer((Refuse("I will not."),)), {}),
    "filtered": Case(Answer((Say("I wi"),), stop="filtered"), {}),
}


@pytest.mark.parametrize("streams", STREAMS)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("caller", "model"), PAIRS)
def test_every_caller_understands_every_model(
    caller: str, model: str, case: str, streams: bool, upstream: Upstream, callers: Callers
) -> None:
    """X03: what is asked arrives, and what is answered comes back, in every pair of dialects."""
    answer, kinds = CASES[case]
    if case == "interleaved_calls" and caller == model:
        kinds = {"tools": "loose"}  # the SDK's helper parses a strict tool's arguments at the first change of turns
    name = upstream.plays(played(model, answer, streams or caller != model))
    heard = callers.ask(caller, f"{SHORT[model]}:{name}", question(caller, **kinds), streams=streams)

    assert heard.text + heard.refusal == "".join(p.text for p in answer.parts if isinstance(p, Say | Refuse))
    assert heard.thoughts == "".join(part.text for part in answer.parts if isinstance(part, Think))
    assert [call[1:] for call in heard.calls] == [part[1:] for part in answer.parts if isinstance(part, Call)]
    assert [call[0] for call in heard.calls] == [part.id for part in answer.parts if isinstance(part, Call)]
    stop = answer.ends
    if stop == "stop_sequence" and model != "anthropic":  # the others do not tell it from an end
        stop = "end"
    if stop == "refused" and model == "anthropic":  # which has one word for both
        stop = "filtered"
    assert heard.stop == STOPS[caller][stop]
    spent = answer.spent
    assert heard[4:7] == (spent.fresh + spent.cached + spent.written, spent.cached, spent.out)
    assert heard.cites == ((URL,) if case == "citations" else ())
    assert heard.model == "upstream-model"

    visit = upstream.visit(name)
    got = asked(model, visit.body)
    assert got.system == kinds.get("system", "")
    assert got.texts == ("Hi",)
    assert got.images == ((PNG,) if kinds.get("image") else ())
    assert got.documents == ((PDF,) if kinds.get("document") else ())
    assert got.tools == (("look",) if kinds.get("tools") else ())
    assert got.calls == ((("c1", "look", {"at": "a"}),) if kinds.get("result") else ())
    assert got.results == ((("c1", "seen a"),) if kinds.get("result") else ())
    assert got.schema == (CITY if kinds.get("schema") else None)
    assert got.thinks is bool(kinds.get("thinking"))
