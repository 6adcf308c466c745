"""Describes tools, calls and results as text, for models without tool calling."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from ...machine.turn import Turn
from ...tool import describe
from ...values import Media, Message, Part, Text, ToolCall, ToolResult, ToolSpec

RESULT_TAG = "<functions_result>"

_HOW_TO_CALL = """\
# Tools

You can use the tools below. To use one, write exactly this, with the parameters as one JSON object:

<tool_use name="the tool's name">{"parameter": "value"}</tool_use>

Then stop: the result comes to you as a <functions_result>, which you never write yourself. Several tools that do not \
need each other's results go together between <parallel_tool_calls> and </parallel_tool_calls>. When you need no tool, \
just answer."""


def tools_text(specs: Sequence[ToolSpec], turn: Turn, choice: str | None) -> str:
    texts = [_HOW_TO_CALL, *_descriptions(specs, turn)]
    if choice == "required":
        texts.append("You must use a tool now.")
    elif choice and choice.startswith("tool:"):
        texts.append(f"You must use the tool {choice.removeprefix('tool:')} now.")
    return "\n\n".join(texts)


def tool_list(specs: Sequence[ToolSpec], turn: Turn) -> str:
    """Return the list for a model that has its own way to call tools."""
    return "\n\n".join(("# Tools", *_descriptions(specs, turn)))


def _descriptions(specs: Sequence[ToolSpec], turn: Turn) -> Iterator[str]:
    for spec in specs:
        tool = turn.tools.get(spec.name)
        yield describe(spec, tool.examples if tool else ())


def call_text(call: ToolCall) -> str:
    body = call.broken or msgspec.json.encode(call.arguments).decode()
    return f'<tool_use name="{call.name}">{body}</tool_use>'


def result_text(result: ToolResult, call: ToolCall | None) -> str:
    name = result.name or (call.name if call else "(unknown)")
    parameters = msgspec.json.encode(call.arguments if call else {}).decode()
    text = result.text.replace("</functions_result>", "<\\/functions_result>")  # must not close early
    kind = "Error" if result.is_error else "Result"
    return f"{RESULT_TAG}\nTool: {name}\nParameters: {parameters}\n{kind}: {text}\n</functions_result>"


def in_words(history: Iterable[Message]) -> Iterator[Message]:
    """Yield the conversation with calls and results as text."""
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
