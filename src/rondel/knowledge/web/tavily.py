"""Tavily's search API."""

from __future__ import annotations

from typing import Any

import msgspec

from ...contracts.source import Passage
from . import SearchRequest

ADDRESS = "https://api.tavily.com"


def request(query: str, limit: int, key: str) -> SearchRequest:
    body = msgspec.json.encode({"query": query[:400], "max_results": min(limit, 20)})
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    return SearchRequest("/search", headers, body, "POST")


def results(answer: Any) -> list[Passage]:
    return [Passage(str(r.get("content") or ""), str(r.get("title") or ""), str(r["url"])) for r in answer["results"]]
