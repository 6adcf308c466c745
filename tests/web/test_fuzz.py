"""Every route gets what its OpenAPI description allows, and much that it does not: bodies, queries, names in paths."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from rondel import Agent
from rondel.surfaces.web.route import Route
from rondel.surfaces.web.server import ROUTES
from rondel.testing import Echo
from tests.web.served import Site, site

Strategy: TypeAlias = st.SearchStrategy[Any]

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    [
        "\0",
        "..",
        "é" * 300,
        "=1+1",
        "${HOME}",
        "2026-13-41",
        "9" * 3_000,
        "-1",
        "1e999",
        "null",
        "http://[",
        "0001-01-01",
    ]
)
NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
ANYTHING = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
DEEP = b'{"a":' * 5_000 + b"1" + b"}" * 5_000
BROKEN = st.sampled_from([b"", b"{", b"\xff\xfe", b"nonsense", DEEP, b'{"text": "\\ud800"}', b'{"a": 1e999}'])


class Description:
    """Strategies from the schemas of a description. `names` are texts that name something that exists."""

    def __init__(self, described: Mapping[str, Any], names: list[str]) -> None:
        self._schemas = described["components"]["schemas"]
        self._texts = st.sampled_from(names) | TEXTS

    def value(self, schema: Mapping[str, Any], depth: int = 0) -> Strategy:
        """Values that a schema describes, except that now and then a field is wrong, missing or unknown."""
        if ref := schema.get("$ref"):
            schema = self._schemas[ref.rpartition("/")[2]]
        if depth > 5 or "type" not in schema.keys() | {"anyOf", "enum"} & schema.keys():
            return ANYTHING
        if choices := schema.get("enum"):
            return st.sampled_from(choices)
        if branches := schema.get("anyOf"):
            return st.one_of([self.value(one, depth + 1) for one in branches])
        if schema["type"] == "object":
            fields = {name: self.value(one, depth + 1) for name, one in schema.get("properties", {}).items()}
            usual = {name: st.one_of(one, one, one, ANYTHING) for name, one in fields.items()}
            needed = {name: usual.pop(name) for name in schema.get("required", ())}
            whole = st.fixed_dictionaries(needed, optional=usual)
            return st.one_of(whole, whole, whole, st.fixed_dictionaries({}, optional={**needed, **usual, "x": TEXTS}))
        if schema["type"] == "array":
            return st.lists(self.value(schema.get("items", {}), depth + 1), max_size=3)
        return {"string": self._texts, "boolean": st.booleans(), "null": st.none()}.get(schema["type"], NUMBERS)

    def request(self, path: str, operation: Mapping[str, Any]) -> st.SearchStrategy[tuple[str, bytes]]:
        """An address and a body."""
        named = {one["name"]: self._texts.filter(bool) for one in operation["parameters"] if one["in"] == "path"}
        asked = {
            one["name"]: self.value(one["schema"]).map(str) | TEXTS
            for one in operation["parameters"]
            if one["in"] == "query"
        }
        body: Strategy = st.just(b"")
        if content := operation.get("requestBody", {}).get("content"):
            schema = content["application/json"]["schema"]
            body = (self.value(schema) | ANYTHING).map(lambda value: json.dumps(value).encode()) | BROKEN

        def address(names: dict[str, str], query: dict[str, str]) -> str:
            filled = path.format(**{name: quote(value, safe="") for name, value in names.items()})
            return f"{filled}?{urlencode(query)}" if query else filled

        query = st.fixed_dictionaries({}, optional={**asked, "x": TEXTS})
        addresses = st.builds(address, st.fixed_dictionaries(named), query if asked else st.just({}))
        return st.tuples(addresses, body)


async def state(made: Site) -> Any:
    """All that a request may change."""
    paths = ("/api/conversations?limit=200", "/api/jobs", "/api/sessions")
    return [await made.json("GET", path) for path in paths]


async def check(made: Site, method: str, address: str, body: bytes) -> None:
    before = await state(made)
    headers = {"content-type": "application/json"} if body else {}
    async with made.client.stream(method, address, content=body or None, headers=headers) as answer:
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            return
        said = await answer.aread()
    assert answer.status_code < 500, (method, address, body[:500], answer.status_code, said)
    if answer.status_code < 300:
        await made.app.drain()
        return
    error = json.loads(said)["error"]
    sentence = error["message"] if isinstance(error, dict) else error  # in A2A, JSON-RPC's error
    assert isinstance(sentence, str)
    assert 8 < len(sentence) < 600, (address, sentence)
    assert "Traceback" not in sentence
    assert await state(made) == before, (method, address, body[:500])


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
async def test_no_request_makes_the_server_fail_and_a_refused_one_changes_nothing(route: Route):
    async with site(Agent("a", engine=Echo())) as made:
        described = await made.json("GET", "/api/openapi.json")
        id = await made.start()
        await made.say(id, "Hello")
        events = [one["event"] for one in (await made.json("GET", f"/api/conversations/{id}/entries"))["entries"]]
        turn = next(one["turn"] for one in events if one["type"] == "turn_started")
        message = next(one["message"]["id"] for one in events if one["type"] == "message_added")
        names = [id, id, id, turn, message, "a", "echo", "day", "model"]
        operation = described["paths"][route.path][route.method.lower()]
        loop = asyncio.get_running_loop()

        @settings(max_examples=settings().max_examples // 3)
        @given(Description(described, names).request(route.path, operation))
        def is_answered(request: tuple[str, bytes]) -> None:
            asyncio.run_coroutine_threadsafe(check(made, route.method, *request), loop).result()

        await asyncio.to_thread(is_answered)
