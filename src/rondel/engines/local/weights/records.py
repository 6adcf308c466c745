"""Facts about downloaded models: a small JSON file next to weights for which no catalog has a hash.

The hash is recorded when a model is downloaded. A file that has changed since then is hashed again before it is used.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from ....errors import ConfigError, EngineError, nearest
from ....files.private import write_private
from ....values import Options, Value
from .catalog import CATALOG, EMBEDDERS, Card, ToolFormat, Url, Weights, cache_folder, path_of
from .gguf import read_metadata

RECORD_BYTES_MAX = 100_000
SMALL_BYTES_MAX = 3_000_000_000
"""Files up to this size are treated as small models."""


class Record(Value, frozen=True):
    name: str
    title: str
    file: str
    sha256: str
    size_bytes: int
    mtime_ns: int
    licence: str = ""
    source: str = ""

    @property
    def weights(self) -> Weights:
        """The model as an entry of the catalog."""
        return Weights(
            name=self.name,
            title=self.title,
            description=f"from {self.source}",
            file=self.file,
            sha256=self.sha256,
            size_bytes=self.size_bytes,
            licence=self.licence or "not stated",
            addresses=(Url(self.source),) if "://" in self.source else (),
            card=card_of(self.size_bytes),
            is_own=True,
        )


def card_of(size_bytes: int) -> Card:
    """Return the settings of a model that is only known by its file."""
    return Card(Options(temperature=0.7, top_p=0.9), 1.05, small=size_bytes <= SMALL_BYTES_MAX)


def card_of_file(path: Path) -> Card:
    """Return the settings of a model's file that was never downloaded."""
    return card_of(path.stat().st_size if path.exists() else 0)


def tool_format_of(card: Card, path: Path) -> tuple[ToolFormat, str]:
    """Return how a model calls tools, and why. Raises EngineError if its template cannot do what the card says."""
    if card.tool_format == "examples":
        return "examples", "this model was measured with it"
    if read_metadata(path).has_tools:
        return "native", "its chat template has a format for tools"
    if card.tool_format == "native":
        text = f'the chat template of {path.name!r} has no format for tools; write tool_format = "examples"'
        raise EngineError(text, provider="local")
    return "examples", "its chat template has no format for tools"


def known_file(path: Path) -> Weights | None:
    """Return the model of the catalog, or of the cache folder, that this file is."""
    if (known := next((weights for weights in CATALOG if weights.file == path.name), None)) is not None:
        return known
    record = read_record(path.name) if path.parent == cache_folder() else None
    return record.weights if record is not None else None


def record_path(file: str) -> Path:
    return cache_folder() / f"{file}.json"


def write_record(path: Path, weights: Weights, sha256: str, source: str) -> Record:
    """Record a file that was just downloaded. Raises EngineError if it is not a GGUF file."""
    metadata, stat = read_metadata(path), path.stat()
    made = Record(
        name=weights.name,
        title=weights.title or metadata.name or weights.name,
        file=weights.file,
        sha256=sha256,
        size_bytes=stat.st_size,
        mtime_ns=stat.st_mtime_ns,
        licence=metadata.licence or weights.licence,
        source=source,
    )
    write_private(record_path(weights.file), msgspec.json.format(msgspec.json.encode(made), indent=2).decode() + "\n")
    return made


def read_record(file: str) -> Record | None:
    path = record_path(file)
    try:
        if path.stat().st_size > RECORD_BYTES_MAX:
            return None
        found = msgspec.json.decode(path.read_bytes(), type=Record)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found if found.file == file else None


def records() -> list[Record]:
    """Return the models that were downloaded by an address, a file or a reference, by name."""
    files = sorted(path.name.removesuffix(".json") for path in cache_folder().glob("*.gguf.json"))
    return [record for file in files if (record := read_record(file)) is not None]


def every_model() -> list[Weights]:
    """Return the catalog, with what is recorded of its models, and the others that were downloaded."""
    own = {record.file: record.weights for record in records()}
    known = [_with_record(weights, own.pop(weights.file, None)) for weights in CATALOG]
    return [*known, *own.values()]


def _with_record(weights: Weights, recorded: Weights | None) -> Weights:
    if weights.sha256 or recorded is None:
        return weights
    return msgspec.structs.replace(weights, sha256=recorded.sha256, size_bytes=recorded.size_bytes)


def find(name: str) -> Weights:
    known = {weights.name: weights for weights in (*every_model(), *EMBEDDERS)}
    if name not in known:
        raise ConfigError(f"there is no embedded model {name!r}{nearest(name, tuple(known))}")
    return known[name]


def is_present(weights: Weights) -> bool:
    """Return whether the file is there in its full size. Its hash was checked when it arrived; `pull` checks it
    again."""
    if not weights.sha256:
        recorded = read_record(weights.file)
        return recorded is not None and is_present(recorded.weights)
    try:
        return path_of(weights).stat().st_size == weights.size_bytes
    except OSError:
        return False


def check_unchanged(path: Path) -> None:
    """Raise EngineError if a recorded file is no longer what was downloaded. Hashes it only if it was modified."""
    record = read_record(path.name) if path.parent == cache_folder() else None
    if record is None:
        return
    stat = path.stat()
    if (stat.st_size, stat.st_mtime_ns) == (record.size_bytes, record.mtime_ns):
        return
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != record.sha256:
        raise EngineError(
            f"the file of the model {record.name!r} has changed since it was downloaded (sha256 {found} instead of "
            f"{record.sha256}); remove it with `rondel model remove {record.name}` and download it again",
            provider="local",
            model=record.name,
        )
    changed = msgspec.structs.replace(record, mtime_ns=stat.st_mtime_ns)
    write_private(record_path(record.file), msgspec.json.encode(changed).decode())
