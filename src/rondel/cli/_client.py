"""What a client of the gateway needs: the gateway's address, a key, environment variables and arguments.

Starts no process and knows no shell: `rondel code` runs the client, `rondel activate` prints shell commands.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

import msgspec

from ..contracts.endpoint import PROVIDERS
from ..errors import ConfigError, RondelError, nearest
from ..http import HttpError, get
from ..project.settings import GatewaySettings, KeySettings
from ..text.redaction import Redactor

PLACEHOLDER = "rondel"  # the key for a gateway that needs none: most clients do not start without one
PROBE_S = 2.0
ANSWER_BYTES_MAX = 65_536
TIMEOUT_MS = 600_000  # how long a coding agent waits for an answer, in milliseconds
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
"""Variables that would make a client bypass the gateway, or give it a key that is not the gateway's."""
DEFAULTS = {
    "API_TIMEOUT_MS": str(TIMEOUT_MS),
    # Telemetry and other reports to the vendor, although another model answers.
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    # A line before the prompt that differs in each conversation, so that no model could cache the rest.
    "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
}
"""Variables that are set unless the user has set them."""


def client_variables(address: str, key: str, env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that point Anthropic and OpenAI clients at the gateway at this address."""
    token = key or PLACEHOLDER
    set_ = {
        "ANTHROPIC_BASE_URL": address,
        "ANTHROPIC_AUTH_TOKEN": token,
        "OPENAI_BASE_URL": f"{address}/v1",
        "OPENAI_API_KEY": token,
        "OPENAI_API_BASE": f"{address}/v1",
        "DISABLE_TELEMETRY": "true",
        "DISABLE_COST_WARNINGS": "true",
        **{name: env.get(name) or value for name, value in DEFAULTS.items()},
    }
    for name in ("NO_PROXY", "no_proxy"):
        set_[name] = _with_loopback(env.get(name, ""))
    return set_


def _with_loopback(no_proxy: str) -> str:
    given = [host.strip() for host in no_proxy.split(",") if host.strip()]
    return ",".join(given + [host for host in LOOPBACK.split(",") if host not in given])


def client_environment(
    address: str, key: str, env: Mapping[str, str], redactor: Redactor | None = None
) -> dict[str, str]:
    """Return a client's whole environment, without the API keys of models, which `redactor` knows."""
    ours = {*UNSET, *(name for provider in PROVIDERS.values() for name in provider.key_variables)}
    redact = (redactor or Redactor()).text
    kept = {name: value for name, value in env.items() if name not in ours and redact(value) == value}
    return {**kept, **client_variables(address, key, env)}


def client_arguments(program: str, address: str) -> list[str]:
    """Return arguments to put first for a program that no variable can point at the gateway."""
    if os.path.basename(program).partition(".")[0] != "codex":
        return []
    provider = f'{{name="Rondel",base_url="{address}/v1",env_key="OPENAI_API_KEY",wire_api="responses"}}'
    return ["-c", 'model_provider="rondel"', "-c", f"model_providers.rondel={provider}"]


def key_of(settings: GatewaySettings, name: str, now: float) -> str:
    """Return the secret of the named key, or of the first valid one; empty if the gateway needs no key."""
    keys = settings.keys
    if name and name not in keys:
        there = nearest(name, list(keys)) if keys else "; rondel.toml has no keys, and none is needed"
        raise ConfigError(f"there is no key {name!r}{there}")
    if name:
        if not _is_good(keys[name], now):
            raise ConfigError(f"the key {name!r} expired on {keys[name].expires}; use another, or create a new one")
        return keys[name].key
    good = [key.key for key in keys.values() if key.key and _is_good(key, now)]
    if keys and not good and all(key.key for key in keys.values()):
        raise ConfigError("every key in [gateway.keys] has expired; create a new one")
    return good[0] if good else ""


def _is_good(key: KeySettings, now: float) -> bool:
    if not key.expires:
        return True
    end = datetime.fromisoformat(key.expires)
    return now < (end if end.tzinfo else end.replace(tzinfo=UTC)).timestamp()


def local_address(settings: GatewaySettings) -> tuple[str, int]:
    """Return the host and port at which local programs reach a gateway with these settings."""
    host = settings.host.strip("[]")
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host), settings.port


def url_of(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def is_gateway(host: str, port: int) -> bool:
    if not port:
        return False
    status, body = _get(host, port, "/health", "")
    try:
        said: Any = json.loads(body) if status == 200 else None
    except (ValueError, RecursionError):
        return False
    return isinstance(said, dict) and {"status", "version"} <= set(cast("dict[str, Any]", said))


def check_key(host: str, port: int, key: str) -> None:
    status, _ = _get(host, port, "/v1/models", key or PLACEHOLDER)
    if status in (401, 403):
        raise RondelError(
            f"the gateway at {url_of(host, port)} does not accept this project's key; "
            "name another with --key, or use the rondel.toml that it was started with"
        )


class EngineStatus(msgspec.Struct, frozen=True):
    engine: str
    failures: int
    why: str
    retry_in_s: float


class Status(msgspec.Struct, frozen=True):
    version: str
    requests: int
    engines: tuple[EngineStatus, ...]


def status_of(host: str, port: int, key: str) -> Status | None:
    if not is_gateway(host, port):
        return None
    check_key(host, port, key)
    status, body = _get(host, port, "/status", key or PLACEHOLDER)
    try:
        return msgspec.json.decode(body, type=Status) if status == 200 else None
    except msgspec.DecodeError:
        return None


def _get(host: str, port: int, path: str, key: str) -> tuple[int, bytes]:
    """Ask the gateway on this machine, without a proxy. Status 0 means that there was no answer."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    try:
        return asyncio.run(get(url_of(host, port) + path, headers, timeout_s=PROBE_S, bytes_max=ANSWER_BYTES_MAX))
    except HttpError:
        return 0, b""
