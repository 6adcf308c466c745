"""How thinking is asked of a Claude: older models take a budget of tokens, newer ones an effort, some take both."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from .callers import KEY, question
from .served import Served
from .speech import PATHS, says, whole
from .upstream import Upstream

BUDGET_ONLY = (
    "claude-haiku-4-5",
    "claude-haiku-4-5-20251001",
    "claude-sonnet-4-5",
    "claude-sonnet-4-5@20250929",
    "claude-sonnet-4-20250514",
    "claude-opus-4-1",
    "claude-opus-4-5",
    "claude-3-7-sonnet-latest",
    "anthropic/claude-sonnet-4.5",
    "claude-4.5-sonnet",
    "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
)
EFFORT_ONLY = ("claude-opus-4-7", "claude-opus-4-8", "claude-sonnet-5-5", "global.anthropic.claude-opus-4-8-v1")
BOTH = ("claude-sonnet-4-6", "anthropic/claude-opus-4.6")
OPENAI = ("openai-chat", "openai-responses")


def effort(caller: str, word: str, **more: Any) -> dict[str, Any]:
    return {"reasoning_effort": word, **more} if caller == "openai-chat" else {"reasoning": {"effort": word}, **more}


def sent(served: Served, upstream: Upstream, caller: str, model: str, **more: Any) -> dict[str, Any]:
    """What the upstream was asked, without what is the same in each."""
    upstream.plays(whole("anthropic", says("Hello")), name=model)
    asked = {**question(caller, "Hi", tools="tool_choice" in more), **more, "model": f"a:{model}"}
    answer = httpx2.post(served.base_url + PATHS[caller], json=asked, headers={"authorization": f"Bearer {KEY}"})
    assert answer.status_code == 200, answer.text
    body = upstream.visit(model).body
    return {name: value for name, value in body.items() if name not in ("model", "messages", "tools", "stream")}


@pytest.mark.parametrize("caller", OPENAI)
@pytest.mark.parametrize("model", BUDGET_ONLY)
def test_an_older_claude_is_given_a_budget(model: str, caller: str, served: Served, upstream: Upstream) -> None:
    """Trust 20: an older Claude refuses `adaptive` and `output_config`; it is asked with `enabled` and a budget."""
    assert sent(served, upstream, caller, model, **effort(caller, "high")) == {
        "max_tokens": 8192 + 16384,
        "thinking": {"type": "enabled", "budget_tokens": 16384},
    }


@pytest.mark.parametrize("caller", OPENAI)
@pytest.mark.parametrize(
    ("word", "budget"), [("minimal", 1024), ("low", 2048), ("medium", 8192), ("high", 16384), ("xhigh", 16384)]
)
def test_each_effort_has_its_budget(caller: str, word: str, budget: int, served: Served, upstream: Upstream) -> None:
    """Trust 20: every effort becomes a budget, and the answer keeps its own room beside it."""
    assert sent(served, upstream, caller, "claude-haiku-4-5", **effort(caller, word)) == {
        "max_tokens": 8192 + budget,
        "thinking": {"type": "enabled", "budget_tokens": budget},
    }


@pytest.mark.parametrize(
    ("most", "thinking"),
    [
        (40_000, {"type": "enabled", "budget_tokens": 16_384}),
        (10_000, {"type": "enabled", "budget_tokens": 5_000}),
        (1_500, {"type": "enabled", "budget_tokens": 1_024}),
        (1_025, {"type": "enabled", "budget_tokens": 1_024}),
        (1_024, None),
        (16, None),
    ],
)
def test_a_budget_is_smaller_than_the_answer(
    most: int, thinking: dict[str, Any] | None, served: Served, upstream: Upstream
) -> None:
    """Trust 20: the budget is at least 1024 and less than `max_tokens`; where that cannot be, no thinking is asked."""
    body = sent(served, upstream, "openai-chat", "claude-sonnet-4-5", reasoning_effort="high", max_tokens=most)
    assert body["max_tokens"] == most
    assert body.get("thinking") == thinking
    assert "output_config" not in body


@pytest.mark.parametrize("caller", OPENAI)
@pytest.mark.parametrize("model", [*EFFORT_ONLY, *BOTH])
def test_a_newer_claude_is_given_an_effort(model: str, caller: str, served: Served, upstream: Upstream) -> None:
    """Trust 20: newer models are asked in the newer form."""
    assert sent(served, upstream, caller, model, **effort(caller, "medium")) == {
        "max_tokens": 8192,
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "medium"},
    }


@pytest.mark.parametrize("model", ["claude-haiku-4-5", "claude-sonnet-4-6", "claude-opus-4-8"])
@pytest.mark.parametrize("caller", OPENAI)
def test_no_thinking_is_the_same_for_all(caller: str, model: str, served: Served, upstream: Upstream) -> None:
    """Trust 20: `none` is `disabled` in both forms."""
    body = sent(served, upstream, caller, model, **effort(caller, "none"))
    assert body == {"max_tokens": 8192, "thinking": {"type": "disabled"}}


def test_an_older_claude_that_thinks_is_sent_no_sampling(served: Served, upstream: Upstream) -> None:
    """Trust 20: with thinking, Claude refuses `temperature` and `top_k`; what was asked for by a Chat caller who does
    not know that is left out. Without thinking it is sent."""
    sampling = {"temperature": 0.2, "top_p": 0.5}
    body = sent(served, upstream, "openai-chat", "claude-haiku-4-5", reasoning_effort="low", **sampling)
    assert set(body) == {"max_tokens", "thinking"}
    body = sent(served, upstream, "openai-chat", "claude-haiku-4-5", **sampling)
    assert body == {"max_tokens": 8192, **sampling}


def test_a_newer_claude_is_sent_no_sampling_at_all(served: Served, upstream: Upstream) -> None:
    """Trust 20: since Opus 4.7, Claude refuses `temperature`, `top_p` and `top_k`."""
    body = sent(served, upstream, "openai-chat", "claude-opus-4-8", temperature=0.2, top_p=0.5)
    assert body == {"max_tokens": 8192}


@pytest.mark.parametrize("model", ["claude-haiku-4-5", "claude-opus-4-8"])
def test_a_call_that_is_demanded_is_more_than_thinking(model: str, served: Served, upstream: Upstream) -> None:
    """Trust 20: Claude refuses a demanded call together with thinking; the call is what the caller relies on."""
    body = sent(served, upstream, "openai-chat", model, reasoning_effort="low", tool_choice="required")
    assert body == {"max_tokens": 8192, "tool_choice": {"type": "any"}}


@pytest.mark.parametrize(
    ("model", "thinking", "expected"),
    [
        ("claude-opus-4-8", {"type": "enabled", "budget_tokens": 2000}, ({"type": "adaptive"}, {"effort": "low"})),
        ("claude-opus-4-8", {"type": "enabled", "budget_tokens": 9000}, ({"type": "adaptive"}, {"effort": "medium"})),
        ("claude-opus-4-8", {"type": "enabled", "budget_tokens": 31999}, ({"type": "adaptive"}, {"effort": "high"})),
        ("claude-haiku-4-5", {"type": "adaptive"}, ({"type": "enabled", "budget_tokens": 16384}, None)),
        ("claude-sonnet-4-6", {"type": "enabled", "budget_tokens": 2000}, None),
        ("claude-sonnet-4-6", {"type": "adaptive"}, None),
        ("claude-haiku-4-5", {"type": "enabled", "budget_tokens": 2000}, None),
        ("claude-opus-4-8", {"type": "adaptive"}, None),
        ("claude-opus-4-8", {"type": "disabled"}, None),
    ],
)
def test_an_anthropic_caller_is_passed_on_in_the_form_that_the_model_takes(
    model: str, thinking: dict[str, Any], expected: Any, served: Served, upstream: Upstream
) -> None:
    """Trust 20: a route may give a program's request to a model of another generation, which refuses its form."""
    body = sent(served, upstream, "anthropic", model, max_tokens=40_000, thinking=thinking)
    assert (body["thinking"], body.get("output_config")) == (expected or (thinking, None))
