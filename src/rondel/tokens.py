"""What texts, messages and prompts cost in tokens, estimated from characters.

Knows no tokenizer and no model: an estimate is for deciding what fits and for showing people what they spend.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeAlias

import msgspec

from .prompt import Prompt
from .values import Media, Message, Part, Text, Thinking, ToolCall, ToolResult, ToolSpec, Value

Estimate: TypeAlias = Callable[[str], int]

MEDIA_TOKENS = 1_000
"""What an image, a sound or a file is taken to cost; providers charge between about 100 and 2,000 for an image."""

_CJK = (
    "[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef\U0001b000-\U0001b2ff"
    "\U00020000-\U0003ffff]+"
)


class TokenBreakdown(Value, frozen=True):
    """What a prompt's tokens are spent on. `limit` is the window, where it is known."""

    system: int
    tools: int
    user: int
    assistant: int
    results: int
    total: int
    limit: int | None = None


_encode = msgspec.json.Encoder().encode


def estimate_tokens(text: str) -> int:
    """A Chinese, Japanese or Korean character is a token, four others are one; rounded up."""
    if text.isascii():
        return (len(text) + 3) // 4
    cjk = sum(map(len, _cjk().findall(text)))
    return cjk + (len(text) - cjk + 3) // 4


@cache
def _cjk() -> re.Pattern[str]:
    """Compiled with the first text that may have any: it takes longer than to import all of this."""
    return re.compile(_CJK)


def message_tokens(message: Message, estimate: Estimate = estimate_tokens) -> int:
    tokens = 0
    for part in message.parts:
        tokens += estimate(part.text) if type(part) is Text else part_tokens(part, estimate)
    return tokens


def part_tokens(part: Part, estimate: Estimate = estimate_tokens) -> int:
    if type(part) is Text or type(part) is Thinking:
        return estimate(part.text)
    if type(part) is ToolCall:
        return estimate(part.name) + estimate(part.broken or _encode(part.arguments).decode())
    if type(part) is ToolResult:
        return sum([part_tokens(inner, estimate) for inner in part.parts])
    return MEDIA_TOKENS if type(part) is Media else 0


def tools_tokens(tools: Sequence[ToolSpec], estimate: Estimate = estimate_tokens) -> int:
    return sum(
        estimate(spec.name) + estimate(spec.description) + estimate(_encode(spec.schema).decode()) for spec in tools
    )


def breakdown(prompt: Prompt, window_tokens: int | None = None, estimate: Estimate = estimate_tokens) -> TokenBreakdown:
    """What this prompt's tokens are spent on, by estimate."""
    spent = {"system": 0, "user": 0, "assistant": 0, "results": 0}
    for message in prompt.messages:
        kind = message.role if message.role in spent else "results"
        for part in message.parts:
            spent["results" if isinstance(part, ToolResult) else kind] += part_tokens(part, estimate)
    tools = tools_tokens(prompt.tools, estimate)
    return TokenBreakdown(**spent, tools=tools, total=sum(spent.values()) + tools, limit=window_tokens)
