"""The charged embedder: a reservation before each call, a charge after it, however the call ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from ..charge import Scope, Tell
from ..contracts.embedder import Embedded, Embedder
from ..engine import close
from ..errors import EngineError
from ..machine.tokens import estimate_tokens
from ..values import Usage

if TYPE_CHECKING:
    from .ledger import Ledger

KIND = "embedding"


class ChargedEmbedder:
    """An embedder whose calls are reserved and charged, as calls of the kind `embedding`."""

    def __init__(
        self, embedder: Embedder, ledger: Ledger, scope: Scope | Callable[[], Scope], tell: Tell | None
    ) -> None:
        self._embedder, self._ledger, self._scope, self._tell = embedder, ledger, scope, tell

    @property
    def name(self) -> str:
        return self._embedder.name

    @property
    def dimensions(self) -> int | None:
        return self._embedder.dimensions

    async def embed(self, texts: Sequence[str]) -> Embedded:
        if not texts:
            return await self._embedder.embed(texts)
        scope = self._scope if isinstance(self._scope, Scope) else self._scope()
        _, colon, model = self.name.partition(":")
        named = scope.over(Scope(engine=self.name, model=model if colon else self.name))
        expected = Usage(sum(map(estimate_tokens, texts)), estimated=True)
        reservation = await self._ledger.reserve(
            msgspec.structs.replace(named, kind=KIND), tokens=lambda: (expected.tokens_in, 0), tell=self._tell
        )
        try:
            embedded = await self._embedder.embed(texts)
        except EngineError as error:
            attempts = error.lost + error.may_have_spent
            lost = Usage(expected.tokens_in * attempts, estimated=True)
            if attempts:
                self._ledger.settle(reservation, lost)
            else:
                self._ledger.void(reservation)
            raise
        except BaseException:  # the caller left: the server may still be working
            self._ledger.settle(reservation, expected)
            raise
        self._ledger.settle(reservation, embedded.usage, model=embedded.model, estimate=lambda: expected)
        return embedded

    async def aclose(self) -> None:
        await close(self._embedder)
