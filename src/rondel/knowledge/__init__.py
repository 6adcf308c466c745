"""Sources that agents search, such as `{folder: docs/}`. Importing this package imports no source."""

from __future__ import annotations

import importlib
import inspect
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from ..contracts.knowledge import Document, Section
from ..contracts.source import Source
from ..errors import RondelError, nearest

if TYPE_CHECKING:
    from .base import KnowledgeBase
    from .bases import Knowledge
    from .settings import KnowledgeSettings

__all__ = ["SOURCES", "Document", "Knowledge", "KnowledgeBase", "KnowledgeSettings", "Section", "source_of"]

_HOME_OF = {"Knowledge": "bases", "KnowledgeBase": "base", "KnowledgeSettings": "settings"}


def __getattr__(name: str) -> Any:
    if home := _HOME_OF.get(name):
        return getattr(importlib.import_module(f".{home}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


SOURCES: dict[str, str] = {"folder": "rondel.knowledge.folder:FolderSource", "mcp": "rondel.mcp.source:McpSource"}
"""The class for each name. Its first parameter may be given without its name."""


def source_of(given: Mapping[str, Any], *, project: str = "") -> Source:
    """Return the source for `{name: first parameter}` or `{name: {parameter: value}}`. Paths are relative to the
    project's folder."""
    if len(given) != 1:
        raise RondelError(f"a source is one name with what it needs, such as {{folder: docs/}}, not {dict(given)!r}")
    name, value = next(iter(given.items()))
    if name not in SOURCES:
        raise RondelError(f"there is no source {name!r}{nearest(name, tuple(SOURCES))}")
    module, _, attribute = SOURCES[name].partition(":")
    made: Any = getattr(importlib.import_module(module), attribute)
    known = [parameter for parameter in inspect.signature(made).parameters if parameter != "project"]
    parameters = cast("dict[str, Any]", value) if isinstance(value, dict) else {known[0]: value}
    hints = typing.get_type_hints(made.__init__)
    for key, item in parameters.items():
        if key not in known:
            raise RondelError(f"the source {name!r} has no parameter {key!r}{nearest(key, tuple(known))}")
        _check(item, hints[key], f"{key!r} of the source {name!r}")
    if known[0] not in parameters:
        raise RondelError(f"the source {name!r} needs the parameter {known[0]!r}")
    return made(**parameters, project=project)


def _check(value: Any, hint: Any, what: str) -> None:
    # In a file, a path is a text.
    try:
        msgspec.convert(value, str if Path in typing.get_args(hint) else hint)
    except msgspec.ValidationError as error:
        raise RondelError(f"{what} is {value!r}: {str(error)[0].lower()}{str(error)[1:]}") from None
