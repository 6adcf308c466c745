"""Routes of embedded models: what can be downloaded, the download that a person agrees to, and their "no"."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from ...contracts.download import Downloadable, Step
from ...values import Value
from .route import Call, Done, Nothing, Problem, Route
from .work import Work, WorkInfo


class Offer(Protocol):
    """The embedded models that the page offers to download while no better engine is there."""

    def models(self) -> Sequence[Downloadable]: ...

    def is_present(self, model: Downloadable) -> bool: ...

    def download(self, model: Downloadable) -> AsyncGenerator[Step]: ...

    async def downloaded(self) -> None:
        """Use the model that was downloaded from now on."""

    def declined(self) -> bool: ...

    def decline(self) -> None: ...


class Download(Value, frozen=True):
    """A model that can be downloaded, with what a person must know before they agree."""

    name: str
    title: str
    description: str
    size: str
    licence: str
    is_present: bool
    download: WorkInfo | None = None


class Models(Value, frozen=True):
    """`is_missing` says that no message can be answered before a model is there; `declined` that a person said no."""

    models: tuple[Download, ...]
    is_missing: bool
    declined: bool


def download_of(found: Downloadable, *, is_present: bool = False, download: WorkInfo | None = None) -> Download:
    title = found.title or found.name
    return Download(found.name, title, found.description, found.size, found.licence, is_present, download)


def _key(model: Downloadable) -> str:
    return f"download {model.name}"


async def models(call: Call[Nothing, Nothing]) -> Models:
    offer = call.web.about.offer
    if offer is None:
        return Models((), is_missing=False, declined=False)
    works = call.web.works
    found = tuple(
        download_of(model, is_present=offer.is_present(model), download=works.info(_key(model)))
        for model in offer.models()
    )
    return Models(found, is_missing=bool(found) and not any(one.is_present for one in found), declined=offer.declined())


def _find(call: Call[Any, Any]) -> tuple[Offer, Downloadable]:
    offer, name = call.web.about.offer, call.path("model")
    for model in offer.models() if offer is not None else ():
        if offer is not None and model.name == name:
            return offer, model
    raise Problem(404, f"the model {name[:80]!r} is not offered here; `rondel model pull` downloads any other")


async def download(call: Call[Nothing, Nothing]) -> WorkInfo:
    offer, model = _find(call)

    async def run(work: Work) -> str:
        async with aclosing(offer.download(model)) as steps:
            async for done, total, what in steps:
                work.step(what, done, total)
        await offer.downloaded()
        return f"{model.title or model.name} answers from now on."

    return call.web.works.start(_key(model), run)


async def cancel_download(call: Call[Nothing, Nothing]) -> Done:
    call.web.works.cancel(_key(_find(call)[1]))
    return Done()


async def decline(call: Call[Nothing, Nothing]) -> Done:
    if (offer := call.web.about.offer) is not None:
        offer.decline()
    return Done()


_MODEL = "/api/models/{model}"
ROUTES = (
    Route("GET", "/api/models", models, "List the embedded models that can be downloaded.", returns=Models),
    Route("POST", f"{_MODEL}/download", download, "Download a model, and use it from then on.", "admin",
          returns=WorkInfo),
    Route("POST", f"{_MODEL}/cancel", cancel_download, "Cancel a download; the part that is there is kept.", "admin"),
    Route("DELETE", "/api/models", decline, "Decline the models that are offered; the answer is remembered.", "admin"),
)  # fmt: skip
