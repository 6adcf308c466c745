"""OpenAI's Responses API as a dialect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ...dialect import Json, ReplyReader
from ...errors import EngineError
from ...prompt import Prompt
from ...values import Media, Reply, ToolSpec
from .._failures import error_of_answer
from .._names import reader_for, with_own_names
from .._openai import TOOL_NAME_MAX, error_fields, error_status
from .._wire import WireError, reading_reply, refused
from .images import edit_images
from .meter import Meter
from .parts import NAME
from .prompt import read_prompt, write_prompt
from .reader import Reader
from .reply import read_reply, write_reply
from .writer import Writer

__all__ = ["OpenAIResponses"]


class OpenAIResponses:
    name = NAME
    path = "/v1/responses"
    messages_field = "input"

    def write_prompt(self, prompt: Prompt, *, model: str, stream: bool = True) -> Json:
        return write_prompt(prompt, model=model, stream=stream)

    def decode_messages(self, data: bytes) -> list[Any]:
        return msgspec.json.decode(data)

    def read_prompt(self, body: Json) -> Prompt:
        try:
            return read_prompt(body)
        except WireError as error:
            raise refused(NAME, error) from None

    def reply_reader(self, tools: tuple[ToolSpec, ...] = ()) -> ReplyReader:
        return reader_for(Reader(), tools, TOOL_NAME_MAX)

    def reply_writer(self, *, model: str, id: str, prompt: Prompt | None = None, created_s: int = 0) -> Writer:
        """`prompt` is the caller's, whose settings every response repeats."""
        return Writer(model=model, id=id, prompt=prompt, created_s=created_s)

    def read_reply(self, body: Json, tools: tuple[ToolSpec, ...] = ()) -> Reply:
        with reading_reply(NAME):
            return with_own_names(read_reply(body), tools, TOOL_NAME_MAX)

    def write_reply(
        self, reply: Reply, *, model: str, id: str, prompt: Prompt | None = None, created_s: int = 0
    ) -> Json:
        return write_reply(reply, model=model, id=id, prompt=prompt, created_s=created_s)

    def read_error(self, status: int, body: bytes, *, provider: str = "", model: str = "") -> EngineError:
        return error_of_answer(status, body, provider=provider, model=model)

    def write_error(self, error: EngineError) -> tuple[int, Json]:
        return error_status(error), {"error": error_fields(error)}

    def meter(self, fields: dict[str, msgspec.Raw]) -> Meter:
        return Meter()

    def write_failure(self, error: EngineError) -> bytes:
        return self.meter({}).fail(error)

    def edit_images(self, messages: Any, edit: Callable[[Media], Media]) -> None:
        edit_images(messages, edit)

    def headers(self, key: str) -> dict[str, str]:
        """A local server may have no key."""
        return {"authorization": f"Bearer {key}"} if key else {}
