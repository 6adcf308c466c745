"""OpenAI's Chat Completions API as a dialect, with additions of compatible servers."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ...contracts.dialect import Json, ReplyReader
from ...prompt import Prompt
from ...values import ModelFacts, ToolSpec
from .._names import reader_for
from .._openai import HEADERS, TOOL_NAME_MAX, customs_of
from .._wire import object_field, own
from .meter import Meter, ask_for_usage
from .parts import NAME, carries, edit_images
from .prompt import read_prompt, write_prompt
from .reader import OpenAIChatReader
from .writer import OpenAIChatWriter

__all__ = ["OpenAIChat"]


class OpenAIChat:
    """`tokens_max_field` is `max_tokens` for servers that do not know OpenAI's newer name."""

    name = NAME
    path = "/v1/chat/completions"
    messages_field = "messages"
    headers = HEADERS

    def __init__(self, *, tokens_max_field: str = "max_completion_tokens") -> None:
        self.tokens_max_field = tokens_max_field

    read_prompt = staticmethod(read_prompt)
    carries = staticmethod(carries)

    def write_prompt(self, prompt: Prompt, *, model: str, stream: bool = True) -> Json:
        return write_prompt(prompt, model=model, stream=stream, tokens_max_field=self.tokens_max_field)

    def reply_reader(self, tools: tuple[ToolSpec, ...] = ()) -> ReplyReader:
        return reader_for(OpenAIChatReader(), tools, TOOL_NAME_MAX)

    def reply_writer(
        self, *, model: str = "", id: str = "", prompt: Prompt | None = None, created_s: int = 0
    ) -> OpenAIChatWriter:
        """`prompt` is the caller's: only a caller that asked for usage gets a chunk without choices."""
        asked = {} if prompt is None else object_field(own(prompt, NAME), "stream_options")
        with_usage = asked.get("include_usage", True)
        return OpenAIChatWriter(
            model=model, id=id, created_s=created_s, with_usage=with_usage, customs=customs_of(prompt, NAME)
        )

    # --- Passthrough --------------------------------------------------------------------------------------------------

    def meter(self, fields: dict[str, msgspec.Raw]) -> Meter:
        return Meter(hides_usage=ask_for_usage(fields))

    def takes(self, fields: Mapping[str, msgspec.Raw], facts: ModelFacts) -> bool:
        return True

    edit_images = staticmethod(edit_images)
