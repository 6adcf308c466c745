"""The charged image engine: a reservation before each call, a charge after it, however the call ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from ..charge import ImageUsage, Scope, Tell
from ..contracts.images import GeneratedImages, ImageEngine, ImageRequest
from ..engine import close
from ..errors import EngineError
from ..machine.tokens import MEDIA_TOKENS, estimate_tokens
from ..values import Usage

if TYPE_CHECKING:
    from .ledger import Ledger

KIND = "image"
TOKENS_OUT = {"low": 272, "medium": 1_056, "high": 4_160}
"""The tokens of one picture, by its quality, as OpenAI counts those of 1024x1024. Other servers report none: then these
are charged as an estimate."""


class ChargedImageEngine:
    """An image engine whose calls are reserved and charged, as calls of the kind `image`."""

    def __init__(
        self, engine: ImageEngine, ledger: Ledger, scope: Scope | Callable[[], Scope], tell: Tell | None
    ) -> None:
        self._engine, self._ledger, self._scope, self._tell = engine, ledger, scope, tell

    @property
    def name(self) -> str:
        return self._engine.name

    async def generate(self, request: ImageRequest) -> GeneratedImages:
        scope = self._scope if isinstance(self._scope, Scope) else self._scope()
        _, colon, model = self.name.partition(":")
        named = scope.over(Scope(engine=self.name, model=model if colon else self.name))
        expected = _expected(request)
        # All of it must fit into what is left: a picture cannot be cut off when a limit is reached.
        reservation = await self._ledger.reserve(
            msgspec.structs.replace(named, kind=KIND),
            tokens=lambda: (expected.tokens_in, expected.tokens_out),
            tell=self._tell,
            images=ImageUsage(request.count),
        )
        try:
            made = await self._engine.generate(request)
        except EngineError as error:
            if error.lost + error.may_have_spent:
                self._ledger.settle(reservation, expected, images=ImageUsage(request.count))
            else:
                self._ledger.void(reservation)
            raise
        except BaseException:  # the caller left: the server may still be drawing
            self._ledger.settle(reservation, expected, images=ImageUsage(request.count))
            raise
        images = ImageUsage(len(made.images), made.image_tokens_in)
        self._ledger.settle(reservation, made.usage, model=made.model, estimate=lambda: expected, images=images)
        return made

    async def aclose(self) -> None:
        await close(self._engine)


def _expected(request: ImageRequest) -> Usage:
    quality = str(request.options.get("quality", "medium"))
    each = TOKENS_OUT.get(quality, TOKENS_OUT["medium"])
    tokens_in = estimate_tokens(request.prompt) + MEDIA_TOKENS * len(request.sources)
    return Usage(tokens_in, each * request.count, estimated=True)
