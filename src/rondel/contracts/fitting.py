"""Fits the options of a prompt to what its model accepts.

Programs send every model the options that their usual model takes: too many tokens, thinking, or thinking in another
form. A server then rejects the whole request. For an unknown model only one option is dropped, a gateway caller's
`thinking: off`, because many servers reject the field itself. Pure; the only thing that it knows about wire formats is
which have two forms for thinking.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..prompt import Prompt
from ..values import Message, ModelFacts, Options, Thinking, ThinkingLevel

THINKING_TOKENS_MIN = 1024  # the smallest budget for thinking that Anthropic's API takes
_TWO_FORMS = ("anthropic",)
"""Dialects that ask for thinking with an effort or with a budget of tokens. The others have efforts only."""
_BUDGETS: dict[str, int] = {"minimal": THINKING_TOKENS_MIN, "low": 2_048, "medium": 8_192, "high": 16_384}
_LEVELS: tuple[tuple[int, ThinkingLevel], ...] = ((4_096, "low"), (16_384, "medium"))
"""The level for fewer tokens of thinking than this."""
_TOP_P_MIN = 0.95  # what a model that takes no sampling while it thinks still accepts as `top_p`


def level_of(tokens_max: int) -> ThinkingLevel:
    for most, level in _LEVELS:
        if tokens_max < most:
            return level
    return "high"


def fitted(prompt: Prompt, facts: ModelFacts, dialect: str) -> Prompt:
    """Return the prompt with options that the model accepts. `dialect` is the model's."""
    options, most = prompt.options, facts.output_tokens_max
    thinks = facts.thinking
    if thinks is None and options.thinking == "off" and prompt.model and dialect not in prompt.opaque:
        thinks = False
    if thinks is False and (options.thinking or options.thinking_tokens_max):
        options = _without_thinking(options)
    if most is not None and options.tokens_max is not None and options.tokens_max > most:
        options = _capped(options, most)
    if _asks_thinking(options):
        if facts.thinking_strict and (options.tool_choice or "").startswith(("required", "tool:")):
            options = _without_thinking(options)  # both together are refused, and callers rely on the required call
        elif dialect in _TWO_FORMS:
            options = _in_its_form(options, facts, prompt, dialect)
    if not facts.sampling or (facts.thinking_strict and _asks_thinking(options)):
        options = _without_sampling(options, facts)
    return prompt if options is prompt.options else prompt.replace(options=options)


def _asks_thinking(options: Options) -> bool:
    return options.thinking not in (None, "off") or options.thinking_tokens_max is not None


def _without_thinking(options: Options) -> Options:
    return msgspec.structs.replace(options, thinking=None, thinking_tokens_max=None)


def _without_sampling(options: Options, facts: ModelFacts) -> Options:
    top_p = options.top_p
    if top_p is not None and (not facts.sampling or top_p < _TOP_P_MIN):
        top_p = None
    if (options.temperature, options.top_p, options.top_k) == (None, top_p, None):
        return options
    return msgspec.structs.replace(options, temperature=None, top_p=top_p, top_k=None)


def _capped(options: Options, most: int) -> Options:
    """Cap the tokens of an answer; thinking is part of it and gets at most half."""
    budget = options.thinking_tokens_max
    if budget is not None and budget >= most:
        budget = most // 2
    return msgspec.structs.replace(options, tokens_max=most, thinking_tokens_max=budget)


# --- the two forms of thinking ----------------------------------------------------------------------------------------


def _in_its_form(options: Options, facts: ModelFacts, prompt: Prompt, dialect: str) -> Options:
    """Return the options with thinking in the form that the model takes: an effort, or a budget of tokens."""
    budget = options.thinking_tokens_max
    if not facts.thinking_effort:
        if _lost_its_thinking(prompt.messages, dialect):
            return _without_thinking(options)
        if budget is None:
            budget = _budget(options)
        return msgspec.structs.replace(options, thinking=None, thinking_tokens_max=budget)
    if not facts.thinking_budget and budget is not None:
        return msgspec.structs.replace(options, thinking=options.thinking or level_of(budget), thinking_tokens_max=None)
    return options


def _budget(options: Options) -> int | None:
    """Return the budget of a level: at most half of the answer. None if even the smallest budget is too large."""
    budget, most = _BUDGETS[options.thinking or "high"], options.tokens_max
    if most is None:
        return budget
    return max(THINKING_TOKENS_MIN, min(budget, most // 2)) if most > THINKING_TOKENS_MIN else None


def _lost_its_thinking(messages: Iterable[Message], dialect: str) -> bool:
    """Return whether the thinking before the newest calls is missing.

    A model that takes a budget requires its own thinking before its calls. If that is missing (another model made the
    calls, or the caller could not keep it), the request is refused unless thinking is off.
    """
    answered = called = False
    for message in reversed(tuple(messages)):
        if message.role == "tool":
            answered = True
        elif message.role == "assistant":
            if not answered or any(isinstance(part, Thinking) and dialect in part.opaque for part in message.parts):
                return False
            called = True
        elif called:
            return True
    return called
