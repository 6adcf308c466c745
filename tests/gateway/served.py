"""`rondel serve` as a process of its own, with a configuration in a folder of its own; its whole output is kept."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from pathlib import Path

from tests.forked import Forked, pipe

from .speech import DIALECTS
from .upstream import WAIT_S, Upstream

KEPT = ("PATH", "LANG", "LC_ALL", "SYSTEMROOT", "VIRTUAL_ENV")
SHORT = {"anthropic": "a", "openai-chat": "c", "openai-responses": "r"}
"""The names of the engines in `engines`: one for each dialect of the upstream."""
SECRETS = {name: f"sk-upstream-{name}-7f3a" for name in SHORT.values()}


def engines(upstream: Upstream, **times: float) -> str:
    """A table for each dialect that the upstream speaks. `times` are their time-outs."""
    return "".join(
        f'[engines.{SHORT[dialect]}]\nbase_url = "{upstream.url(dialect)}"\ndialect = "{dialect}"\n'
        f'model = "default-model"\nkey = "${{UP_KEY_{SHORT[dialect].upper()}}}"\nretry = {{attempts = 1}}\n'
        + "".join(f"{name} = {value}\n" for name, value in times.items())
        for dialect in DIALECTS
    )


class Served:
    """`with Served(folder, config) as served:`; `base_url` is where it listens."""

    def __init__(
        self,
        folder: Path,
        config: str,
        *,
        files: dict[str, str] | None = None,
        port: int = 0,
        arguments: tuple[str, ...] = (),
    ) -> None:
        self.folder, self._port, self._arguments = folder, port, arguments
        folder.mkdir(exist_ok=True)
        self.config = folder / "rondel.toml"
        self.write(config)
        for name, text in (files or {}).items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        self._lines: list[str] = []
        self._said = threading.Condition()
        self.base_url = ""

    def write(self, config: str) -> None:
        """Exchange the configuration, all at once, as editors do."""
        new = self.config.with_suffix(".new")
        new.write_text(config, encoding="utf-8")
        new.chmod(0o600)
        new.rename(self.config)

    def __enter__(self) -> Served:
        env = {name: os.environ[name] for name in KEPT if name in os.environ}
        env |= {"RONDEL_TRUST": str(self.folder)}
        env |= {"HOME": str(self.folder / "home"), "LANG": "C.UTF-8", "TZ": "UTC", "PYTHONUNBUFFERED": "1"}
        env |= {f"XDG_{kind}_HOME": str(self.folder / kind.lower()) for kind in ("CONFIG", "DATA", "STATE", "CACHE")}
        env |= {f"UP_KEY_{name.upper()}": secret for name, secret in SECRETS.items()}
        self._output, end = pipe()
        with end:
            arguments = ("serve", "--port", str(self._port), *self._arguments)
            self._process = Forked(
                arguments, cwd=self.folder, env=env, stdin=subprocess.DEVNULL, stdout=end, stderr=end, warns=True
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.base_url = self.wait_said(r"http://127\.0\.0\.1:\d+")
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        for sign in (
            "Traceback",
            "ResourceWarning",
            "RuntimeWarning",
            "Task was destroyed",
            "never retrieved",
            "Unclosed",
        ):
            assert sign not in self.output, self.output

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process.poll() is None:
            self._process.send_signal(how)
        self._process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        self._output.close()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait_ended(self) -> int:
        """Its exit code, as soon as it has ended."""
        return self._process.wait(WAIT_S)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def port(self) -> int:
        return int(self.base_url.rpartition(":")[2])

    @property
    def output(self) -> str:
        return "".join(self._lines)

    def wait_said(self, pattern: str) -> str:
        """What it says that fits, as soon as it has said it."""
        with self._said:
            found = self._said.wait_for(
                lambda: re.search(pattern, self.output) or self._process.poll() is not None, WAIT_S
            )
        assert isinstance(found, re.Match), f"it did not say {pattern!r}: {self.output}"
        return found[0]

    def _read(self) -> None:
        for line in self._output:
            with self._said:
                self._lines.append(line.decode("utf-8", "replace"))
                self._said.notify_all()
        with self._said:
            self._said.notify_all()
