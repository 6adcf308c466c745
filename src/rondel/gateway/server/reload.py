"""Reloads a configuration file that changes while it is in use.

The file is checked every second. If it is invalid, the error is reported and the previous configuration stays active.
It is written only by `change`. There is no thread. Knows no server: `follow` calls back.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from ...contracts.clock import Clock
from ...errors import ConfigError
from ...files.regular import read_regular
from ...project.config import load, refuse_exposed
from ...project.settings import Config
from ...text.document import BYTES_MAX, read_text

PERIOD_S = 1.0


class FileChanged(ConfigError):
    """Somebody else wrote the file at the same time."""

    status = 409


class Reloader:
    """`config` is the active configuration. `look` reads the file if it has changed."""

    def __init__(self, config: Config, env: Mapping[str, str] | None = None) -> None:
        self.config = config
        self.refused = ""  # why the file in its present state is not active; empty if it is
        self._env = env
        self._lock = asyncio.Lock()
        self._path = Path(config.path) if config.path else None
        self._seen, self._content = self._stamp(), self._digest()

    def look(self, *, again: bool = False) -> Config | None:
        """Return the new configuration, if there is one. Raises ConfigError if the file is invalid: once for each
        change, and always with `again`."""
        if self._path is None or ((seen := self._stamp()) == self._seen and not again):
            return None
        content = self._digest()
        self._seen = seen
        if content == self._content and not (again and self.refused):  # touched, or written again as it was
            return None
        self._content = content
        try:
            config = self._load(self._path)
        except ConfigError as error:
            self.refused = str(error)
            raise
        self.config, self.refused = config, ""
        return config

    async def follow(
        self, clock: Clock, changed: Callable[[Config], Awaitable[None]], refused: Callable[[str], None]
    ) -> None:
        """Check the file until cancelled. `changed` may refuse a configuration by raising ConfigError."""
        while True:
            await clock.sleep_until(clock.now() + PERIOD_S)
            await self.check(changed, refused)

    async def check(
        self, changed: Callable[[Config], Awaitable[None]], refused: Callable[[str], None], *, again: bool = False
    ) -> bool:
        """Check the file once. Returns whether it was new, valid or not."""
        async with self._lock:  # SIGHUP may ask for it during a check
            before = self.config
            try:
                if (config := self.look(again=again)) is None:
                    return False
                await changed(config)
            except ConfigError as error:
                self.config, self.refused = before, str(error)
                refused(f"{error}; the previous settings stay active")
            return True

    async def change(self, edit: Callable[[str, Config], str], changed: Callable[[Config], Awaitable[None]]) -> None:
        """Edit the file, and use it. Raises ConfigError if the result is wrong; then the file is as it was."""
        if self._path is None:
            raise ConfigError("there is no rondel.toml to change; `rondel init` writes one")
        if self.refused:
            raise ConfigError(f"{self.refused}; correct this first")
        async with self._lock:
            path, before, stamp = self._path.resolve(), self.config, self._stamp()
            if stamp != self._seen:
                raise FileChanged(f"{path.name} was just changed; reload it and try again")
            try:
                old = path.read_bytes()
                self._replace(path, _as_in(old, edit(read_text(path), before)), stamp)
                try:
                    if (config := self.look()) is not None:
                        await changed(config)
                except ConfigError:
                    self._replace(path, old, self._stamp())
                    self._seen, self._content = self._stamp(), self._digest()
                    self.config, self.refused = before, ""
                    raise
            except OSError as error:
                raise ConfigError(f"cannot be written: {error.strerror}; change it yourself", path=str(path)) from None

    def _replace(self, path: Path, data: bytes, stamp: tuple[int, ...]) -> None:
        """Replace the file by a valid one, unless it is no longer the one with this stamp."""
        draft = path.with_name(f".{path.name}.new")
        try:
            draft.touch(mode=0o600)
            shutil.copymode(path, draft)  # before anything is in it: there may be secrets
            draft.write_bytes(data)
            self._load(draft)
            if self._stamp() != stamp:
                raise FileChanged(f"{path.name} was just changed; reload it and try again")
            draft.replace(path)
        except ConfigError as error:
            raise type(error)(str(error).replace(str(draft), str(path))) from None
        finally:
            draft.unlink(missing_ok=True)

    def _load(self, path: Path) -> Config:
        if not path.is_file():
            raise ConfigError("is no longer there; put it back, or stop the gateway", path=str(path))
        config = load(path.parent, {**(os.environ if self._env is None else self._env), "RONDEL_CONFIG": str(path)})
        refuse_exposed(config)
        return config

    def _stamp(self) -> tuple[int, ...]:
        """Changes when the file is written or replaced, or its mode changes: a secret may become readable."""
        try:
            found = os.stat(self._path) if self._path else None
        except OSError:
            return ()
        return (found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode) if found else ()

    def _digest(self) -> bytes:
        if self._path is None:
            return b""
        try:
            data = read_regular(self._path, BYTES_MAX)
            return hashlib.sha256(data + str(self._path.stat().st_mode).encode()).digest()
        except (ConfigError, OSError):
            return b""


def _as_in(old: bytes, text: str) -> bytes:
    """Return a text as bytes, with the line ends and the byte order mark of the old file."""
    text = text.replace("\n", "\r\n") if b"\r\n" in old else text
    return (b"\xef\xbb\xbf" if old.startswith(b"\xef\xbb\xbf") else b"") + text.encode()
