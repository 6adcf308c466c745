"""Where `rondel.toml` is looked for, and whose file is trusted."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ..errors import ConfigError

FILE = "rondel.toml"


def home_of(env: Mapping[str, str]) -> Path:
    return Path(env.get("HOME") or os.path.expanduser("~"))


def find_file(folder: Path, env: Mapping[str, str]) -> tuple[Path | None, list[str]]:
    if named := env.get("RONDEL_CONFIG"):
        path = Path(named).absolute()
        if not os.path.isfile(path):
            raise ConfigError(f"RONDEL_CONFIG names {named!r}, which is not a file; correct it, or unset it")
        return path, []
    warnings: list[str] = []
    home = home_of(env)
    for place in (folder, *folder.parents):
        path = place / FILE
        if os.path.isfile(path):  # unlike Path.is_file, a folder that may not be searched has none
            if place == folder or _is_trusted(path):
                return path, warnings
            warnings.append(f"{path} belongs to another user and was passed over; copy it, or set RONDEL_CONFIG to it")
        if place == home:
            break
    xdg = env.get("XDG_CONFIG_HOME", "")
    path = (Path(xdg) if os.path.isabs(xdg) else home / ".config") / "rondel" / FILE
    return path if os.path.isfile(path) else None, warnings


def _is_trusted(path: Path) -> bool:
    """A file in a parent folder can run code, so it must not be one that somebody else put into a shared folder."""
    return not hasattr(os, "geteuid") or path.stat().st_uid in (0, os.geteuid())
