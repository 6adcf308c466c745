"""`POST /v1/embeddings` in OpenAI's form, in front of every embedder: one that is down is replaced by the next one."""

from __future__ import annotations

import base64
import sys
from array import array
from collections.abc import Callable
from typing import Any, cast

from ...contracts.embedder import Embedded, Embedder, Vector
from ...engine import close
from ...errors import ConfigError, EngineDenied, EngineError, PromptRejected
from ...events import Event, UsageRecorded
from ...ledger.ledger import Ledger
from ...project.config import SAME, canonical_engine
from ...project.embedders import embedder_problem
from ...project.settings import Config
from ..bridge.services import scope_of
from ..bridge.turn_bridge import note_charge
from ..relay.record import Record
from ..relay.request import Request
from ..routing.outages import Outages
from .access import Permit, Refused

TEXTS_MAX = 2_048
EMBEDDERS_MAX = 64  # embedders that are kept open; callers may name any model


class Embeddings:
    """The embedders that callers may use, each made once."""

    def __init__(self, config: Config, ledger: Ledger, outages: Outages, make: Callable[[str], Embedder]) -> None:
        self._config, self._ledger, self._outages, self._make = config, ledger, outages, make
        self._embedders: dict[str, Embedder] = {}

    def names(self, request: Request) -> tuple[str, ...]:
        """Return the embedders for a request, in order: the one that it names, or that of the route, and fallbacks."""
        engines, gateway = self._config.engines, self._config.gateway
        asked = canonical_engine(request.model, engines)
        fallbacks = tuple(canonical_engine(name, engines) for name in gateway.fallback.embedding)
        if not embedder_problem(asked, engines) and ":" in asked:
            return tuple(dict.fromkeys((asked, *fallbacks)))
        route = gateway.routes.embedding
        if not route or route in SAME:
            raise PromptRejected(
                f"no embedder is named {request.model!r}: write it as engine:model, or set `embedding` in "
                "[gateway.routes]",
                code="model_not_found",
            )
        return tuple(dict.fromkeys((canonical_engine(route, engines), *fallbacks)))

    async def answer(self, request: Request, record: Record, permit: Permit) -> dict[str, Any]:
        """Return the body of the answer. Raises Refused or an EngineError."""
        texts, encoding = _texts(request.field("input")), request.field("encoding_format") or "float"
        if encoding not in ("float", "base64"):
            raise PromptRejected(f"encoding_format is {encoding!r}; it is float or base64", code="bad_body")
        names = self.names(request)
        if not permit.allows(names[0]):
            raise Refused(403, f"the key {request.key!r} may not use {names[0]!r}; ask the person who gave it to you")
        failure: EngineError | None = None
        for name in (name for name in names if permit.allows(name)):
            record.engine = name
            record.attempts += 1
            try:
                embedded = await self._charged(request, record, name).embed(texts)
            except EngineError as error:
                failure = failure or error
                self._outages.failed(name, error)
                continue
            self._outages.answered(name)
            record.model, record.usage, record.rounds = embedded.model or name, embedded.usage, 1
            return _body(embedded, name, encoding)
        assert failure is not None, "there is at least one embedder"
        raise failure

    def _charged(self, request: Request, record: Record, name: str) -> Embedder:
        def tell(event: Event) -> None:
            note_charge(record, event)
            if isinstance(event, UsageRecorded):
                record.usage = event.charge.usage

        if name not in self._embedders:
            if len(self._embedders) >= EMBEDDERS_MAX:
                raise EngineDenied(f"callers use more than {EMBEDDERS_MAX} embedders already", code="no_engine")
            try:
                self._embedders[name] = self._make(name)
            except ConfigError as error:
                raise EngineDenied(str(error), code="no_engine") from None
        return self._ledger.charge_embedder(self._embedders[name], scope_of(request, name), tell)

    async def close(self) -> None:
        embedders, self._embedders = self._embedders, {}
        for embedder in embedders.values():
            await close(embedder)


def _texts(given: Any) -> list[str]:
    texts: list[Any] = [given] if isinstance(given, str) else cast("list[Any]", given)
    if not isinstance(given, (str, list)) or not texts:
        raise PromptRejected("`input` is missing; it is a text or a list of texts", code="bad_body")
    if len(texts) > TEXTS_MAX:
        raise PromptRejected(f"`input` has {len(texts):,} texts; {TEXTS_MAX:,} are allowed", code="bad_body")
    for index, text in enumerate(texts):
        if not isinstance(text, str) or not text:
            what = "empty" if text == "" else "not a text"
            message = f"`input[{index}]` is {what}; send texts: tokens are different for each model"
            raise PromptRejected(message, code="bad_body")
    return texts


def _body(embedded: Embedded, name: str, encoding: str) -> dict[str, Any]:
    write = _base64 if encoding == "base64" else _numbers
    data = [
        {"object": "embedding", "index": index, "embedding": write(vector)}
        for index, vector in enumerate(embedded.vectors)
    ]
    tokens = embedded.usage.tokens_in
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": embedded.model or name, "usage": usage}


def _numbers(vector: Vector) -> list[float]:
    return vector.tolist()


def _base64(vector: Vector) -> str:
    if sys.byteorder == "big":
        vector = array("f", vector)
        vector.byteswap()
    return base64.b64encode(vector.tobytes()).decode()
