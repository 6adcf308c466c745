"""A trace to share: without secrets, or without what was said, where texts are replaced by their lengths. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec

from .node import TraceNode

TEXTS = ("by", "input", "prompt", "sent", "thinking", "output", "error", "reason", "question", "answer", "did")
VALUES = ("inputs", "arguments", "facts")


def without_content(node: TraceNode) -> TraceNode:
    """Return the trace without texts, arguments, facts and sources."""
    changes: dict[str, Any] = {name: _length(text) for name in TEXTS if (text := getattr(node, name))}
    changes |= {name: {key: "…" for key in found} for name in VALUES if (found := getattr(node, name))}
    name = "conversation" if node.kind == "conversation" else node.name
    children = tuple(without_content(child) for child in node.children)
    return msgspec.structs.replace(node, name=name, sources=(), children=children, **changes)


def without_secrets(node: TraceNode, hide: Callable[[str], str]) -> TraceNode:
    """Return the trace with every text passed through `hide`."""
    return msgspec.convert(_hidden(msgspec.to_builtins(node, enc_hook=str), hide), TraceNode, strict=False)


def _length(text: str) -> str:
    return f"({len(text):,} characters)"


def _hidden(value: Any, hide: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, dict):
        return {hide(key): _hidden(one, hide) for key, one in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_hidden(one, hide) for one in cast("list[Any]", value)]
    return value
