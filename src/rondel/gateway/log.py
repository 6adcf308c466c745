"""The gateway's log: a line of JSON for each request, in files of their own, and how they are read again.

No content and no secrets: neither prompts nor answers nor keys. Files have a size and a number that they do not pass.
Lines are written many at once and by a thread, so that no request waits for the disk; a disk that is full costs lines
and no answers. Several programs may write: each line goes to the end of the file in one piece. Knows no network.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import stat
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

import msgspec

from ..clock import Clock
from ..errors import RondelError, nearest
from ..plugins.log import HIDDEN, mask
from .record import Record

log = logging.getLogger("rondel.gateway")

NAME, SUFFIX = "gateway", ".jsonl"
BYTES_MAX = 10_000_000
FILES_MAX = 5
FLUSH_S = 0.2
"""How long a line may wait for others to be written with."""
LINES_MAX = 10_000
"""So many lines may wait for a slow disk; more are counted and dropped."""
TEXT_MAX = 300
"""Of a text that a caller or a provider wrote, no more is kept."""
TEXTS_MAX = 1_024
"""Callers ask for few models, and their sessions go on: so many texts need not be looked at again."""

_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}")
_NOT_THROUGH_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)


class LogLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is kept of a request, or of a moment in the gateway's life: `started`, `stopped`, `changed`, `refused`."""

    at: datetime
    event: str
    id: str = ""
    status: int = 0
    outcome: str = ""
    key: str = ""
    asked: str = ""
    engine: str = ""
    model: str = ""
    rule: str = ""
    why: str = ""
    attempts: int = 0
    rounds: int = 0
    dialect: str = ""
    streams: bool = False
    relayed: bool = False
    agents: tuple[str, ...] = ()
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    tokens_reasoning: int = 0
    cost_nanousd: int | None = None
    first_token_s: float | None = None
    tokens_per_s: float | None = None
    seconds: float = 0.0
    session: str = ""
    project: str = ""
    error: str = ""
    warnings: tuple[str, ...] = ()
    said: str = ""
    """What the gateway said of itself."""


def line_of(record: Record, keep: Callable[[str], str] = str) -> LogLine:
    """A request as a line; it may still be under way. `keep` says what is kept of a text that others wrote."""
    usage = record.usage
    return LogLine(  # in the order of the fields: so many keywords cost more than all the rest of a line
        datetime.fromtimestamp(record.at, UTC),
        "request",
        record.id,
        record.status,
        record.outcome,
        record.key,
        keep(record.asked),
        record.engine,
        record.model,
        record.rule,
        record.why,
        record.attempts,
        record.rounds,
        record.dialect,
        record.streams,
        record.relayed,
        record.agents,
        usage.tokens_in,
        usage.tokens_out,
        usage.tokens_cached,
        usage.tokens_reasoning,
        record.cost_nanousd,
        _rounded(record.first_token_s),
        _rounded(record.tokens_per_s),
        round(record.seconds, 4),
        keep(record.session),
        keep(record.project),
        keep(record.error),
        tuple(map(keep, record.warnings)),
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 4)


# --- writing ----------------------------------------------------------------------------------------------------------


