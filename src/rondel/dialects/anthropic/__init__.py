"""Anthropic's Messages API as a dialect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ...dialect import Json, ReplyReader
from ...errors import EngineError
from ...prompt import Prompt
from ...values import Media, Reply, ToolSpec
from .._failures import error_of_answer, status_of
from .._names import reader_for, with_own_names
from .._wire import WireError, reading_reply, refused
from .images import edit_images
from .meter import Meter
from .parts import NAME, TOOL_NAME_MAX
from .plain import decode_messages
from .prompt import THINKING_TOKENS_MIN, TOKENS_MAX_DEFAULT, read_prompt, write_prompt
from .reader import Reader
from .reply import error_body, read_reply, write_reply
from .writer import Writer

__all__ = ["THINKING_TOKENS_MIN", "TOKENS_MAX_DEFAULT", "Anthropic"]

VERSION = "2023-06-01"


class Anthropic:
    name = NAME
    path = "/v1/messages"
    messages_field = "messages"

    def write_prompt(self, prompt: Prompt, *, model: str, stream: bool = True) -> Json:
        return write_prompt(prompt, model=model, stream=stream)

    def decode_messages(self, data: bytes) -> list[Any]:
        return decode_messages(data)

    def read_prompt(self, body: Json) -> Prompt:
        try:
            return read_prompt(body)
        except WireError as error:
            raise refused(NAME, error) from None

    def reply_reader(self, tools: tuple[ToolSpec, ...] = ()) -> ReplyReader:
        return reader_for(Reader(), tools, TOOL_NAME_MAX)

    def reply_writer(self, *, model: str, id: str, prompt: Prompt | None = None, created_s: int = 0) -> Writer:
        """`prompt` and `created_s` are for dialects that repeat them; this one does not."""
        return Writer(model=model, id=id)

    def read_reply(self, body: Json, tools: tuple[ToolSpec, ...] = ()) -> Reply:
        with reading_reply(NAME):
            return with_own_names(read_reply(body), tools, TOOL_NAME_MAX)

    def write_reply(
        self, reply: Reply, *, model: str, id: str, prompt: Prompt | None = None, created_s: int = 0
    ) -> Json:
        return write_reply(reply, model=model, id=id)

    def read_error(self, status: int, body: bytes, *, provider: str = "", model: str = "") -> EngineError:
        return error_of_answer(status, body, provider=provider, model=model)

    def write_error(self, error: EngineError) -> tuple[int, Json]:
        status = status_of(error)
        return 529 if status == 503 else status, error_body(error)

    def meter(self, fields: dict[str, msgspec.Raw]) -> Meter:
        return Meter()

    def write_failure(self, error: EngineError) -> bytes:
        return self.meter({}).fail(error)

    def edit_images(self, messages: Any, edit: Callable[[Media], Media]) -> None:
        edit_images(messages, edit)

    def headers(self, key: str) -> dict[str, str]:
        """A local server may have no key."""
        return {"anthropic-version": VERSION, **({"x-api-key": key} if key else {})}
