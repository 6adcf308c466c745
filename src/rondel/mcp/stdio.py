"""A server's stdin and stdout as a transport of the SDK, with limits that the SDK's own transport does not have.

A message has a size limit: a longer one is skipped without being buffered, and the call that it answers fails with a
sentence. A server that sends too much is read more slowly (it blocks on its pipe) and in the end disconnected.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Iterator, Mapping

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from ..errors import RondelError
from .process import Watchdog
from .spec import ServerSpec

MESSAGE_BYTES_MAX = 16 << 20
CHUNK_BYTES = 1 << 16
STDERR_CHARS = 2_000  # of its last output on stderr, which explains a failure
BURST, PER_S = 2_000, 500  # messages or other lines at once, and how many per second after that
UNUSED_S = 0.01  # the pause after each chunk that is read only to be dropped
FLOOD_S = 20.0  # a server that sends more than that for this long is disconnected
TOO_LARGE = -32_001
_ID = re.compile(rb'"id"\s*:\s*(\d{1,15}|"[^"\\]{1,100}")')

Incoming = SessionMessage | Exception


class Pace:
    """Slows down reading when messages come too fast."""

    def __init__(self) -> None:
        self._now = asyncio.get_running_loop().time
        self._tokens, self._at = float(BURST), self._now()
        self._slowed_since: float | None = None

    async def wait(self) -> None:
        """Wait until another message may be read. Raises RondelError if the flood does not end."""
        now = self._now()
        self._tokens, self._at = min(BURST, self._tokens + (now - self._at) * PER_S), now
        if self._tokens >= 1:
            self._tokens -= 1
            if self._tokens > BURST / 2:
                self._slowed_since = None
            return
        self._slowed_since = self._slowed_since or now
        if now - self._slowed_since > FLOOD_S:
            raise RondelError(f"it sends more than {PER_S} messages per second without end, so it was disconnected")
        await asyncio.sleep(1 / PER_S)
        self._tokens = 0.0
        self._at = self._now()


class StdioTransport:
    """`async with` gives the two streams that the SDK's session reads and writes. `ended` is set when it ends."""

    def __init__(self, spec: ServerSpec, env: Mapping[str, str], watchdog: Watchdog, cwd: str | None) -> None:
        self._spec, self._env, self._watchdog, self._cwd = spec, env, watchdog, cwd
        self.ended = asyncio.Event()
        self.reason = ""
        self._said = ""

    @contextlib.asynccontextmanager
    async def open(
        self,
    ) -> AsyncGenerator[tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]]:
        if sys.platform == "win32":
            command, *args = (self._spec.command, *self._spec.args)
            given = StdioServerParameters(command=command, args=args, env=dict(self._env), cwd=self._cwd)
            async with stdio_client(given) as streams:
                yield streams  # type: ignore[misc]
            return
        command = (self._spec.command, *self._spec.args)
        process = await self._watchdog.start(command, env=self._env, cwd=self._cwd)
        incoming, read_stream = anyio.create_memory_object_stream[Incoming](0)
        write_stream, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        try:
            # anyio's task groups, because the SDK cancels by scopes, which asyncio's do not support.
            async with anyio.create_task_group() as group:
                group.start_soon(self._read, process, incoming)
                group.start_soon(self._write, process, outgoing, incoming)
                group.start_soon(self._drain_stderr, process)
                try:
                    yield read_stream, write_stream
                finally:
                    group.cancel_scope.cancel()
        finally:
            for stream in (incoming, read_stream, write_stream, outgoing):
                stream.close()
            await self._stop(process)

    async def _stop(self, process: Process) -> None:
        """End the process even if this task is being cancelled; every wait here is short."""
        with anyio.CancelScope(shield=True):
            await self._watchdog.stop(process)

    # --- reading ------------------------------------------------------------------------------------------------------

    async def _read(self, process: Process, incoming: MemoryObjectSendStream[Incoming]) -> None:
        assert process.stdout is not None
        lines, pace = Lines(), Pace()
        try:
            while chunk := await process.stdout.read(CHUNK_BYTES):
                for message in lines.feed(chunk):
                    await pace.wait()
                    if message is not None:
                        await incoming.send(SessionMessage(message))
                if lines.is_too_long:
                    await asyncio.sleep(UNUSED_S)
            self.reason = await self._exit_reason(process)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            pass
        except (OSError, RondelError) as error:
            self.reason = str(error)
        finally:
            self.ended.set()
            incoming.close()

    async def _exit_reason(self, process: Process) -> str:
        for _ in range(20):  # its exit code comes a moment after the end of its output
            if process.returncode is not None:
                break
            await asyncio.sleep(0.01)
        code = process.returncode
        how = "it closed its output" if code is None else f"it ended with the code {code}"
        if code is not None and code < 0:
            how = f"it was killed by signal {-code}"
        said = " ".join(self._said.split())
        said = f"…{said[-300:]}" if len(said) > 300 else said
        return f"{how}, saying: {said}" if said else how

    async def _drain_stderr(self, process: Process) -> None:
        assert process.stderr is not None
        with contextlib.suppress(OSError):
            while chunk := await process.stderr.read(CHUNK_BYTES):
                self._said = (self._said + chunk[-STDERR_CHARS:].decode("utf-8", "replace"))[-STDERR_CHARS:]
                if len(chunk) == CHUNK_BYTES:
                    await asyncio.sleep(UNUSED_S)

    # --- writing ------------------------------------------------------------------------------------------------------

    async def _write(
        self,
        process: Process,
        outgoing: MemoryObjectReceiveStream[SessionMessage],
        incoming: MemoryObjectSendStream[Incoming],
    ) -> None:
        assert process.stdin is not None
        try:
            async for item in outgoing:
                text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                process.stdin.write(f"{text}\n".encode())
                await process.stdin.drain()
        except (OSError, anyio.ClosedResourceError, anyio.BrokenResourceError):
            incoming.close()  # the session sees the end instead of waiting forever


