"""A request on its way between the loop that waits for chunks and the thread on which the model writes them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import msgspec

from ...contracts.dialect import Json
from ...errors import EngineError, PromptRejected
from .model import SharedModel
from .schema import grammar_of


class ModelRequest:
    def __init__(self, body: Json, schema: Json | None) -> None:
        self._body, self._schema = body, schema
        self._loop = asyncio.get_running_loop()
        self._arrived = asyncio.Event()
        self._lock = threading.Lock()
        self._chunks = list[bytes]()
        self._stopped = self._ended = False
        self._error: BaseException | None = None

    def stop(self) -> None:
        """Stop the answer: the model stops at its next token, or after the current batch of the prompt."""
        self._stopped = True

    async def chunks(self) -> AsyncIterator[Json]:
        async for chunk in self.raw_chunks():
            yield msgspec.json.decode(chunk)

    async def raw_chunks(self) -> AsyncIterator[bytes]:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            with self._lock:
                chunks, ended = self._chunks, self._ended
                self._chunks = []
            for chunk in chunks:
                yield chunk
            if self._error is not None:
                raise self._error
            if ended:
                return

    def answer(self, model: SharedModel) -> None:
        """Ask the model, and pass its chunks on. Called on the model's thread."""
        error: BaseException | None = None
        try:
            if not self._unwanted():
                if not model.is_loaded:
                    self._take(b'{"loading":true}')
                body = self._body
                if self._schema is not None:
                    body = body | {"grammar": grammar_of(self._schema)}
                server = model.server(body, lambda _: self._unwanted())
                if not self._unwanted():
                    server.handle_chat_completions(msgspec.json.encode(body), self._take)
        except EngineError as failed:
            error = failed
        except ValueError as failed:
            hint = '; tool_format = "examples" takes every tool' if "tools" in self._body else ""
            text = f"the model's template does not take this prompt: {failed}{hint}"
            error = PromptRejected(text, provider="local")
        except BaseException as failed:
            error = EngineError(f"the embedded model failed: {failed!r}", provider="local")
        with self._lock:
            self._ended, self._error = True, error
        self._wake()

    def _take(self, chunk: bytes) -> bool:
        """Pass a chunk on. The runtime calls this; true stops it."""
        if self._unwanted():
            return True
        with self._lock:
            self._chunks.append(chunk)
            first = len(self._chunks) == 1
        if first:  # the loop then takes everything that has arrived
            self._wake()
        return self._stopped

    def _unwanted(self) -> bool:
        return self._stopped or not threading.main_thread().is_alive()

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._arrived.set)
        except RuntimeError:  # the loop has been closed
            self._stopped = True
