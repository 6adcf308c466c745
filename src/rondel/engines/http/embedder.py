"""Embeddings over HTTP: `POST /v1/embeddings` in OpenAI's form, which Ollama and most servers speak.

The request goes through an engine's relay, so retries, fallbacks, keys and errors are the engine's own.
"""

from __future__ import annotations

import base64
import binascii
import math
import sys
from array import array
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from ...contracts.embedder import Embedded, Vector
from ...engine import Engine, Relays, close
from ...errors import EngineGarbled
from ...values import Usage

PATH = "/v1/embeddings"
DIMENSIONS_MAX = 65_536

_encode = msgspec.json.Encoder().encode


class _Item(msgspec.Struct):
    embedding: str | list[float]
    index: int = 0


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    total_tokens: int = 0


class _Answer(msgspec.Struct):
    data: list[_Item]
    model: str | None = None
    usage: _Usage | None = None


class HttpEmbedder:
    """An embedding model behind an engine that relays to a server with OpenAI's API."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._dimensions: int | None = None

    @property
    def name(self) -> str:
        return self._engine.name

    @property
    def dimensions(self) -> int | None:
        return self._dimensions

    async def embed(self, texts: Sequence[str]) -> Embedded:
        if not texts:
            return Embedded([])
        # Base64 is a third of the size of decimal numbers; servers that do not know the field send numbers.
        body: dict[str, Any] = {"model": "", "input": list(texts), "encoding_format": "base64"}
        fields = {name: msgspec.Raw(_encode(value)) for name, value in body.items()}
        relayed = await cast(Relays, self._engine).relay(fields, {}, path=PATH)
        try:
            pieces: list[bytes] = []
            while piece := await relayed.read():
                pieces.append(piece)
        finally:
            relayed.close()
        answer = self._read(b"".join(pieces), len(texts))
        vectors = [self._vector(item.embedding) for item in answer.data]
        used = answer.usage or _Usage()
        return Embedded(vectors, Usage(tokens_in=used.prompt_tokens or used.total_tokens), answer.model or "")

    async def aclose(self) -> None:
        await close(self._engine)

    def _read(self, data: bytes, count: int) -> _Answer:
        try:
            answer = msgspec.json.decode(data, type=_Answer)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._garbled(f"the answer of {self.name!r} is not a list of embeddings: {error}") from None
        answer.data.sort(key=lambda item: item.index)
        if len(answer.data) != count or [item.index for item in answer.data] != list(range(count)):
            raise self._garbled(f"{self.name!r} sent {len(answer.data)} embeddings for {count} texts")
        return answer

    def _vector(self, given: str | list[float]) -> Vector:
        numbers: Vector = array("f")
        try:
            if isinstance(given, str):
                numbers.frombytes(base64.b64decode(given, validate=True))
                if sys.byteorder == "big":
                    numbers.byteswap()
            else:
                numbers.extend(given)
        except (binascii.Error, ValueError, OverflowError) as error:
            raise self._garbled(f"an embedding of {self.name!r} is not a list of numbers: {error}") from None
        if not 0 < len(numbers) <= DIMENSIONS_MAX:
            raise self._garbled(f"an embedding of {self.name!r} has {len(numbers):,} numbers")
        if self._dimensions is None:
            self._dimensions = len(numbers)
        elif len(numbers) != self._dimensions:
            known = f"{self._dimensions} before"
            raise self._garbled(f"an embedding of {self.name!r} has {len(numbers)} numbers, and {known}")
        length = math.sqrt(math.fsum(number * number for number in numbers))
        if not math.isfinite(length):
            raise self._garbled(f"an embedding of {self.name!r} has a number that is not finite")
        if length and abs(length - 1) > 1e-3:
            numbers = array("f", [number / length for number in numbers])
        return numbers

    def _garbled(self, message: str) -> EngineGarbled:
        provider, _, model = self.name.partition(":")
        return EngineGarbled(message, code="garbled", provider=provider, model=model)
