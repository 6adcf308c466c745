"""Which rule decides, in which order, in all three dialects."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from rondel.dialects import DIALECTS
from rondel.errors import ConfigError, PromptRejected
from rondel.gateway.relay.request import GatewayRequest
from rondel.gateway.routing.router import Router
from rondel.gateway.routing.sessions import LOOK_AGAIN_S, PROJECTS_MAX, SESSIONS_MAX, Sessions
from rondel.project.settings import (
    Config,
    EngineSettings,
    FallbackSettings,
    GatewaySettings,
    MainRouteSettings,
    ProjectSettings,
    RouteSettings,
)

from .asking import ALL, ENGINES, config, decide, request, says, searching, thinking

dialects = pytest.mark.parametrize("dialect", ALL)


# --- names and the default --------------------------------------------------------------------------------------------


@dialects
@pytest.mark.parametrize(
    ("asked", "engine"),
    [
        ("main,Main-2", "main:Main-2"),
        ("MAIN,main-2", "main:Main-2"),
        ("main/Main-2", "main:Main-2"),
        ("Main:MAIN-2", "main:Main-2"),
        ("main , Main-2", "main:Main-2"),
        ("other,anything/at:all", "other:anything/at:all"),
        ("eyes", "eyes"),
        ("SEER", "eyes:seer"),
        ("ollama/llama3:8b", "ollama:llama3:8b"),
    ],
)
def test_a_model_that_the_caller_names_is_used_whatever_its_case(dialect: str, asked: str, engine: str):
    """R01: provider,model as it is, both parts matched without case; no other rule is asked."""
    decision = decide(config(think="other", background="other"), thinking(dialect, model=asked))
    assert (decision.rule, decision.engines, decision.warnings) == ("explicit", (engine,), ())


@dialects
def test_what_names_no_engine_goes_to_the_default(dialect: str):
    """R01: the default when nothing applies."""
    decision = decide(config(), request(dialect))
    assert (decision.rule, decision.engines, decision.warnings) == ("default", ("main",), ())


@pytest.mark.parametrize(
    ("asked", "warning"),
    [
        ("mian,Main-1", "there is no engine 'mian'; did you mean 'main'?"),
        ("main,Main-3", "the engine 'main' has no model 'Main-3'; did you mean 'Main-2'?"),
        ("main,", "'main,' names no model"),
        ("othr/x", "there is no engine 'othr'; did you mean 'other'?"),
        ("agent:helpr", "there is no agent 'helpr'; did you mean 'helper'?"),
    ],
)
def test_a_name_that_nobody_knows_falls_to_the_rules_with_a_warning(asked: str, warning: str):
    """R01: what is wrong is told, and the rules decide."""
    decision = decide(Router(config(), agents=("helper",), env={}), request("anthropic", asked))
    assert decision.rule == "default"
    assert decision.warnings == (f"the caller asks for {asked!r}: {warning}",)


@pytest.mark.parametrize("asked", ["local:/etc/secret.gguf", "local", "small,../x.gguf", "small:smollm2-360m"])
def test_a_caller_opens_no_file_and_fetches_no_weights(asked: str):
    """Of embedded models only those can be named that the configuration names."""
    engines = {**ENGINES, "small": EngineSettings(provider="local", model="smollm2-135m")}
    router = Router(Config(engine="main", engines=engines), env={})
    assert decide(router, request("anthropic", asked)).engines == ("main",)
    assert decide(router, request("anthropic", "small,SMOLLM2-135M")).engines == ("small:smollm2-135m",)


def test_a_model_of_several_engines_is_nobodys():
    engines = {name: config().engines["other"] for name in ("a", "b")}
    decision = decide(Router(Config(engine="a", engines=engines), env={}), request("anthropic", "other-1"))
    assert decision.rule == "default"
    assert decision.warnings == (
        "the caller asks for 'other-1': several engines have it; write a:other-1 or b:other-1",
    )


def test_a_provider_can_be_named_when_it_has_a_key():
    asked = request("anthropic", "groq/openai/gpt-oss-120b")
    assert decide(Router(config(), env={"GROQ_API_KEY": "k"}), asked).engines == ("groq:openai/gpt-oss-120b",)
    assert decide(Router(config(), env={}), asked).rule == "default"


def test_an_agent_of_the_project_can_be_the_model():
    decision = decide(Router(config(), agents=("helper",), env={}), request("openai-chat", "agent:helper"))
    assert (decision.rule, decision.agent, decision.engines) == ("explicit", "helper", ())


def test_without_routes_the_engine_of_the_configuration_answers_else_the_one_that_was_found():
    asked = request("anthropic")
    assert decide(Router(Config(engine="echo"), default="local", env={}), asked).engines == ("echo",)
    assert decide(Router(Config(), default="local", env={}), asked).engines == ("local",)
    with pytest.raises(ConfigError, match="no engine answers this request"):
        decide(Router(Config(), env={}), asked)


# --- what a request is ------------------------------------------------------------------------------------------------


@dialects
def test_background_web_search_and_thinking_have_routes_in_this_order(dialect: str):
    """R02: a haiku is background work; a tool for web search comes before thinking."""
    routes = config(background="other,o-1", web_search="other/o-2", think="other:o-3")
    haiku = thinking(dialect, model="Claude-HAIKU-4-5")
    assert (decide(routes, haiku).rule, decide(routes, haiku).engines) == ("background", ("other:o-1",))
    both = searching(dialect, **{k: thinking(dialect).field(k) for k in thinking(dialect).fields if k != "model"})
    assert (decide(routes, both).rule, decide(routes, both).engines) == ("web_search", ("other:o-2",))
    assert (decide(routes, thinking(dialect)).rule, decide(routes, thinking(dialect)).engines) == (
        "think",
        ("other:o-3",),
    )


@pytest.mark.parametrize(
    ("dialect", "fields"),
    [
        ("anthropic", {"thinking": {"type": "disabled"}}),
        ("anthropic", {"thinking": None}),
        ("openai-chat", {"reasoning_effort": "none"}),
        ("openai-responses", {"reasoning": {"effort": "none", "summary": "auto"}}),
        ("openai-responses", {"reasoning": None}),
    ],
)
def test_thinking_that_is_turned_off_is_no_thinking(dialect: str, fields: dict[str, Any]):
    assert decide(config(think="other"), request(dialect, **fields)).rule == "default"


def test_a_tool_that_only_speaks_of_web_search_is_none():
    tools = [{"name": "lookup", "description": "like web_search", "input_schema": {"type": "object"}}]
    assert decide(config(web_search="other"), request("anthropic", tools=tools)).rule == "default"


def test_which_models_are_background_work_is_configurable():
    """R02: the patterns are settings."""
    routes = config(background="other", background_models=("*mini", "small-?"))
    assert decide(routes, request("openai-chat", "GPT-mini")).rule == "background"
    assert decide(routes, request("openai-chat", "small-1")).rule == "background"
    assert decide(routes, request("anthropic", "claude-haiku-4")).rule == "default"


def test_a_rule_without_a_route_does_not_apply():
    for asked in (thinking("anthropic"), searching("anthropic"), request("anthropic", "claude-haiku-4")):
        assert decide(config(), asked).rule == "default"


@dialects
@pytest.mark.parametrize("same", ["", "default"])
def test_a_route_may_be_the_same_as_the_default(dialect: str, same: str):
    """R08: an empty text or `default` means the default's engine, and its fallbacks."""
    gateway = GatewaySettings(
        routes=MainRouteSettings(default="main", think=same, background="other"),
        fallback=FallbackSettings(default=("eyes",)),
    )
    decision = decide(config(gateway=gateway), thinking(dialect))
    assert (decision.rule, decision.engines) == ("think", ("main", "eyes"))
    assert "the same as the default" in decision.why