class RequestLog:
    """`async with RequestLog(folder, clock) as log:` writes what it is told until then. `secrets` are never written."""

    def __init__(self, folder: Path, clock: Clock, *, bytes_max: int = BYTES_MAX, files_max: int = FILES_MAX) -> None:
        self.folder, self._clock = folder, clock
        self._bytes_max, self._files_max = bytes_max, files_max
        self.secrets = ()
        self._lines: list[Record | LogLine] = []
        self._dropped = 0
        self._waiting = asyncio.Event()
        self._writing = threading.Lock()
        self._file = -1
        self._has_failed = False
        self._life = contextlib.AsyncExitStack()

    async def __aenter__(self) -> RequestLog:
        async with contextlib.AsyncExitStack() as life:
            life.callback(self._close)
            group = await life.enter_async_context(asyncio.TaskGroup())
            life.callback(group.create_task(self._run()).cancel)
            self._life = life.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._life.aclose()

    @property
    def secrets(self) -> tuple[str, ...]:
        return self._secrets

    @secrets.setter
    def secrets(self, secrets: tuple[str, ...]) -> None:
        self._secrets, self._keep = secrets, _keeping(secrets)

    def ended(self, record: Record) -> None:
        """For `Records.watch`: requests that have ended are written."""
        if record.outcome != "open":
            self._add(record)

    def say(self, event: str, text: str) -> None:
        """Something that is no request: that the gateway started, that its configuration changed."""
        self._add(self._said(event, text))

    def _said(self, event: str, text: str) -> LogLine:
        return LogLine(datetime.fromtimestamp(self._clock.now(), UTC), event, said=self._keep(text))

    def _add(self, line: Record | LogLine) -> None:
        if len(self._lines) >= LINES_MAX:
            self._dropped += 1
        else:
            self._lines.append(line)
            self._waiting.set()

    async def _run(self) -> None:
        while True:
            await self._waiting.wait()
            await self._clock.sleep_until(self._clock.now() + FLUSH_S)
            self._waiting.clear()
            await asyncio.to_thread(self._put, self._taken())

    def _taken(self) -> list[Record | LogLine]:
        """What waits to be written."""
        lines, self._lines = self._lines, []
        if self._dropped:
            lines.append(self._said("dropped", f"{self._dropped} lines were dropped, because the disk was too slow"))
            self._dropped = 0
        return lines

    def _written(self, lines: list[Record | LogLine]) -> bytes:
        """All of them as they are written. A request that has ended does not change, and waits for this as it is: its
        caller had its answer long before."""
        keep = self._keep
        return _ENCODER.encode_lines([line_of(line, keep) if isinstance(line, Record) else line for line in lines])

    def _close(self) -> None:
        self._put(self._taken())
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _put(self, lines: list[Record | LogLine]) -> None:
        if not lines:
            return
        data = self._written(lines)
        with self._writing:
            try:
                self._open()
                if (size := os.fstat(self._file).st_size) and size + len(data) > self._bytes_max:
                    self._rotate()
                    self._open()
                left = memoryview(data)
                while left:
                    left = left[os.write(self._file, left) :]
                self._has_failed = False
            except OSError as error:
                if not self._has_failed:  # said once: what cannot be written now cannot be written a second later
                    log.warning("the log in %s cannot be written: %s", self.folder, error.strerror or error)
                self._has_failed = True

    @property
    def _path(self) -> Path:
        return self.folder / f"{NAME}{SUFFIX}"

    def _open(self) -> None:
        """Have the newest file open; another program may have put it aside."""
        if self._file >= 0:
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(self._file), os.lstat(self._path)):
                    return
            os.close(self._file)
            self._file = -1
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _NOT_THROUGH_LINKS, 0o600)

    def _rotate(self) -> None:
        """Put the full file aside under the time, and remove the oldest of those."""
        stamp = datetime.fromtimestamp(self._clock.now(), UTC).strftime("%Y%m%d-%H%M%S")
        names = (f"{NAME}-{stamp}-{number:03}{SUFFIX}" for number in range(1_000))
        aside = next(path for name in names if not os.path.lexists(path := self.folder / name))
        os.rename(self._path, aside)
        old = sorted(self.folder.glob(f"{NAME}-*{SUFFIX}"))
        for path in old[: max(0, len(old) - (self._files_max - 1))]:
            with contextlib.suppress(FileNotFoundError):  # another program removed it
                path.unlink()


def _keeping(secrets: tuple[str, ...]) -> Callable[[str], str]:
    """What gives of a text that others wrote what may be kept."""

    def masked(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, HIDDEN)
        return mask(text)

    remembered = lru_cache(TEXTS_MAX)(masked)

    def keep(text: str) -> str:
        if not text:
            return text
        text = remembered(text) if len(text) <= TEXT_MAX else masked(text)
        return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"

    return keep


# --- reading ----------------------------------------------------------------------------------------------------------


def log_names(folder: Path) -> list[str]:
    """The logs in a folder, newest last: regular files, and no links."""
    try:
        with os.scandir(folder) as found:
            return sorted(
                entry.name.removesuffix(SUFFIX)
                for entry in found
                if entry.name.endswith(SUFFIX) and entry.is_file(follow_symlinks=False)
            )
    except (FileNotFoundError, NotADirectoryError):
        return []


def open_log(folder: Path, name: str) -> BinaryIO:
    """A log by its name. Only files in this folder are ever opened: a name is no path, and a link leads nowhere."""
    stem = name.removesuffix(SUFFIX)
    if not _FILE.fullmatch(stem):
        raise RondelError(f"{name!r} is no log's name; `rondel logs` shows the newest{_listed(folder, stem)}")
    try:
        where = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        try:
            file = os.open(f"{stem}{SUFFIX}", os.O_RDONLY | _NOT_THROUGH_LINKS, dir_fd=where)
        finally:
            os.close(where)
    except OSError:
        raise RondelError(f"there is no log {stem!r}{_listed(folder, stem)}") from None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise RondelError(f"{stem!r} is no file; it was not opened")
    return os.fdopen(file, "rb")


def _listed(folder: Path, wanted: str) -> str:
    names = log_names(folder)
    return nearest(wanted, names) if names else "; none is there yet"


def read_line(data: bytes) -> LogLine | None:
    """A line as it was written; None for what is none of ours."""
    try:
        return _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def secrets_of(values: Iterable[str]) -> tuple[str, ...]:
    """What must never be written, longest first, so that no part of one is left over."""
    return tuple(sorted({value for value in values if len(value) >= 4}, key=len, reverse=True))


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(LogLine)
