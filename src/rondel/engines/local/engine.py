"""A model's file as an engine: from a prompt to deltas."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path

import msgspec

from ...calling.threads import in_thread
from ...contracts.dialect import Json
from ...errors import EngineError, PromptRejected
from ...prompt import Prompt
from ...text.attached import check_attachments, text_in
from ...values import (
    Delta,
    ModelFacts,
    Notice,
    PartFinished,
    ReplyFinished,
    ReplyStarted,
    StopReason,
    ToolCall,
    Usage,
)
from .answer import AnswerReader, NativeReader
from .background import Background, BackgroundRequest, ProcessEnded, Unavailable, is_supported
from .llama import ModelSettings, usable_threads
from .model import SharedModel, acquire, release
from .model_input import ModelInput, model_input
from .request import ModelRequest
from .schema import must_call
from .weights import Card, ToolFormat, card_of_file, check_unchanged, known_file, tool_format_of

log = logging.getLogger("rondel.engines.local.engine")


class LocalEngine:
    """A model's file as an engine. Engines of the same file and settings share one loaded model.

    With `keep_s`, a background process of this user loads it and keeps it for this many seconds after its last use.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        name: str = "",
        context_tokens: int = 4096,
        threads: int | None = None,
        card: Card | None = None,
        keep_s: float = 0.0,
        tool_format: ToolFormat | None = None,
    ) -> None:
        self._path = Path(path).absolute()
        weights = known_file(self._path)
        self._name = name or f"local:{weights.name if weights else self._path.stem}"
        self._card = card or (weights.card if weights else card_of_file(self._path))
        if tool_format is not None:
            self._card = msgspec.structs.replace(self._card, tool_format=tool_format)
        self._settings = ModelSettings(str(self._path), context_tokens, threads or usable_threads())
        self._model: SharedModel | None = None
        self._background: Background | None = None
        if keep_s > 0 and is_supported():
            self._background = Background(self._settings, keep_s)
        self._checked = self._has_format = False

    @property
    def name(self) -> str:
        return self._name

    @property
    def facts(self) -> ModelFacts:
        window_tokens = self._settings.context_tokens
        return ModelFacts(window_tokens=window_tokens, tools=True, output_schema=True, small=self._card.small)

    async def load(self) -> None:
        model = self._shared()
        await model.run(model.server)

    async def aclose(self) -> None:
        """Release the model. The last engine that does frees its memory, after the requests in progress."""
        if self._background is not None:
            self._background.close()
        if self._model is not None:
            model, self._model = self._model, None
            if release(model):
                await model.run(model.free)

    def _shared(self) -> SharedModel:
        if self._model is None:
            self._model = acquire(self._settings)
        return self._model

    async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        check_attachments(prompt.newest_first(), lambda media: text_in(media) is not None, self._name)
        with_tools = bool(prompt.tools) and not must_call(prompt.options)
        card, reply = await self._checked_card(with_tools), _Answered()
        async for delta in self._ask(model_input(prompt, card), reply):
            yield delta
        if reply.repeated or reply.unusable:
            held = msgspec.structs.replace(card, tool_format="examples")  # the decoder enforces this form
            async for delta in self._ask(model_input(prompt, held, answer_now=reply.repeated), reply):
                yield delta
        yield ReplyFinished(reply.stop, reply.usage)

    async def _checked_card(self, with_tools: bool) -> Card:
        """Return the card with the format for tools, when it is first needed.

        Only the first request of each kind waits for a thread that reads the file: two threads may end in either order,
        and requests must be answered in the order in which they come.
        """
        if not self._checked:
            await in_thread(check_unchanged, self._path)
            self._checked = True
        if with_tools and not self._has_format:
            tool_format, _ = await in_thread(tool_format_of, self._card, self._path)
            self._card, self._has_format = msgspec.structs.replace(self._card, tool_format=tool_format), True
        return self._card

    async def _ask(self, given: ModelInput, reply: _Answered) -> AsyncIterator[Delta]:
        """Yield the answer, but not a call that repeats an earlier one of the turn. `reply` notes this, an answer that
        has nothing in the model's own format, and a call that cannot be read."""
        reader, earlier, usage, finish_reason = given.reader, reply.usage, Usage(), ""
        held, shown = list[Delta](), False
        async with aclosing(self._chunks(given, reply)) as chunks:
            async for chunk in chunks:
                if "loading" in chunk:
                    yield Notice(f"loading {self._name}")
                    continue
                if error := chunk.get("error"):
                    raise self._refused(error)
                if not reply.started:
                    reply.started = True
                    yield ReplyStarted(self._name, chunk.get("id", ""))
                usage = _usage(chunk, usage)
                for choice in chunk["choices"]:
                    finish_reason = choice.get("finish_reason") or finish_reason
                    for delta in reader.read(choice["delta"]):
                        if reader.called and given.steps.calls:
                            held.append(delta)  # shown once it is known not to be a repetition
                        else:
                            shown = True
                            yield delta
                if reader.stop_hit:
                    break
        held += reader.finish(cut=finish_reason == "length")
        reply.usage, reply.stop = earlier + usage, _stop_reason(reader, finish_reason)
        if isinstance(reader, NativeReader) and not shown:
            held = [] if reader.garbled else held
            reply.unusable = not held
        calls = [delta.part for delta in held if isinstance(delta, PartFinished) and isinstance(delta.part, ToolCall)]
        reply.repeated = any(map(given.steps.repeats, calls))
        if not reply.repeated:
            for delta in held:
                yield delta

    async def _chunks(self, given: ModelInput, reply: _Answered) -> AsyncGenerator[Json]:
        """Yield what the runtime sends. If the background process ends before it has sent anything, it is asked
        again."""
        for attempt in (1, 2):
            request = await self._request(given)
            try:
                async for chunk in request.chunks():
                    yield chunk
                return
            except ProcessEnded:
                if reply.started or attempt == 2:
                    raise
            finally:
                request.stop()

    async def _request(self, given: ModelInput) -> ModelRequest | BackgroundRequest:
        if self._background is not None:
            try:
                return await self._background.ask(given.body, given.schema)
            except Unavailable as error:
                log.warning("the model is loaded in this process, not in the background: %s", error)
                self._background = None
        model, request = self._shared(), ModelRequest(given.body, given.schema)
        model.submit(lambda: request.answer(model))
        return request

    def _refused(self, error: Json) -> EngineError:
        where: Json = {"provider": "local", "model": self._name}
        if error.get("type") == "exceed_context_size_error":
            return PromptRejected(
                f"the prompt has {error.get('n_prompt_tokens')} tokens and {self._name!r} takes "
                f"{self._settings.context_tokens}; send less of the history, or raise context_tokens",
                code="context_length_exceeded",
                **where,
            )
        rejected = error.get("code") == 400
        return (PromptRejected if rejected else EngineError)(f"{self._name!r}: {error.get('message')}", **where)


class _Answered:
    """The progress of an answer, over all requests that it takes."""

    def __init__(self) -> None:
        self.started, self.usage = False, Usage()
        self.stop: StopReason = "end"
        self.repeated = self.unusable = False


def _stop_reason(reader: AnswerReader, finish_reason: str) -> StopReason:
    if reader.stop_hit:
        return "stop_sequence"
    if finish_reason == "length":
        return "length"
    return "calls" if reader.called else "end"


def _usage(chunk: Json, known: Usage) -> Usage:
    """Return the runtime's own counts: the last chunk has the totals, each earlier one the counts so far."""
    if sums := chunk.get("usage"):
        details: Json = sums.get("prompt_tokens_details") or {}
        return Usage(sums["prompt_tokens"], sums["completion_tokens"], details.get("cached_tokens", 0))
    if timings := chunk.get("timings"):
        cached = timings["cache_n"]
        return Usage(cached + timings["prompt_n"], timings["predicted_n"], cached)
    return known
