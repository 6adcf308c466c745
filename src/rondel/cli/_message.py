"""Makes a message from the command line: text, named inputs, stdin and files. Knows no project and no model."""

from __future__ import annotations

import os
import select
import stat
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..agent import Agent
from ..errors import ConfigError, ToolError, nearest
from ..files.media import FILE_BYTES_MAX, media_of, read_media, type_by_content
from ..files.regular import size_text
from ..libraries import is_library_name
from ..text.attached import decoded, fenced, looks_binary
from ..text.inputs import check, from_text, is_required
from ..values import Media, Text
from ._output import tell

SILENCE_S = 3.0
"""How long to wait for a silent pipe before sending the message without it: some programs never close theirs."""


class Input(msgspec.Struct, frozen=True):
    """A message. `inputs_known`: no model is needed to extract the agent's inputs from the text."""

    parts: tuple[Text | Media, ...]
    inputs_known: bool


def read_input(agent: Agent, text: str, inputs: Sequence[str], files: Sequence[str]) -> Input:
    """Read the message for an agent. Named inputs become a JSON object, like the arguments of a call."""
    piped = b"" if text == "-" or "-" in files else _piped()
    text = _text_of_stdin() if text == "-" else text
    media = tuple(_file(file) for file in files)
    by_itself = bool(agent.template or agent.function)
    data = _as_text(piped)
    if data is not None and not text.strip() and not inputs:
        text, piped = data, b""
    if inputs or is_library_name(agent.name) or (by_itself and not text.strip()):
        if piped:
            raise ConfigError(
                f"agent {agent.name!r} takes named inputs; pass stdin as its text with -, or add < /dev/null"
            )
        text = _text_of(agent, text, _named(agent, inputs))
        return Input((Text(text), *media), True)
    if piped and data is not None:
        text = f"{text}\n\n{fenced('Attached text', data)}"
    elif piped:
        media = (*media, media_of(piped, "stdin", "stdin"))
    if not text.strip() and not media:
        raise ConfigError("the message is empty; give a text, or - to read it from stdin")
    known = from_text(agent.inputs, text) is not None
    return Input((*((Text(text),) if text.strip() else ()), *media), known)


# --- inputs -----------------------------------------------------------------------------------------------------------


def _named(agent: Agent, inputs: Sequence[str]) -> dict[str, str]:
    if inputs and not agent.inputs:
        raise ConfigError(f"{agent.name!r} takes no named inputs; give it a message instead")
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
    """Return the agent's inputs as a JSON text: the named ones, and `text` as the first of the others."""
    values: dict[str, Any] | None = None if given else from_text(agent.inputs, text)
    is_plain = values is not None
    if values is None:
        values = {**given, **({_first_left(agent, given): text} if text.strip() else {})}
    try:
        checked = check(agent.name, agent.inputs, values)
    except ToolError as error:
        raise ConfigError(f"{error}. Give each input as --input name=value ({_takes(agent)}).") from None
    return text if is_plain else msgspec.json.encode({name: checked[name] for name in values}).decode()


def _first_left(agent: Agent, given: Mapping[str, str]) -> str:
    for name in agent.inputs:
        if name not in given:
            return name
    raise ConfigError(f"agent {agent.name!r} takes {_takes(agent)}, and all are given; leave out the text")


def _takes(agent: Agent) -> str:
    return ", ".join(name if is_required(field) else f"[{name}]" for name, field in agent.inputs.items()) or "nothing"


# --- stdin and files --------------------------------------------------------------------------------------------------


def _text_of_stdin() -> str:
    text = _as_text(read_stdin())
    if text is None:
        raise ConfigError("stdin is not text; attach it with `--file -` instead")
    return text


def _as_text(piped: bytes) -> str | None:
    """Return piped bytes as text, or None if they are binary. Invalid bytes in a text are replaced, with a warning."""
    text = decoded(piped)
    if text is None and not type_by_content(piped) and not looks_binary(piped):
        tell("rondel: stdin is not valid UTF-8; invalid bytes were replaced")
        text = piped.decode("utf-8", errors="replace")
    return text


def read_stdin() -> bytes:
    data = b"" if sys.stdin is None else sys.stdin.buffer.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(f"stdin has more than {size_text(FILE_BYTES_MAX)}; give less of it")
    return data


def _piped() -> bytes:
    """Read a pipe or a file on stdin; nothing from a terminal, /dev/null, or a pipe that stays silent."""
    try:
        descriptor = sys.stdin.fileno()
        mode = os.fstat(descriptor).st_mode
    except (AttributeError, OSError, ValueError):  # there is none, or it is closed
        return b""
    if stat.S_ISREG(mode):
        return read_stdin()
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return b""
    if os.name != "nt" and not select.select([descriptor], [], [], SILENCE_S)[0]:
        tell(f"rondel: no input on stdin for {SILENCE_S:g} s, continuing without it; `< /dev/null` avoids the wait")
        return b""
    return read_stdin()


def _file(name: str) -> Media:
    return media_of(read_stdin(), "stdin", "stdin") if name == "-" else read_media(name)
