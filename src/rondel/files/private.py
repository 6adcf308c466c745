"""Creates files and folders that no other user can read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ..errors import ConfigError


def state_folder() -> Path:
    """Return `rondel` in the user's state folder: for history, logs, logins and the list of trusted folders."""
    xdg = os.environ.get("XDG_STATE_HOME", "")
    return (Path(xdg) if os.path.isabs(xdg) else home_folder() / ".local" / "state") / "rondel"


def home_folder() -> Path:
    """Return the user's home folder. Raises ConfigError if there is none, as for some users of services."""
    try:
        return Path.home()
    except RuntimeError:
        raise ConfigError("this user has no home folder: set HOME to a folder that the user may write to") from None


def private_folder(path: Path) -> None:
    """Create a folder and its missing parents for this user only. Existing folders stay unchanged."""
    missing: list[Path] = []
    while not path.exists():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)


def write_private(path: Path, text: str) -> None:
    """Write a text to a file that only this user can read, even if others could read the file before."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0), 0o600)
    with os.fdopen(file, "w", encoding="utf-8", errors="replace") as opened:
        if stat.S_ISREG(os.fstat(file).st_mode) and hasattr(os, "fchmod"):  # not a device, such as /dev/stdout
            os.fchmod(file, 0o600)
        opened.write(text)


def save_new(folder: Path, name: str, text: str) -> Path:
    """Write a text to a new file that only this user can read: `name`, or `name-2` and so on if that exists."""
    wanted = Path(name)
    for number in range(1, 1_000):
        path = folder / (name if number == 1 else f"{wanted.stem}-{number}{wanted.suffix}")
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
        except FileExistsError:
            continue
        with os.fdopen(file, "w", encoding="utf-8", errors="replace") as opened:
            opened.write(text)
        return path
    raise FileExistsError(f"{name} already exists, and so do 998 more")
