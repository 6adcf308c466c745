"""What a key may use, however a request names something else: in each dialect, against a real gateway."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from .raw import error_of, post_of
from .served import Served
from .speech import DIALECTS, error, played, says
from .upstream import WAIT_S, Upstream

SMALL, GLOB, MODEL, AGENT, ANY, NESTED = (
    f"sk-caller-{name}-4c1d9a" for name in ("small", "glob", "model", "agent", "any", "nested")
)
CONFIG = f"""
[gateway]
cool_down_s = 0
[gateway.routes]
default = "big"
think = "big:deep"
[gateway.fallback]
default = ["big", "spare"]
[gateway.projects.shop]
default = "big:shop"
[gateway.keys]
small = {{key = "{SMALL}", models = ["small"]}}
glob = {{key = "{GLOB}", models = ["small*", "sm*"]}}
model = {{key = "{MODEL}", models = ["little"]}}
agent = {{key = "{AGENT}", models = ["agent:mute"]}}
any = {{key = "{ANY}", models = ["*"]}}
"any/nested" = {{key = "{NESTED}", models = ["*"]}}
"""
HELPER = """---
engine: {engine}
tools: [shell:run]
---
You have a shell.
"""
SHELL = """from rondel import tool

@tool
def run(command: str) -> str:
    "Run a command."
    open("ran.txt", "w").write(command)
    return "done"
