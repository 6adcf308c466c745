"""Finds `rondel.toml`, and decides whose file is trusted."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ...errors import ConfigError

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
    for candidate in (folder, *folder.parents):
        path = candidate / FILE
        if os.path.isfile(path):  # unlike Path.is_file, does not raise in a folder without permission
            if candidate == folder or _is_trusted(path):
                return path, warnings
            warnings.append(f"{path} belongs to another user and was skipped; copy it, or set RONDEL_CONFIG to it")
        if candidate == home:
            break
    path = own_file(env)
    return path if os.path.isfile(path) else None, warnings


def own_file(env: Mapping[str, str]) -> Path:
    """Return the user's own file, which applies outside of projects."""
    xdg = env.get("XDG_CONFIG_HOME", "")
    return (Path(xdg) if os.path.isabs(xdg) else home_of(env) / ".config") / "rondel" / FILE


def _is_trusted(path: Path) -> bool:
    # A file in a parent folder can run code, so it must not be one that another user put into a shared folder.
    return not hasattr(os, "geteuid") or path.stat().st_uid in (0, os.geteuid())
