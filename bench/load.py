"""Load on an HTTP server: raw requests over kept connections, answers read to their end. Its own CPU is not counted."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

WAIT_S = 60.0


class Process:
    """A program in a process of its own. It says at which address it listens."""

    def __init__(self, *command: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", **(env or {})},  # compiled once, as what is installed is
        )
        self.pid = self._process.pid
        self.url = self._address()
        self.port = int(self.url.rpartition(":")[2])

    def _address(self) -> str:
        assert self._process.stdout is not None
        said = list[bytes]()
        for line in self._process.stdout:
            said.append(line)
            if found := re.search(rb"http://[\d.]+:\d+", line):
                return found[0].decode()
        self.close()
        raise RuntimeError(f"a process did not start: {b''.join(said).decode()}")

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._process.kill()
        with self._process:  # which closes its pipes
            self._process.wait(WAIT_S)

    @property
    def cpu_s(self) -> float:
        """Seconds of CPU of all its threads so far, to the nanosecond."""
        tasks = Path(f"/proc/{self.pid}/task")
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9

    @property
    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    @property
    def memory_bytes(self) -> int:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def python(*arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> Process:
    return Process(sys.executable, *arguments, cwd=cwd, env=env)


def request(path: str, body: dict[str, Any], **headers: str) -> bytes:
    data = json.dumps(body, separators=(",", ":")).encode()
    lines = [
        f"POST {path} HTTP/1.1",
        "host: 127.0.0.1",
        "content-type: application/json",
        "accept: application/json",
        "user-agent: bench/1.0",
        "authorization: Bearer bench",
        f"content-length: {len(data)}",
        *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


class Caller(asyncio.Protocol):
    """One connection, one request at a time."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self._done: asyncio.Future[None] | None = None
        self._begun: asyncio.Future[None] | None = None
        self._answer = bytearray()
        self._whole = 0

    async def ask(self, data: bytes) -> bytes:
        """The whole answer, head and all."""
        self._answer.clear()
        self._whole = 0
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(data)
        async with asyncio.timeout(WAIT_S):
            await self._done
        return bytes(self._answer)

    async def begin(self, data: bytes) -> None:
        """Ask, and wait for the beginning of the answer only."""
        self._answer.clear()
        self._begun = asyncio.get_running_loop().create_future()
        self._transport.write(data)
        async with asyncio.timeout(WAIT_S):
            await self._begun

    def leave(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        answer += data
        if self._begun is not None and not self._begun.done():
            self._begun.set_result(None)
        if self._done is None or self._done.done():
            return
        if not self._whole and (end := answer.find(b"\r\n\r\n") + 4) > 3:
            head = bytes(answer[:end]).lower()
            if not head.startswith(b"http/1.1 200"):
                self._done.set_exception(RuntimeError(bytes(answer).decode("utf-8", "replace")))
                return
            _, found, length = head.partition(b"\r\ncontent-length: ")
            self._whole = end + int(length.partition(b"\r\n")[0]) if found else -1
        if answer.endswith(b"\r\n0\r\n\r\n") if self._whole < 0 else len(answer) >= self._whole > 0:
            self._done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        for waiting in (self._done, self._begun):
            if waiting is not None and not waiting.done():
                waiting.set_exception(ConnectionError("the server closed the connection"))


async def connect(port: int, count: int) -> list[Caller]:
    loop = asyncio.get_running_loop()
    return [(await loop.create_connection(Caller, "127.0.0.1", port))[1] for _ in range(count)]


async def ask_all(callers: Sequence[Caller], asked: bytes, times: int) -> None:
    """Send the request so many times in all, every caller at once."""

    async def ask(caller: Caller) -> None:
        for _ in range(times // len(callers)):
            await caller.ask(asked)

    async with asyncio.TaskGroup() as group:
        for caller in callers:
            group.create_task(ask(caller))
