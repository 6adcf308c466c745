"""Server-sent events: bytes in, events out, and back.

Follows the WHATWG rules for event streams, for bytes that are split anywhere. Knows no network and no JSON.
"""

from __future__ import annotations

import msgspec

from .errors import EngineGarbled

EVENT_BYTES_MAX = 16 * 1024 * 1024
"""One event may be this big: a picture in base64 fits, a runaway line does not."""

_BOM = b"\xef\xbb\xbf"


class SseEvent(msgspec.Struct, frozen=True, gc=False):
    """One event. `event` is empty when the stream named none; `id` is the last id that the stream named."""

    event: str
    data: str
    id: str = ""
    retry: int | None = None


class SseDecoder:
    """Reads events from bytes. What is not a whole event yet is kept, up to `bytes_max`."""

    __slots__ = ("_after_cr", "_bytes_max", "_last_byte", "_last_id", "_pending", "_size", "_started")

    def __init__(self, *, bytes_max: int = EVENT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._pending: list[bytes] = []
        self._size = 0
        self._last_byte = b""
        self._after_cr = False
        self._started = False
        self._last_id = ""

    def feed(self, data: bytes) -> list[SseEvent]:
        """The events that these bytes complete."""
        if self._after_cr or data.find(b"\r") >= 0:
            data = self._only_line_feeds(data)
        if not self._pending and data[-2:] == b"\n\n":  # whole events, which is how most servers send them
            return self._events(data[:-2].split(b"\n\n"))
        if not data:
            return []
        ends_event = b"\n\n" in data or (self._last_byte == b"\n" and data[0] == 10)
        self._last_byte = data[-1:]
        if not ends_event:
            # Joining only when an event ends keeps one huge event linear in its size.
            self._keep(data)
            return []
        if self._pending:
            self._pending.append(data)
            data = b"".join(self._pending)
            self._pending.clear()
            self._size = 0
        *blocks, rest = data.split(b"\n\n")
        events = self._events(blocks)
        if rest:
            self._keep(rest)
        else:
            # The blank line is spent: a line feed that follows is one more blank line, not the end of this event.
            self._last_byte = b""
        return events

    def finish(self) -> list[SseEvent]:
        """The stream closed: the last event, where a server left out the blank line after it."""
        block = b"".join(self._pending)
        self._pending.clear()
        self._size = 0
        event = self._event(block)
        return [] if event is None else [event]

    def _only_line_feeds(self, data: bytes) -> bytes:
        """CR LF and CR as LF. A CR at the very end counts at once, so that no event waits for the byte after it."""
        if not data:
            return data
        if self._after_cr and data[0] == 10:
            data = data[1:]
        self._after_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _keep(self, data: bytes) -> None:
        self._size += len(data)
        self._check(self._size)
        self._pending.append(data)

    def _check(self, size: int) -> None:
        if size > self._bytes_max:
            self._pending.clear()
            raise EngineGarbled(
                f"the answer has one event of more than {self._bytes_max} bytes, which is no sane stream; "
                "check that the address is that of a model server"
            )

    def _events(self, blocks: list[bytes]) -> list[SseEvent]:
        return [event for block in blocks if (event := self._event(block)) is not None]

    def _event(self, block: bytes) -> SseEvent | None:
        self._check(len(block))
        if self._started and block[:6] == b"data: " and b"\n" not in block:  # nearly every token looks so
            return SseEvent("", block[6:].decode("utf-8", "replace"), self._last_id, None)
        if not self._started and block:
            self._started = True
            block = block.removeprefix(_BOM)
        name, retry, parts = b"", None, list[bytes]()
        for line in block.split(b"\n"):
            field, _, value = line.partition(b":")
            if value[:1] == b" ":
                value = value[1:]
            if field == b"data":
                parts.append(value)
            elif field == b"event":
                name = value
            elif field == b"id":
                if b"\0" not in value:
                    self._last_id = value.decode("utf-8", "replace")
            elif field == b"retry" and value.isdigit():
                retry = int(value)
        if not parts:
            return None
        data = parts[0] if len(parts) == 1 else b"\n".join(parts)
        return SseEvent(name.decode("utf-8", "replace"), data.decode("utf-8", "replace"), self._last_id, retry)


def encode(event: str, data: str | bytes) -> bytes:
    """One event as bytes. An empty name writes no `event:` line; each line of the data becomes a `data:` line."""
    body = data.encode() if isinstance(data, str) else data
    if b"\n" in body or b"\r" in body:
        body = b"\ndata: ".join(body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"))
    if not event:
        return b"data: %b\n\n" % body
    if "\n" in event or "\r" in event:
        raise ValueError(f"an event's name is one line, got {event!r}")
    return b"event: %b\ndata: %b\n\n" % (event.encode(), body)


def comment(text: str = "") -> bytes:
    """A line that clients ignore and that keeps a connection open."""
    return b": %b\n\n" % text.replace("\r", " ").replace("\n", " ").encode()
