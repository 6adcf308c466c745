"""Finds and removes the sub-agent tag: text in a prompt that names the model which should answer.

Searches the instructions and the user's first two messages, never the results of tools. Works on the decoded fields of
a body, in any dialect.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias, cast

from ...values import Value
from ..relay.request import GatewayRequest

MARK = b"-SUBAGENT-MODEL"  # in every tag, without the brackets, which some clients escape
MESSAGES_MAX = 2
_TAG = re.compile(r"<((?:RONDEL|CCR)-SUBAGENT-MODEL)>([^<>]{1,200})</\1>\s?")
_TEXTS = ("text", "input_text")

Json: TypeAlias = dict[str, Any]
Edit: TypeAlias = Callable[[str], str]


class Tag(Value, frozen=True):
    model: str
    fields: dict[str, Any]  # the fields of the body without the tag


def find_tag(request: GatewayRequest) -> Tag | None:
    """Return the first tag of a request. A body without the tag's bytes is not parsed."""
    if MARK not in request.without_tools:
        return None
    models: list[str] = []

    def without(text: str) -> str:
        models.extend(found[2].strip() for found in _TAG.finditer(text))
        return _TAG.sub("", text)

    fields: dict[str, Any] = {}
    for name in ("system", "instructions", "messages", "input"):
        given = request.field(name)
        seen = len(models)
        edited = _messages(given, without) if name in ("messages", "input") else _content(given, without)
        if len(models) > seen:
            fields[name] = edited
    return Tag(models[0], fields) if models else None


def _messages(value: Any, edit: Edit) -> Any:
    """Edit the instructions and the user's first messages. A body with a single text is one message of the user."""
    if not isinstance(value, list):
        return _content(value, edit)
    left, edited = MESSAGES_MAX, list[Any]()
    for item in cast("list[Any]", value):
        role = cast(Json, item).get("role") if isinstance(item, dict) else None
        if role == "user":
            left -= 1
        if role in ("system", "developer") or (role == "user" and left >= 0):
            message = cast(Json, item)
            item = {**message, "content": _content(message.get("content"), edit)}
        edited.append(item)
    return edited


def _content(value: Any, edit: Edit) -> Any:
    """Edit a text, or the text blocks in a list. A block that contains only the tag is removed."""
    if isinstance(value, str):
        return edit(value)
    if not isinstance(value, list):
        return value
    blocks: list[Any] = []
    for block in cast("list[Any]", value):
        if isinstance(block, dict) and cast(Json, block).get("type") in _TEXTS:
            before: Any = cast(Json, block).get("text")
            after = edit(before) if isinstance(before, str) else before
            if after == "" and before:
                continue
            blocks.append({**cast(Json, block), "text": after})
        else:
            blocks.append(block)
    return blocks
