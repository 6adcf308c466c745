"""Reads what matters from a stream that is relayed as bytes: who answered, what it cost, and where it ends.

Bytes go in, split anywhere; whole events come out unchanged. Nearly all events are pieces of text. The events of a
chunk are decoded together, as far as a dialect needs to tell which of them matter, and only those are read.

Knows no single wire format, no network and no clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, TypeVar

import msgspec

from ..contracts.dialect import Json
from ..errors import EngineError, EngineGarbled
from ..values import Usage
from ._wire import WireError, as_object, shown

T = TypeVar("T")

_NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
NOTHING = msgspec.Raw(b"null")  # the value of a field that is missing, where only its presence matters

EVENT_BYTES_MAX = 16 * 1024 * 1024  # the largest event

# Two line ends in a row, matched possessively: a CR and its LF are one line end, not a blank line.
_BLANK_LINE = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_DATA = b"data:"
_BETWEEN = re.compile(rb"\n\n(?:event:[^\n]*\n)?data:")
"""The bytes between the data of two events in the usual form, if they have no CR."""
_LF, _CR = b"\n\r"
_BOM = b"\xef\xbb\xbf"
_SEAM = 3  # if a blank line is split between two chunks, one of them has at most this many bytes of it


class Typed(msgspec.Struct):
    """An object with a type."""

    type: str


class EventMeter:
    """The part of a meter that all dialects share. A subclass says which events matter, and what they mean."""

    name = ""
    ends_with = ""  # the event that ends an answer, named in the error if it is missing
    end = b""  # the last event, if its data is not JSON
    piece: msgspec.json.Decoder[Any]
    pieces: msgspec.json.Decoder[list[Any]]
    """Decode an event, and a list of them, as far as every event must be valid."""

    def __init__(self, *, bytes_max: int = EVENT_BYTES_MAX) -> None:
        self.model = self.id = ""
        self.usage = Usage()
        self.token_seen = self.done = False
        self.failure: EngineError | None = None
        self.broken: EngineError | None = None
        self._bytes_max = bytes_max
        self._pending: list[bytes] = []
        self._size = 0
        self._tail = self._last = b""

    # --- what a dialect defines ---------------------------------------------------------------------------------------

    def _that_matter(self, pieces: list[Any]) -> list[int]:
        """Return the indexes of those events that are more than pieces of an answer in progress."""
        raise NotImplementedError

    def _event(self, data: bytes) -> bool:
        """Read one event's data. Return False to hide the event from the caller."""
        raise NotImplementedError

    def _read_whole(self, body: bytes) -> None:
        """Read an answer that did not stream. Raises WireError for nonsense, or the error that the answer is."""
        raise NotImplementedError

    def _missing_end(self) -> bytes | None:
        """Return the missing last event if the answer is complete without it, after the upstream closed; else None."""
        return None

    def _failure_event(self, error: EngineError) -> bytes:
        raise NotImplementedError

    # --- bytes --------------------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> bytes:
        if self.done:
            return b""
        if self._pending or data[-2:] != b"\n\n":
            data = self._whole_events(data)
        if data:
            self._last = data
        pieces = self._decoded(data)
        if pieces is None:
            return self._look(data)
        read = self._that_matter(pieces)
        return self._look(data, read) if read or not self.token_seen else data

    def _decoded(self, data: bytes) -> list[Any] | None:
        """Decode events in the usual form: one line of data each, with a JSON object; None stands for the `end`.
        Several are decoded as one list, which is much faster; the count shows whether two broken events only form an
        object together. Returns None for anything else (a comment, nonsense), which is read event by event."""
        before, _, rest = data.partition(_DATA)
        if (before and before[-1] != _LF) or _CR in data:
            return None
        try:
            return [self.piece.decode(rest)]
        except _NOT_JSON:
            pass
        ends = bool(self.end) and rest.endswith(self.end)
        joined, count = _BETWEEN.subn(b",", rest.removesuffix(self.end))
        try:
            pieces = self.pieces.decode(b"[%b]" % joined)
        except _NOT_JSON:
            return None
        if len(pieces) != count + 1:
            return None
        return [*pieces, None] if ends else pieces

    def finish(self) -> bytes:
        rest = b"".join(self._pending)
        self._pending.clear()
        if self.broken is not None:
            raise self.broken
        if self.done:
            return b""
        # Servers may leave out the blank line after the last event; half an event is not JSON, and an error.
        passed = self._look(rest.rstrip(b"\r\n") + b"\n\n") if rest.strip() else b""
        if not self.done:
            end = self._missing_end()
            if end is None:
                raise EngineGarbled(f"the answer broke off before its {self.ends_with}; ask again")
            passed += end
            self.done = True
        return passed

    def whole(self, body: bytes) -> None:
        try:
            self._read_whole(body)
        except WireError as error:
            raise self._garbled(error) from None
        self.token_seen = self.done = True

    def fail(self, error: EngineError) -> bytes:
        if self.done:
            return b""
        self.done, self.failure = True, error
        return self._failure_event(error)

    def _whole_events(self, data: bytes) -> bytes:
        """Return the kept bytes and these, up to the last blank line, and keep the rest. A huge event is joined
        once."""
        end = _end_of_events(data)
        if not self._pending:
            self._keep(data[end:] if end else data)
            return data[:end]
        if not end:
            seam = _end_of_events(self._tail + data[:_SEAM])
            if not seam:
                self._keep(data)
                return b""
            end = seam - len(self._tail)
        joined = b"".join((*self._pending, data[:end]))
        self._pending.clear()
        self._size, self._tail = 0, b""
        self._keep(data[end:])
        return joined

    def _keep(self, data: bytes) -> None:
        if not data:
            return
        self._size += len(data)
        if self._size > self._bytes_max:
            self._pending.clear()
            raise EngineGarbled(
                f"the answer has one event of more than {self._bytes_max} bytes, which is too long; "
                "check that the address is that of a model server"
            )
        self._pending.append(data)
        self._tail = (self._tail + data[-_SEAM:])[-_SEAM:]

    # --- events -------------------------------------------------------------------------------------------------------

    def _look(self, data: bytes, that_matter: Sequence[int] | None = None) -> bytes:
        """Return the events among these that are passed on: none after the last one, and none that the caller did not
        ask for. Once an answer has begun, only those `that_matter` are read; None means all."""
        kept: list[bytes] = []
        begin = end = 0
        for number, after in enumerate(_ends_of_events(data)):
            start, end = end, after
            if that_matter is not None and self.token_seen and number not in that_matter:
                continue
            payload = _data_of(data[start:end])
            if payload is None:
                continue
            try:
                passes = self._event(payload)
            except WireError as error:
                kept.append(data[begin:start])
                return self._break(self._garbled(error), b"".join(kept))
            if not passes:
                kept.append(data[begin:start])
                begin = end
            if self.done:
                kept.append(data[begin:end])
                return b"".join(kept)
        if not begin:
            return data
        kept.append(data[begin:])
        return b"".join(kept)

    def _break(self, error: EngineError, passed: bytes) -> bytes:
        """Raise for nonsense, after passing on what came before it if that is part of the answer."""
        if not (self.token_seen and passed):
            raise error
        self.broken = error
        return passed

    def _garbled(self, error: WireError) -> EngineGarbled:
        return EngineGarbled(f"the answer does not follow the {self.name} protocol: {error}")

    def _fails(self, error: EngineError) -> bool:
        """Handle an error that the upstream wrote. Before the first token, another attempt can answer; after it, the
        error is the end."""
        if not self.token_seen:
            raise error
        self.failure, self.done = error, True
        return True

    def _ends(self) -> bool:
        self.token_seen = self.done = True
        return True


