"""OpenAI's Responses API as a dialect."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ...contracts.dialect import ReplyReader
from ...prompt import Prompt
from ...values import ModelFacts, ToolSpec
from .._names import reader_for
from .._openai import HEADERS, TOOL_NAME_MAX
from .meter import Meter
from .parts import NAME, carries, edit_images
from .prompt import read_prompt, write_prompt
from .reader import OpenAIResponsesReader
from .writer import OpenAIResponsesWriter

__all__ = ["OpenAIResponses"]


class OpenAIResponses:
    name = NAME
    path = "/v1/responses"
    messages_field = "input"
    headers = HEADERS

    carries = staticmethod(carries)
    read_prompt = staticmethod(read_prompt)
    write_prompt = staticmethod(write_prompt)

    def reply_reader(self, tools: tuple[ToolSpec, ...] = ()) -> ReplyReader:
        return reader_for(OpenAIResponsesReader(), tools, TOOL_NAME_MAX)

    def reply_writer(
        self, *, model: str = "", id: str = "", prompt: Prompt | None = None, created_s: int = 0
    ) -> OpenAIResponsesWriter:
        """`prompt` is the caller's, whose settings every response repeats."""
        return OpenAIResponsesWriter(model=model, id=id, prompt=prompt, created_s=created_s)

    # --- Passthrough --------------------------------------------------------------------------------------------------

    def meter(self, fields: dict[str, msgspec.Raw]) -> Meter:
        return Meter()

    def takes(self, fields: Mapping[str, msgspec.Raw], facts: ModelFacts) -> bool:
        return True

    edit_images = staticmethod(edit_images)
