"""Who may connect, and what a key may use: the decisions of the access control, without a server."""

from __future__ import annotations

import pytest

from rondel.errors import ConfigError
from rondel.gateway.server.access import HOST_CHARS_MAX, Access, Refused, check_binding
from rondel.project.settings import EngineSettings, KeySettings

SECRET = "ann-key-long-enough"
KEYS = {"ann": KeySettings(key=SECRET)}


@pytest.mark.parametrize(
    ("host", "keys", "is_allowed"),
    [
        ("localhost:8484", {}, True),
        ("127.0.0.1", {}, True),
        ("[::1]:8484", {}, True),
        ("evil.example", {}, False),
        ("evil.example", KEYS, False),
        ("10.0.0.5:8484", {}, False),
        ("10.0.0.5:8484", KEYS, True),
        ("", KEYS, False),
        ("[", KEYS, False),
        (f"{'x' * HOST_CHARS_MAX}@localhost", {}, False),
    ],
)
def test_only_requests_for_this_host_are_served(host: str, keys: dict[str, KeySettings], is_allowed: bool) -> None:
    """With a key, an address of this machine is enough: DNS cannot make it another one's."""
    access = Access(keys)
    if is_allowed:
        access.check_host({"host": host})
    else:
        with pytest.raises(Refused):
            access.check_host({"host": host})


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": f"Bearer {SECRET}"},
        {"authorization": f"bearer {SECRET}"},
        {"authorization": f"BEARER  {SECRET} "},
        {"authorization": SECRET},
        {"x-api-key": SECRET},
    ],
)
def test_a_key_is_found_however_it_is_sent(headers: dict[str, str]) -> None:
    assert Access(KEYS).check_key(headers, now=0.0) == "ann"


@pytest.mark.parametrize(
    ("patterns", "name", "is_allowed"),
    [
        (("gpt-*",), "openai:gpt-x", True),
        (("gpt-*",), "mine:gpt-x", False),  # a server that takes any name for its model
        (("gpt-*",), "mine:gpt-own", True),
        (("chained",), "chained", False),  # if it fails, another engine answers
        (("chained", "spare"), "chained", True),
        (("spare",), "spare", True),
        (("spare",), "agent:helper", False),
        (("agent:h*",), "agent:helper", True),
    ],
)
def test_a_key_may_use_what_its_patterns_name_and_nothing_that_answers_in_its_place(
    patterns: tuple[str, ...], name: str, is_allowed: bool
) -> None:
    engines = {
        "mine": EngineSettings(provider="openai", base_url="http://h/v1", model="gpt-own"),
        "chained": EngineSettings(provider="openai", model="o-large", fallback=("spare",)),
        "spare": EngineSettings(provider="openai", model="o-mini"),
    }
    access = Access({"ann": KeySettings(key=SECRET, models=patterns)}, engines=engines)
    assert access.allows("ann", name) == is_allowed


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "chat.example"])
def test_others_can_reach_the_gateway_only_with_keys_that_cannot_be_guessed(host: str) -> None:
    """C04: without a key only loopback, never open on all addresses."""
    check_binding(host, KEYS)
    with pytest.raises(ConfigError, match="without a key the gateway listens on this machine only"):
        check_binding(host, {})
    with pytest.raises(ConfigError, match="the key 'bob' can be guessed"):
        check_binding(host, {**KEYS, "bob": KeySettings(key="bob-key")})
    for local in ("127.0.0.1", "localhost", "[::1]"):
        check_binding(local, {})
        check_binding(local, {"bob": KeySettings(key="bob-key")})