def test_images_have_no_rule_of_their_own():
    """R04: the route names the model that the image agent asks; the request's own route stays."""
    image = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    asked = request("anthropic", messages=[{"role": "user", "content": [image]}])
    assert decide(config(image="eyes"), asked).rule == "default"


# --- long context -----------------------------------------------------------------------------------------------------


@dialects
def test_a_long_prompt_has_a_route_of_its_own(dialect: str):
    """R03: more tokens than the threshold, which is 60,000 unless it is set."""
    asked = says(dialect, "word " * 50_000)
    decision = decide(config(long_context="other"), asked)
    assert (decision.rule, decision.engines, decision.tokens) == ("long_context", ("other",), 62_500)
    assert decide(config(long_context="other", long_context_tokens=70_000), asked).rule == "default"
    assert decide(config(), asked).tokens is None, "nothing is counted when no rule asks for it"


@dialects
def test_thinking_images_and_tools_are_counted(dialect: str):
    """R03: what the original left out is counted."""
    schema = {"type": "object", "properties": {"x": {"type": "string", "description": "word " * 400}}}
    tool: dict[str, Any] = {"name": "t", "description": "d", "input_schema": schema}
    if dialect != "anthropic":
        tool = {"type": "function", "name": "t", "parameters": schema}
    if dialect == "openai-chat":
        tool = {"type": "function", "function": {"name": "t", "parameters": schema}}
    url = "https://example.org/a.png"
    image: dict[str, Any] = {
        "anthropic": {"type": "image", "source": {"type": "url", "url": url}},
        "openai-chat": {"type": "image_url", "image_url": {"url": url}},
        "openai-responses": {"type": "input_image", "image_url": url},
    }[dialect]
    thought: dict[str, Any] = {
        "anthropic": {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "word " * 400, "signature": "s"}],
        },
        "openai-chat": {"role": "assistant", "reasoning_content": "word " * 400, "content": "ok"},
        "openai-responses": {
            "type": "reasoning",
            "id": "rs",
            "summary": [{"type": "summary_text", "text": "word " * 400}],
        },
    }[dialect]
    field = "input" if dialect == "openai-responses" else "messages"
    items: Any = [{"role": "user", "content": [image]}, thought]
    routes = config(long_context="other", long_context_tokens=1_900)
    assert decide(routes, request(dialect, tools=[tool], **{field: items})).rule == "long_context"
    assert decide(routes, request(dialect, **{field: items})).rule == "default"
    assert decide(routes, request(dialect, tools=[tool], **{field: items[:1]})).rule == "default"
    items[0] = {"role": "user", "content": "Hi"}
    assert decide(routes, request(dialect, tools=[tool], **{field: items})).rule == "default"


