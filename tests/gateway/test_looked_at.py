"""A plugin that looks at a request changes nothing else of it for a server of its caller's dialect."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from .raw import read_stream
from .served import SHORT, Served, engines
from .speech import DIALECTS, PATHS, says, stream
from .test_lossless import HEADERS, TODAY
from .upstream import Upstream


@pytest.fixture(scope="module")
def web(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    config = '[gateway]\nplugins = ["lender:Lender"]\n[gateway.routes]\ndefault = "c"\n' + engines(upstream)
    files = {"lender.py": Path(__file__).with_name("lender.py").read_text(encoding="utf-8")}
    with (
        Served(tmp_path_factory.mktemp("looking"), config, files=files) as served,
        httpx2.Client(base_url=served.base_url, timeout=20.0, headers={"authorization": "Bearer mine"}) as web,
    ):
        yield web


def looked_at(dialect: str) -> dict[str, Any]:
    """What a coding agent sends, with a word in it for which the plugin looks."""
    return json.loads(json.dumps({**TODAY[dialect], "stream": True}).replace("And now?", "[inject] And now?"))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_its_server_gets_the_fields_and_headers_that_it_needs_for_them(
    dialect: str, upstream: Upstream, web: httpx2.Client
) -> None:
    name = upstream.plays(stream(dialect, says("Hello")))
    sent = looked_at(dialect)
    got = web.post(PATHS[dialect], json={"model": f"{SHORT[dialect]}:{name}", **sent}, headers=HEADERS[dialect])
    assert read_stream(dialect, got.content)[:2] == ("Hello", ("end",))
    visit = upstream.visit(name)
    assert {key: visit.headers.get(key) for key in HEADERS[dialect]} == HEADERS[dialect]
    assert "mine" not in str(visit.headers)
    others = sent.keys() - {"messages", "input", "tools"}
    assert {key: visit.body.get(key) for key in others} == {key: sent[key] for key in others}
    injected = [tool for tool in visit.body["tools"] if tool not in sent["tools"]]
    assert sorted(tool.get("function", tool)["name"] for tool in injected) == ["add", "census", "never"]
    assert len(visit.body["tools"]) == len(injected) + len(sent["tools"])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_headers_are_for_servers_of_their_dialect_only(dialect: str, upstream: Upstream, web: httpx2.Client) -> None:
    model = next(name for name in DIALECTS if name != dialect)
    name = upstream.plays(stream(model, says("Hello")))
    got = web.post(
        PATHS[dialect], json={"model": f"{SHORT[model]}:{name}", **looked_at(dialect)}, headers=HEADERS[dialect]
    )
    assert got.status_code == 200, got.text
    assert not set(HEADERS[dialect]) & set(upstream.visit(name).headers) - {"anthropic-version"}
