"""The gateway's request log: one line of JSON for each request, in rotated files.

It contains no prompts, no answers and no keys. A thread writes lines in batches, so that no request waits for the disk;
a full disk loses lines, not answers. Several processes may write: each batch is appended with one call.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import stat
import threading
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

import msgspec

from ...contracts.clock import Clock
from ...errors import RondelError, nearest
from ...files.private import private_folder
from ...text.masking import mask
from ...text.redaction import Redactor
from ..relay.record import Record

log = logging.getLogger("rondel.gateway")

NAME, SUFFIX = "gateway", ".jsonl"
BYTES_MAX = 10_000_000
FILES_MAX = 5
FLUSH_S = 0.2  # how long a line may wait to be written with others
LINES_MAX = 10_000  # how many lines may wait for a slow disk; more are counted and dropped
TEXT_MAX = 300  # texts from callers and providers are cut to this length
TEXTS_MAX = 1_024  # how many redacted texts are cached: names of models and sessions repeat

_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}")
_NOT_THROUGH_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)


class LogLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request, or an event of the gateway itself: `started`, `stopped`, `changed`, `refused`."""

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
    dropped: tuple[str, ...] = ()
    said: str = ""  # the text of an event of the gateway itself


def line_of(record: Record, keep: Callable[[str], str] = str) -> LogLine:
    """A request as a line; it may still be under way. `keep` redacts and shortens texts that others wrote."""
    usage, first_s, speed = record.usage, record.first_token_s, record.tokens_per_s
    return LogLine(
        at=datetime.fromtimestamp(record.at, UTC),
        event="request",
        id=record.id,
        status=record.status,
        outcome=record.outcome,
        key=record.key,
        asked=keep(record.asked),
        engine=keep(record.engine),
        model=keep(record.model),
        rule=record.rule,
        why=keep(record.why),
        attempts=record.attempts,
        rounds=record.rounds,
        dialect=record.dialect,
        streams=record.streams,
        relayed=record.relayed,
        agents=record.agents,
        tokens_in=usage.tokens_in,
        tokens_out=usage.tokens_out,
        tokens_cached=usage.tokens_cached,
        tokens_reasoning=usage.tokens_reasoning,
        cost_nanousd=record.cost_nanousd,
        first_token_s=None if first_s is None else round(first_s, 4),
        tokens_per_s=None if speed is None else round(speed, 4),
        seconds=round(record.seconds, 4),
        session=keep(record.session),
        project=keep(record.project),
        error=keep(record.error),
        warnings=tuple(map(keep, record.warnings)),
        dropped=record.dropped,
    )


# --- writing ----------------------------------------------------------------------------------------------------------


class RequestLog:
    """`async with RequestLog(folder, clock) as log:` writes what was logged by the time that it closes."""

    def __init__(self, folder: Path, clock: Clock, *, bytes_max: int = BYTES_MAX, files_max: int = FILES_MAX) -> None:
        self.folder, self._clock = folder, clock
        self._bytes_max, self._files_max = bytes_max, files_max
        self.redactor = Redactor()
        self._lines: deque[Record | LogLine] = deque()
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
    def redactor(self) -> Redactor:
        return self._redactor

    @redactor.setter
    def redactor(self, redactor: Redactor) -> None:
        self._redactor, self._keep = redactor, _keeping(redactor)

    def ended(self, record: Record) -> None:
        if record.outcome != "open":
            self._add(record)

    def say(self, event: str, text: str) -> None:
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
            await asyncio.to_thread(self._put)

    def _taken(self) -> list[Record | LogLine]:
        lines = [self._lines.popleft() for _ in range(len(self._lines))]
        if self._dropped:
            lines.append(self._said("dropped", f"{self._dropped} lines were dropped, because the disk was too slow"))
            self._dropped = 0
        return lines

    def _written(self, lines: list[Record | LogLine]) -> bytes:
        """Encode the lines. Records are encoded only here, in the thread: they do not change after their end."""
        keep = self._keep
        return _ENCODER.encode_lines([line_of(line, keep) if isinstance(line, Record) else line for line in lines])

    def _close(self) -> None:
        self._put()
        with self._writing:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def _put(self) -> None:
        """Write the lines that wait. They are taken here and not before: a thread that is cancelled before it starts
        leaves them to `_close`."""
        with self._writing:
            if not (lines := self._taken()):
                return
            data = self._written(lines)
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
                if not self._has_failed:  # logged once, not every second
                    log.warning("the log in %s cannot be written: %s", self.folder, error.strerror or error)
                self._has_failed = True

    @property
    def _path(self) -> Path:
        return self.folder / f"{NAME}{SUFFIX}"

    def _open(self) -> None:
        """Open the newest file, again if another process has rotated it."""
        if self._file >= 0:
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(self._file), os.lstat(self._path)):
                    return
            os.close(self._file)
            self._file = -1
        private_folder(self.folder)
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _NOT_THROUGH_LINKS, 0o600)

    def _rotate(self) -> None:
        """Rename the full file to its time, and remove the oldest files."""
        stamp = datetime.fromtimestamp(self._clock.now(), UTC).strftime("%Y%m%d-%H%M%S")
        names = (f"{NAME}-{stamp}-{number:03}{SUFFIX}" for number in range(1_000))
        aside = next(path for name in names if not os.path.lexists(path := self.folder / name))
        os.rename(self._path, aside)
        old = sorted(self.folder.glob(f"{NAME}-*{SUFFIX}"))
        for path in old[: max(0, len(old) - (self._files_max - 1))]:
            with contextlib.suppress(FileNotFoundError):  # another program removed it
                path.unlink()


def _keeping(redactor: Redactor) -> Callable[[str], str]:
    """Return a function that redacts and shortens a text."""

    def masked(text: str) -> str:
        return mask(redactor.text(text))

    remembered = lru_cache(TEXTS_MAX)(masked)

    def keep(text: str) -> str:
        if not text:
            return text
        text = remembered(text) if len(text) <= TEXT_MAX else masked(text)
        return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"

    return keep


# --- reading ----------------------------------------------------------------------------------------------------------


def log_names(folder: Path) -> list[str]:
    """The names of the logs in a folder, newest last. Links are left out."""
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
    """Open a log by name. Only regular files in this folder are opened: names with a path and links are refused."""
    stem = name.removesuffix(SUFFIX)
    if not _FILE.fullmatch(stem):
        raise RondelError(f"{name!r} is not the name of a log; `rondel logs` shows the newest{_listed(folder, stem)}")
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
        raise RondelError(f"{stem!r} is not a regular file")
    return os.fdopen(file, "rb")


def _listed(folder: Path, wanted: str) -> str:
    names = log_names(folder)
    return nearest(wanted, names) if names else "; there are no logs yet"


def read_line(data: bytes) -> LogLine | None:
    try:
        return _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(LogLine)