"""
OTHERS = ("big-model", "deep", "shop", "small", "little", "SMALL", "small*", "spare-model", "x-small", "brain", "mute")


def tables(upstream: Upstream) -> str:
    made: dict[str, str] = {
        "small": 'model = "little"\nfallback = ["big"]',
        "big": 'model = "big-model"',
        "spare": 'model = "spare-model"',
    }
    url = upstream.url("openai-chat")
    return "".join(
        f'[engines.{name}]\nbase_url = "{url}"\ndialect = "openai-chat"\n{lines}\nretry = {{attempts = 1}}\n'
        for name, lines in made.items()
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("permitted")


@pytest.fixture(scope="module")
def web(upstream: Upstream, home: Path) -> Iterator[httpx2.Client]:
    files = {
        "agents/small.md": HELPER.format(engine="big:brain"),
        "agents/little.md": HELPER.format(engine="big:brain"),
        "agents/mute.md": HELPER.format(engine="big:mute"),
        "shell.py": SHELL,
    }
    with (
        Served(home, CONFIG + tables(upstream), files=files) as served,
        httpx2.Client(base_url=served.base_url, timeout=WAIT_S) as web,
    ):
        yield web


def tagged(model: str, tag: str = "RONDEL") -> str:
    return f"<{tag}-SUBAGENT-MODEL>{model}</{tag}-SUBAGENT-MODEL> Hi"


NAMES = (
    "big",
    "BIG",
    " big ",
    "big:small",
    "big/small",
    "big,small",
    "BIG:small",
    "big : small",
    "big:little",
    "big:SMALL",
    "big:small:x",
    "big:small*",
    "big:x-small",
    "spare:small",
    "big-model",
    "small:unlisted",
    "small,big",
    "small/big",
    "small:little,big",
    "small,little:x",
    "small\u200b",
    "\uff53mall",
    "ſmall",
    "smal",
    "small2",
    "whatever",
    "small agent:small",
    "agent:small",
    "agent:little",
    "agent:mute",
    "echo",
    "ollama:small",
    "vllm/small",
)
"""What a key for the engine `small` may not get by."""
TAGS = (
    "big",
    "BIG",
    "big:small",
    "big,small",
    "agent:small",
    "agent:little",
    "big:little",
    "big-model",
    "ollama:small",
)


FIELDS: tuple[dict[str, Any], ...] = (
    {"models": ["big-model", "little"]},
    {"Models": ["big-model"]},
    {"model\u017f": ["big-model"]},
    {"fallbacks": ["big-model"]},
    {"preset": "big"},
    {"tools": [{"type": "advisor_20260301", "name": "advisor", "model": "big-model"}]},
    {"tools": [{"type": "image_generation", "Model": "big-model"}]},
)
"""Where servers take other models than the one in `model`. Those in Go read names in any letter case."""


def refused(got: httpx2.Response, dialect: str, what: object) -> None:
    assert got.status_code in (403, 404), (what, got.status_code, got.text)
    kind, message = error_of(dialect, got.json())
    assert kind in ("permission_error", "not_found_error"), (what, kind)
    assert "may not use" in message, (what, message)


def bodies(dialect: str, streams: bool) -> Iterator[tuple[object, str, dict[str, Any], dict[str, str]]]:
    """Attempts to get past a key's `models`: what it is, the key, path and body, and more headers."""
    for name in NAMES:
        yield ("name", name), SMALL, post_of(dialect, name, streams=streams), {}
    for name in TAGS:
        for asked in ("small", "small:little", "little"):
            for brand in ("RONDEL", "CCR"):
                post = post_of(dialect, asked, streams=streams, text=tagged(name, brand))
                yield ("tag", name, asked), SMALL, post, {}
        post = post_of(dialect, "small", streams=streams, system=tagged(name))
        yield ("tag in the instructions", name), SMALL, post, {}
    for asked in ("little", "small"):
        yield ("thinking", asked), MODEL, post_of(dialect, "x-" + asked, streams=streams, thinking=True), {}
    yield "a project", SMALL, post_of(dialect, "any", streams=streams), {"x-rondel-project": "shop"}
    for name in ("small-unknown", "smart", "sm", "big:small", "agent:small", "smx"):
        yield ("a pattern", name), GLOB, post_of(dialect, name, streams=streams), {}
    for name in ("small-unknown", "little2", "big:little", "big:Little", "agent:little", "agent:small", "big"):
        yield ("a model", name), MODEL, post_of(dialect, name, streams=streams), {}
    for name in ("big", "small", "agent:small", "mute", "big:mute", "agent:mute:x"):
        yield ("an agent", name), AGENT, post_of(dialect, name, streams=streams), {}
    for fields in FIELDS:
        more = post_of(dialect, "small", streams=streams)
        more["json"] |= fields
        yield fields, SMALL, more, {}
    for query in ("model=big-model", "beta=true&Model=big-model", "models=big-model", "mode%6c=big-model"):
        more = post_of(dialect, "small", streams=streams)
        yield query, SMALL, {**more, "url": f"{more['url']}?{query}"}, {}


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_way_of_naming_a_model_gets_past_a_key(
    dialect: str, streams: bool, upstream: Upstream, web: httpx2.Client, home: Path
) -> None:
    """Trust 10: what is checked is the engine that was decided on, and nothing is asked when the key may not use it."""
    for model in OTHERS:
        upstream.plays(name=model)
    tried = 0
    for what, key, post, headers in bodies(dialect, streams):
        got = web.post(**post, headers={"authorization": f"Bearer {key}", **headers})
        refused(got, dialect, what)
        tried += 1
    assert tried > 100
    assert {model: upstream.count(model) for model in OTHERS} == dict.fromkeys(OTHERS, 0)
    assert not (home / "ran.txt").exists()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_model_is_named_once_and_in_the_body(dialect: str, upstream: Upstream, web: httpx2.Client) -> None:
    """Trust 10: a server that reads names in any letter case does not get another model than was decided on."""
    upstream.plays(name="little")
    for field in ("Model", "MODEL", "modeL"):
        post = post_of(dialect, "small")
        post["json"][field] = "big-model"
        got = web.post(**post, headers={"x-api-key": ANY})
        assert got.status_code == 400, got.text
        assert field in error_of(dialect, got.json())[1]
    assert upstream.count("little") == 0
    upstream.plays(played("openai-chat", says("Hello"), True), name="little")
    got = web.post(**post_of(dialect, "small"), headers={"x-api-key": SMALL, "x-model": "big", "openai-model": "big"})
    assert got.status_code == 200, got.text
    assert "big" not in upstream.visit("little").headers.values()


