"""Server-sent events, whatever way the bytes come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rondel.dialects._sse import SseDecoder, comment, encode
from rondel.errors import EngineGarbled

from .strategies import QUICK


def events(*chunks: bytes) -> list[bytes]:
    decoder = SseDecoder()
    return [event for chunk in chunks for event in decoder.feed(chunk)] + decoder.finish()


def test_lines_of_data_are_joined() -> None:
    """X03: multi-line data is joined with a line feed."""
    assert events(b"data: a\ndata:b\ndata:  c\ndata\n\n") == [b"a\nb\n c\n"]


def test_done_is_passed_as_data() -> None:
    """X03: [DONE] is data like any other."""
    assert events(b"data: [DONE]\n\n") == [b"[DONE]"]


def test_comments_other_fields_and_events_without_data_are_skipped() -> None:
    assert events(b": hi\n\nevent: lonely\n\nfoo: bar\n\ndata: x\n\n\n\n") == [b"x"]
    assert events(b"event: a\nid: 7\nretry: 250\ndata: x\n\nid: \0\nretry: soon\ndata: y\n\n") == [b"x", b"y"]


def test_a_byte_order_mark_is_skipped_once() -> None:
    assert events(b"\xef\xbb", b"\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n") == [b"a"]


def test_bytes_that_are_no_utf_8_do_not_stop_the_stream() -> None:
    assert events(b"data: \xff\n\n") == [b"\xff"]


def test_an_event_is_given_as_soon_as_its_blank_line_is_there() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: a\r\n\r") == [b"a"]
    assert decoder.feed(b"\ndata: b\r\r") == [b"b"]
    assert decoder.feed(b"") == []
    assert decoder.finish() == []


def test_a_last_event_without_its_blank_line_is_given_at_the_end() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: [DONE]\n") == []
    assert decoder.finish() == [b"[DONE]"]


def test_a_line_that_never_ends_is_not_kept() -> None:
    decoder, chunk = SseDecoder(bytes_max=1000), b"x" * 400
    decoder.feed(chunk)
    decoder.feed(chunk)
    with pytest.raises(EngineGarbled, match="more than 1000 bytes"):
        decoder.feed(chunk)


def test_one_whole_event_that_is_too_big_is_refused() -> None:
    with pytest.raises(EngineGarbled, match="more than 1000 bytes"):
        SseDecoder(bytes_max=1000).feed(b"data: " + b"x" * 1000 + b"\n\n")


def test_many_events_may_together_be_bigger_than_one_may_be() -> None:
    assert len(SseDecoder(bytes_max=100).feed(b"data: 0123456789\n\n" * 50)) == 50


LINE = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), max_size=8)


@QUICK
@given(
    st.lists(st.tuples(LINE, st.lists(LINE, min_size=1, max_size=3)), max_size=4),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.data(),
)
def test_any_split_reads_the_same(given_events: list[tuple[str, list[str]]], newline: bytes, data: st.DataObject):
    """X03: events across any byte split, also inside a UTF-8 character and inside CR LF."""
    wanted = ["\n".join(lines).encode() for _, lines in given_events]
    raw = b"".join(encode(name, "\n".join(lines)) for name, lines in given_events).replace(b"\n", newline)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=6)))
    chunks = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert events(*chunks) == wanted
    assert events(*(raw[i : i + 1] for i in range(len(raw)))) == wanted


LINES = (
    b"data: a",
    b"data:b",
    b"data: ",
    b"data",
    b"event: e",
    b": hi",
    b"id: 7",
    b"",
    b"\xff",
    b"\xef\xbb\xbfdata: x",
)


@QUICK
@given(st.lists(st.sampled_from(LINES), max_size=12), st.sampled_from([b"\n", b"\r\n", b"\r"]), st.data())
def test_odd_lines_read_the_same_whatever_the_split(lines: list[bytes], newline: bytes, data: st.DataObject) -> None:
    raw = newline.join(lines) + data.draw(st.sampled_from([b"", newline, newline + newline]))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=4)))
    chunks = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert events(*chunks) == events(raw)


def test_data_of_several_lines_is_written_as_several_lines() -> None:
    assert encode("e", "a\r\nb\rc") == b"event: e\ndata: a\ndata: b\ndata: c\n\n"
    assert encode("", b"x") == b"data: x\n\n"


def test_a_name_of_several_lines_is_refused() -> None:
    with pytest.raises(ValueError, match="one line"):
        encode("a\nb", "x")


def test_a_comment_is_read_as_nothing() -> None:
    assert events(comment("still\nhere"), encode("", "x")) == [b"x"]