class Lines:
    """Splits bytes into lines and decodes each as a message; None if it is too long or not a message."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._head = b""  # of a line that is too long, to find out which call it answers

    @property
    def is_too_long(self) -> bool:
        return self._size > MESSAGE_BYTES_MAX

    def feed(self, chunk: bytes) -> Iterator[types.JSONRPCMessage | None]:
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            self._add(end)
            yield self._take()
        self._add(rest)

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if not self.is_too_long:
            self._pieces.append(piece)
            return
        if not self._head:
            self._head = b"".join(self._pieces)[:300] or piece[:300]
        self._pieces = [piece[-300:]]  # the id may also come last

    def _take(self) -> types.JSONRPCMessage | None:
        line, size, head = b"".join(self._pieces), self._size, self._head
        self._pieces, self._size, self._head = [], 0, b""
        if size > MESSAGE_BYTES_MAX:
            said = f"its answer is larger than {MESSAGE_BYTES_MAX >> 20} MB and was dropped; ask for less"
            return _failed(head, line, TOO_LARGE, said)
        if not line.strip():
            return None
        try:
            return types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except (ValidationError, ValueError):
            return _repaired(line)


def _repaired(line: bytes) -> types.JSONRPCMessage | None:
    """Return a message whose text is not valid Unicode, such as half of an emoji; or an error for the call that a
    malformed message answers, so that it does not wait until its time limit. Many servers also write log lines to
    stdout: these are left out."""
    if b'"jsonrpc"' not in line:
        return None
    try:
        text = json.dumps(json.loads(line.decode("utf-8", "replace")), ensure_ascii=False)
        return types.jsonrpc_message_adapter.validate_json(text.encode("utf-8", "replace"), by_name=False)
    except (ValidationError, ValueError, RecursionError):
        return _failed(line[:300], line, types.INVALID_REQUEST, "it answered with something that is not a result")


def _failed(head: bytes, tail: bytes, code: int, said: str) -> types.JSONRPCMessage | None:
    """Return an error for the call that a message answers; None if the message does not say which."""
    head, tail = head[:200], tail[-200:]
    found = _ID.search(head) or next(reversed(list(_ID.finditer(tail))), None)
    if found is None or b'"method"' in head:
        return None
    text = found[1].decode("ascii", "replace")
    id = text.strip('"') if text.startswith('"') else int(text)
    return types.JSONRPCError(jsonrpc="2.0", id=id, error=types.ErrorData(code=code, message=said))
