"""Anthropic's Messages API as a dialect."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ...contracts.dialect import Json, ReplyReader
from ...prompt import Prompt
from ...values import Media, ModelFacts, ToolSpec
from .._images import Edit
from .._names import reader_for
from .._wire import reading_prompt
from .images import edit_images
from .meter import Meter
from .parts import NAME, TOOL_NAME_MAX, carries
from .prompt import THINKING_TOKENS_MIN, TOKENS_MAX_DEFAULT, read_prompt, takes, write_prompt
from .reader import Reader
from .writer import Writer

__all__ = ["THINKING_TOKENS_MIN", "TOKENS_MAX_DEFAULT", "Anthropic"]


class Anthropic:
    name = NAME
    path = "/v1/messages"
    messages_field = "messages"
    headers: Mapping[str, str] = {"anthropic-version": "2023-06-01", "x-api-key": "{key}"}

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
        """`prompt` and `created_s` are for dialects that repeat them; this one does not."""
        return Writer(model=model, id=id)

    def carries(self, media: Media) -> bool:
        return carries(media)

    # --- Passthrough --------------------------------------------------------------------------------------------------

    def meter(self, fields: dict[str, msgspec.Raw]) -> Meter:
        return Meter()

    def takes(self, fields: Mapping[str, msgspec.Raw], facts: ModelFacts) -> bool:
        return takes(fields, facts)

    def edit_images(self, messages: object, edit: Edit) -> None:
        edit_images(messages, edit)
