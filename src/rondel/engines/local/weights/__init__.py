"""The weights of the embedded models: a small catalog, any other GGUF file, and the download into the cache folder.

Bytes are appended to `FILE.part`, so an interrupted download continues, also from another address; the hash decides.
"""

from .catalog import (
    CATALOG,
    DEFAULT,
    EMBEDDERS,
    RECOMMENDED,
    Card,
    Piece,
    ToolFormat,
    Url,
    Weights,
    Wheels,
    cache_folder,
    path_of,
)
from .pull import Progress, downloaded_bytes, pull
from .records import (
    card_of_file,
    check_unchanged,
    every_model,
    find,
    is_present,
    known_file,
    read_record,
    tool_format_of,
)

__all__ = [
    "CATALOG",
    "DEFAULT",
    "EMBEDDERS",
    "RECOMMENDED",
    "Card",
    "Piece",
    "Progress",
    "ToolFormat",
    "Url",
    "Weights",
    "Wheels",
    "cache_folder",
    "card_of_file",
    "check_unchanged",
    "downloaded_bytes",
    "every_model",
    "find",
    "is_present",
    "known_file",
    "path_of",
    "pull",
    "read_record",
    "tool_format_of",
]
