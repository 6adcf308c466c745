"""A coding agent asks for what its own model has; the model that answers is asked for what it is said to have."""

from __future__ import annotations

from pathlib import Path

import httpx2

from .served import Served, engines
from .speech import PATHS, says, whole
from .upstream import Upstream

FACTS = "facts = {output_tokens_max = 4096, thinking = false}\n"


def test_facts_of_the_configuration_bring_a_request_down_to_what_a_model_takes(upstream: Upstream, tmp_path: Path):
    name = upstream.plays(whole("openai-chat", says("Hello")))
    config = '[gateway.routes]\ndefault = "small"\n' + engines(upstream).replace("[engines.c]", "[engines.small]")
    config = config.replace('dialect = "openai-chat"\n', f'dialect = "openai-chat"\nmodels = ["{name}"]\n' + FACTS)
    asked = {
        "model": f"small:{name}",
        "max_tokens": 64_000,
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "high"},
        "messages": [{"role": "user", "content": "Hi"}],
    }
    with Served(tmp_path / "gateway", config) as served:
        assert httpx2.post(served.base_url + PATHS["anthropic"], json=asked).status_code == 200
    body = upstream.visit(name).body
    assert body["max_completion_tokens"] == 4_096
    assert "reasoning_effort" not in body
