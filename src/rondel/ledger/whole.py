"""Charged embedders and image engines, whose answers do not stream: a reservation before each call, a charge after it,
however the call ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from ..charge import ImageUsage, Scope, Tell, model_of
from ..contracts.embedder import Embedded, Embedder
from ..contracts.images import GeneratedImages, ImageEngine, ImageRequest
from ..engine import close
from ..errors import EngineError
from ..machine.tokens import MEDIA_TOKENS, estimate_tokens
from ..values import Usage

if TYPE_CHECKING:
    from .ledger import Ledger

IMAGE_TOKENS = {"low": 272, "medium": 1_056, "high": 4_160}
"""The tokens of one picture, by its quality, as OpenAI counts those of 1024x1024. Other servers report none: then these
are charged as an estimate."""

E = TypeVar("E", Embedder, ImageEngine)
A = TypeVar("A", Embedded, GeneratedImages)


class _Charged(Generic[E]):
    kind = ""

    def __init__(self, engine: E, ledger: Ledger, scope: Scope | Callable[[], Scope], tell: Tell | None) -> None:
        self._engine, self._ledger, self._scope, self._tell = engine, ledger, scope, tell

    @property
    def name(self) -> str:
        return self._engine.name

    async def _ask(self, call: Callable[[], Awaitable[A]], expected: Usage, images: ImageUsage | None = None) -> A:
        scope = self._scope if isinstance(self._scope, Scope) else self._scope()
        named = scope.over(Scope(engine=self.name, model=model_of(self.name)))
        reservation = await self._ledger.reserve(
            msgspec.structs.replace(named, kind=self.kind),
            tokens=lambda: (expected.tokens_in, expected.tokens_out),
            tell=self._tell,
            images=images,
        )
        try:
            answer = await call()
        except EngineError as error:
            if attempts := len(error.attempts_of(self.name)):
                lost = Usage(expected.tokens_in * attempts, expected.tokens_out * attempts, estimated=True)
                made = images and ImageUsage(images.made * attempts)
                self._ledger.settle(reservation, lost, images=made)
            else:
                self._ledger.void(reservation)
            raise
        except BaseException:  # the caller left: the server may still be working
            self._ledger.settle(reservation, expected, images=images)
            raise
        if isinstance(answer, GeneratedImages):
            images = ImageUsage(len(answer.images), answer.image_tokens_in)
        self._ledger.settle(reservation, answer.usage, model=answer.model, estimate=lambda: expected, images=images)
        return answer

    async def aclose(self) -> None:
        await close(self._engine)


class ChargedEmbedder(_Charged[Embedder]):
    kind = "embedding"

    @property
    def dimensions(self) -> int | None:
        return self._engine.dimensions

    async def embed(self, texts: Sequence[str]) -> Embedded:
        if not texts:
            return await self._engine.embed(texts)
        return await self._ask(
            lambda: self._engine.embed(texts), Usage(sum(map(estimate_tokens, texts)), estimated=True)
        )


class ChargedImageEngine(_Charged[ImageEngine]):
    kind = "image"

    async def generate(self, request: ImageRequest) -> GeneratedImages:
        # The whole cost must fit into what is left: a picture cannot be cut off when a limit is reached.
        each = IMAGE_TOKENS.get(str(request.options.get("quality")), IMAGE_TOKENS["medium"])
        tokens_in = estimate_tokens(request.prompt) + MEDIA_TOKENS * len(request.sources)
        expected = Usage(tokens_in, each * request.count, estimated=True)
        return await self._ask(lambda: self._engine.generate(request), expected, ImageUsage(request.count))
