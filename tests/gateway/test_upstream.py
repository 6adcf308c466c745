"""The scripted upstream speaks as its vendors do: their own types are the judges of what it says."""

from __future__ import annotations

import pytest

from ..dialects.judges import judge_reply, judge_stream
from .speech import DIALECTS, Answer, Call, Refuse, Say, Spent, Think, events_of, whole_of

ANSWERS = {
    "text": Answer((Say("Hello there"),)),
    "thinking": Answer((Think("I should greet."), Say("Hello"))),
    "calls": Answer((Say("Let me see."), Call("c1", "look", {"at": "a"}), Call("c2", "look", {"at": "b"}))),
    "interleaved": Answer((Call("c1", "look", {"at": "a"}), Call("c2", "look", {"at": "b"})), interleaved=True),
    "citations": Answer((Say("It is so", cites="https://example.com/a"),)),
    "length": Answer((Say("Hel"),), stop="length"),
    "stop_sequence": Answer((Say("Hel"),), stop="stop_sequence"),
    "refused": Answer((Refuse("I will not."),)),
    "filtered": Answer((Say("I wi"),), stop="filtered"),
    "usage": Answer((Say("Hi"),), spent=Spent(7, 100, 30, 9)),
}


@pytest.mark.parametrize("case", ANSWERS)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_upstream_speaks_as_its_vendor_does(dialect: str, case: str) -> None:
    judge_stream(dialect, b"".join(events_of(dialect, ANSWERS[case])))
    judge_reply(dialect, whole_of(dialect, ANSWERS[case]))
