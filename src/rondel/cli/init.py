"""`rondel init`: a starter project. Existing files are never changed."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from ..errors import ConfigError
from ..project.trust import trust_list
from ._output import tell

CONFIG = """\
# Settings for this folder. `rondel config` shows the effective settings and where each comes from.

agent = "helper"

# Without an engine, Rondel uses the best it finds: an API key in the environment, a local server, the embedded model.
# engine = "anthropic:claude-sonnet-5-5"

# [engines.mine]                       # anything that speaks OpenAI's or Anthropic's protocol
# base_url = "http://127.0.0.1:8000/v1"
# dialect = "openai-chat"
# model = "my-model"
# key = "${MY_KEY:-}"

# [limits]
# rounds = 40
"""

AGENT = """\
---
description: Answers questions and rolls dice
tools: [ask_user, tools:roll_dice]
---
You are a friendly helper. Answer briefly. Use roll_dice when someone wants to roll dice, and ask_user when you cannot
continue without more information.
"""

TOOLS = '''\
"""The tools of this project: plain functions. A model sees their names, types and docstrings."""

import random


def roll_dice(sides: int = 6, count: int = 1) -> list[int]:
    """Roll dice and return what they show.

    Args:
        sides: how many sides each die has
        count: how many dice to roll, at most 100
    """
    return [random.randint(1, sides) for _ in range(min(count, 100))]
'''

FILES = {"rondel.toml": CONFIG, "agents/helper.md": AGENT, "tools.py": TOOLS}


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path(), help="the folder; by default, this one")
def init(folder: Path) -> None:
    """Create a starter project without changing existing files."""
    is_new = not any((folder / name).exists() for name in ("rondel.toml", "agents", "tools.py"))
    made = [name for name, text in FILES.items() if _write(folder / name, text)]
    trusted = trust_list()
    if is_new:  # existing files may be someone else's: the user must review them first
        trusted.add(folder)
    for name in FILES:
        tell(f"  {'created' if name in made else 'kept   '}  {folder / name}")
    if not trusted.trusts(folder):
        tell("Some files already existed: review them, then run `rondel trust` in that folder.")
    where = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    tell(f"\nNext: `{where}rondel` starts a chat with the helper; edit agents/helper.md to change it.")


def _write(path: Path, text: str) -> bool:
    """Create the file. Return False if it already exists."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        if path.is_file():
            return False
        raise ConfigError(f"{str(path)!r} cannot be written: something else has that name") from None
    except OSError as error:
        raise ConfigError(f"{str(path)!r} cannot be written: {error.strerror}") from error
    return True