@dialects
def test_a_session_whose_last_prompt_was_long_stays_there(dialect: str):
    """R03: the last input was above the threshold, and this one has more than 20,000 tokens."""
    router = Router(config(long_context="other"), env={})
    headers = {"x-session-id": "s-1"}
    short, middle = says(dialect, "word " * 15_000, headers=headers), says(dialect, "word " * 17_000, headers=headers)
    assert decide(router, middle).rule == "default"
    router.sessions.remember("s-1", 60_001)
    assert decide(router, middle).rule == "long_context"
    assert decide(router, short).rule == "default"
    router.sessions.remember("s-1", 60_000)
    assert decide(router, middle).rule == "default"


def test_a_small_body_is_not_counted():
    decision = decide(config(long_context="other"), says("anthropic", "word " * 10_000))
    assert (decision.rule, decision.tokens) == ("default", None)


def test_a_body_whose_bytes_are_no_text_is_refused_with_a_sentence():
    """Whoever asks for the field is told; it is no failure of the gateway."""
    body = b'{"model": "m", "max_tokens": 5, "messages": "' + b"\xff" * 200_000 + b'"}'
    asked = GatewayRequest("r", DIALECTS["anthropic"](), body, {})
    decision = decide(config(long_context="other"), asked)
    assert decision.rule == "default"
    assert "its tokens cannot be counted: 'messages' of the body is not JSON" in decision.steps[3].reason
    with pytest.raises(PromptRejected, match="'messages' of the body is not JSON"):
        assert asked.prompt
    nested = b'{"model": "m", "messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    with pytest.raises(PromptRejected, match="the body is not a JSON object"):
        GatewayRequest("r", DIALECTS["anthropic"](), nested, {})


