"""Runs the blocks of a page, one after the other, in a folder of the page's own.

Blocks that name files are written to them before anything runs, so that a page builds a project from its blocks. Python
is executed in one namespace per page; configuration is loaded; commands are run in this process with the echo engine. A
comment behind a `print(...)` is the line that it prints.
"""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from rondel.cli.main import main
from rondel.cli.program import program
from rondel.project.agents import load_agents
from rondel.project.config import load
from tests.docs.pages import ROOT, Block

_PRINTS = re.compile(r"^\s*print\(.*\)  # (.+)$", re.M)
_SET = re.compile(r"[A-Z_]+=\S*")
_INSTALLS = (
    re.compile(re.escape('export PATH="$PWD/.venv/bin:$PATH"')),  # where `make run` puts the command
    re.compile(r"(?:pip|pipx|uv tool) install '\.\[[\w,]+\]'"),  # from a checkout; tests/distribution/ installs it
)
VARIABLES = {"WORK_KEY": "secret", "TEAM": "blue"}  # What the examples of configuration take from the environment
NEVER_RUN = (
    ["mcp", "serve"],
    ["model", "pull"],
    ["model", "remove"],
    ["serve"],
    ["discord"],
    ["logs", "--follow"],
)
"""Commands that fetch or remove what other programs of this machine use, or that run until somebody ends them: they are
only parsed."""


class Page:
    def __init__(self, folder: Path, monkeypatch: Any) -> None:
        self.folder = folder
        self._monkeypatch = monkeypatch
        monkeypatch.setenv("RONDEL_TRUST", str(folder))  # the reader writes these files
        self._names: dict[str, Any] = {"__name__": "page"}

    def write_files(self, blocks: list[Block]) -> None:
        for block in blocks:
            if block.file:
                self._write(block.file, block.text)

    def run(self, block: Block) -> None:
        if block.language == "python":
            self._python(block)
        elif block.language in ("toml", "yaml", "markdown"):
            self._configuration(block)
        elif block.language in ("console", "sh"):
            self._commands(block)
        else:
            assert block.language == "text", f"{block.where}: nobody can run a block of {block.language!r}"

    def _write(self, file: str, text: str) -> None:
        path = self.folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def _python(self, block: Block) -> None:
        code = compile("\n" * (block.line - 1) + block.text, str(block.page), "exec", dont_inherit=True)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, self._names)
        check_prints(block.text, printed.getvalue(), block.where)

    def _configuration(self, block: Block) -> None:
        """Whatever the file is, the project as a whole must load with it."""
        if block.file == "pyproject.toml":
            tomllib.loads(block.text)
            return
        if not block.file:
            self._write({"toml": "rondel.toml", "yaml": f"agents/at_{block.line}.yaml"}[block.language], block.text)
        if not (self.folder / "rondel.toml").exists():
            self._write("rondel.toml", "")
        env = {"HOME": str(self.folder), **VARIABLES}
        load_agents(load(self.folder, env), env)

    # --- commands -----------------------------------------------------------------------------------------------------

    def _commands(self, block: Block) -> None:
        """In a console, lines with `$` are commands, and the lines below each are a part of what it prints."""
        if block.language == "sh":
            for line in block.text.splitlines():
                self._command(line, block)
            return
        for session in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
            command, *shown = session.splitlines()
            printed = self._command(command, block)
            for line in shown:
                wanted = " ".join(line.split())
                assert wanted in ("", "...") or wanted in " ".join(printed.split()), (
                    f"{block.where}: {command!r} does not print {line!r}, but:\n{printed}"
                )

    def _command(self, line: str, block: Block) -> str:
        words = shlex.split(line, comments=True)
        stdin = ""
        if "|" in words:
            assert words[0] == "echo", f"{block.where}: only echo is read from here"
            at = words.index("|")
            stdin, words = " ".join(words[1:at]) + "\n", words[at + 1 :]
        while words and _SET.fullmatch(words[0]):
            name, _, value = words.pop(0).partition("=")
            self._monkeypatch.setenv(name, value)
        if not words:
            return ""
        if words[0] == "rondel":
            return self._rondel(words[1:], stdin, block)
        if words[0] == "make":
            targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
            assert set(words[1:]) <= set(targets), f"{block.where}: the Makefile has no {line!r}"
        elif words[0] == "cd":
            self._monkeypatch.chdir(self.folder / words[1])
        elif words[0] == "curl":
            return _curl(line, block)
        elif words[0] == "python" and words[1].endswith(".py"):
            return script(words[1])
        elif words[:3] == [".venv/bin/python", "-m", "pytest"]:
            missing = [word for word in words[3:] if not word.startswith("-") and not (ROOT / word).exists()]
            assert not missing, f"{block.where}: there is no {missing}"
        else:
            command = line.partition("#")[0].strip()
            assert any(form.fullmatch(command) for form in _INSTALLS), f"{block.where}: nobody can run {line!r}"
        return ""

    def _rondel(self, arguments: list[str], stdin: str, block: Block) -> str:
        if any(arguments[: len(words)] == words for words in NEVER_RUN):
            _parse(arguments)
            return ""
        printed = io.StringIO()
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8"))
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            code = main(arguments)
        assert code == 0, f"{block.where}: `rondel {shlex.join(arguments)}` ended with {code}:\n{printed.getvalue()}"
        return printed.getvalue()


def _curl(line: str, block: Block) -> str:
    """Ask a server that an earlier block started. Without curl, the command is only read."""
    if shutil.which("curl") is None:
        return block.text
    done = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{block.where}: {line!r} ended with {done.returncode}: {done.stderr}"
    return done.stdout


def check_prints(code: str, printed: str, where: str) -> None:
    """The comments behind prints are lines that were printed, in this order; one that ends in `...` is a beginning."""
    lines = iter(printed.splitlines())
    for expected in _PRINTS.findall(code):
        start = expected.removesuffix("...")
        found = any(line == expected or (start != expected and line.startswith(start)) for line in lines)
        assert found, f"{where}: {expected!r} was not printed, but:\n{printed}"


def _parse(arguments: list[str]) -> None:
    """What click makes of the arguments, without running the command: a wrong one raises."""
    group: Any = program
    while arguments and hasattr(group, "commands") and not arguments[0].startswith("-"):
        group, arguments = group.get_command(None, arguments[0]), arguments[1:]
    group.make_context("rondel", list(arguments))


def script(name: str) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(str(ROOT / name), run_name="__main__")
    return printed.getvalue()


def forget_modules(folder: Path) -> None:
    """Forget what was imported from below a folder: another page or test may have other modules of the same names."""
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(f"{folder}/"):
            del sys.modules[name]
