"""OpenAI's Responses API as a dialect."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ...contracts.dialect import Json, ReplyReader
from ...prompt import Prompt
from ...values import Media, ModelFacts, ToolSpec
from .._images import Edit
from .._names import reader_for
from .._openai import HEADERS, TOOL_NAME_MAX
from .._wire import reading_prompt
from .images import edit_images
from .meter import Meter
from .parts import NAME, carries
from .prompt import read_prompt, write_prompt
from .reader import Reader
from .writer import Writer

__all__ = ["OpenAIResponses"]


class OpenAIResponses:
    name = NAME
    path = "/v1/responses"
    messages_field = "input"
    headers = HEADERS

    def read_prompt(self, body: Json) -> Prompt:
        with reading_prompt(NAME):
            return read_prompt(body)

    def write_prompt(self, prompt: Prompt, *, model: str, stream: bool = True) -> Json:
        return write_prompt(prompt, model=model, stream=stream)

    def reply_reader(self, tools: tuple[ToolSpec, ...] = ()) -> ReplyReader:
        return reader_for(Reader(), tools, TOOL_NAME_MAX)

    def reply_writer(
        self, *, model: str = "", id: str = "", prompt: Prompt | None = None, created_s: int = 0
    ) -> Writer:
        """`prompt` is the caller's, whose settings every response repeats."""
        return Writer(model=model, id=id, prompt=prompt, created_s=created_s)

    def carries(self, media: Media) -> bool:
        return carries(media)

    # --- Passthrough --------------------------------------------------------------------------------------------------

    def meter(self, fields: dict[str, msgspec.Raw]) -> Meter:
        return Meter()

    def takes(self, fields: Mapping[str, msgspec.Raw], facts: ModelFacts) -> bool:
        return True

    def edit_images(self, messages: object, edit: Edit) -> None:
        edit_images(messages, edit)
