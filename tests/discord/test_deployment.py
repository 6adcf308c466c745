"""The systemd unit and the Dockerfile of docs/discord.md: what they name exists, and fits together."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

from rondel.errors import ConfigError
from rondel.files.private import state_folder
from rondel.project.settings import DiscordSettings
from tests.cli.conftest import Place, place

__all__ = ["place"]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/discord.md").read_text(encoding="utf-8")
VARIABLES = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")


def block(start: str) -> str:
    (found,) = [text for text in re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL) if text.startswith(start)]
    return found


def unit() -> dict[str, list[str]]:
    settings: dict[str, list[str]] = defaultdict(list)
    for line in block("[Unit]").splitlines():
        if "=" in line:
            key, _, value = line.partition("=")
            settings[key].append(value)
    return settings


def variables(*given: str) -> dict[str, str]:
    found = dict(word.split("=", 1) for text in given for word in text.split())
    for name in found:
        assert name == "HOME" or f"| `{name}` |" in VARIABLES, f"{name} is not documented"
    return found


def test_the_unit_runs_our_command_in_folders_that_it_has():
    settings = unit()
    (state,), env = settings["StateDirectory"], variables(*settings["Environment"])
    assert env["HOME"] == f"/var/lib/{state}"
    assert env["RONDEL_STORE"].startswith(f"/var/lib/{state}/")
    assert settings["WorkingDirectory"] == [env["RONDEL_TRUST"]]
    assert settings["ExecStart"] == [f"{env['RONDEL_TRUST']}/.venv/bin/rondel discord"]
    assert float(settings["TimeoutStopSec"][0]) > DiscordSettings().drain_s


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_unit_and_its_protection(tmp_path: Path):
    program = tmp_path / "rondel"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    path = tmp_path / "rondel-bot.service"
    path.write_text(re.sub(r"(?m)^ExecStart=\S+", f"ExecStart={program}", block("[Unit]")))
    verified = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stderr) == (0, "")
    analyzed = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=40", path], capture_output=True, check=False
    )
    assert analyzed.returncode == 0, analyzed.stdout.decode()


def test_the_container_installs_and_runs_what_there_is(place: Place):
    lines = [line.split(maxsplit=1) for line in block("FROM").splitlines()]
    steps: dict[str, list[str]] = defaultdict(list)
    for instruction, rest in lines:
        steps[instruction].append(rest)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (image,) = steps["FROM"]
    assert f"Programming Language :: Python :: {image[len('python:') : -len('-slim')]}" in project["classifiers"]
    assert "[discord]" in steps["RUN"][0]
    assert "discord" in project["optional-dependencies"]
    env = variables(*steps["ENV"])
    assert steps["WORKDIR"] == [env["RONDEL_TRUST"]]
    assert env["RONDEL_STORE"].startswith(f"{steps['VOLUME'][0]}/")
    assert steps["CMD"] == ['["rondel", "discord"]']
    assert place.rondel("discord", "--help").code == 0
    (stop_s,) = re.findall(r"--stop-timeout (\d+)", PAGE)
    assert float(stop_s) > DiscordSettings().drain_s


def test_a_user_without_a_home_folder_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch):
    """As for a service with `DynamicUser=yes` if nothing sets HOME; here it is set to nothing that can be found."""
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", "~nobody.at.all")
    with pytest.raises(ConfigError, match="set HOME"):
        state_folder()
