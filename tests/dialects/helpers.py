"""What the dialects' tests share: golden streams, and reading bytes into a reply."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from rondel.contracts.dialect import Dialect
from rondel.dialects import DIALECTS
from rondel.values import Delta, Reply, ReplyBuilder, ReplyFinished

GOLDEN = Path(__file__).parent / "golden"
NAMES = tuple(DIALECTS)


def golden(dialect: str, name: str) -> bytes:
    return (GOLDEN / dialect / f"{name}.sse").read_bytes()


class SseEvent(NamedTuple):
    event: str
    data: str


def sse_events(raw: bytes) -> list[SseEvent]:
    """The events of a whole stream with their names, which our own decoder skips."""
    found: list[SseEvent] = []
    for block in raw.decode("utf-8", "replace").replace("\r\n", "\n").split("\n\n"):
        fields = [line.partition(": ")[::2] for line in block.split("\n")]
        if data := [value for name, value in fields if name == "data"]:
            found.append(SseEvent(next((value for name, value in fields if name == "event"), ""), "\n".join(data)))
    return found


def deltas_from(dialect: Dialect, *chunks: bytes) -> list[Delta]:
    reader = dialect.reply_reader()
    deltas = [delta for chunk in chunks for delta in reader.feed(chunk)]
    return deltas + reader.finish()


def reply_from(deltas: Iterable[Delta]) -> Reply:
    builder, ends = ReplyBuilder(), 0
    for delta in deltas:
        assert not builder.finished, f"{delta} came after the end"
        builder.add(delta)
        ends += isinstance(delta, ReplyFinished)
    assert ends == 1
    return builder.reply()


def read_golden(dialect: str, name: str) -> Reply:
    return reply_from(deltas_from(DIALECTS[dialect](), golden(dialect, name)))


def written_stream(dialect: Dialect, deltas: Iterable[Delta], *, model: str, id: str) -> bytes:
    writer = dialect.reply_writer(model=model, id=id)
    return b"".join(writer.feed(delta) for delta in deltas)
