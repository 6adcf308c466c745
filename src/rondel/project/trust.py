"""Which project folders the user trusts, by resolved path and owner.

A project can run Python and choose the addresses that keys are sent to. Until its folder is trusted, its path is an
`UntrustedFolder`: lookup.py imports nothing for it and engines.py makes no engine for it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ..errors import ConfigError, NotTrusted
from ..files import private
from ..files.private import private_folder
from ..files.regular import read_regular

VARIABLE = "RONDEL_TRUST"
RECORD_BYTES_MAX = 20_000


class UntrustedFolder(str):
    wanted: dict[str, None]  # what would be imported from it, in the order of requests

    def __new__(cls, path: str) -> UntrustedFolder:
        made = super().__new__(cls, path)
        made.wanted = {}
        return made

    def refusal(self) -> NotTrusted:
        return NotTrusted(f"the project in {str(self)!r} is not trusted; review its files, then run `rondel trust`")


class Record(msgspec.Struct, frozen=True):
    folder: str
    owner: int = -1


class TrustList:
    """The trusted folders, each in a file of its own, so that several processes can add to it."""

    def __init__(self, state: Path, env: Mapping[str, str]) -> None:
        self._folder = state / "trusted"
        self._given = _given(env)

    def trusts(self, folder: Path) -> bool:
        path = Path(os.path.realpath(folder))
        if any(path.is_relative_to(given) for given in self._given):
            return True
        record = self._read(self._file(path))
        return record is not None and record == Record(str(path), _owner(path))

    def add(self, folder: Path) -> Path:
        """Trust this folder, and return its resolved path."""
        path = Path(os.path.realpath(folder))
        file, draft = self._file(path), self._folder / f".{os.getpid()}"
        try:
            private_folder(self._folder)
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as writer:
                writer.write(msgspec.json.encode(Record(str(path), _owner(path))))
            draft.replace(file)
        except OSError as error:
            raise ConfigError(
                f"{str(file)!r} cannot be written, so the project stays untrusted: {error.strerror}; "
                f"fix that, or set {VARIABLE}"
            ) from None
        return path

    def remove(self, folder: Path) -> bool:
        """Stop trusting this folder. Return False if it was not in the list."""
        try:
            self._file(Path(os.path.realpath(folder))).unlink()
        except FileNotFoundError:
            return False
        return True

    def folders(self) -> list[str]:
        files = self._folder.glob("*.json") if self._folder.is_dir() else ()
        return sorted(record.folder for file in files if (record := self._read(file)) is not None)

    def _file(self, path: Path) -> Path:
        return self._folder / f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:40]}.json"

    def _read(self, file: Path) -> Record | None:
        try:
            return msgspec.json.decode(read_regular(file, RECORD_BYTES_MAX), type=Record)
        except (ConfigError, msgspec.DecodeError):
            return None


def trust_list() -> TrustList:
    return TrustList(private.state_folder(), os.environ)


def _given(env: Mapping[str, str]) -> list[Path]:
    """Return the folders in RONDEL_TRUST; folders below them are trusted, too."""
    given = [part for part in env.get(VARIABLE, "").split(os.pathsep) if part]
    for part in given:
        if not os.path.isabs(part):
            raise ConfigError(f"{VARIABLE} has {part!r}, which is not an absolute path; write the whole path")
    return [Path(os.path.realpath(part)) for part in given]


def _owner(path: Path) -> int:
    # A folder at the same path that belongs to someone else now is a different folder.
    try:
        return path.stat().st_uid
    except OSError:
        return -1
