"""Trust 7: a caller's file reaches a model of another dialect as text, or the caller is told; none is left out."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx2
import pytest

from .raw import error_of
from .served import SHORT, Served
from .speech import DIALECTS, PATHS, played, says
from .upstream import Upstream

CSV = "city,sun\nLisbon,yes"


def _asked(dialect: str, part: dict[str, Any]) -> dict[str, Any]:
    if dialect == "openai-responses":
        return {"input": [{"role": "user", "content": [{"type": "input_text", "text": "What is in it?"}, part]}]}
    text = {"type": "text", "text": "What is in it?"}
    more = {"max_tokens": 50} if dialect == "anthropic" else {}
    return {"messages": [{"role": "user", "content": [text, part]}], **more}


def _file(dialect: str, data: bytes, mime: str, name: str) -> dict[str, Any]:
    written = base64.b64encode(data).decode()
    if dialect == "anthropic":
        if mime.startswith("text/"):
            source = {"type": "text", "media_type": "text/plain", "data": data.decode()}
        else:
            source = {"type": "base64", "media_type": mime, "data": written}
        return {"type": "document", "source": source, "title": name}
    url = f"data:{mime};base64,{written}"
    if dialect == "openai-chat":
        return {"type": "file", "file": {"file_data": url, "filename": name}}
    return {"type": "input_file", "file_data": url, "filename": name}


PAIRS = [(caller, model) for caller in DIALECTS for model in DIALECTS]


@pytest.mark.parametrize(("caller", "model"), PAIRS, ids=lambda dialect: dialect)
def test_a_text_file_reaches_every_model(caller: str, model: str, upstream: Upstream, served: Served):
    """Trust 7: a server that knows no files gets the text; in its own dialect a request stays as it came."""
    name = upstream.plays(played(model, says("Sun."), caller != model))
    part = _file(caller, CSV.encode(), "text/csv", "sun.csv")
    with httpx2.Client(base_url=served.base_url, timeout=20) as web:
        got = web.post(PATHS[caller], json={"model": f"{SHORT[model]}:{name}", **_asked(caller, part)})
    assert got.status_code == 200, got.text
    sent = upstream.visit(name).body
    if caller == model:
        assert (
            part in json.loads(json.dumps(sent))["input" if model == "openai-responses" else "messages"][0]["content"]
        )
        return
    text = json.dumps(sent)
    assert json.dumps(CSV)[1:-1] in text
    assert "sun.csv" in text
    assert "base64" not in text


@pytest.mark.parametrize(
    ("caller", "model", "part"),
    [
        ("openai-chat", "anthropic", {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}}),
        ("openai-chat", "openai-responses", {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}}),
        ("openai-responses", "openai-chat", {"type": "input_file", "file_url": "https://example.com/a.pdf"}),
        ("openai-chat", "anthropic", _file("openai-chat", b"PK\x03\x04\x00", "application/zip", "a.zip")),
    ],
)
def test_what_a_model_cannot_take_is_told_to_the_caller(
    caller: str, model: str, part: dict[str, Any], upstream: Upstream, served: Served
):
    """Trust 7: it was left out, and only the model was told."""
    name = upstream.plays(played(model, says("Sun."), True))
    with httpx2.Client(base_url=served.base_url, timeout=20) as web:
        got = web.post(PATHS[caller], json={"model": f"{SHORT[model]}:{name}", **_asked(caller, part)})
    assert got.status_code == 400, got.text
    assert "cannot take the" in error_of(caller, got.json())[1]
    assert upstream.count(name) == 0
