"""Searches the web with a service that the project names: SearXNG, Brave or Tavily, each in a small file.

An adapter is a module with `ADDRESS`, `request` and `results`. Nothing here is active until it is configured.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Sequence
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

import msgspec

from ...contracts.source import Passage
from ...errors import RondelError
from ...http import Client, Head, HttpError, environment_proxy
from ...text.redaction import Redactor
from ...values import Value
from ..settings import WebSearchSettings

ANSWER_BYTES_MAX = 5_000_000
TEXT_CHARS_MAX = 2_000


class SearchRequest(Value, frozen=True):
    """A request to a service. `target` is appended to its address."""

    target: str
    headers: dict[str, str] = {}
    body: bytes = b""
    method: str = "GET"


class Adapter(Protocol):
    ADDRESS: str  # the service's own address; empty if each user has a different one

    @staticmethod
    def request(query: str, limit: int, key: str) -> SearchRequest: ...

    @staticmethod
    def results(answer: Any) -> list[Passage]:
        """Return the results in an answer. Raises KeyError or TypeError for any other kind of answer."""
        ...


class ServiceSearch:
    """Searches the web with the service of the settings."""

    def __init__(self, settings: WebSearchSettings) -> None:
        self._settings = settings
        self._adapter = cast(Adapter, importlib.import_module(f"{__name__}.{settings.provider}"))
        self._url = (settings.url or self._adapter.ADDRESS).rstrip("/")
        self._redact = Redactor({settings.key}).text

    @property
    def name(self) -> str:
        return self._settings.provider

    async def search(self, query: str, limit: int) -> Sequence[Passage]:
        request = self._adapter.request(query, limit, self._settings.key)
        try:
            status, data = await self._ask(request)
        except (HttpError, TimeoutError) as error:
            raise self._failed(f"did not answer: {error or 'it took too long'}") from None
        if status in (401, 403):
            raise self._failed(f"refused the key (status {status}); check `key` in [web_search]")
        if status != 200:
            raise self._failed(f"answered with status {status}")
        if data.lstrip()[:1] == b"<":
            raise self._failed("answered with a web page instead of JSON; check `url`, and that the server allows JSON")
        try:
            found = self._adapter.results(msgspec.json.decode(data))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError, AttributeError):
            raise self._failed("answered with something that is not a list of results") from None
        return [_safe(passage) for passage in found if passage.where.startswith(("http://", "https://"))][:limit]

    async def _ask(self, request: SearchRequest) -> tuple[int, bytes]:
        parts = urlsplit(self._url)
        is_local = parts.hostname in ("127.0.0.1", "localhost", "::1")
        proxy = "" if is_local else environment_proxy(self._url)
        client = Client(self._url, connect_s=self._settings.timeout_s, proxy=proxy)
        fixed = {"accept": "application/json", "accept-encoding": "identity", "user-agent": "rondel"}
        head = Head({**fixed, **request.headers})
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                answer = await client.ask(request.method, f"{parts.path}{request.target}", head, request.body)
                data = bytearray()
                while len(data) <= ANSWER_BYTES_MAX and (piece := await answer.read()):
                    data += piece
        finally:
            client.close()
        if len(data) > ANSWER_BYTES_MAX:
            raise self._failed(f"sent more than {ANSWER_BYTES_MAX // 1_000_000} MB")
        return answer.status, bytes(data)

    def _failed(self, why: str) -> RondelError:
        return RondelError(self._redact(f"the web search ({self.name}) {why}"))


def _safe(passage: Passage) -> Passage:
    return msgspec.structs.replace(passage, text=passage.text[:TEXT_CHARS_MAX], title=passage.title[:300])
