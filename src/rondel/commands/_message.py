"""What an agent is told on the command line: a text, inputs by their names, files.

Reads stdin and files; asks nobody, and knows no project.
"""

from __future__ import annotations

import mimetypes
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..agent import Agent
from ..errors import ConfigError, ToolError, nearest
from ..inputs import check, from_text, is_required
from ..libraries import is_library_name
from ..values import Media, MediaKind, Text

FILE_BYTES_MAX = 32 << 20


class Told(msgspec.Struct, frozen=True):
    """`inputs_known`: nobody has to read the agent's inputs out of the text."""

    parts: tuple[Text | Media, ...]
    inputs_known: bool


def told(agent: Agent, text: str, inputs: Sequence[str], files: Sequence[str]) -> Told:
    """The message for an agent. Inputs by name become a JSON object, as those of a call do."""
    text = _read_stdin() if text == "-" else text
    media = tuple(_media(Path(file)) for file in files)
    by_itself = bool(agent.template or agent.function)
    if inputs or is_library_name(agent.name) or (by_itself and not text.strip()):
        text = _text_of(agent, text, _named(agent, inputs))
        return Told((Text(text), *media), True)
    if not text.strip() and not media:
        raise ConfigError("the message is empty; give a text, or - to read it from stdin")
    known = from_text(agent.inputs, text) is not None
    return Told((*((Text(text),) if text.strip() else ()), *media), known)


# --- inputs -----------------------------------------------------------------------------------------------------------


def _named(agent: Agent, inputs: Sequence[str]) -> dict[str, str]:
    """`name=value`, each."""
    if inputs and not agent.inputs:
        raise ConfigError(f"agent {agent.name!r} takes no inputs by name; give it a text")
    given: dict[str, str] = {}
    for item in inputs:
        name, equals, value = item.partition("=")
        if not equals:
            raise ConfigError(f"the input {item!r} has no '='; write it as --input name=value")
        if name.strip() not in agent.inputs:
            raise ConfigError(f"agent {agent.name!r} has no input {name!r}{nearest(name, tuple(agent.inputs))}")
        given[name.strip()] = value
    return given


def _text_of(agent: Agent, text: str, given: Mapping[str, str]) -> str:
    """A text that gives the agent's inputs by its form: those with a name, and the text as the first one that is not
    among them."""
    values: dict[str, Any] | None = None if given else from_text(agent.inputs, text)
    is_plain = values is not None
    if values is None:
        values = {**given, **({_first_left(agent, given): text} if text.strip() else {})}
    try:
        checked = check(agent.name, agent.inputs, values)
    except ToolError as error:
        raise ConfigError(f"{error}; it takes {_takes(agent)}: give each as --input name=value") from None
    return text if is_plain else msgspec.json.encode({name: checked[name] for name in values}).decode()


def _first_left(agent: Agent, given: Mapping[str, str]) -> str:
    for name in agent.inputs:
        if name not in given:
            return name
    raise ConfigError(f"agent {agent.name!r} takes {_takes(agent)}, and all is given; leave the text out")


def _takes(agent: Agent) -> str:
    """Inputs in brackets need not be given."""
    return ", ".join(name if is_required(field) else f"[{name}]" for name, field in agent.inputs.items()) or "nothing"


# --- stdin and files --------------------------------------------------------------------------------------------------


def _read_stdin() -> str:
    """All of stdin; bytes that are no UTF-8 are replaced, and a closed stdin is empty."""
    if sys.stdin is None:
        return ""
    return sys.stdin.buffer.read().decode("utf-8", errors="replace")


def _media(path: Path) -> Media:
    mime = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    family = mime.partition("/")[0]
    kind: MediaKind = "image" if family == "image" else "audio" if family == "audio" else "file"
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise ConfigError(f"the file {str(path)!r} is larger than {FILE_BYTES_MAX >> 20} MB; give a smaller one")
        return Media(kind, mime, path.read_bytes(), name=path.name)
    except OSError as error:
        raise ConfigError(f"the file {str(path)!r} cannot be read: {error.strerror}") from error
