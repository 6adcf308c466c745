"""Turns a prompt into a request to the runtime: the words, the form of the answer, and the sampling.

With tools there are two forms, and the model's card says which. `native` is that of the model's chat template: the
runtime writes tools, calls and results as the template does, and enforces its form once the model begins a call. With
`examples`, tools are offered in the system message, example turns show their use to a small model, and the decoder
enforces one JSON object: `{"say": …}` or `{"tool": …, "arguments": …}`. A required call or document is always enforced,
so it has this form. Without tools the answer is text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...contracts.dialect import Json
from ...errors import PromptRejected
from ...prompt import Prompt
from ...values import Options, ToolSpec
from .answer import AnswerReader, NativeReader, TextReader, UnionReader
from .examples import example_turns
from .schema import document_schema, must_call, union_schema
from .steps import Steps, steps_of, with_reminders
from .weights import Card
from .words import chat_messages, native_messages, native_tools, note_on_tools, split

TOKENS_MAX = 512
NO_LOOPS: Json = {
    "dry_multiplier": 2.0,
    "dry_base": 1.75,
    "dry_allowed_length": 20,
    "dry_penalty_last_n": 64,
    "dry_sequence_breakers": [":", '"', "*"],  # the runtime's own without the newline: verses are repeated line by line
}
"""A sequence that would repeat more than 20 of the last 64 tokens becomes less and less likely; a name or an address
that is copied from the prompt is shorter than that."""


class ModelInput(NamedTuple):
    """The body of a request, the form that the answer must have, its reader, and the steps of the turn so far."""

    body: Json
    schema: Json | None
    reader: AnswerReader
    steps: Steps = Steps("", ())


def model_input(prompt: Prompt, card: Card, *, answer_now: bool = False) -> ModelInput:
    """Return the request for a prompt. With `answer_now`, no tool can be called unless a call is required."""
    options, messages, tools = prompt.options, prompt.messages, _offered(prompt)
    body: Json = {
        "max_tokens": options.tokens_max or TOKENS_MAX,
        "seed": -1 if options.seed is None else options.seed,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_progress": True,
        "timings_per_token": True,
        "cache_prompt": True,
        # Templates of thinking models know this option; a small model would think for minutes about a greeting.
        "chat_template_kwargs": {"enable_thinking": options.thinking not in (None, "off")},
        **_sampling(options, card, choosing=bool(tools)),
    }
    if not tools:
        output = options.output
        schema = document_schema(output.schema) if output else None
        words = {"messages": chat_messages(messages, "")}
        return ModelInput(body | words, schema, TextReader(options.stop, is_json=output is not None))
    if card.tool_format == "native" and not (answer_now or must_call(options) or options.output):
        words = {"messages": native_messages(messages), "tools": native_tools(tools)}
        names = frozenset(tool.name for tool in tools)
        return ModelInput(body | words, None, NativeReader(names, options.stop), steps_of(messages))
    remarks = bool(messages) and messages[-1].role == "system" and any(m.role == "user" for m in messages)
    examples = tuple(example_turns(tools, options, remarks=remarks)) if card.small else ()
    steps = steps_of(messages) if card.small and not must_call(options) else Steps("", ())
    may_call = must_call(options) or (steps.may_call and not answer_now)
    said = with_reminders(messages) if card.small else messages
    note, shown = note_on_tools(tools, options), with_reminders(examples)
    words: Json = {"messages": chat_messages(said, note, shown)}
    if shown:  # not for the runtime, which ignores it
        words["constant_messages"] = len(chat_messages(split(said)[0], note, shown))
    schema = union_schema(tools if may_call else (), options)
    return ModelInput(body | words, schema, UnionReader(options.stop), steps)


def _sampling(options: Options, card: Card, *, choosing: bool) -> Json:
    """Return what people asked for, else the settings of the model's card. Randomness and penalties help words and harm
    choices (with them the 1.5B model chose 9 of 12 tools right, without them 12 of 12), so where the model chooses,
    only loops are prevented."""
    settings: Json = {}
    if choosing:
        settings |= {"temperature": 0.0, **NO_LOOPS}
    elif options.output is None:
        settings["repeat_penalty"] = card.repeat_penalty
    for key in ("temperature", "top_p", "top_k"):
        value = getattr(options, key)
        if value is None and key not in settings:
            value = getattr(card.options, key)
        if value is not None:
            settings[key] = value
    return settings


def _offered(prompt: Prompt) -> Sequence[ToolSpec]:
    choice = prompt.options.tool_choice or "auto"
    if choice == "none":
        return ()
    if not choice.startswith("tool:"):
        return prompt.tools
    name = choice.removeprefix("tool:")
    tools = [tool for tool in prompt.tools if tool.name == name]
    if not tools:
        known = ", ".join(tool.name for tool in prompt.tools) or "none"
        raise PromptRejected(f"tool_choice names {name!r}, which is not one of the offered tools ({known})")
    return tools
