"""Small projects on disk, and the sentence that a mistake in them gives."""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rondel import Agent
from rondel.errors import ConfigError
from rondel.project.agents import load_agents
from rondel.project.config import load


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
    os.chmod(path, mode)
    return path


def sentence(attempt: Callable[[], object]) -> str:
    """What the attempt's ConfigError says, with the file's folder left out: `rondel.toml:3: ...`."""
    with pytest.raises(ConfigError) as caught:
        attempt()
    said = str(caught.value)
    assert "\n" not in said
    return re.sub(r"^\S*/(?=[^/]+?:)", "", said)


def agents_in(
    folder: Path, text: str | None = None, toml: str = "", *, file: str = "a.yaml", **env: str
) -> dict[str, Agent]:
    """The agents of a project; a text is written into one of its files first."""
    write(folder / "rondel.toml", toml)
    if text is not None:
        write(folder / "agents" / file, text)
    variables = {"HOME": str(folder), **env}
    return {agent.name: agent for agent in load_agents(load(folder, variables), variables)}


def said_of(folder: Path, text: str, file: str = "a.yaml") -> str:
    """What is wrong with this text as a file of agents."""
    return sentence(lambda: agents_in(folder, text, file=file))


@pytest.fixture(autouse=True)
def own_modules() -> Iterator[None]:
    """Modules that a test's project brought in are forgotten after it. Import this where projects have modules."""
    before, path = set(sys.modules), list(sys.path)
    yield
    assert sys.path == path
    for name in set(sys.modules) - before:
        if "rondel" not in name:
            del sys.modules[name]