def test_counts_are_those_of_the_default_engine():
    router = Router(config(long_context="other"), env={})
    asked = says("anthropic", "word " * 40_000)
    assert decide(router, asked).rule == "default"
    router.calibration.observe("main", 1_000, 1_500)
    decision = decide(router, asked)
    assert (decision.rule, decision.tokens, decision.estimated) == ("long_context", 75_000, 50_000)


# --- fallbacks --------------------------------------------------------------------------------------------------------


@dialects
def test_each_scenario_has_fallbacks_of_its_own(dialect: str):
    """R09: the engines of the scenario's list follow the one that was chosen, each once."""
    gateway = GatewaySettings(
        routes=MainRouteSettings(default="main", think="other"),
        fallback=FallbackSettings(default=("eyes", "main"), think=("main/Main-2",)),
    )
    routes = config(gateway=gateway)
    assert decide(routes, thinking(dialect)).engines == ("other", "main:Main-2")
    assert decide(routes, request(dialect)).engines == ("main", "eyes")
    assert decide(routes, request(dialect, "other")).engines == ("other", "eyes", "main")


# --- projects and sessions --------------------------------------------------------------------------------------------

PROJECTS = GatewaySettings(
    routes=MainRouteSettings(default="main", think="other", background="other:o-1"),
    projects={"shop": ProjectSettings(think="eyes", folder="/srv/web.shop"), "quiet": ProjectSettings(background="")},
    sessions={"s-9": RouteSettings(think="main:Main-2")},
)


@dialects
def test_a_session_wins_over_a_project_and_that_over_all(dialect: str):
    """R07: session, then project, then global; a missing key falls back to the next."""
    routes = config(gateway=PROJECTS)

    def engine(asked: GatewayRequest) -> str:
        return decide(routes, asked).engines[0]

    shop = {"x-rondel-project": "shop"}
    assert engine(thinking(dialect)) == "other"
    assert engine(thinking(dialect, headers=shop)) == "eyes"
    assert engine(thinking(dialect, headers={**shop, "x-session-id": "s-9"})) == "main:Main-2"
    assert engine(request(dialect, headers=shop)) == "main", "the default is not overridden"
    assert engine(thinking(dialect, headers={"x-rondel-project": "unknown"})) == "other"


def test_background_work_of_a_project_goes_where_the_project_says():
    """R02: the project's route counts here, too."""
    asked = request("anthropic", "claude-haiku-4", headers={"x-rondel-project": "quiet"})
    decision = decide(config(gateway=PROJECTS), asked)
    assert (decision.rule, decision.engines) == ("background", ("main",))
    assert "gateway.projects.quiet.background" in decision.why


def test_the_project_of_a_session_is_where_its_file_is(tmp_path: Path):
    """R07: a coding agent names its session only; the folder of its file is the project."""
    (tmp_path / "-srv-web-shop").mkdir()
    (tmp_path / "-srv-web-shop" / "abc-1.jsonl").write_text("")
    (tmp_path / "elsewhere").mkdir()
    router = Router(config(gateway=PROJECTS), sessions=Sessions(tmp_path), env={})

    def engine(user_id: str, at: float = 0.0) -> str:
        return decide(router, thinking("anthropic", metadata={"user_id": user_id}, at=at)).engines[0]

    assert engine("user_1_session_abc-1") == "eyes"
    assert engine("user_1_session_abc-2") == "other"
    (tmp_path / "-srv-web-shop" / "abc-2.jsonl").write_text("")
    assert engine("user_1_session_abc-2", at=LOOK_AGAIN_S - 1) == "other"
    assert engine("user_1_session_abc-2", at=LOOK_AGAIN_S) == "eyes", "it is looked for again after a while"


