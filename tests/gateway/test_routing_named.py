"""What names a model from inside: the sub-agent tag, and the project's own router."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rondel.errors import ConfigError
from rondel.gateway.relay.request import GatewayRequest
from rondel.gateway.routing.router import Decision, Router
from rondel.project.config import load

from .asking import ALL, config, decide, request, says

dialects = pytest.mark.parametrize("dialect", ALL)
TAG = "<CCR-SUBAGENT-MODEL>other,o-1</CCR-SUBAGENT-MODEL>"
OURS = "<RONDEL-SUBAGENT-MODEL>other:o-1</RONDEL-SUBAGENT-MODEL>"


# --- the tag ----------------------------------------------------------------------------------------------------------


def bodies(dialect: str, tag: str) -> list[dict[str, Any]]:
    """The places in which a tag is found."""
    later = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}]
    tagged = {"role": "user", "content": f"{tag} Go on"}
    if dialect == "anthropic":
        return [
            {"system": f"{tag}You are terse."},
            {"system": [{"type": "text", "text": tag}, {"type": "text", "text": "You are terse."}]},
            {
                "system": [
                    {"type": "text", "text": "a"},
                    {"type": "text", "text": "b"},
                    {"type": "text", "text": f"c\n{tag}"},
                ]
            },
            {"messages": [{"role": "user", "content": [{"type": "text", "text": f"{tag}Hi"}]}]},
            {"messages": [*later, tagged]},
        ]
    if dialect == "openai-chat":
        return [
            {"messages": [{"role": "system", "content": f"{tag}Be terse"}, *later]},
            {"messages": [{"role": "developer", "content": [{"type": "text", "text": f"{tag}Be terse"}]}, *later]},
            {"messages": [*later, tagged]},
        ]
    return [
        {"instructions": f"Be terse {tag}"},
        {"input": f"{tag} Hi"},
        {"input": [*later, {"role": "user", "content": [{"type": "input_text", "text": f"{tag}Hi"}]}]},
    ]


@dialects
@pytest.mark.parametrize("tag", [TAG, OURS, TAG.replace(",o-1", ", o-1 ")])
def test_a_tag_is_found_taken_out_and_wins_over_an_explicit_model(dialect: str, tag: str):
    """R05: in any system block and in the first two messages of the user."""
    for body in bodies(dialect, tag):
        asked = request(dialect, "main,Main-1", **body)
        decision = decide(config(), asked)
        assert (decision.rule, decision.engines, decision.warnings) == ("tag", ("other:o-1",), ()), body
        decision.apply(asked)
        assert b"SUBAGENT" not in b"".join(bytes(raw) for raw in asked.fields.values()), body
        assert "SUBAGENT" not in str(asked.prompt)
        assert asked.prompt.messages


def test_a_block_that_contains_only_the_tag_is_removed_with_it():
    """R05: Anthropic refuses empty text blocks."""
    rest = {"type": "text", "text": "You are terse."}
    asked = request("anthropic", system=[{"type": "text", "text": TAG}, rest])
    decide(config(), asked).apply(asked)
    assert asked.field("system") == [rest]


@dialects
def test_a_tag_of_an_unknown_model_is_a_warning_and_no_model_sees_it(dialect: str):
    """R05: an unknown model is visible, and the rules decide."""
    asked = says(dialect, TAG.replace("other", "othr") + "Hi")
    decision = decide(config(), asked)
    assert decision.rule == "default"
    assert decision.warnings == (
        "the sub-agent tag names 'othr,o-1': there is no engine 'othr'; did you mean 'other'?",
    )
    decision.apply(asked)
    assert asked.prompt.messages[-1].text == "Hi"


def test_a_tag_further_down_or_in_what_a_tool_gave_is_only_text():
    """What others wrote is data: it chooses no model."""
    result = {"type": "tool_result", "tool_use_id": "t", "content": TAG}
    call = {"type": "tool_use", "id": "t", "name": "read", "input": {}}
    told = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
        {"role": "user", "content": TAG},
    ]
    decision = decide(config(), request("anthropic", messages=told))
    assert (decision.rule, decision.fields) == ("default", {})


def test_a_tag_that_a_client_wrote_with_escapes_is_found():
    tag = rb"\u003cCCR-SUBAGENT-MODEL\u003eother\u003c/CCR-SUBAGENT-MODEL\u003e"
    body = b'{"model": "m", "max_tokens": 5, "system": "' + tag + b'Hi", "messages": []}'
    asked = GatewayRequest("r", request("anthropic").dialect, body, {})
    assert decide(config(), asked).engines == ("other",)


# --- the project's own router -----------------------------------------------------------------------------------------

ROUTERS = """
import asyncio
import threading

