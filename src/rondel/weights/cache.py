"""Where the weights are kept on this machine. Looks, and writes nothing."""

from __future__ import annotations

import os
from pathlib import Path

from .table import Weights


def cache_folder() -> Path:
    """Where weights are kept: `models` in $RONDEL_CACHE, or in `rondel` of the user's cache folder (XDG)."""
    if own := os.environ.get("RONDEL_CACHE"):
        return Path(own).expanduser().absolute() / "models"
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(xdg) if os.path.isabs(xdg) else Path.home() / ".cache"
    return base / "rondel" / "models"


def path_of(weights: Weights) -> Path:
    """Where the file is, or would be."""
    return cache_folder() / weights.file


def is_present(weights: Weights) -> bool:
    """The file is there in its full size. Its hash was checked when it came; `pull` checks it again."""
    try:
        return path_of(weights).stat().st_size == weights.size_bytes
    except OSError:
        return False
