"""SearXNG, a search engine that people run themselves. Its settings must allow the format `json`."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from ...contracts.source import Passage
from . import SearchRequest

ADDRESS = ""


def request(query: str, limit: int, key: str) -> SearchRequest:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return SearchRequest(f"/search?{urlencode({'q': query, 'format': 'json'})}", headers)


def results(answer: Any) -> list[Passage]:
    return [Passage(str(r.get("content") or ""), str(r.get("title") or ""), str(r["url"])) for r in answer["results"]]
