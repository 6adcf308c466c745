"""Whatever a journal holds, in whatever order, there is a trace of it in every form."""

from __future__ import annotations

import enum
import typing
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from rondel.events import DurableEvent
from rondel.trace import TraceNode, build, markdown
from rondel.trace.page import page
from rondel.trace.telemetry import spans_of
from tests.trace.journals import journal

IDS = st.sampled_from(["t1", "t1/c", "c", "t2", "", "digest:c"])  # Few, so that entries are often about the same thing
TEXTS = IDS | st.text(max_size=20)
NUMBERS = st.floats(0, 1e10)
PLAIN = {
    str: TEXTS,
    int: st.integers(0, 10**9),
    float: NUMBERS,
    bool: st.booleans(),
    bytes: st.binary(max_size=4),
    type(None): st.none(),
    Any: st.none() | st.integers() | TEXTS,
}


def some(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a type of ours, made from its fields."""
    if kind in PLAIN:
        return PLAIN[kind]
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return st.sampled_from(list(kind))
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = get_type_hints(kind, include_extras=True)
        return st.deferred(lambda: st.builds(kind, **{field: some(hints[field]) for field in kind.__struct_fields__}))
    arguments = get_args(kind)
    if get_origin(kind) is typing.Literal:
        return st.sampled_from(arguments)
    if get_origin(kind) is tuple:
        return st.lists(some(arguments[0]), max_size=2).map(tuple)
    if get_origin(kind) is list:
        return st.lists(some(arguments[0]), max_size=2)
    if get_origin(kind) is dict:
        return st.dictionaries(TEXTS, some(arguments[1]), max_size=2)
    return st.one_of([some(argument) for argument in arguments])


EVENTS = st.one_of([some(kind) for kind in get_args(DurableEvent)])


@given(st.lists(EVENTS, max_size=8), st.lists(EVENTS, max_size=4))
def test_there_is_a_trace_of_any_journal_in_every_form(outer: list[Any], inner: list[Any]):
    root = build(journal(*outer), {"talk/c": journal(*inner), "talk/t1": journal(*inner)}, conversation="talk")
    assert msgspec.json.decode(root.to_json(), type=TraceNode).name == "talk"
    assert len(root.lines()) <= sum(1 for _ in root.walk())
    assert markdown(root).startswith("# Agent Trace: ")
    assert markdown(root, short=True).startswith("# Agent Trace: ")
    assert page(root).startswith("<!doctype html>")
    assert all(span.start <= span.end for span in spans_of(root, content=True))