def test_no_id_leads_to_the_conversation_of_a_key_with_a_longer_name(upstream: Upstream, web: httpx2.Client) -> None:
    """Trust 10: callers choose the ids that they go on from, and names of keys may hold a slash."""
    upstream.plays(played("openai-chat", says("Hello"), True), name="little")
    got = web.post(**post_of("openai-responses", "small", streams=False), headers={"x-api-key": NESTED})
    id = got.json()["id"]
    upstream.plays(name="little")
    for asked in (id, f"nested/{id}", f"/nested/{id}", f"%2Fnested/{id}"):
        post = post_of("openai-responses", "small", streams=False)
        post["json"]["previous_response_id"] = asked
        got = web.post(**post, headers={"x-api-key": ANY})
        assert got.status_code == 400, got.text
    assert upstream.count("little") == 0


def test_tokens_are_not_counted_by_a_model_that_a_key_may_not_use(upstream: Upstream, web: httpx2.Client) -> None:
    """Trust 10: nor is it told which one there is."""
    for model in OTHERS:
        upstream.plays(name=model)
    for name, text in ((name, "Hi") for name in NAMES):
        body = {"model": name, "messages": [{"role": "user", "content": text}]}
        got = web.post("/v1/messages/count_tokens", json=body, headers={"authorization": f"Bearer {SMALL}"})
        refused(got, "anthropic", name)
    for name in TAGS:
        body = {"model": "small", "messages": [{"role": "user", "content": tagged(name)}]}
        got = web.post("/v1/messages/count_tokens", json=body, headers={"authorization": f"Bearer {SMALL}"})
        refused(got, "anthropic", name)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_a_key_may_use_it_gets_by_each_of_its_names(dialect: str, upstream: Upstream, web: httpx2.Client) -> None:
    """Trust 10: an engine's name stands for the models that are configured for it."""
    allowed = (
        (SMALL, "small", "Hi"),
        (SMALL, "SMALL", "Hi"),
        (SMALL, "little", "Hi"),
        (SMALL, "small:little", "Hi"),
        (SMALL, "small", tagged("small")),
        (SMALL, "big", tagged("little")),
        (GLOB, "small", "Hi"),
        (MODEL, "little", "Hi"),
        (MODEL, "small", "Hi"),
        (ANY, "small", "Hi"),
    )
    upstream.plays(*(played("openai-chat", says("Hello"), True) for _ in allowed), name="little")
    for key, name, text in allowed:
        got = web.post(**post_of(dialect, name, text=text), headers={"authorization": f"Bearer {key}"})
        assert got.status_code == 200, (name, got.text)
        assert got.headers["x-rondel-model"] == "small:little"
    listed = {
        key: [model["id"] for model in web.get("/v1/models", headers={"x-api-key": key}).json()["data"]]
        for key in (SMALL, GLOB, MODEL, AGENT)
    }
    assert listed == {SMALL: ["small:little"], GLOB: ["small:little"], MODEL: ["small:little"], AGENT: ["agent:mute"]}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_fallback_that_a_key_may_not_use_is_skipped(dialect: str, upstream: Upstream, web: httpx2.Client) -> None:
    """Trust 10: those of `[gateway.fallback]`, and those of the engine itself."""
    for model in OTHERS:
        upstream.plays(name=model)
    upstream.plays(error("openai-chat", 500, "api_error", "first failed"), name="little")
    got = web.post(**post_of(dialect, "small"), headers={"authorization": f"Bearer {SMALL}"})
    assert got.status_code == 500
    assert "first failed" in got.text
    assert {model: upstream.count(model) for model in OTHERS if model != "little"} == dict.fromkeys(
        (model for model in OTHERS if model != "little"), 0
    )
    assert got.headers["x-rondel-attempts"] == "1"
    upstream.plays(error("openai-chat", 500, "api_error", "first failed"), name="little")
    upstream.plays(played("openai-chat", says("Hello"), True), name="big-model")
    got = web.post(**post_of(dialect, "small"), headers={"authorization": f"Bearer {ANY}"})
    assert got.status_code == 200
    assert (got.headers["x-rondel-model"], got.headers["x-rondel-attempts"]) == ("big:big-model", "2")
