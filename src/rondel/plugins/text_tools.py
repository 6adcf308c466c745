"""Tools for models that know no tools: told of them in words, and heard when they write a call into their text.

A call is found anywhere in the text, also inside a code fence: models put them there. Must stand after the plugins that
lend tools or trim, so that it is the last to see the prompt and the first to see the reply. Knows no tool and no model.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

import msgspec

from ..errors import RondelError, nearest
from ..lenient import parse_object, parse_parameters, relaxed
from ..plugin import Key, Plugin
from ..prompt import Prompt
from ..tool import describe
from ..turn import Turn
from ..values import Media, Message, Options, Part, Reply, Text, ToolCall, ToolResult, ToolSpec, Value

CLOSINGS_TRIED_MAX = 8
"""How many ends of a call are tried: a call's own parameters may hold the text that ends a call."""

ReadBody: TypeAlias = Callable[[str, str], "tuple[str, dict[str, Any]] | None"]
"""From the name in the opening (or nothing) and the body: the tool's name and its arguments, or None for no call."""


class Pattern(msgspec.Struct, frozen=True):
    """How a call looks in text: what opens it (with a group `name`, or `attributes` that hold one) and what closes it.

    Without a `closing`, `opening` matches the whole call and may have a group `body`.
    """

    name: str
    opening: re.Pattern[str]
    closing: re.Pattern[str] | None = None
    read: ReadBody = lambda name, body: (name, parse_parameters(body))
    body_is_json: bool = False
    """A text that is no JSON object is no call."""


_Span: TypeAlias = tuple[int, int]


class FoundCall(Value, frozen=True):
    start: int
    end: int
    name: str
    arguments: dict[str, Any]
    parallel: bool = False


# --- the patterns -----------------------------------------------------------------------------------------------------

_NAME = re.compile(r"""(?:^|[\s"'])name\s*+=\s*+(?:"([^"]*+)"|'([^']*+)')""", re.IGNORECASE)
_PARAMETER = re.compile(
    r"""<parameter\s++name\s*+=\s*+["']([^"'<>]++)["']\s*+>(.*?)</parameter>""", re.IGNORECASE | re.DOTALL
)
_PARAMETER_END = re.compile(r"</parameter>", re.IGNORECASE)


def _tag(name: str) -> Pattern:
    return Pattern(
        name,
        re.compile(rf"<{name}(?P<attributes>\s[^<>]*+)>", re.IGNORECASE),
        re.compile(rf"</{name}\s*+>", re.IGNORECASE),
        read=_read_tag_body,
    )


def _read_tag_body(name: str, body: str) -> tuple[str, dict[str, Any]] | None:
    """The body's own form, or `<parameter name="…">` elements, as some models were taught."""
    ends = [tag.end() for tag in _PARAMETER_END.finditer(body)]
    if ends and (found := _PARAMETER.findall(body, 0, ends[-1])):  # each opening before the last end has an end
        return name, {key: _plain_or_json(text) for key, text in found}
    return name, parse_parameters(body)


def _plain_or_json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return text.strip("\n")


def _read_named_json(_: str, body: str) -> tuple[str, dict[str, Any]] | None:
    """`{"function": …, "parameters": {…}}`; `name` and `arguments` are understood too. Other JSON is no call."""
    value = _object(body) or {}
    if isinstance(inner := value.get("function"), dict):
        value = cast("dict[str, Any]", inner)
    name = value.get("function", value.get("name"))
    arguments = value.get("parameters", value.get("arguments"))
    if isinstance(arguments, str):
        arguments = parse_parameters(arguments)
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return None
    return name, cast("dict[str, Any]", arguments)


def _object(text: str) -> dict[str, Any] | None:
    return found if (found := parse_object(text)) is not None else relaxed(text)


DEFAULT_PATTERNS: tuple[Pattern, ...] = (
    _tag("tool_use"),
    _tag("function_call"),
    _tag("invoke"),
    Pattern(
        "json_fence",
        re.compile(r"```json\b", re.IGNORECASE),
        re.compile(r"```"),
        read=_read_named_json,
        body_is_json=True,
    ),
    Pattern(
        "bracket",
        re.compile(r"\[TOOL:(?P<name>[^\[\]\n]++)\]", re.IGNORECASE),
        re.compile(r"\[/TOOL\]", re.IGNORECASE),
    ),
)


