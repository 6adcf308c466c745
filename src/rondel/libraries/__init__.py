"""Agents that come with Rondel, in libraries: `time.now`, `math.evaluate`, `text.upper` and others.

A library is one module of this folder with its functions in `AGENTS`; the first paragraph of a function's docstring is
its description, and its parameters are its inputs. Importing this package imports no library.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Sequence
from typing import Any

from ..agent import Agent
from ..errors import RondelError, nearest
from ..text.inputs import described_by

LIBRARIES = {name: f"rondel.libraries.{name}" for name in ("knowledge", "math", "text", "time", "web")}

_NAME = re.compile(r"[a-zA-Z0-9_-]+\.[a-zA-Z0-9_-]+")


def is_library_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def agent_names() -> tuple[str, ...]:
    return tuple(f"{library}.{name}" for library in LIBRARIES for name in _functions(library))


def names_for(name: str) -> tuple[str, ...]:
    """Return the agents of libraries that a name may mean. A name without a dot means none, and nothing is imported for
    it."""
    return agent_names() if is_library_name(name) else ()


def has_agent(name: str) -> bool:
    return name in names_for(name)


def find_agent(name: str) -> Agent:
    library, _, short = name.partition(".")
    if library not in LIBRARIES:
        raise RondelError(f"there is no library {library!r} for the agent {name!r}{nearest(library, tuple(LIBRARIES))}")
    functions = _functions(library)
    if short not in functions:
        raise RondelError(f"the library {library!r} has no agent {short!r}{nearest(short, tuple(functions))}")
    function = functions[short]
    description, inputs = described_by(function)
    return Agent(name, function=function, description=description, inputs=inputs)


@functools.cache
def _functions(library: str) -> dict[str, Callable[..., Any]]:
    agents: Sequence[Callable[..., Any]] = importlib.import_module(LIBRARIES[library]).AGENTS
    return {function.__name__.rstrip("_"): function for function in agents}
