"""Reads what the model writes as deltas: plain text, a document, or words and calls in one of two forms."""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Sequence
from typing import Any, Protocol

import msgspec

from ...contracts.dialect import Json
from ...errors import EngineGarbled
from ...values import Delta, PartDelta, PartFinished, PartStarted, Text, Thinking, ToolCall


class AnswerReader(Protocol):
    @property
    def stop_hit(self) -> bool: ...

    @property
    def called(self) -> bool: ...

    def read(self, delta: Json) -> list[Delta]:
        """Return the deltas that a chunk of the runtime adds."""
        ...

    def finish(self, *, cut: bool) -> list[Delta]: ...


def text_in(delta: Json) -> str:
    return delta.get("content") or ""


def finished_call(call: ToolCall, raw: str) -> ToolCall:
    try:
        return msgspec.structs.replace(call, arguments=msgspec.json.decode(raw, type=dict[str, Any]))
    except (msgspec.DecodeError, RecursionError):
        return msgspec.structs.replace(call, broken=raw)


class TextReader:
    """Plain text, or a JSON document, up to a stop sequence. Text that may become one is held back."""

    def __init__(self, stop: Sequence[str] = (), *, is_json: bool = False) -> None:
        self.stop_hit = self.called = False
        self._stop = tuple(filter(None, stop))
        self._is_json, self._shown, self._held = is_json, list[str](), ""

    def read(self, delta: Json) -> list[Delta]:
        return self.feed(text_in(delta))

    def feed(self, text: str) -> list[Delta]:
        if self.stop_hit or not text:
            return []
        self._held += text
        ends = [at for word in self._stop if (at := self._held.find(word)) >= 0]
        if ends:
            self.stop_hit, safe = True, min(ends)
        else:
            safe = len(self._held) - max((_overlap(self._held, word) for word in self._stop), default=0)
        shown, self._held = self._held[:safe], "" if ends else self._held[safe:]
        return self._show(shown)

    def _show(self, text: str) -> list[Delta]:
        if not text:
            return []
        first = not self._shown
        self._shown.append(text)
        return [*([PartStarted(0, Text(""))] if first else []), PartDelta(0, text)]

    def finish(self, *, cut: bool) -> list[Delta]:
        deltas = self._show(self._held)
        text = "".join(self._shown)
        if self._is_json and not (cut or self.stop_hit):
            _require_json(text)
        return [*deltas, PartFinished(0, Text(text))] if text else deltas


def _overlap(text: str, word: str) -> int:
    return next((n for n in range(min(len(word) - 1, len(text)), 0, -1) if text.endswith(word[:n])), 0)


def _require_json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        said = f"the embedded model did not write JSON: {text[:200]!r} ({error})"
        raise EngineGarbled(said, provider="local") from error


class NativeReader:
    """Words, thoughts and calls as the runtime reads them from the model's own format.

    Some models leave out what their template puts around a call, so a reply that consists of the JSON of a call of one
    of the tools is a call, too. Text that may become one is held back; it is `garbled` if it names one of the tools but
    cannot be read.
    """

    def __init__(self, tools: Collection[str], stop: Sequence[str] = ()) -> None:
        self.called = self.garbled = False
        self._tools, self._text, self._thoughts = tools, TextReader(stop), list[str]()
        self._calls = dict[int, tuple[ToolCall, list[str]]]()
        self._held = ""
        self._may_be_call = True

    @property
    def stop_hit(self) -> bool:
        return self._text.stop_hit

    def read(self, delta: Json) -> list[Delta]:
        deltas = list[Delta]()
        if thought := delta.get("reasoning_content"):
            if not self._thoughts:
                deltas.append(PartStarted(_THOUGHTS, Thinking()))
            self._thoughts.append(thought)
            deltas.append(PartDelta(_THOUGHTS, thought))
        self._held += text_in(delta)
        if self._may_be_call:
            start = "".join(self._held.split())
            self._may_be_call = any(each.startswith(start) or start.startswith(each) for each in _CALL_STARTS)
        if not self._may_be_call:
            deltas += self._words()
        for part in delta.get("tool_calls") or ():
            deltas += self._call(part.get("index", 0), part["function"])
        return deltas

    def _words(self) -> list[Delta]:
        held, self._held = self._held, ""
        return [_moved(delta, _WORDS) for delta in self._text.feed(held)]

    def _call(self, number: int, function: Json) -> list[Delta]:
        deltas, index = list[Delta](), _CALLS + number
        if number not in self._calls:
            self.called = True
            self._calls[number] = ToolCall(f"call_{secrets.token_hex(12)}", function["name"]), []
            deltas.append(PartStarted(index, self._calls[number][0]))
        if text := function.get("arguments"):
            self._calls[number][1].append(text)
            deltas.append(PartDelta(index, text))
        return deltas

    def finish(self, *, cut: bool) -> list[Delta]:
        deltas = list[Delta]()
        if self._thoughts:
            deltas.append(PartFinished(_THOUGHTS, Thinking("".join(self._thoughts))))
        if not self._calls and (bare := _bare_call(self._held)) and bare.name in self._tools:
            arguments = msgspec.json.encode(bare.arguments or bare.parameters or {}).decode()
            deltas += self._call(0, {"name": bare.name, "arguments": arguments})
        elif self._held.strip():
            self.garbled = not self._calls and any(f'"{name}"' in self._held for name in self._tools)
            deltas += self._words()
        deltas += [_moved(delta, _WORDS) for delta in self._text.finish(cut=cut)]
        for number, (call, pieces) in self._calls.items():
            deltas.append(PartFinished(_CALLS + number, finished_call(call, "".join(pieces) or "{}")))
        return deltas


