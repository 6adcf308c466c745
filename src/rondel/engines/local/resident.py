"""The background process that keeps a model loaded between commands: `python -m rondel.engines.local.resident`.

One for each user and cache folder: the lock is the system's, so a process that was killed blocks nothing. It listens on
a socket that only this user can open, holds one model, and ends after a while without use. `background` is its client.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import IO

import msgspec

from ...contracts.dialect import Json
from ...errors import EngineError
from ...files.lock import try_lock
from .frames import FrameError, FrameKind, Hello, Status, read_frame, version, write_frame
from .llama import ModelSettings
from .model import SharedModel, acquire, release
from .request import ModelRequest

LOCK_S = 5.0  # how long to wait for a process that is about to end
GREETING_S = 10.0


class Resident:
    def __init__(self, folder: Path) -> None:
        self._socket = folder / "model.sock"
        self._model: SharedModel | None = None
        self._users = 0  # requests on the model
        self._clients = 0  # connections, including those that only keep it alive
        self._changed = asyncio.Condition()
        self._keep_s, self._used_at, self._started = 60.0, time.monotonic(), time.time()
        self._stopping = False
        self._requests = set[ModelRequest]()

    async def run(self) -> None:
        """Serve until `keep_s` seconds pass without a request, or a client says stop."""
        server = await asyncio.start_unix_server(self._connected, sock=self._listen())
        try:
            async with server:
                while not self._stopping and (left_s := self._keep_s if self._clients else self._left_s()) > 0:
                    async with self._changed:
                        with contextlib.suppress(TimeoutError):
                            await asyncio.wait_for(self._changed.wait(), left_s)
        finally:
            self._socket.unlink(missing_ok=True)  # before the lock is released: another process may then bind it
            for request in self._requests:
                request.stop()

    def _listen(self) -> socket.socket:
        self._socket.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)
        try:
            listening.bind(str(self._socket))
        finally:
            os.umask(before)
        listening.listen(64)
        return listening

    def _left_s(self) -> float:
        """Return how long this process will still wait for a request."""
        return self._keep_s - (time.monotonic() - self._used_at)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients += 1
        try:
            async with asyncio.timeout(GREETING_S):
                kind, payload = await read_frame(reader)
            if kind is not FrameKind.HELLO:
                return
            hello = msgspec.json.decode(payload, type=Hello)
            if hello.version != version() and hello.do != "stop":
                await write_frame(writer, FrameKind.OTHER_VERSION, version().encode())
                self._stopping = self._stopping or not self._users
            else:
                await self._serve(hello, reader, writer)
        except (FrameError, OSError, TimeoutError, msgspec.DecodeError):
            pass  # the client left, or is not one of ours
        finally:
            self._clients -= 1
            self._used_at = time.monotonic()
            writer.close()
            async with self._changed:
                self._changed.notify_all()

    async def _serve(self, hello: Hello, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if hello.do == "status":
            await write_frame(writer, FrameKind.STATUS, msgspec.json.encode(self._status()))
        elif hello.do == "stop":
            self._stopping = True
            await write_frame(writer, FrameKind.END, b"")
        elif hello.do == "keep":
            self._keep_s = hello.keep_s
            await write_frame(writer, FrameKind.END, b"")
            await reader.read(1)  # until the client closes it
        else:
            self._keep_s = hello.keep_s
            await self._ask(hello, reader, writer)

    async def _ask(self, hello: Hello, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = ModelRequest(hello.body, hello.schema)
        self._requests.add(request)
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._stop_with_client(request, reader))
                await self._answer(request, ModelSettings(*hello.settings), writer)
                watching.cancel()
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        finally:
            request.stop()
            self._requests.discard(request)

    async def _answer(self, request: ModelRequest, settings: ModelSettings, writer: asyncio.StreamWriter) -> None:
        try:
            async with self._using(settings) as model:
                model.submit(lambda: request.answer(model))
                async for chunk in request.raw_chunks():
                    await write_frame(writer, FrameKind.CHUNK, chunk)
        except EngineError as error:
            failure: Json = {"kind": type(error).__name__, "text": str(error)}
            await write_frame(writer, FrameKind.FAILED, msgspec.json.encode(failure))
        else:
            await write_frame(writer, FrameKind.END, b"")

    async def _stop_with_client(self, request: ModelRequest, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            await reader.read(1)  # it sends nothing more, so this returns at its end
        request.stop()

    @contextlib.asynccontextmanager
    async def _using(self, settings: ModelSettings) -> AsyncGenerator[SharedModel]:
        """Provide the model with these settings. Another one is freed first, when its requests have ended."""
        async with self._changed:
            while self._model is not None and self._model.settings != settings and self._users:
                await self._changed.wait()
            self._users += 1
            model = self._model
            if model is None or model.settings != settings:
                if model is not None and release(model):
                    await model.run(model.free)
                model = self._model = acquire(settings)
        try:
            yield model
        finally:
            self._users -= 1
            async with self._changed:
                self._changed.notify_all()

    def _status(self) -> Status:
        model = self._model
        loaded = model is not None and model.is_loaded
        return Status(
            pid=os.getpid(),
            model=model.settings.path if model is not None and loaded else "",
            context_tokens=model.settings.context_tokens if model is not None else 0,
            threads=model.settings.threads if model is not None else 0,
            requests=self._users,
            memory_bytes=_memory_bytes(),
            started=self._started,
            ends_in_s=None if self._clients > 1 else max(0.0, self._left_s()),
        )


def _memory_bytes() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def main() -> None:
    folder = Path(sys.argv[1])
    if os.fork():  # the starter waits for this process only, and leaves no zombie behind
        os._exit(0)
    os.setsid()
    os.chdir("/")
    with (folder / "model.lock").open("a") as lock:
        if _locked(lock):
            asyncio.run(Resident(folder).run())
            sys.stdout.flush()
            os._exit(0)  # without waiting for a model that is in the middle of a batch


def _locked(lock: IO[str]) -> bool:
    until = time.monotonic() + LOCK_S
    while not try_lock(lock.fileno()):
        if time.monotonic() > until:
            return False  # another process serves
        time.sleep(0.05)
    return True


if __name__ == "__main__":
    main()
