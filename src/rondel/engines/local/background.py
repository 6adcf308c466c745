"""Asks the background process that keeps a model loaded, and starts it if it is not running."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import msgspec

from ...calling.threads import in_thread
from ...contracts.dialect import Json
from ...errors import EngineError, PromptRejected
from ...files.private import private_folder
from .frames import FrameError, FrameKind, Hello, Status, read_frame, version, write_frame
from .llama import ModelSettings
from .weights import cache_folder

START_S = 10.0
POLL_S = 0.02
SOCKET_PATH_BYTES_MAX = 100


class Unavailable(Exception):
    """No background process runs or can be started: the model is loaded in this process instead."""


class ProcessEnded(EngineError):
    """The background process ended before its answer did."""


class _Failure(msgspec.Struct):
    kind: str
    text: str


class BackgroundRequest:
    """A request to the background process; like `ModelRequest`, which asks in this process."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def stop(self) -> None:
        """Stop the answer: the other side sees the end of the connection and stops the model."""
        self._writer.close()

    async def chunks(self) -> AsyncIterator[Json]:
        while True:
            try:
                kind, payload = await read_frame(self._reader)
            except FrameError as error:
                text = "the background process of the model ended in the middle of an answer; ask again"
                raise ProcessEnded(text, provider="local") from error
            if kind is FrameKind.END:
                return
            if kind is FrameKind.FAILED:
                failure = msgspec.json.decode(payload, type=_Failure)
                kind = PromptRejected if failure.kind == "PromptRejected" else EngineError
                raise kind(failure.text, provider="local")
            yield msgspec.json.decode(payload)


class Background:
    """The background process as an engine uses it: kept while the engine is open."""

    def __init__(self, settings: ModelSettings, keep_s: float) -> None:
        self._settings, self._keep_s = settings, keep_s
        self._kept: asyncio.StreamWriter | None = None

    async def ask(self, body: Json, schema: Json | None) -> BackgroundRequest:
        """Send a request. Raises Unavailable if that cannot be done here."""
        if self._kept is None or self._kept.is_closing():
            await self._keep()
        settings = (self._settings.path, self._settings.context_tokens, self._settings.threads)
        try:
            hello = Hello(version(), "ask", self._keep_s, settings, body, schema)
            return BackgroundRequest(*await _say(hello))
        except (OSError, FrameError) as error:
            self.close()
            raise Unavailable(str(error)) from error

    async def _keep(self) -> None:
        """Open a connection that keeps the process from ending, and start it if necessary."""
        hello, started = Hello(version(), "keep", self._keep_s), False
        try:
            async with asyncio.timeout(START_S):
                while True:
                    with contextlib.suppress(OSError, FrameError):
                        reader, writer = await _say(hello)
                        kind, _ = await read_frame(reader)
                        if kind is FrameKind.END:
                            self._kept = writer
                            return
                        writer.close()  # of another version: it ends when its requests have ended
                        started = False
                    if not started:
                        await in_thread(_start)
                        started = True
                    await asyncio.sleep(POLL_S)
        except (OSError, TimeoutError) as error:
            raise Unavailable(str(error) or f"it did not start within {START_S:g} s") from error

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None


async def status() -> Status | None:
    """Return what the background process does; None if there is none."""
    async with _asked("status") as answer:
        return msgspec.json.decode(answer[1], type=Status) if answer and answer[0] is FrameKind.STATUS else None


async def stop() -> bool:
    """End the background process, whatever its version. False if there is none."""
    async with _asked("stop") as answer:
        return answer is not None


@contextlib.asynccontextmanager
async def _asked(do: str) -> AsyncGenerator[tuple[FrameKind, bytes] | None]:
    try:
        async with asyncio.timeout(START_S):
            reader, writer = await _say(msgspec.convert({"version": version(), "do": do}, Hello))
            try:
                answer = await read_frame(reader)
            finally:
                writer.close()
    except (OSError, FrameError, TimeoutError):
        answer = None
    yield answer


def folder() -> Path:
    return cache_folder().parent / "run"


def is_supported() -> bool:
    """Return whether this system can keep a model in the background: it needs sockets with a path, and a path that
    fits."""
    return sys.platform != "win32" and len(os.fsencode(folder() / "model.sock")) <= SOCKET_PATH_BYTES_MAX


async def _say(hello: Hello) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_unix_connection(str(folder() / "model.sock"))
    try:
        await write_frame(writer, FrameKind.HELLO, msgspec.json.encode(hello))
    except BaseException:
        writer.close()
        raise
    return reader, writer


def _start() -> None:
    """Start the background process. It outlives this process. Raises OSError if it cannot be started."""
    path = folder()
    private_folder(path)
    if path.stat().st_uid != os.getuid() or path.stat().st_mode & 0o077:
        raise PermissionError(f"the folder {str(path)!r} is not private")
    # -P: nothing is imported from the current folder.
    command = [sys.executable, "-P", "-m", "rondel.engines.local.resident", str(path)]
    null, log = (os.devnull, os.O_RDWR, 0), (str(path / "model.log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    actions = [(os.POSIX_SPAWN_OPEN, number, *file) for number, file in enumerate((null, null, log))]
    pid = os.posix_spawn(sys.executable, command, os.environ, file_actions=actions)
    _, code = os.waitpid(pid, 0)  # it forks and ends as soon as it is imported
    if code:
        raise OSError(f"the background process could not be started; {path / 'model.log'} says why")
