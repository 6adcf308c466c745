"""OpenAI's Chat Completions API as a dialect, and what servers that are compatible with it add."""

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
from .._openai import TOOL_NAME_MAX, customs_of, error_status
from .._wire import WireError, object_field, own, reading_reply, refused
from .images import edit_images
from .meter import Meter, ask_for_usage
from .parts import NAME
from .prompt import read_prompt, write_prompt
from .reader import Reader
from .reply import error_body, read_reply, write_reply
from .writer import Writer

__all__ = ["OpenAIChat"]


class OpenAIChat:
    """`tokens_max_field` is `max_tokens` for servers that do not know OpenAI's newer name."""

    name = NAME
    path = "/v1/chat/completions"
    messages_field = "messages"

    def __init__(self, *, tokens_max_field: str = "max_completion_tokens") -> None:
        self.tokens_max_field = tokens_max_field

    def write_prompt(self, prompt: Prompt, *, model: str, stream: bool = True) -> Json:
        return write_prompt(prompt, model=model, stream=stream, tokens_max_field=self.tokens_max_field)

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
        """`prompt` is the caller's: a caller that did not ask for usage gets no chunk without choices."""
        asked = {} if prompt is None else object_field(own(prompt, NAME), "stream_options")
        with_usage = asked.get("include_usage", True)
        return Writer(model=model, id=id, created_s=created_s, with_usage=with_usage, customs=customs_of(prompt, NAME))

    def read_reply(self, body: Json, tools: tuple[ToolSpec, ...] = ()) -> Reply:
        with reading_reply(NAME):
            return with_own_names(read_reply(body), tools, TOOL_NAME_MAX)

    def write_reply(
        self, reply: Reply, *, model: str, id: str, prompt: Prompt | None = None, created_s: int = 0
    ) -> Json:
        return write_reply(reply, model=model, id=id, created_s=created_s, customs=customs_of(prompt, NAME))

    def read_error(self, status: int, body: bytes, *, provider: str = "", model: str = "") -> EngineError:
        return error_of_answer(status, body, provider=provider, model=model)

    def write_error(self, error: EngineError) -> tuple[int, Json]:
        return error_status(error), error_body(error)

    def meter(self, fields: dict[str, msgspec.Raw]) -> Meter:
        return Meter(hides_usage=ask_for_usage(fields))

    def write_failure(self, error: EngineError) -> bytes:
        return self.meter({}).fail(error)

    def edit_images(self, messages: Any, edit: Callable[[Media], Media]) -> None:
        edit_images(messages, edit)

    def headers(self, key: str) -> dict[str, str]:
        """A local server may have no key."""
        return {"authorization": f"Bearer {key}"} if key else {}
