"""Endpoints, providers and models' facts: data, joined and looked up rightly."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console
from rich.pretty import pprint

from rondel.contracts.endpoint import FACTS, PROVIDERS, Endpoint, endpoint_of, facts_of
from rondel.dialects import DIALECTS
from rondel.errors import ConfigError
from rondel.values import ModelFacts


def at(base_url: str, path: str = "/v1/chat/completions") -> str:
    return Endpoint("p", base_url, "openai-chat").url(path)


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1/chat/completions"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000/v1/chat/completions"),
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1/chat/completions"),
        ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000/v1/chat/completions"),
        ("https://h/openai/v1", "https://h/openai/v1/chat/completions"),
        ("https://h/v1beta/openai", "https://h/v1beta/openai/chat/completions"),
        ("https://h/api/paas/v4", "https://h/api/paas/v4/chat/completions"),
        ("https://h/proxy", "https://h/proxy/v1/chat/completions"),
        ("https://h/v1/chat/completions", "https://h/v1/chat/completions"),
        ("https://h/v1?api-version=3", "https://h/v1/chat/completions?api-version=3"),
    ],
)
def test_a_base_url_and_a_path_join_to_one_version(base_url: str, url: str) -> None:
    assert at(base_url) == url


def test_the_anthropic_path_joins_with_and_without_a_version() -> None:
    assert at("https://api.anthropic.com", "/v1/messages") == "https://api.anthropic.com/v1/messages"
    assert at("https://h/anthropic/v1", "/v1/messages") == "https://h/anthropic/v1/messages"


@pytest.mark.parametrize("base_url", ["localhost:8000", "", "api.openai.com/v1", "ftp://h/v1", "https://"])
def test_a_base_url_that_is_no_web_address_is_refused(base_url: str) -> None:
    with pytest.raises(ConfigError, match="is not a web address"):
        Endpoint("p", base_url, "openai-chat")


def test_an_endpoint_never_shows_its_secrets() -> None:
    endpoint = Endpoint(
        "p", "https://joe:hunter2@h/v1?token=hunter2", "openai-chat", key="hunter2", headers={"X-Secret": "hunter2"}
    )
    pretty = io.StringIO()
    pprint(endpoint, console=Console(file=pretty, width=200))
    for shown in (repr(endpoint), str(endpoint), f"{endpoint}", repr([endpoint]), pretty.getvalue()):
        assert "hunter2" not in shown
        assert "openai-chat" in shown


def test_every_provider_speaks_a_dialect_that_exists() -> None:
    assert {provider.dialect for provider in PROVIDERS.values()} <= set(DIALECTS)


def test_every_provider_that_is_not_local_has_a_key_and_a_model() -> None:
    for provider in PROVIDERS.values():
        assert bool(provider.key_variables) == bool(provider.model) == (not provider.is_local)


def test_an_endpoint_takes_its_key_and_address_from_the_variables() -> None:
    endpoint = endpoint_of("anthropic", {"ANTHROPIC_API_KEY": " sk-1\n", "ANTHROPIC_BASE_URL": "https://proxy/x"})
    assert (endpoint.key, endpoint.base_url, endpoint.dialect) == ("sk-1", "https://proxy/x", "anthropic")
    assert endpoint_of("gemini", {"GOOGLE_API_KEY": "g"}).key == "g"
    assert endpoint_of("openai", {}, base_url="http://127.0.0.1:1", idle_s=5).idle_s == 5


def test_an_unknown_provider_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="no provider 'antropic'; did you mean 'anthropic'"):
        endpoint_of("antropic", {})


def test_a_key_is_needed_where_keys_exist_but_not_on_loopback_or_beside_an_own_header() -> None:
    assert endpoint_of("openai", {}).needs_key
    assert not endpoint_of("ollama", {}).needs_key
    assert not endpoint_of("openai", {"OPENAI_BASE_URL": "http://127.0.0.1:9"}).needs_key
    assert not endpoint_of("openai", {}, headers={"Authorization": "Basic x"}).needs_key


def test_facts_are_found_under_every_spelling_of_a_model() -> None:
    for provider, model in (
        ("anthropic", "claude-sonnet-4-5"),
        ("anthropic", "claude-sonnet-4-5-20250929"),
        ("openrouter", "anthropic/claude-sonnet-4.5"),
        ("openrouter", "Anthropic/Claude-Sonnet-4.5"),
    ):
        assert facts_of(provider, model).window_tokens == 200_000
    assert facts_of("anthropic", "claude-sonnet-5-5").window_tokens == 1_000_000
    assert facts_of("openai", "gpt-5.4-mini").window_tokens == 400_000
    assert facts_of("openai", "gpt-6.1-terra").thinking


def test_an_unknown_model_is_taken_to_call_tools_and_its_window_is_unknown() -> None:
    assert facts_of("vllm", "somebody/new-model") == ModelFacts()
    assert ModelFacts().tools
    assert ModelFacts().window_tokens is None


def test_the_window_of_a_model_on_a_local_server_is_the_servers_own() -> None:
    assert facts_of("groq", "openai/gpt-oss-120b").window_tokens == 131_072
    assert facts_of("ollama", "gpt-oss-120b").window_tokens is None


def test_every_row_of_facts_can_be_reached() -> None:
    """A row behind a wider pattern would be dead data."""
    for pattern, facts in FACTS:
        name = re.sub(r"\[(.)[^]]*\]", r"\1", pattern).replace("*", "zz")
        assert facts_of("openrouter", name) == facts, pattern
