"""What a program needs to be a client of the gateway: where it is, which key, and the variables and arguments that
say so.

Knows no process and no shell: `rondel code` starts one, `rondel activate` prints lines for the other.
"""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

from ..errors import ConfigError, RondelError, nearest
from ..settings import GatewaySettings, KeySettings

PLACEHOLDER = "rondel"
"""The key of a gateway that wants none: most clients do not start without one."""
PROBE_S = 2.0
TIMEOUT_MS = 600_000
"""How long a coding agent waits for an answer."""
LOOPBACK = "127.0.0.1,localhost,::1"
UNSET = (
    "ANTHROPIC_API_KEY",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_MANTLE",
    "CLAUDE_CODE_USE_ANTHROPIC_AWS",
    "CLAUDE_CODE_USE_GATEWAY",
)
"""What would lead a client past the gateway, or hand it a key that is not the gateway's."""
UNLESS_SAID = {
    "API_TIMEOUT_MS": str(TIMEOUT_MS),
    # Its telemetry is one of several things that it would tell its vendor, though another model answers.
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    # A line before its prompt that is another one in each conversation: no model's cache would know the rest again.
    "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
}
"""What is set where a person has not said otherwise."""


def client_variables(address: str, key: str, env: Mapping[str, str]) -> dict[str, str]:
    """What to set so that clients of Anthropic and of OpenAI ask the gateway at this address."""
    token = key or PLACEHOLDER
    set_ = {
        "ANTHROPIC_BASE_URL": address,
        "ANTHROPIC_AUTH_TOKEN": token,
        "OPENAI_BASE_URL": f"{address}/v1",
        "OPENAI_API_KEY": token,
        "OPENAI_API_BASE": f"{address}/v1",
        "DISABLE_TELEMETRY": "true",
        "DISABLE_COST_WARNINGS": "true",
        **{name: env.get(name) or value for name, value in UNLESS_SAID.items()},
    }
    for name in ("NO_PROXY", "no_proxy"):
        set_[name] = _with_loopback(env.get(name, ""))
    return set_


def _with_loopback(no_proxy: str) -> str:
    """What is there stays; a proxy must not be asked for this machine."""
    given = [host.strip() for host in no_proxy.split(",") if host.strip()]
    return ",".join(given + [host for host in LOOPBACK.split(",") if host not in given])


def client_environment(address: str, key: str, env: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a client; the one that is given stays as it is."""
    kept = {name: value for name, value in env.items() if name not in UNSET}
    return {**kept, **client_variables(address, key, env)}


def client_arguments(program: str, address: str) -> list[str]:
    """What a program must be told before its own arguments, because no variable tells it where to ask."""
    if os.path.basename(program).partition(".")[0] != "codex":
        return []
    provider = f'{{name="Rondel",base_url="{address}/v1",env_key="OPENAI_API_KEY",wire_api="responses"}}'
    return ["-c", 'model_provider="rondel"', "-c", f"model_providers.rondel={provider}"]


def key_of(settings: GatewaySettings, name: str, now: float) -> str:
    """The secret of the key that is named, else of the first that is still good; empty where none is needed."""
    keys = settings.keys
    if name and name not in keys:
        there = nearest(name, list(keys)) if keys else "; rondel.toml has none, and none is needed"
        raise ConfigError(f"there is no key {name!r}{there}")
    if name:
        if not _is_good(keys[name], now):
            raise ConfigError(f"the key {name!r} expired on {keys[name].expires}; name another, or make a new one")
        return keys[name].key
    good = [key.key for key in keys.values() if _is_good(key, now)]
    if keys and not good:
        raise ConfigError("every key in [gateway.keys] has expired; make a new one")
    return good[0] if good else ""


def _is_good(key: KeySettings, now: float) -> bool:
    if not key.expires:
        return True
    end = datetime.fromisoformat(key.expires)
    return now < (end if end.tzinfo else end.replace(tzinfo=UTC)).timestamp()


def local_address(settings: GatewaySettings) -> tuple[str, int]:
    """Where programs of this machine reach a gateway with these settings."""
    host = settings.host.strip("[]")
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host), settings.port


def url_of(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def is_gateway(host: str, port: int) -> bool:
    """Whether a gateway answers there, and not something else or nothing."""
    if not port:
        return False
    status, body = _get(host, port, "/health", "")
    try:
        said: Any = json.loads(body) if status == 200 else None
    except ValueError:
        return False
    return isinstance(said, dict) and {"status", "version"} <= set(cast("dict[str, Any]", said))


def check_key(host: str, port: int, key: str) -> None:
    """Raises when the gateway that answers there does not let this key in."""
    status, _ = _get(host, port, "/v1/models", key or PLACEHOLDER)
    if status in (401, 403):
        raise RondelError(
            f"the gateway that runs at {url_of(host, port)} does not know this project's key; "
            "name one that it knows with --key, or use the rondel.toml that it was started with"
        )


def _get(host: str, port: int, path: str, key: str) -> tuple[int, bytes]:
    """Ask without a proxy: it is this machine. A status of 0 says that nobody answered."""
    connection = http.client.HTTPConnection(host, port, timeout=PROBE_S)
    try:
        connection.request("GET", path, headers={"authorization": f"Bearer {key}"} if key else {})
        answer = connection.getresponse()
        return answer.status, answer.read(65_536)
    except (OSError, http.client.HTTPException, ValueError):
        return 0, b""
    finally:
        connection.close()
