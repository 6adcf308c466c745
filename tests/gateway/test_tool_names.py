"""A caller's tools may have names that the model's API would refuse: it never notices."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rondel.dialects._names import name_sent

from .asked import asked
from .callers import Callers, question
from .served import SHORT
from .speech import Answer, Call, played
from .test_pairs import PAIRS, STREAMS
from .upstream import Upstream

LONG = "mcp__a_server_with_a_long_name__a_tool_whose_name_says_all_that_it_does_with_it"


def with_long_name(fields: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(fields).replace('"look"', f'"{LONG}"'))


@pytest.mark.parametrize("streams", STREAMS)
@pytest.mark.parametrize(("caller", "model"), PAIRS)
def test_a_tool_with_a_long_name_is_called_by_every_model(
    caller: str, model: str, streams: bool, upstream: Upstream, callers: Callers
) -> None:
    sent = LONG if caller == model else name_sent(LONG, 128 if model == "anthropic" else 64)
    answer = Answer((Call("c2", sent, {"at": "b"}),))
    name = upstream.plays(played(model, answer, streams or caller != model))
    fields = with_long_name(question(caller, tools="loose", result=True))
    heard = callers.ask(caller, f"{SHORT[model]}:{name}", fields, streams=streams)
    assert heard.calls == (("c2", LONG, {"at": "b"}),)
    got = asked(model, upstream.visit(name).body)
    assert got.tools == (sent,)
    assert got.calls == (("c1", sent, {"at": "a"}),)
    assert got.results == (("c1", "seen a"),)
