"""Completion in the shells themselves, as far as they are installed; bash must be."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import WAIT_S, Place
from tests.cli.pty_screen import PtyScreen
from tests.helpers import rest_slow

BIN = str(Path(sys.executable).parent)


@pytest.fixture
def shell_env(place: Place) -> dict[str, str]:
    place.write(
        "rondel.toml",
        'engine = "mine"\n[engines.mine]\nbase_url = "http://127.0.0.1:9"\ndialect = "anthropic"\nmodel = "m"\n'
        'models = ["large-1", "large-2", "tiny"]\n',
    )
    place.write("agents/planner.md", "---\ndescription: Plans trips.\n---\nPlan.\n")
    return place.env | {"PATH": f"{BIN}{os.pathsep}{place.env['PATH']}"}


def run(place: Place, env: dict[str, str], *command: str) -> list[str]:
    done = subprocess.run(
        command, cwd=place.project, env=env, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1]


LOAD = 'eval "$(rondel completion bash)"'
BASH = """
COMPREPLY=()
COMP_LINE={line} COMP_POINT=${{#COMP_LINE}}
_rondel_completion rondel
echo "${{COMPREPLY[@]}}"
"""
LINES = {
    "rondel conv": "conversations",
    "rondel chat pl": "planner",
    "rondel run -e mi": "mine mine:large-1 mine:large-2 mine:tiny",
    "rondel conversations se": "search",
    "rondel resume la": "last",
    "rondel run --js": "--json",
    "rondel run -e mine:la": "large-1 large-2",
    "rondel chat planner --conversation ": "last",
}


@pytest.mark.parametrize("lines", rest_slow([["rondel chat pl", "rondel run -e mine:la"], [*LINES]]))
def test_bash_completes(place: Place, shell_env: dict[str, str], lines: list[str]):
    script = LOAD + "".join(BASH.format(line=shlex.quote(line)) for line in lines)
    shown = run(place, shell_env, "bash", "--norc", "-c", script)
    assert shown == [LINES[line] for line in lines]


def test_bash_completes_a_name_with_a_colon_where_a_person_types_it(place: Place, shell_env: dict[str, str]):
    with PtyScreen(["bash", "--norc"], cwd=place.project, env=shell_env, columns=80, rows=24) as terminal:
        terminal.type('PS1="% "; eval "$(rondel completion bash)"; echo rea""dy', until="ready")
        terminal.press("rondel run -e mine:t\t", until="rondel run -e mine:tiny")


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
        terminal.press("rondel conver\t", until="rondel conversations")
        terminal.press("\x15rondel chat plan\t", until="rondel chat planner")


def test_a_line_that_cannot_be_completed_prints_nothing(place: Place, shell_env: dict[str, str]):
    place.write("rondel.toml", "engine = \n")
    script = LOAD + BASH.format(line="'rondel chat pl'")
    assert run(place, shell_env, "bash", "--norc", "-c", script) == [""]


def test_an_unknown_shell_is_named(place: Place):
    done = place.rondel("completion", "tcsh")
    assert (done.code, done.err) == (2, "rondel: the shell 'tcsh' is not supported; available: bash, fish, zsh\n")