def test_a_session_is_no_path(tmp_path: Path):
    (tmp_path / "a").mkdir()
    (tmp_path / "x.jsonl").write_text("")
    sessions = Sessions(tmp_path)
    assert [sessions.project_of(name, 0.0) for name in ("../x", "a/../x", "", "x" * 200)] == [""] * 4
    assert Sessions(tmp_path / "nowhere").project_of("x", 0.0) == ""
    assert Sessions("").project_of("x", 0.0) == ""


def test_the_last_usage_of_a_hundred_sessions_is_remembered(tmp_path: Path):
    """R12: the one that was used longest ago is forgotten first."""
    sessions = Sessions(tmp_path)
    for number in range(SESSIONS_MAX):
        sessions.remember(f"s-{number}", number + 1)
    sessions.remember("s-0", 7)
    sessions.remember("new", 5)
    assert (SESSIONS_MAX, sessions.last_tokens("s-0"), sessions.last_tokens("s-1")) == (100, 7, 0)
    assert sessions.last_tokens("new") == 5
    sessions.remember("", 9)
    assert sessions.last_tokens("") == 0
    for number in range(PROJECTS_MAX + 5):
        sessions.project_of(f"p-{number}", 0.0)
    assert len(sessions._projects) == PROJECTS_MAX  # pyright: ignore[reportPrivateUsage]


# --- every decision explains itself -----------------------------------------------------------------------------------


@dialects
def test_a_decision_says_which_rule_chose_and_why(dialect: str):
    """R11: the rule, its reason, and what every rule before it said."""
    decision = decide(config(think="other", background="eyes"), thinking(dialect))
    assert decision.why == "it asks for thinking, and gateway.routes.think names 'other'"
    assert [(step.rule, step.applies) for step in decision.steps] == [
        ("tag", False),
        ("custom", False),
        ("explicit", False),
        ("long_context", False),
        ("background", False),
        ("web_search", False),
        ("think", True),
    ]
    assert all(step.reason for step in decision.steps)


@pytest.mark.parametrize("model", ["m{0}", "{", "{}{!r}{nothing}", "%s %d"])
def test_what_a_caller_writes_is_no_format(model: str):
    """R11: it stands in the reasons as it was written."""
    decision = decide(config(background="eyes"), request("anthropic", model))
    reasons = {step.rule: step.reason for step in decision.steps}
    assert reasons["explicit"] == f"{model!r} names no engine that is known here"
    assert reasons["background"] == f"{model!r} matches none of *claude*haiku*"


def test_names_mean_the_same_again_however_long_they_are():
    router = Router(config(), env={})
    for asked in ("other,o-1", f"other,{'o' * 500}"):
        for _ in range(2):
            assert decide(router, request("anthropic", asked)).engines == (asked.replace(",", ":"),)


def test_nothing_of_the_request_is_decoded_for_the_rules_that_need_none_of_it():
    body = b'{"model": "claude-haiku-4", "max_tokens": 5, "messages": [{"role": "nobody"}]}'
    asked = GatewayRequest("r", DIALECTS["anthropic"](), body, {})
    before = dict(asked.fields)
    decision = asyncio.run(Router(config(background="other", think="other"), env={}).decide(asked))
    assert decision.rule == "background"
    assert asked.fields == before
    assert "prompt" not in asked.__dict__
    assert json.loads(body)["messages"][0]["role"] == "nobody"
