"""A configuration that changes while it is in use: the file is looked at now and then, and read when it is another.

A file that is wrong is refused with its sentence, and what was in force stays. Nothing is written, and nothing watches
from a thread. Knows no server: whoever runs `follow` is told.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from ..clock import Clock
from ..config import load, refuse_exposed
from ..errors import ConfigError
from ..settings import Config

PERIOD_S = 1.0


class Reloader:
    """`config` is what is in force. `look` reads the file when it has changed."""

    def __init__(self, config: Config, env: Mapping[str, str] | None = None) -> None:
        self.config = config
        self.refused = ""
        """Why the file as it is now is not in force; empty when it is."""
        self._env = env
        self._path = Path(config.path) if config.path else None
        self._seen, self._content = self._stamp(), self._digest()

    def look(self) -> Config | None:
        """The new configuration, if there is one. Raises ConfigError, once for each change, when the file is wrong."""
        if self._path is None or (seen := self._stamp()) == self._seen:
            return None
        content = self._digest()
        self._seen = seen
        if content == self._content:  # touched, or written again as it was
            return None
        self._content = content
        try:
            config = self._load()
        except ConfigError as error:
            self.refused = str(error)
            raise
        self.config, self.refused = config, ""
        return config

    async def follow(
        self,
        clock: Clock,
        changed: Callable[[Config], Awaitable[None]],
        refused: Callable[[str], None],
        *,
        period_s: float = PERIOD_S,
    ) -> None:
        """Look again and again, until cancelled. `changed` may refuse a configuration, too: by a ConfigError."""
        while True:
            await clock.sleep_until(clock.now() + period_s)
            before = self.config
            try:
                if (config := self.look()) is not None:
                    await changed(config)
            except ConfigError as error:
                self.config, self.refused = before, str(error)
                refused(f"{error}; what was in force before stays")

    def _load(self) -> Config:
        assert self._path is not None
        if not self._path.is_file():
            raise ConfigError("is no longer there; put it back, or stop the gateway", path=str(self._path))
        config = load(
            self._path.parent, {**(os.environ if self._env is None else self._env), "RONDEL_CONFIG": str(self._path)}
        )
        refuse_exposed(config)
        return config

    def _stamp(self) -> tuple[int, ...]:
        """What changes when a file is written or exchanged; also its mode, because a secret may become readable."""
        try:
            found = os.stat(self._path) if self._path else None
        except OSError:
            return ()
        return (found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode) if found else ()

    def _digest(self) -> bytes:
        if self._path is None:
            return b""
        try:
            return hashlib.sha256(self._path.read_bytes() + str(self._path.stat().st_mode).encode()).digest()
        except OSError:
            return b""