_THOUGHTS, _WORDS, _CALLS = 0, 1, 2
_CALL_STARTS = ('{"name":', '{{"name":', '```json{"name":', '```json{{"name":', '```{"name":', '```{{"name":')
"""Without white space. The template of Qwen2.5 Coder shows its models two braces."""


def _moved(delta: Delta, index: int) -> Delta:
    """Return the delta as one of the part with this index."""
    assert isinstance(delta, (PartStarted, PartDelta, PartFinished))
    return msgspec.structs.replace(delta, index=index)


class _BareCall(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any] | None = None
    parameters: dict[str, Any] | None = None  # what Llama calls them


def _bare_call(text: str) -> _BareCall | None:
    """Return the call that the text consists of, if it does."""
    text = text.strip()
    if text.startswith("```"):
        text = text.removesuffix("```").removeprefix("```").removeprefix("json").strip()
    if text.startswith("{{"):
        text = text.removeprefix("{").removesuffix("}")
    try:
        return msgspec.json.decode(text, type=_BareCall)
    except (msgspec.DecodeError, RecursionError):
        return None


_SAY = re.compile(r'\s*\{\s*"say"\s*:\s*(?=[^\s])')
_CALL = re.compile(r'\s*\{\s*"tool"\s*:\s*"((?:[^"\\]|\\.)*)"\s*,\s*"arguments"\s*:\s*(?=\{)')


class UnionReader:
    """`{"say": …}` or `{"tool": …, "arguments": …}` as it is written: words are shown as they come."""

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self.called = False
        self._text = TextReader(stop)
        self._words: _StringDecoder | None = None
        self._call: ToolCall | None = None
        self._head, self._rest, self._shown = "", "", 0

    @property
    def stop_hit(self) -> bool:
        return self._text.stop_hit

    def read(self, delta: Json) -> list[Delta]:
        return self.feed(text_in(delta))

    def feed(self, text: str) -> list[Delta]:
        if self._words is not None:
            return self._text.feed(self._words.feed(text))
        if self._call is not None:
            return self._arguments(text)
        self._head += text
        if match := _CALL.match(self._head):
            return self._begin_call(match)
        if (match := _SAY.match(self._head)) and self._head[match.end()] == '"':
            self._words = _StringDecoder()
            return self._text.feed(self._words.feed(self._head[match.end() + 1 :]))
        return []

    def _begin_call(self, match: re.Match[str]) -> list[Delta]:
        self.called = True
        name = msgspec.json.decode(f'"{match[1]}"', type=str)
        self._call = ToolCall(f"call_{secrets.token_hex(12)}", name)
        return [PartStarted(0, self._call), *self._arguments(self._head[match.end() :])]

    def _arguments(self, text: str) -> list[Delta]:
        """Pass on arguments. The last brace is the union's own, so one is always held back."""
        self._rest += text
        safe = self._rest.rfind("}")
        safe = len(self._rest) if safe < 0 or self._rest[safe + 1 :].strip() else safe
        shown, self._shown = self._rest[self._shown : safe], max(self._shown, safe)
        return [PartDelta(0, shown)] if shown else []

    def finish(self, *, cut: bool) -> list[Delta]:
        if self._call is not None:
            return self._finish_call(cut)
        if self._words is None and self._head.strip():
            return [*self._text.feed(self._other(cut)), *self._text.finish(cut=cut)]
        return self._text.finish(cut=cut)

    def _finish_call(self, cut: bool) -> list[Delta]:
        assert self._call is not None
        raw = self._rest.rstrip().removesuffix("}") if not cut else self._rest
        return [PartFinished(0, finished_call(self._call, raw))]

    def _other(self, cut: bool) -> str:
        """Read an answer that is a document, or free text if the runtime did not enforce the schema."""
        match = _SAY.match(self._head)
        if match is None:
            return "" if cut and self._head.lstrip().startswith("{") else self._head
        document = self._head[match.end() :].rstrip()
        return document if cut else document.removesuffix("}")


class _StringDecoder:
    """Decodes the inside of a JSON string that comes in pieces. A bare quote is text, unless only the closing brace and
    white space follow: then it is never passed on."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        self._held += text
        words = list[str]()
        while self._held:
            word, used = self._next()
            if not used:
                break
            words.append(word)
            self._held = self._held[used:]
        return "".join(words)

    def _next(self) -> tuple[str, int]:
        """Return the next decoded piece and how many characters it took; None if more must come first."""
        held = self._held
        if held[0] == '"':
            return ("", 0) if _MAY_END.fullmatch(held) else ('"', 1)
        if held[0] != "\\":
            plain = re.match(r'[^"\\]+', held)
            assert plain is not None
            return plain[0], plain.end()
        if len(held) < 2:
            return "", 0
        if held[1] != "u":
            return _ESCAPES.get(held[1], held[1]), 2
        return self._unicode()

    def _unicode(self) -> tuple[str, int]:
        held = self._held
        if len(held) < 6:
            return "", 0
        if re.fullmatch("[0-9a-fA-F]{4}", held[2:6]) is None:
            return "u", 2
        code = int(held[2:6], 16)
        if not 0xD800 <= code < 0xE000:
            return chr(code), 6
        if code < 0xDC00:
            if len(held) < 12 and "\\u".startswith(held[6:8]):
                return "", 0
            low = re.match(r"\\u([dD][c-fC-F][0-9a-fA-F]{2})", held[6:12])
            if low:
                return chr(0x10000 + ((code - 0xD800) << 10) + int(low[1], 16) - 0xDC00), 12
        return "\ufffd", 6


_MAY_END = re.compile(r'"\}?\s*')
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