def counted(read: Callable[[Json], Usage], raw: object, before: Usage) -> Usage:
    """Return the usage that an object reports, or `before` if it is unreadable: that is not worth losing an answer."""
    try:
        return read(as_object(raw))
    except WireError:
        return before


class _Kind(msgspec.Struct):
    type: str = ""


_KIND = msgspec.json.Decoder(_Kind)


def event_of(decoder: msgspec.json.Decoder[T], made: Callable[[str], T], data: bytes) -> T:
    """Return an event as a struct. Fields of an unknown kind of event may mean anything, so only its kind is read."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError:
        return made(struct_of(_KIND, data).type)
    except _NOT_JSON as error:
        raise _unreadable(error, data) from None


def struct_of(decoder: msgspec.json.Decoder[T], data: bytes) -> T:
    try:
        return decoder.decode(data)
    except _NOT_JSON as error:
        raise _unreadable(error, data) from None


def _unreadable(error: Exception, data: bytes) -> WireError:
    return WireError("", f"is not what it should be: {error}, in {shown(data)}")


def _end_of_events(data: bytes) -> int:
    """Return where the last whole event ends; 0 if none does."""
    if _CR in data:
        return max(_ends_of_events(data), default=0)
    at = data.rfind(b"\n\n")
    return at + 2 if at >= 0 else 0


def _ends_of_events(data: bytes) -> list[int]:
    """Return where each whole event ends, with its blank line."""
    if _CR in data:
        return [match.end() for match in _BLANK_LINE.finditer(data)]
    *events, _ = data.split(b"\n\n")
    return list(accumulate([len(event) + 2 for event in events]))


def _data_of(event: bytes) -> bytes | None:
    """Return an event's data with its lines joined; None if it has none, like a comment."""
    before, _, data = event.partition(_DATA)
    if before[-1:] in (b"", b"\n") and data.find(b"\n") == len(data) - 2 and _CR not in event:  # one line, as usual
        return data.strip()
    lines = event.removeprefix(_BOM).splitlines()
    found = [line[5:].removeprefix(b" ") for line in lines if line.startswith(_DATA)]
    return b"\n".join(found) if found else None