# --- finding ----------------------------------------------------------------------------------------------------------

_PARALLEL = re.compile(r"<(/?)parallel_tool_calls\s*+>", re.IGNORECASE)
_BRACE = re.compile(r"\s*+\{")
_RESULT_TAG = "<functions_result>"


def find_calls(text: str, patterns: Iterable[Pattern] = DEFAULT_PATTERNS) -> list[FoundCall]:
    """Every call in the order of the text. Of calls that overlap, the outermost counts; one without an end is none."""
    found = [call for pattern in patterns for call in _Finder(pattern, text).find()]
    calls: list[FoundCall] = []
    for call in sorted(found, key=lambda call: (call.start, -call.end)):
        if not calls or call.start >= calls[-1].end:
            calls.append(call)
    regions = _parallel_regions(text, calls)
    return [msgspec.structs.replace(call, parallel=True) if _is_inside(call.start, regions) else call for call in calls]


def _parallel_regions(text: str, calls: Sequence[FoundCall]) -> list[_Span]:
    """What stands between the tags that say so. Tags inside a call's own parameters are text."""
    spans = [(call.start, call.end) for call in calls]
    regions: list[_Span] = []
    begin: int | None = None
    for tag in _PARALLEL.finditer(text):
        if _is_inside(tag.start(), spans):
            continue
        if not tag[1]:
            begin = tag.end() if begin is None else begin
        elif begin is not None:
            regions.append((begin, tag.start()))
            begin = None
    return regions


def _is_inside(place: int, spans: Sequence[_Span]) -> bool:
    before = bisect_right(spans, place, key=lambda span: span[0]) - 1
    return before >= 0 and place < spans[before][1]


class _Finder:
    """Finds the calls of one pattern in time linear in the text, whatever the text is."""

    def __init__(self, pattern: Pattern, text: str) -> None:
        self.pattern = pattern
        self.text = text
        self.chars_to_try = 4 * len(text)
        """How much may still be read in trials that fail."""

    def find(self) -> Iterator[FoundCall]:
        openings = list(self.pattern.opening.finditer(self.text))
        if self.pattern.closing is None:
            yield from self._whole_calls(openings)
            return
        closings = list(self.pattern.closing.finditer(self.text)) if openings else []
        partners = {} if self.pattern.body_is_json else _partners(openings, closings)
        starts = [closing.start() for closing in closings]
        done = 0
        for opening in openings:
            if opening.start() < done:
                continue
            first = bisect_left(starts, opening.end())
            call = self._call_from(opening, closings[first : first + CLOSINGS_TRIED_MAX], partners)
            if call is not None:
                done = call.end
                yield call

    def _whole_calls(self, matches: Iterable[re.Match[str]]) -> Iterator[FoundCall]:
        for match in matches:
            body = match.groupdict().get("body") or ""
            if read := self.pattern.read(_name_in(match), body):
                yield FoundCall(match.start(), match.end(), *read)

    def _call_from(
        self, opening: re.Match[str], closings: Sequence[re.Match[str]], partners: Mapping[int, re.Match[str]]
    ) -> FoundCall | None:
        name = _name_in(opening)
        if not name and not self.pattern.body_is_json:
            return None
        if _closes_itself(opening):
            return FoundCall(opening.start(), opening.end(), name, {})
        closing = self._closing_of_json(opening.end(), closings) or partners.get(opening.start())
        if closing is None:
            return None
        read = self.pattern.read(name, self.text[opening.end() : closing.start()])
        return FoundCall(opening.start(), closing.end(), *read) if read else None

    def _closing_of_json(self, start: int, closings: Sequence[re.Match[str]]) -> re.Match[str] | None:
        """The first closing up to which the body is one whole object: the others stand inside its strings."""
        if not _BRACE.match(self.text, start):
            return None
        for closing in closings:
            self.chars_to_try -= closing.start() - start
            if self.chars_to_try < 0:
                return None
            if _object(self.text[start : closing.start()].strip()) is not None:
                return closing
        return None


