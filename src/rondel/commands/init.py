"""`rondel init`: a project to start from. Nothing that is there is ever changed."""

from __future__ import annotations

from pathlib import Path

from ..errors import ConfigError
from ._output import tell

CONFIG = """\
# What `rondel` does in this folder. `rondel config` shows what is in force and where it came from.

agent = "helper"

# Without an engine the best that is found is taken: a key in the environment, a server on loopback, the embedded model.
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
description: Answers questions, and knows how to throw dice
tools: [ask_user, tools:roll_dice]
---
You are a friendly helper. Answer briefly. Use roll_dice when somebody wants dice to be thrown, and ask_user when you
cannot go on without knowing something.
"""

TOOLS = '''\
"""Tools of this project: plain functions. Their names, types and docstrings are what a model is told."""

import random


def roll_dice(sides: int = 6, count: int = 1) -> list[int]:
    """Throw dice and give what they show.

    Args:
        sides: how many sides each has
        count: how many are thrown, at most 100
    """
    return [random.randint(1, sides) for _ in range(min(count, 100))]
'''

FILES = {"rondel.toml": CONFIG, "agents/helper.md": AGENT, "tools.py": TOOLS}


def init(folder: Path) -> None:
    made = [name for name, text in FILES.items() if _write(folder / name, text)]
    for name in FILES:
        tell(f"  {'made' if name in made else 'kept'}  {folder / name}")
    where = "" if folder.resolve() == Path.cwd() else f"cd {folder} && "
    tell(f"\nNext: `{where}rondel` talks to the helper; edit agents/helper.md to change who it is.")


def _write(path: Path, text: str) -> bool:
    """True when the file was made; False when there was one already."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        if path.is_file():
            return False
        raise ConfigError(f"{str(path)!r} cannot be written: something else is in its place") from None
    except OSError as error:
        raise ConfigError(f"{str(path)!r} cannot be written: {error.strerror}") from error
    return True
