"""`POST /v1/embeddings` in OpenAI's form, in front of every embedder: one that is down is replaced by the next one."""

from __future__ import annotations

import base64
import sys
from array import array
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

from ...contracts.embedder import Embedded, Embedder, Vector
from ...errors import PromptRejected
from ...ledger.ledger import Ledger
from ...project.embedders import embedder_problem
from ...project.settings import Config
from ..bridge.services import scope_of
from ..relay.record import Record
from ..relay.request import GatewayRequest
from ..routing.outages import Outages
from .access import Permit
from .named import NamedEngines, noting

TEXTS_MAX = 2_048


class Embeddings:
    """The embedders that callers may use."""

    def __init__(self, config: Config, ledger: Ledger, outages: Outages, make: Callable[[str], Embedder]) -> None:
        self._ledger = ledger
        self._embedders = NamedEngines(
            "embedder",
            config,
            outages,
            make,
            partial(embedder_problem, engines=config.engines),
            route=(config.gateway.routes.embedding, "`embedding` in [gateway.routes]"),
            fallbacks=config.gateway.fallback.embedding,
        )
        self.names, self.close = self._embedders.names, self._embedders.close

    async def answer(self, request: GatewayRequest, record: Record, permit: Permit) -> dict[str, Any]:
        """Return the body of the answer. Raises Refused or an EngineError."""
        texts, encoding = _texts(request.field("input")), request.field("encoding_format") or "float"
        if encoding not in ("float", "base64"):
            raise PromptRejected(f"encoding_format must be float or base64, not {encoding!r}", code="bad_body")

        def call(name: str, embedder: Embedder) -> Awaitable[Embedded]:
            return self._ledger.charge_embedder(embedder, scope_of(request, name), noting(record)).embed(texts)

        name, embedded = await self._embedders.ask(request, record, permit, call)
        record.model, record.usage = embedded.model or name, embedded.usage
        return _body(embedded, name, encoding)


def _texts(given: Any) -> list[str]:
    texts: list[Any] = [given] if isinstance(given, str) else cast("list[Any]", given)
    if not isinstance(given, (str, list)) or not texts:
        raise PromptRejected("`input` is missing; it is a text or a list of texts", code="bad_body")
    if len(texts) > TEXTS_MAX:
        raise PromptRejected(f"`input` has {len(texts):,} texts; at most {TEXTS_MAX:,} are allowed", code="bad_body")
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