def _partners(openings: Sequence[re.Match[str]], closings: Sequence[re.Match[str]]) -> dict[int, re.Match[str]]:
    """Which closing belongs to which opening, as brackets do. An opening that is left over has none."""
    partners: dict[int, re.Match[str]] = {}
    unclosed: list[re.Match[str]] = []
    pending = iter(openings)
    opening = next(pending, None)
    for closing in closings:
        while opening is not None and opening.start() < closing.start():
            if not _closes_itself(opening):
                unclosed.append(opening)
            opening = next(pending, None)
        if unclosed:
            partners[unclosed.pop().start()] = closing
    return partners


def _closes_itself(opening: re.Match[str]) -> bool:
    return (opening.groupdict().get("attributes") or "").endswith("/")


def _name_in(match: re.Match[str]) -> str:
    groups = match.groupdict()
    if (name := groups.get("name")) is not None:
        return name.strip()
    attribute = _NAME.search(groups.get("attributes") or "")
    return (attribute[1] or attribute[2] or "").strip() if attribute else ""


# --- the words --------------------------------------------------------------------------------------------------------

_HOW_TO_CALL = """\
# Tools

You can use the tools below. To use one, write exactly this, with the parameters as one JSON object:

<tool_use name="the tool's name">{"parameter": "value"}</tool_use>

Then stop: the result comes to you as a <functions_result>, which you never write yourself. Several tools that do not \
need each other's results go together between <parallel_tool_calls> and </parallel_tool_calls>. When you need no tool, \
just answer."""


def _told_of_tools(specs: Sequence[ToolSpec], turn: Turn, choice: str | None) -> str:
    texts = [_HOW_TO_CALL]
    for spec in specs:
        tool = turn.tools.get(spec.name)
        texts.append(describe(spec, tool.examples if tool else ()))
    if choice == "required":
        texts.append("You must use a tool now.")
    elif choice and choice.startswith("tool:"):
        texts.append(f"You must use the tool {choice.removeprefix('tool:')} now.")
    return "\n\n".join(texts)


def call_text(call: ToolCall) -> str:
    body = call.broken or msgspec.json.encode(call.arguments).decode()
    return f'<tool_use name="{call.name}">{body}</tool_use>'


def result_text(result: ToolResult, call: ToolCall | None) -> str:
    """A result as a model without tools reads it."""
    name = result.name or (call.name if call else "(unknown)")
    parameters = msgspec.json.encode(call.arguments if call else {}).decode()
    text = result.text.replace("</functions_result>", "<\\/functions_result>")  # a result cannot end itself
    kind = "Error" if result.is_error else "Result"
    return f"{_RESULT_TAG}\nTool: {name}\nParameters: {parameters}\n{kind}: {text}\n</functions_result>"


def _in_words(history: Iterable[Message]) -> Iterator[Message]:
    """A conversation in which calls and results are text."""
    calls: dict[str, ToolCall] = {}
    for message in history:
        if message.calls:
            calls.update((call.id, call) for call in message.calls)
            yield msgspec.structs.replace(message, parts=tuple(_calls_in_words(message)))
        elif any(isinstance(part, ToolResult) for part in message.parts):
            yield msgspec.structs.replace(message, role="user", parts=tuple(_results_in_words(message, calls)))
        else:
            yield message


def _calls_in_words(message: Message) -> Iterator[Part]:
    others = [part for part in message.parts if not isinstance(part, ToolCall)]
    yield from others
    written = "\n".join(call_text(call) for call in message.calls)
    if len(message.calls) > 1 and all(call.parallel for call in message.calls):
        written = f"<parallel_tool_calls>\n{written}\n</parallel_tool_calls>"
    yield Text(f"\n\n{written}" if any(isinstance(part, Text) for part in others) else written)


def _results_in_words(message: Message, calls: Mapping[str, ToolCall]) -> Iterator[Part]:
    first = True
    for part in message.parts:
        if not isinstance(part, ToolResult):
            yield part
            continue
        yield Text(("" if first else "\n\n") + result_text(part, calls.get(part.call_id)))
        yield from (inner for inner in part.parts if isinstance(inner, Media))
        first = False


# --- the plugin -------------------------------------------------------------------------------------------------------

_OFFERED = Key("text_tools.offered", bool)


