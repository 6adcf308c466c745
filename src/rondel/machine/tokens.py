"""Estimates the tokens of texts, messages, prompts and replies from their characters.

The estimates decide what fits into a window, and limit replies while they stream. Knows no tokenizer and no model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeAlias

import msgspec

from ..prompt import Prompt
from ..values import (
    Delta,
    Handoff,
    Media,
    MediaDelta,
    Message,
    Part,
    PartDelta,
    PartFinished,
    PartStarted,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
    Value,
    arguments_json,
)

Estimate: TypeAlias = Callable[[str], int]

MEDIA_TOKENS = 1_000  # the estimate for an image, a sound or a file; providers charge about 100 to 2,000 for an image

_CJK = (
    "[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef\U0001b000-\U0001b2ff"
    "\U00020000-\U0003ffff]+"
)


class TokenBreakdown(Value, frozen=True):
    """The tokens of a prompt by kind. `limit` is the window, if it is known."""

    system: int
    tools: int
    user: int
    assistant: int
    results: int
    total: int
    limit: int | None = None


_encode = msgspec.json.Encoder().encode


def estimate_tokens(text: str) -> int:
    """Count a Chinese, Japanese or Korean character as a token, and four others as one; rounded up."""
    if text.isascii():
        return (len(text) + 3) // 4
    cjk = sum(map(len, _cjk().findall(text)))
    return cjk + (len(text) - cjk + 3) // 4


@cache
def _cjk() -> re.Pattern[str]:
    """Compile on first use: that takes longer than to import this module."""
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
        return estimate(part.name) + estimate(part.broken or arguments_json(part.arguments))
    if type(part) is ToolResult:
        return sum([part_tokens(inner, estimate) for inner in part.parts])
    return MEDIA_TOKENS if type(part) is Media else 0


def tools_tokens(tools: Sequence[ToolSpec], estimate: Estimate = estimate_tokens) -> int:
    return sum(
        estimate(spec.name) + estimate(spec.description) + estimate(_encode(spec.schema).decode()) for spec in tools
    )


def breakdown(prompt: Prompt, window_tokens: int | None = None) -> TokenBreakdown:
    """Return the estimated tokens of a prompt by kind."""
    spent = {"system": 0, "user": 0, "assistant": 0, "results": 0}
    for message in prompt.messages:
        kind = message.role if message.role in spent else "results"
        for part in message.parts:
            spent["results" if isinstance(part, ToolResult) else kind] += part_tokens(part)
    tools = tools_tokens(prompt.tools)
    return TokenBreakdown(**spent, tools=tools, total=sum(spent.values()) + tools, limit=window_tokens)


# --- replies while they stream ----------------------------------------------------------------------------------------


PART_DELTAS = 50


class ReplySize(msgspec.Struct, eq=False):
    """How long a reply has become, by its deltas. `past` is cheap, and says when a limit must be checked again.

    Text, thinking and arguments of calls count alike. A delta without text counts, too, because it takes time and
    memory; a part takes more of both, and counts as `PART_DELTAS` deltas.
    """

    tokens_max: int
    bytes_max: int
    deltas_max: int
    bytes: int = 0
    """Bytes of parts other than text: media, and what only a provider understands."""
    deltas: int = 0
    _quarters: int = 0  # quarters of a token: most characters count one, a Chinese character four
    _finished: int = 0
    _media: dict[int, int] = {}  # the bytes that came in pieces of each unfinished part

    def past(self, delta: Delta) -> bool:
        """Count a delta, and return whether a limit must be checked now."""
        self.deltas += 1
        if type(delta) is PartDelta:
            text = delta.text
            self._quarters += len(text) if text.isascii() else 4 * estimate_tokens(text)
            return self._quarters > 4 * self.tokens_max or self.deltas > self.deltas_max
        if type(delta) is PartStarted:
            self.deltas += PART_DELTAS
        elif type(delta) is PartFinished:
            self._finished += part_tokens(delta.part)
            self.bytes += _bytes_beside_text(delta.part) - self._media.pop(delta.index, 0)
        elif type(delta) is MediaDelta:
            self._media[delta.index] = self._media.get(delta.index, 0) + len(delta.data)
            self.bytes += len(delta.data)
        return self._finished > self.tokens_max or self.bytes > self.bytes_max or self.deltas > self.deltas_max

    @property
    def tokens(self) -> int:
        return max((self._quarters + 3) // 4, self._finished)


def _bytes_beside_text(part: Part) -> int:
    if isinstance(part, Handoff):
        return 0
    size = len(_encode(part.opaque)) if part.opaque else 0
    return size + len(part.data) + len(part.url) if isinstance(part, Media) else size


_PIECE = re.compile(
    rb'"(?:text|content|reasoning_content|reasoning|thinking|refusal|partial_json|arguments|delta)": ?'
    rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"'
)
"""A piece of an answer in an event, in any dialect."""
_AGAIN = b'.done"', b'.completed"', b'.incomplete"'  # types of events that repeat what came in pieces
_BASE64 = re.compile(rb'(?:;base64,|"data": ?")[A-Za-z0-9+/=_-]{1000,}+')


def event_tokens(events: bytes) -> int:
    """Estimate the tokens in these events of a stream: their pieces of text are measured, not decoded."""
    if events.find(b'"response.') >= 0 and _repeats(events):  # only one dialect repeats what it streamed
        return sum(map(_piece_tokens, (one for one in events.split(b"\n\n") if not _repeats(one))))
    return _piece_tokens(events)


def _repeats(event: bytes) -> bool:
    return any(event.find(again) >= 0 for again in _AGAIN)


def _piece_tokens(events: bytes) -> int:
    pieces: list[bytes] = _PIECE.findall(events)
    if len(pieces) == 1:
        return max(len(pieces[0]) // 4, bool(pieces[0]))
    return max(sum(map(bool, pieces)), len(b"".join(pieces)) // 4)


def json_tokens(body: bytes) -> int:
    """Estimate the tokens of a JSON text by its size. Base64 media cost far less than their length."""
    media = _BASE64.findall(body) if b"base64" in body else ()
    return (len(body) - sum(map(len, media)) + 3) // 4 + MEDIA_TOKENS * len(media)
