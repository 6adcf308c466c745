"""A project in a folder of its own, and ways to run the command line in it: in this process, or in one of its own."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import click
import pytest

from rondel.cli.main import main
from tests.cli.model_server import ModelServer
from tests.cli.pty_screen import PtyScreen
from tests.forked import run_rondel

WAIT_S = 60.0
KEPT = ("PATH", "LANG", "LC_ALL", "SYSTEMROOT", "VIRTUAL_ENV")


def command_names(group: click.Group, before: str = "") -> Iterator[str]:
    """Yield every command of the program, as people type it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group) and command.params and not {"list", "run"} & set(command.commands):
            yield f"{before}{name}"
        if isinstance(command, click.Group):
            yield from command_names(command, f"{before}{name} ")
        else:
            yield f"{before}{name}"


class Outcome:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


class Place:
    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capture = folder, capture
        self.project = folder / "project"
        self.project.mkdir()
        self.env = {name: os.environ[name] for name in KEPT if name in os.environ}
        self.env |= {"HOME": str(folder / "home"), "TERM": "xterm-256color", "LANG": "C.UTF-8", "TZ": "UTC"}
        for kind in ("CONFIG", "DATA", "STATE", "CACHE"):
            self.env[f"XDG_{kind}_HOME"] = str(folder / kind.lower())
        self.env["RONDEL_CACHE"] = str(folder / "cache")
        self.env["RONDEL_TRUST"] = str(folder)

    def distrusts(self) -> None:
        """Trust no folder but those that a test trusts itself."""
        del self.env["RONDEL_TRUST"], os.environ["RONDEL_TRUST"]

    def write(self, name: str, text: str) -> Path:
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def uses(self, server: ModelServer) -> None:
        """Let every agent of this project ask that server."""
        self.write(
            "rondel.toml",
            f'engine = "test"\n[engines.test]\nbase_url = "{server.url}"\ndialect = "anthropic"\nmodel = "model"\n'
            "retry = {attempts = 1}\n",
        )

    def rondel(self, *arguments: str) -> Outcome:
        """Run a command in this process."""
        self._capture.readouterr()
        code = main(arguments)
        captured = self._capture.readouterr()
        return Outcome(code, captured.out, captured.err)

    def spawn(self, *arguments: str, stdin: bytes | BinaryIO | None = b"", **env: str) -> Outcome:
        """Run a command in a process of its own; without stdin it is closed."""
        done = run_rondel(*arguments, cwd=self.project, env=self.env | env, stdin=stdin, timeout_s=WAIT_S)
        return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())

    def terminal(self, *arguments: str, columns: int = 80, rows: int = 24, **env: str) -> PtyScreen:
        return PtyScreen(["rondel", *arguments], cwd=self.project, env=self.env | env, columns=columns, rows=rows)

    def chat(self, *arguments: str, **options: Any) -> PtyScreen:
        """A terminal with a chat that waits for its first line."""
        terminal = self.terminal(*arguments, **options)
        terminal.wait_for_rest()
        return terminal


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Place]:
    made = Place(tmp_path, capsys)
    for name in set(os.environ) - set(KEPT):
        monkeypatch.delenv(name)
    for name, value in made.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(made.project)
    log = logging.getLogger("rondel")
    handlers, propagate = list(log.handlers), log.propagate
    before = dict(os.environ)
    yield made
    os.environ.clear()
    os.environ.update(before)
    log.handlers[:], log.propagate = handlers, propagate


@pytest.fixture
def server() -> Iterator[ModelServer]:
    made = ModelServer()
    yield made
    made.close()
