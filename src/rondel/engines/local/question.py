"""From a prompt to the request that the runtime takes: the words, the form of the answer, and how it is sampled.

The templates of small models know no tools, so tools are offered in the system message and the decoder is held to one
JSON object: `{"say": …}` or `{"tool": …, "arguments": …}`. Without tools the answer is plain text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...contracts.dialect import Json
from ...errors import PromptRejected
from ...prompt import Prompt
from ...values import Options, ToolSpec
from .answer import Reader, TextReader, UnionReader
from .schema import document_schema, union_schema
from .weights import Card
from .words import chat_messages, note_on_tools

TOKENS_MAX = 512
NO_LOOPS: Json = {"dry_multiplier": 2.0, "dry_base": 1.75, "dry_allowed_length": 20, "dry_penalty_last_n": 64}
"""What would repeat more than 20 of the last 64 tokens gets ever less likely; a name or an address that is copied from
the prompt is shorter than that."""


class Question(NamedTuple):
    """The body of a request, what the answer is held to, and what reads it."""

    body: Json
    schema: Json | None
    reader: Reader


def question_of(prompt: Prompt, card: Card) -> Question:
    options = prompt.options
    tools = _offered(prompt)
    if tools:
        schema, note = union_schema(tools, options), note_on_tools(tools, options)
        reader: Reader = UnionReader(options.stop)
    else:
        output = options.output
        schema, note = (document_schema(output.schema) if output else None), ""
        reader = TextReader(options.stop, is_json=output is not None)
    body: Json = {
        "messages": chat_messages(prompt.messages, note),
        "max_tokens": options.tokens_max or TOKENS_MAX,
        "seed": -1 if options.seed is None else options.seed,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_progress": True,
        "timings_per_token": True,
        "cache_prompt": True,
    }
    return Question(body | _sampling(options, card, choosing=bool(tools)), schema, reader)


def _sampling(options: Options, card: Card, *, choosing: bool) -> Json:
    """What people asked for, else what the model's card says. Chance and penalties help words and harm choices (with
    them the 1.5B model chose 9 of 12 tools right, without them 12 of 12), so where there is a choice only loops are
    kept off."""
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
        raise PromptRejected(f"tool_choice names {name!r}, which is not among the tools on offer ({known})")
    return tools
