"""Converts between prompts and bodies of OpenAI's Responses API.

A prompt that names no earlier response is complete in itself: it is not stored by the provider, and its reasoning
comes back encrypted, so that the next prompt can carry it. A prompt with `previous_response_id` or `conversation` in
its opaque, or one whose caller said how to store it, is left as it is.

Items of the assistant that follow each other are one message of ours, and so are outputs of calls. `instructions`
become a system message and are written back as `instructions`; other system messages are items in their places.
Thinking `off` is the effort `none`; efforts above `high` are `high` in our values and kept exactly in the opaque.
"""

from __future__ import annotations

from typing import TypeGuard

from ...contracts.dialect import Json
from ...prompt import Prompt
from ...values import Foreign, Message, Options, OutputSchema, Part, Text, Thinking, ToolCall, ToolResult
from .._openai import (
    read_choice,
    read_effort,
    read_schema,
    read_user,
    write_choice,
    write_effort,
    write_plain,
    write_schema,
    write_user,
)
from .._wire import (
    WireError,
    at,
    each,
    extras,
    maybe,
    merge,
    object_field,
    opaque,
    own,
    reading_prompt,
    shown,
    text_field,
    write_tools,
)
from .parts import (
    CUSTOM_CALL,
    NAME,
    call_item,
    message_item,
    read_input_content,
    read_item,
    read_result,
    write_content,
    write_output_part,
    write_result,
)
from .tools import ADDED, call_name_sent, is_inside, read_tools, with_names_of, write_tool

_KNOWN = (
    *("model", "input", "instructions", "stream", "tools", "tool_choice", "parallel_tool_calls", "reasoning", "text"),
    *("max_output_tokens", "temperature", "top_p", "user", "store", "include"),
)
_ENCRYPTED = ["reasoning.encrypted_content"]
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_OF_CALLERS = (ADDED, "item_reference", "mcp_approval_response", "computer_call_output", "local_shell_call_output")


# --- writing ----------------------------------------------------------------------------------------------------------


def write_prompt(prompt: Prompt, *, model: str, stream: bool = True) -> Json:
    instructions, messages = _instructions(prompt.messages)
    alone = not _is_stored(own(prompt, NAME))
    body: Json = {"model": model, "input": _write_items(messages, alone=alone)}
    return body | _write_settings(prompt, instructions, stream=stream)


def write_settings(prompt: Prompt) -> Json:
    """Return all of a prompt except the conversation, which is what a response repeats."""
    instructions, _ = _instructions(prompt.messages)
    return _write_settings(prompt, instructions, stream=False)


def _write_settings(prompt: Prompt, instructions: str, *, stream: bool) -> Json:
    kept, options = own(prompt, NAME), prompt.options
    body: Json = {"instructions": instructions} if instructions else {}
    if stream:
        body["stream"] = True
    if not _is_stored(kept):
        body |= {"store": False, "include": _ENCRYPTED}
    tools, choice = write_tools(prompt.tools, options.tool_choice, write_tool)
    if tools:
        body["tools"] = tools
    if tools or any(map(is_inside, prompt.tools)):
        body |= write_choice(options, choice, nested=False)
    body |= _write_options(options)
    body |= extras({"user": write_user(options.user, kept.get("user"))})
    said = object_field(kept, "reasoning")
    if effort := write_effort(options, said.get("effort")):
        body["reasoning"] = {"effort": effort}
    left = extras(kept, "reasoning")
    if others := extras(said, "effort"):
        left["reasoning"] = others
    return merge(left, body)


def _is_stored(kept: Json) -> bool:
    return any(key in kept for key in ("store", "include", "previous_response_id", "conversation"))


def _write_options(options: Options) -> Json:
    body: Json = {
        "max_output_tokens": options.tokens_max,
        "temperature": options.temperature,
        "top_p": options.top_p,
    }
    if (output := options.output) is not None:
        body["text"] = {"format": {"type": "json_schema", **write_schema(output)}}
    return extras(body)


def _instructions(messages: tuple[Message, ...]) -> tuple[str, list[Message]]:
    """Return the text of the system messages that came as instructions, and the other messages."""
    said: list[str] = []
    rest: list[Message] = []
    for message in messages:
        if message.opaque and own(message, NAME).get("instructions"):
            said.append(message.text)
        else:
            rest.append(message)
    return "\n\n".join(said), rest


def _write_items(messages: list[Message], *, alone: bool) -> list[Json]:
    items: list[Json] = []
    custom = {part.id for message in messages for part in message.parts if _is_custom(part)}
    for message in messages:
        if message.role == "assistant":
            items += _write_assistant(message, alone=alone)
            continue
        whole: list[Json] = []
        others: list[Part] = []
        for part in message.parts:
            if isinstance(part, ToolResult):
                items.append(write_result(part, custom=part.call_id in custom))
            elif _is_item(part):
                whole.append(own(part, NAME))
            else:
                others.append(part)
        items += whole
        if others and (content := write_content(others)) is not None:
            items.append(write_plain(message, content, NAME))
    return items


def _is_custom(part: Part) -> TypeGuard[ToolCall]:
    return isinstance(part, ToolCall) and bool(part.opaque) and own(part, NAME).get("type") == CUSTOM_CALL


