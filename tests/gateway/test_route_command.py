"""`rondel route`: what would happen to a request, as a person and as a program sees it."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import pytest

from tests.cli.conftest import Outcome, Place, place

__all__ = ["place"]

CONFIG = """
engine = "echo"
[engines.work]
base_url = "http://127.0.0.1:9/v1"
dialect = "anthropic"
model = "w-1"
transform = [["maxtoken", {max_tokens = 1000}]]
model_transform = {"w-2" = ["cleancache"]}
[gateway]
plugins = ["memory"]
[gateway.routes]
default = "work"
think = "work,w-2"
long_context = "echo"
image = "work:eyes"
[gateway.fallback]
think = ["echo"]
[gateway.projects.shop]
think = "echo"
"""
THINKS = {
    "model": "claude-sonnet-5",
    "max_tokens": 4000,
    "thinking": {"type": "enabled", "budget_tokens": 2000},
    "messages": [{"role": "user", "content": "Why is the sky blue?"}],
}


@pytest.fixture
def project(place: Place) -> Place:
    place.write("rondel.toml", CONFIG)
    place.write("thinks.json", json.dumps(THINKS))
    return place


def routed(project: Place, *arguments: str) -> dict[str, Any]:
    done = project.rondel("route", *arguments, "--json")
    assert (done.code, done.err) == (0, "")
    return json.loads(done.out)


def told(project: Place, monkeypatch: pytest.MonkeyPatch, stdin: str, *arguments: str) -> Outcome:
    """The command with this on its stdin."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8"))
    return project.rondel("route", *arguments)


def test_a_request_is_routed_and_nobody_is_asked(project: Place):
    """R11: the rule, the engines in their order, and why."""
    done = project.rondel("route", "thinks.json")
    first, *reason = done.out.splitlines()
    assert first == "claude-sonnet-5 → work:w-2, then echo  (think)"
    why = " ".join(reason)
    assert why.startswith("it asks for thinking, and gateway.routes.think")
    assert why.endswith("rondel.toml:13) names 'work:w-2'")


def test_every_rule_is_explained_with_what_happens_then(project: Place):
    """R11: tokens, transforms, and the agents that would look."""
    shown = routed(project, "thinks.json")
    assert [(step["rule"], step["applies"]) for step in shown["steps"]][-1] == ("think", True)
    assert (shown["dialect"], shown["tokens"]) == ("anthropic", 5)
    assert [(way["engine"], way["transforms"]) for way in shown["engines"]] == [
        ("work:w-2", ["maxtoken", "cleancache"]),
        ("echo", []),
    ]
    assert [(plugin["name"], plugin["looks"]) for plugin in shown["plugins"]] == [("memory", True), ("image", False)]
    text = project.rondel("route", "--explain", "thinks.json").out
    assert all(step["rule"] in text for step in shown["steps"])
    assert "tokens: about 5" in text
    assert "maxtoken, cleancache" in text


def test_a_request_that_no_agent_looks_at_is_passed_on_as_it_came(project: Place):
    project.write("rondel.toml", CONFIG.replace('plugins = ["memory"]', ""))
    body = json.dumps({"model": "x", "max_tokens": 5, "messages": []})
    project.write("plain.json", body)
    assert routed(project, "plain.json")["engines"][0]["how"] == "passed on unchanged (anthropic)"
    assert "translated from" in routed(project, "plain.json", "--dialect", "openai-chat")["engines"][0]["how"]
    assert "translated from" in routed(project, "thinks.json")["engines"][0]["how"], "cleancache must see all of it"


def test_headers_dialects_and_stdin_are_taken(project: Place, monkeypatch: pytest.MonkeyPatch):
    assert routed(project, "thinks.json", "--header", "X-Rondel-Project=shop")["engines"][0]["engine"] == "echo"
    done = told(project, monkeypatch, '{"model": "work/w-9", "input": "Hi"}', "-", "--json")
    shown = json.loads(done.out)
    assert (shown["dialect"], shown["rule"], shown["engines"][0]["engine"]) == (
        "openai-responses",
        "explicit",
        "work:w-9",
    )


@pytest.mark.parametrize(
    ("body", "dialect"),
    [
        ({"messages": [{"role": "user", "content": "Hi"}]}, "openai-chat"),
        ({"messages": [], "max_tokens": 5, "system": "x"}, "anthropic"),
        ({"messages": [], "max_tokens": 5, "tools": [{"type": "function", "function": {"name": "f"}}]}, "openai-chat"),
        ({"messages": [{"role": "tool", "tool_call_id": "c", "content": ""}], "max_tokens": 5}, "openai-chat"),
        ({"messages": [], "max_completion_tokens": 5}, "openai-chat"),
        ({"input": []}, "openai-responses"),
    ],
)
def test_the_dialect_is_seen_by_the_look_of_the_body(project: Place, body: dict[str, Any], dialect: str):
    project.write("body.json", json.dumps({"model": "m", **body}))
    assert routed(project, "body.json")["dialect"] == dialect


@pytest.mark.parametrize(
    ("arguments", "stdin", "said"),
    [
        (["nowhere.json"], "", "'nowhere.json' cannot be read: No such file or directory"),
        (["-"], "{", "stdin is not a request: the body is not a JSON object"),
        (["-"], "[]", "stdin is not a request: the body is not a JSON object"),
        (["-"], '{"messages": []}', "stdin is not a request: the body has no model"),
        (["thinks.json", "--dialect", "antropic"], "", "there is no dialect 'antropic'; did you mean 'anthropic'?"),
        (["thinks.json", "--header", "x"], "", "'x' is not a header; write it as name=value"),
    ],
)
def test_a_mistake_is_one_sentence(
    project: Place, monkeypatch: pytest.MonkeyPatch, arguments: list[str], stdin: str, said: str
):
    done = told(project, monkeypatch, stdin, *arguments)
    assert done.code == 2
    assert done.err.startswith(f"rondel: {said}")
    assert done.err.count("\n") == 1


def test_what_a_request_says_cannot_command_the_terminal(project: Place, monkeypatch: pytest.MonkeyPatch):
    body = {"model": "wrk,\x1b[2Jx", "messages": []}
    done = told(project, monkeypatch, json.dumps(body), "-", "--explain")
    assert "\x1b" not in done.out + done.err
    assert "there is no engine 'wrk'" in done.err


def test_an_engine_that_cannot_be_made_says_why(project: Place):
    project.write("rondel.toml", 'gateway.routes.default = "groq"')
    shown = routed(project, "thinks.json")
    assert shown["engines"][0]["how"].startswith("cannot be used: the engine 'groq' has no key: set the variable GROQ_")


def test_nobody_is_served_with_a_key_that_others_can_read_and_other_commands_warn(project: Place):
    """C04: mode 0600, or a variable."""
    path = project.write("rondel.toml", CONFIG + '[gateway.keys.desk]\nkey = "a-long-random-text"\n')
    path.chmod(0o644)
    said = "'gateway.keys.desk.key' is written out, and others can read the file (its mode is 0644); run `chmod 600"
    refused = project.spawn("serve", "--port", "0")
    assert (refused.code, refused.out) == (2, "")
    assert said in refused.err
    warned = project.rondel("route", "thinks.json")
    assert warned.code == 0
    assert said in warned.err
    assert "a-long-random-text" not in refused.err + warned.err
