"""A model's file as an engine: from a prompt to deltas."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from ...contracts.dialect import Json
from ...errors import EngineError, PromptRejected
from ...prompt import Prompt
from ...text.attached import check_attachments, text_in
from ...values import Delta, ModelFacts, Notice, ReplyFinished, ReplyStarted, StopReason, Usage
from .answer import Reader
from .llama import ModelSettings, usable_threads
from .model import SharedModel, acquire, release
from .question import question_of
from .request import Request
from .weights import CATALOG, Card, Weights, path_of


class LocalEngine:
    """A model's file as an engine. Engines of the same file and settings share one loaded model."""

    def __init__(
        self,
        path: Path | str,
        *,
        name: str = "",
        context_tokens: int = 4096,
        threads: int | None = None,
        card: Card | None = None,
    ) -> None:
        path = Path(path)
        weights = next((w for w in CATALOG if w.file == path.name), None)
        self._name = name or f"local:{weights.name if weights else path.stem}"
        self._card = card or (weights.card if weights else Card())
        self._settings = ModelSettings(str(path.absolute()), context_tokens, threads or usable_threads())
        self._model: SharedModel | None = None

    @classmethod
    def of(cls, weights: Weights, *, context_tokens: int = 4096, threads: int | None = None) -> LocalEngine:
        return cls(path_of(weights), context_tokens=context_tokens, threads=threads, card=weights.card)

    @property
    def name(self) -> str:
        return self._name

    @property
    def facts(self) -> ModelFacts:
        return ModelFacts(window_tokens=self._settings.context_tokens, tools=True, output_schema=True)

    async def load(self) -> None:
        model = self._shared()
        await model.run(model.server)

    async def aclose(self) -> None:
        """Let go of the model; the last engine that does frees its memory, after the requests under way."""
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
        question = question_of(prompt, self._card)
        reader, usage, finish_reason, started = question.reader, Usage(), "", False
        model, request = self._shared(), Request(question)
        if not model.is_loaded:
            yield Notice(f"loading {self._name}")
        model.submit(lambda: request.answer(model))
        try:
            async for chunk in request.chunks():
                if error := chunk.get("error"):
                    raise self._refused(error)
                if not started:
                    started = True
                    yield ReplyStarted(self._name, chunk.get("id", ""))
                usage = _usage(chunk, usage)
                for choice in chunk["choices"]:
                    finish_reason = choice.get("finish_reason") or finish_reason
                    for delta in reader.feed(choice["delta"].get("content") or ""):
                        yield delta
                if reader.stop_hit:
                    break
        finally:
            request.stop()
        for delta in reader.finish(cut=finish_reason == "length"):
            yield delta
        yield ReplyFinished(_stop_reason(reader, finish_reason), usage)

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


def _stop_reason(reader: Reader, finish_reason: str) -> StopReason:
    if reader.stop_hit:
        return "stop_sequence"
    if finish_reason == "length":
        return "length"
    return "calls" if reader.called else "end"


def _usage(chunk: Json, known: Usage) -> Usage:
    """The runtime's own counts: the last chunk has the sums, each one before it has them so far."""
    if sums := chunk.get("usage"):
        details: Json = sums.get("prompt_tokens_details") or {}
        return Usage(sums["prompt_tokens"], sums["completion_tokens"], details.get("cached_tokens", 0))
    if timings := chunk.get("timings"):
        cached = timings["cache_n"]
        return Usage(cached + timings["prompt_n"], timings["predicted_n"], cached)
    return known
