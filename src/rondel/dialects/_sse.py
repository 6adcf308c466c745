"""Server-sent events: bytes in, events out, and back.

Follows the WHATWG rules for event streams, for bytes that are split anywhere. Knows no network and no JSON.
"""

from __future__ import annotations

from ..errors import EngineGarbled

EVENT_BYTES_MAX = 16 * 1024 * 1024
"""The largest event that is accepted: an image in base64 fits, a runaway line does not."""

_BOM = b"\xef\xbb\xbf"


class SseDecoder:
    """Reads the data of events from bytes: the data itself says what it is, so names and ids are skipped. An incomplete
    event is kept, up to `bytes_max`."""

    def __init__(self, *, bytes_max: int = EVENT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._pending: list[bytes] = []
        self._size = 0
        self._last_byte = b""
        self._after_cr = False
        self._started = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the data of the events that these bytes complete."""
        if data[:6] == b"data: " and not self._pending and len(data) <= self._bytes_max:
            lines = data[6:-2].split(b"\n\ndata: ")
            if data[-2:] == b"\n\n" and data.count(b"\n") == 2 * len(lines) and b"\r" not in data:
                self._started = True
                return lines  # events of one line each, like nearly every token
        found: list[bytes] = []
        for block in self._blocks(data):
            name, _, value = block.partition(b"\ndata: ")
            if value and name[:6] == b"event:" and block.count(b"\n") == 1:  # or of a name and a line
                found.append(value)
            elif lines := _data_lines(block):
                found.append(b"\n".join(lines))
        return found

    def finish(self) -> list[bytes]:
        """Return the last event after the stream closed, if the server left out the blank line after it."""
        return self.feed(b"\n\n") if self._pending else []

    def _blocks(self, data: bytes) -> list[bytes]:
        """Return the lines of each event that these bytes complete."""
        if self._after_cr or data.find(b"\r") >= 0:
            data = self._only_line_feeds(data)
        if not self._pending and data[-2:] == b"\n\n":  # whole events, as most servers send them
            return self._checked(data[:-2].split(b"\n\n"), len(data))
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
        blocks = self._checked(blocks, len(data))
        if rest:
            self._keep(rest)
        else:
            # The blank line is consumed: a line feed after it is another blank line, not the end of this event.
            self._last_byte = b""
        return blocks

    def _only_line_feeds(self, data: bytes) -> bytes:
        """Replace CR LF and CR by LF. A CR at the very end counts at once, so that no event waits for the byte after
        it."""
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

    def _checked(self, blocks: list[bytes], size: int) -> list[bytes]:
        """Check the size of the blocks, and return them without the byte order mark that a stream may begin with."""
        if size > self._bytes_max:
            self._check(max(map(len, blocks)))
        if not self._started:
            self._started = True
            blocks[0] = blocks[0].removeprefix(_BOM)
        return blocks

    def _check(self, size: int) -> None:
        if size > self._bytes_max:
            self._pending.clear()
            raise EngineGarbled(
                f"the answer has one event of more than {self._bytes_max} bytes, which is too long; "
                "check that the address is that of a model server"
            )


def _data_lines(block: bytes) -> list[bytes]:
    return [value for field, value in map(_field, block.split(b"\n")) if field == b"data"]


def _field(line: bytes) -> tuple[bytes, bytes]:
    field, _, value = line.partition(b":")
    return field, value[1:] if value[:1] == b" " else value


def encode(event: str, data: str | bytes) -> bytes:
    """Return one event as bytes. An empty name writes no `event:` line; each line of the data becomes a `data:`
    line."""
    body = data.encode() if isinstance(data, str) else data
    if b"\n" in body or b"\r" in body:
        body = b"\ndata: ".join(body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"))
    if not event:
        return b"data: %b\n\n" % body
    if "\n" in event or "\r" in event:
        raise ValueError(f"an event's name is one line, got {event!r}")
    return b"event: %b\ndata: %b\n\n" % (event.encode(), body)


def comment(text: str = "") -> bytes:
    """Return a line that clients ignore and that keeps a connection open."""
    return b": %b\n\n" % text.replace("\r", " ").replace("\n", " ").encode()