def by_thread(request, config):
    return "other,main" if threading.current_thread() is threading.main_thread() else "other,elsewhere"

def by_size(request, config, tokens):
    return "other,big" if tokens > 10 else None

async def by_model(request, config):
    await asyncio.sleep(0)
    return config.gateway.routes.default + "/Main-2" if request.model == "fancy" else ""

def broken(request, config):
    raise LookupError("no such customer")

async def stuck(request, config):
    await asyncio.Event().wait()

def wrong(request, config):
    return "othr,x"

def embedded(request, config):
    return "Local/smollm2-135m"

def number(request, config):
    return 7

constant = "other"
"""


def project(tmp_path: Path, custom: str, more: str = "") -> Router:
    (tmp_path / "routers.py").write_text(ROUTERS)
    text = f"""
[engines.main]
base_url = "http://127.0.0.1:9/v1"
models = ["Main-1", "Main-2"]
[engines.other]
base_url = "http://127.0.0.1:9/v1"
[gateway.routes]
default = "main"
custom = "routers:{custom}"
{more}
"""
    (tmp_path / "rondel.toml").write_text(text)
    return Router(load(tmp_path, {"HOME": str(tmp_path)}), env={})


@pytest.fixture(autouse=True)
def _fresh_modules(monkeypatch: pytest.MonkeyPatch):
    import sys

    monkeypatch.delitem(sys.modules, "routers", raising=False)
    yield
    sys.modules.pop("routers", None)


@dialects
def test_a_function_of_the_project_may_choose(tmp_path: Path, dialect: str):
    """R06: it is given the request, the configuration and the tokens, and says an engine or None."""
    by_size = project(tmp_path, "by_size")
    decision = decide(by_size, says(dialect, "word " * 100))
    assert (decision.rule, decision.engines) == ("custom", ("other:big",))
    assert decision.why == "'routers:by_size' says 'other,big'"
    assert decide(by_size, says(dialect, "Hi")).rule == "default"


def test_it_may_name_any_engine_that_there_is(tmp_path: Path):
    """It is the project's own code: unlike callers, it may name embedded models, too."""
    assert decide(project(tmp_path, "embedded"), request("anthropic")).engines == ("local:smollm2-135m",)


def test_it_may_be_asynchronous_and_need_not_count(tmp_path: Path):
    """R06: sync or async; the tokens are counted only for a function that takes them."""
    router = project(tmp_path, "by_model")
    decision = decide(router, request("openai-chat", "fancy"))
    assert (decision.rule, decision.engines, decision.tokens) == ("custom", ("main:Main-2",), None)
    assert decide(router, request("openai-chat", "plain")).rule == "default"


def test_a_function_that_blocks_does_not_block_the_loop(tmp_path: Path):
    """It has a thread of its own, which the function itself tells here."""
    assert decide(project(tmp_path, "by_thread"), request("anthropic")).engines == ("other:elsewhere",)


@pytest.mark.parametrize(
    ("custom", "warning"),
    [
        ("broken", "the router 'routers:broken' failed and was passed over: LookupError: no such customer"),
        ("stuck", "the router 'routers:stuck' did not answer within 0.01 s and was passed over"),
        ("wrong", "the router 'routers:wrong' says 'othr,x': there is no engine 'othr'; did you mean 'other'?"),
        ("number", "the router 'routers:number' says 7: 7 is not text"),
    ],
)
def test_a_router_that_fails_is_passed_over_with_a_warning(tmp_path: Path, custom: str, warning: str):
    """R06: an exception and a time-out fall through. R01: the default after a routing error."""
    limit = "custom_s = 0.01" if custom == "stuck" else ""
    decision: Decision = decide(project(tmp_path, custom, limit), request("anthropic"))
    assert (decision.rule, decision.engines, decision.warnings) == ("default", ("main",), (warning,))


def test_a_router_that_is_none_is_told_at_the_start_with_its_line(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"rondel.toml:9: 'routers' has no 'by_siz'; did you mean 'by_size'"):
        project(tmp_path, "by_siz")
    with pytest.raises(ConfigError, match=r"rondel.toml:9: the router 'routers:constant' cannot be called"):
        project(tmp_path, "constant")
