"""Brave's search API."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from ...contracts.source import Passage
from . import SearchRequest

ADDRESS = "https://api.search.brave.com/res/v1"


def request(query: str, limit: int, key: str) -> SearchRequest:
    target = f"/web/search?{urlencode({'q': query[:400], 'count': min(limit, 20)})}"
    return SearchRequest(target, {"x-subscription-token": key})


def results(answer: Any) -> list[Passage]:
    web: Any = answer.get("web")  # missing if nothing was found
    return [_passage(result) for result in web["results"]] if web else []


def _passage(result: Any) -> Passage:
    texts = (str(result.get("description") or ""), *map(str, result.get("extra_snippets") or ()))
    return Passage("\n".join(text for text in texts if text), str(result.get("title") or ""), str(result["url"]))
