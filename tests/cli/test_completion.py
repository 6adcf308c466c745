"""Completion in the shells themselves, as far as they are installed; bash must be."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import WAIT_S, Place
from tests.cli.pty_screen import PtyScreen

BIN = str(Path(sys.executable).parent)


@pytest.fixture
def shell_env(place: Place) -> dict[str, str]:
    place.write(
        "rondel.toml",
        'engine = "mine"\n[engines.mine]\nbase_url = "http://127.0.0.1:9"\ndialect = "anthropic"\nmodel = "m"\n',
    )
    place.write("agents/planner.md", "---\ndescription: Plans trips.\n---\nPlan.\n")
    return place.env | {"PATH": f"{BIN}{os.pathsep}{place.env['PATH']}"}


def run(place: Place, env: dict[str, str], *command: str) -> list[str]:
    done = subprocess.run(
        command, cwd=place.project, env=env, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1]


BASH = """
eval "$(rondel completion bash)"
COMP_WORDS=({line}) COMP_CWORD={at}
_rondel_completion rondel
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (["rondel", "conv"], ["conversations"]),
        (["rondel", "chat", "pl"], ["planner"]),
        (["rondel", "run", "-e", "mi"], ["mine"]),
        (["rondel", "conversations", "se"], ["search"]),
        (["rondel", "resume", "la"], ["last"]),
        (["rondel", "run", "--js"], ["--json"]),
    ],
)
def test_bash_completes(place: Place, shell_env: dict[str, str], line: list[str], expected: list[str]):
    words = " ".join(f"'{word}'" for word in line)
    script = BASH.format(line=words, at=len(line) - 1)
    assert run(place, shell_env, "bash", "--norc", "-c", script) == expected


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes(place: Place, shell_env: dict[str, str]):
    script = "rondel completion fish | source; complete -C 'rondel conv'; complete -C 'rondel chat pl'"
    shown = run(place, shell_env, "fish", "--no-config", "-c", script)
    assert [line.split("\t")[0] for line in shown] == ["conversations", "planner"]
    assert "Plans trips." in shown[1]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_completes(place: Place, shell_env: dict[str, str]):
    with PtyScreen(["zsh", "-f"], cwd=place.project, env=shell_env, columns=80, rows=24) as terminal:
        terminal.type("PS1='%% '; autoload -Uz compinit; compinit -u; eval \"$(rondel completion zsh)\"; echo rea''dy")
        terminal.wait_for("ready")
        terminal.press("rondel conver\t")
        terminal.wait_for("rondel conversations")
        terminal.press("\x15rondel chat plan\t")
        terminal.wait_for("rondel chat planner")


def test_a_line_that_cannot_be_completed_prints_nothing(place: Place, shell_env: dict[str, str]):
    place.write("rondel.toml", "engine = \n")
    script = BASH.format(line="'rondel' 'chat' 'pl'", at=2)
    assert run(place, shell_env, "bash", "--norc", "-c", script) == [""]


def test_an_unknown_shell_is_named(place: Place):
    done = place.rondel("completion", "tcsh")
    assert (done.code, done.err) == (2, "rondel: the shell 'tcsh' is not supported; known are bash, fish, zsh\n")
