"""What models write where JSON should be, and what is made of it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rondel.text.lenient import parse_object, parse_parameters, relaxed, repair_arguments, repaired
from tests.helpers import rest_slow

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(), JSON, max_size=4)


@given(OBJECTS, st.booleans(), st.sampled_from((None, 2)))
def test_what_json_dumps_wrote_reads_the_same_by_every_reader(value: dict[str, Any], ascii: bool, indent: int | None):
    """M04: JSON comes first, and every later reader understands it too."""
    text = json.dumps(value, ensure_ascii=ascii, indent=indent)
    assert parse_object(text) == value
    assert relaxed(text) == value
    assert repaired(text) == (value or None)
    assert parse_parameters(text) == repair_arguments(text) == value


@given(st.text(alphabet=st.sampled_from("{}[]:,\"'\\/*#= \nnulTrueab01.-e+\ud800é汉")) | st.text())
def test_no_text_makes_a_reader_raise(text: str):
    for read in (parse_object, relaxed, repaired):
        assert read(text) is None or isinstance(read(text), dict)
    json.dumps(parse_parameters(text), allow_nan=False)
    json.dumps(repair_arguments(text), allow_nan=False).encode()


@given(OBJECTS.filter(bool), st.data())
def test_a_text_cut_anywhere_is_closed_to_what_had_come(value: dict[str, Any], data: st.DataObject):
    text = json.dumps(value)
    found = repaired(text[: data.draw(st.integers(0, len(text)))]) or {}
    keys = list(value)
    assert list(found)[:-1] == keys[: max(0, len(found) - 1)]
    for key in list(found)[:-1]:
        assert found[key] == value[key]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1,}', {"a": 1}),
        ('{"a": [1, 2,],}', {"a": [1, 2]}),
        ("{'a': 'it\\'s'}", {"a": "it's"}),
        ("{a: 1, b-c: {d_: 2}}", {"a": 1, "b-c": {"d_": 2}}),
        ('{// one\n"a": 1, /* two */ "b": 2 # three\n}', {"a": 1, "b": 2}),
        ("{'a': True, 'b': False, 'c': None, 'd': undefined}", {"a": True, "b": False, "c": None, "d": None}),
        ('{"a": NaN, "b": -Infinity, "c": 1e999}', {"a": None, "b": None, "c": None}),
        ("{a: .5, b: +3, c: 0x1F, d: -1.5e3}", {"a": 0.5, "b": 3, "c": 31, "d": -1500.0}),
        ('{"a": "line\nbreak"}', {"a": "line\nbreak"}),
        ('{"re": "\\d+\\s", "path": "C:\\dir"}', {"re": "\\d+\\s", "path": "C:\\dir"}),
        ('{"a": "\\ud83d\\ude00 \\ud800"}', {"a": "😀 \ufffd"}),
        (" { } // nothing", {}),
    ],
)
def test_relaxed_json_is_read(text: str, value: dict[str, Any]):
    """M04: trailing commas, single quotes, bare keys, comments, Python's words."""
    assert relaxed(text) == value
    assert parse_parameters(text) == repair_arguments(text) == value


@pytest.mark.parametrize(
    "text",
    ['{"a": 1', '{"a" 1}', '{"a": }', '{"a": 1 "b": 2}', '{"a": x}', '{"a": 1} tail', "[1]", "", '{"a": 1]', "{,}"],
)
def test_relaxed_json_has_bounds(text: str):
    assert relaxed(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"city": "Par', {"city": "Par"}),
        ('{"a": 1, "b": [1, {"c": 2', {"a": 1, "b": [1, {"c": 2}]}),
        ('{"a": 1, "b', {"a": 1}),
        ('{"a": 1, "b":', {"a": 1}),
        ('{"a": "x\\', {"a": "x"}),
        ('{"a": 1 "b": 2\n"c": [1 2 3]}', {"a": 1, "b": 2, "c": [1, 2, 3]}),
        ('{"a": [1, 2}', {"a": [1, 2]}),
        ('{"a": 1]}', {"a": 1}),
        ('{{"a": 1}}', {"a": 1}),
        ('Sure! Here {x} it is: {"a": 1} Enjoy.', {"a": 1}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ("{city: New York, url: http://a.b/c}", {"city": "New York", "url": "http://a.b/c"}),
        ('{"text": "he said "no" to it", "n": 1}', {"text": 'he said "no" to it', "n": 1}),
        ('{"a": 1, /* and so on', {"a": 1}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ("no object", {}),
        ("", {}),
        ("[1, 2]", {}),
    ],
)
def test_broken_arguments_are_repaired_or_given_up(text: str, value: dict[str, Any]):
    """M05: JSON, then relaxed, then repaired, then {}."""
    assert repair_arguments(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", {}),
        ("  \n ", {}),
        ("city=Paris\ndays = 3\nflags=[1, 2]", {"city": "Paris", "days": 3, "flags": [1, 2]}),
        ("city: Paris\nquery: a=b\nok: true", {"city": "Paris", "query": "a=b", "ok": True}),
        ('"city": "Paris",\n"days": 3', {"city": "Paris", "days": 3}),
        ("ok=True\nname='Ann'\nwhere: {x: 1}", {"ok": True, "name": "Ann", "where": {"x": 1}}),
        ("https://example.org", {"input": "https://example.org"}),
        ("the weather in Paris", {"input": "the weather in Paris"}),
        ("note: buy milk\nand eggs", {"input": "note: buy milk\nand eggs"}),
        ("[1, 2]", {"input": "[1, 2]"}),
        ("x" * 5_000, {"input": "x" * 1_000}),
    ],
)
def test_parameters_are_json_lines_or_the_input_itself(text: str, value: dict[str, Any]):
    """M04: key=value lines, key: value lines, else {input: at most 1000 characters}."""
    assert parse_parameters(text) == value


def test_code_is_never_evaluated():
    """M04: what looks like code stays text."""
    code = "__import__('os').system('echo harm')"
    assert parse_parameters(code) == {"input": code}
    assert parse_parameters("{a: " + code + "}") == {"input": "{a: " + code + "}"}
    assert repair_arguments('{"a": (() => 1)()}') == {"a": "(() => 1)()"}


@pytest.mark.parametrize(
    "piece",
    [
        "[",
        "{",
        '{"a":',
        '{"a":[',
        "{a",
        '"',
        "'",
        "\\",
        "{/*",
        "{//",
        "{#",
        "a: ",
        "a=",
        '{"a": "b" c',
        "{}",
        "}",
        "{]",
    ],
)
@pytest.mark.parametrize(("chars", "most_s"), rest_slow([(150_000, 2), (1_000_000, 8)]))
def test_a_million_characters_of_anything_are_read_in_linear_time(piece: str, chars: int, most_s: float):
    text = piece * (chars // len(piece))
    started = time.process_time()
    parse_parameters(text)
    repair_arguments(text)
    assert time.process_time() - started < most_s  # a quadratic reader would need hours