class TextTools(Plugin):
    """Takes part where the engine's facts say that the model has no tools of its own, or `always`."""

    name = "text_tools"
    holds_stream = True  # nobody should see half a tag, nor a call that is about to be taken out of the text

    def __init__(self, patterns: Iterable[Pattern] = DEFAULT_PATTERNS, *, always: bool = False) -> None:
        self._patterns = {pattern.name: pattern for pattern in patterns}
        self._always = always

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        return tuple(self._patterns.values())

    def add_pattern(self, name: str, opening: str, closing: str = "", *, read: ReadBody | None = None) -> None:
        """Understand one more form; one of the same name is replaced. Case does not matter, `.` matches everything.

        `opening` has a group `name`. With a `closing`, the body is what stands between the two; without, it is the
        group `body` of `opening`, where there is one.
        """
        flags = re.IGNORECASE | re.DOTALL
        try:
            opens, closes = re.compile(opening, flags), re.compile(closing, flags) if closing else None
        except re.error as error:
            raise RondelError(f"pattern {name!r} is no regular expression: {error}") from error
        if "name" not in opens.groupindex and read is None:
            raise RondelError(f"pattern {name!r} does not say which tool is called: give it a group (?P<name>…)")
        read = read or (lambda tool, body: (tool, parse_parameters(body)))
        self._patterns[name] = Pattern(name, opens, closes, read)

    def remove_pattern(self, name: str) -> None:
        if name not in self._patterns:
            raise RondelError(f"no pattern is named {name!r}{nearest(name, list(self._patterns))}")
        del self._patterns[name]

    def applies(self, turn: Turn) -> bool:
        if not self._always and turn.engine.facts.tools:
            return False
        return bool(turn.tools) or any(message.role == "tool" for message in turn.transcript.messages)

    async def on_prompt(self, turn: Turn, prompt: Prompt) -> Prompt:
        choice = prompt.options.tool_choice
        offered = prompt.tools if choice != "none" else ()
        turn.state[_OFFERED] = bool(offered)
        history = prompt.history
        words = tuple(_in_words(history))
        if words != history:
            prompt = prompt.with_history(words)
        if offered:
            prompt = prompt.instruct(_told_of_tools(offered, turn, choice), id="tools")
        return prompt.replace(tools=(), options=_without_tools(prompt.options, stops=bool(offered)))

    async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
        if not turn.state[_OFFERED]:
            return reply
        parts: list[Part] = []
        for part in reply.message.parts:
            calls = find_calls(part.text, self._patterns.values()) if isinstance(part, Text) else []
            parts.extend(_split(cast(Text, part).text, calls, turn) if calls else (part,))
        if len(parts) == len(reply.message.parts) and not any(isinstance(part, ToolCall) for part in parts):
            return reply
        message = msgspec.structs.replace(reply.message, parts=tuple(parts))
        return msgspec.structs.replace(reply, message=message, stop="calls")


def _without_tools(options: Options, *, stops: bool) -> Options:
    stop = options.stop
    if stops and _RESULT_TAG not in stop and len(stop) < 4:  # providers take four
        stop = (*stop, _RESULT_TAG)
    return msgspec.structs.replace(options, tool_choice=None, parallel_calls=None, stop=stop)


def _split(text: str, calls: Sequence[FoundCall], turn: Turn) -> Iterator[Part]:
    """The text with its calls as parts. A result that the model made up, and what it built upon it, is left out."""
    end = _invented_from(text, calls)
    at = 0
    for call in calls:
        if call.start >= end:
            break
        if said := _PARALLEL.sub("", text[at : call.start]).strip():
            yield Text(said)
        yield ToolCall(turn.new_id("call"), call.name, call.arguments, parallel=call.parallel)
        at = call.end
    if said := _PARALLEL.sub("", text[at:end]).strip():
        yield Text(said)


def _invented_from(text: str, calls: Sequence[FoundCall]) -> int:
    spans = [(call.start, call.end) for call in calls]
    at = text.find(_RESULT_TAG, calls[0].end)
    while at >= 0 and _is_inside(at, spans):
        at = text.find(_RESULT_TAG, at + 1)
    return at if at >= 0 else len(text)