def _is_item(part: Part) -> bool:
    """Return whether a Foreign of a user's message is a whole item."""
    return isinstance(part, Foreign) and own(part, NAME).get("type") in _OF_CALLERS


def _write_assistant(message: Message, *, alone: bool) -> list[Json]:
    """Return the items of a reply. Neighbouring texts of one item become one item again."""
    items: list[Json] = []
    open_item: Json = {}
    for part in message.parts:
        if isinstance(part, (Text, Foreign)) and part.opaque and (item := own(part, NAME).get("item")):
            if item != open_item:
                items.append(_message_of(item))
            items[-1]["content"].append(write_output_part(part, replay=True))
            open_item = item
            continue
        open_item = {}
        if isinstance(part, Text):
            items.append({"role": "assistant", "content": part.text})
        elif isinstance(part, ToolCall):
            items.append(call_item(part, name=call_name_sent(part)))
        elif isinstance(part, Thinking) and _can_replay(kept := own(part, NAME), alone=alone):
            items.append({"summary": [], **kept, "type": "reasoning"})
        elif isinstance(part, Foreign) and "type" in (raw := own(part, NAME)):
            items.append(raw)
    return items


def _message_of(item: Json) -> Json:
    """Return a message item. One that came with an id is sent back with it; otherwise the id is left out, because it
    must not be empty."""
    whole = message_item(item, "", [])
    return whole if item.get("id") else extras(whole, "id", *(() if "status" in item else ("status",)))


def _can_replay(kept: Json, *, alone: bool) -> bool:
    """Return whether reasoning can be sent back: if the provider did not store it, its content must be there, encrypted
    or not."""
    return bool(kept.get("encrypted_content") or kept.get("content")) or ("id" in kept and not alone)


# --- reading ----------------------------------------------------------------------------------------------------------


@reading_prompt(NAME)
def read_prompt(body: Json) -> Prompt:
    kept = extras(body, *_KNOWN)
    messages: list[Message] = []
    if instructions := text_field(body, "instructions", ""):
        messages.append(Message("system", (Text(instructions),), opaque={NAME: {"instructions": True}}))
    messages += _read_input(body.get("input"))
    options = _read_options(body, kept)
    _read_storing(body, kept)
    tools = read_tools(body, messages)
    messages = with_names_of(tools, messages)
    return Prompt(tuple(messages), tools, options, text_field(body, "model", ""), opaque(NAME, kept))


def _read_storing(body: Json, kept: Json) -> None:
    """Keep the caller's wish about storing, unless it is our own default."""
    refers = any(key in kept for key in ("previous_response_id", "conversation"))
    if not refers and body.get("store") is False and body.get("include") == _ENCRYPTED:
        return
    if not refers or body.get("store") is not None:
        kept["store"] = body.get("store") is not False
    if body.get("include") is not None:
        kept["include"] = body["include"]


def _read_input(given: object) -> list[Message]:
    if isinstance(given, str):
        return [Message("user", (Text(given),))]
    if given is None:
        return []
    messages: list[Message] = []
    for message in each(given, "input", _read_input_item):
        last = messages[-1] if messages else None
        if last is not None and last.role == message.role and message.role in ("assistant", "tool"):
            messages[-1] = Message(last.role, last.parts + message.parts)
        else:
            messages.append(message)
    return messages


def _read_input_item(raw: Json) -> Message:
    kind = text_field(raw, "type", "message")
    if kind in _OUTPUTS:
        return Message("tool", (read_result(raw),))
    if kind == ADDED:
        return Message("system", (Foreign({NAME: raw}),))
    if kind in _OF_CALLERS:
        return Message("user", (Foreign({NAME: raw}),))
    if kind != "message":
        return Message("assistant", tuple(read_item(raw)))
    role = text_field(raw, "role")
    if role == "assistant":
        return Message("assistant", tuple(read_item(raw)))
    if role not in ("user", "system", "developer"):
        raise WireError("role", f"must be user, system, developer or assistant, got {shown(role)}")
    if raw.get("content") is None:
        raise WireError("content", "is missing: it must be a string or a list of parts")
    kept = extras(raw, "type", "role", "content")
    if role == "developer":
        kept["role"] = role
    parts = read_input_content(raw["content"])
    return Message("user" if role == "user" else "system", parts, opaque=opaque(NAME, kept))


def _read_options(body: Json, kept: Json) -> Options:
    """Read the options. Fields that they do not have are added to `kept`."""
    reasoning = object_field(body, "reasoning")
    left = extras(reasoning, "effort")
    level = read_effort(reasoning, "effort", left)
    if left:
        kept["reasoning"] = left
    return Options(
        tokens_max=maybe(body, "max_output_tokens", int),
        temperature=maybe(body, "temperature", float),
        top_p=maybe(body, "top_p", float),
        thinking=level,
        tool_choice=read_choice(body, kept, nested=False),
        parallel_calls=maybe(body, "parallel_tool_calls", bool),
        output=_read_output(body, kept),
        user=read_user(body, kept),
    )


def _read_output(body: Json, kept: Json) -> OutputSchema | None:
    text = object_field(body, "text")
    form, left = object_field(text, "format"), extras(text, "format")
    output = None
    if form.get("type") == "json_schema":
        with at("text.format"):
            output = read_schema(form)
    elif form:
        left["format"] = form
    if left:
        kept["text"] = left
    return output
