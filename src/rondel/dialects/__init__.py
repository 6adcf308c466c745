"""The wire formats that Rondel speaks. Importing this imports none of them: each comes when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable

from ..contracts.dialect import Dialect


def _openai_chat() -> Dialect:
    from .openai_chat import OpenAIChat

    return OpenAIChat()


def _openai_responses() -> Dialect:
    from .openai_responses import OpenAIResponses

    return OpenAIResponses()


def _anthropic() -> Dialect:
    from .anthropic import Anthropic

    return Anthropic()


DIALECTS: dict[str, Callable[[], Dialect]] = {
    "openai-chat": _openai_chat,
    "openai-responses": _openai_responses,
    "anthropic": _anthropic,
}
