"""Providers, endpoints, and facts about models, all as data.

Knows no network and no wire format, and reads no environment: the variables are passed in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import msgspec

from ..errors import ConfigError, nearest
from ..text.redaction import is_web_address, secrets_in_headers, secrets_in_url, shown_url
from ..values import ModelFacts, Value

_VERSION = re.compile(r"v\d+\w*")  # a path segment that names an API's version: `v1`, `v4`, `v1beta`
_LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})


class Endpoint(Value, frozen=True):
    """A server that answers prompts. Its repr shows neither the key nor any header's value."""

    provider: str
    base_url: str
    dialect: str
    key: str = ""
    key_variables: tuple[str, ...] = ()
    """The environment variables that hold its key; empty where no key is needed. They are named in errors."""
    headers: dict[str, str] = {}
    options: dict[str, Any] = {}
    """More fields for the body of each request; they win over the dialect's own, and None leaves a field out."""
    connect_s: float = 10.0
    first_token_s: float = 120.0
    idle_s: float = 60.0

    def __post_init__(self) -> None:
        if not is_web_address(self.base_url):
            raise ConfigError(
                f"the base URL {shown_url(self.base_url)!r} of {self.provider!r} is not a web address; "
                "write it as http://host:port or https://host/path"
            )

    def __repr__(self) -> str:
        key = "set" if self.key else "none"
        return (
            f"Endpoint({self.provider!r}, {shown_url(self.base_url)!r}, {self.dialect!r}, "
            f"key={key}, headers={sorted(self.headers)})"
        )

    def __rich_repr__(self) -> list[tuple[str, Any]]:  # rich would otherwise list every field
        return [("provider", self.provider), ("base_url", shown_url(self.base_url)), ("dialect", self.dialect)]

    @property
    def host(self) -> str:
        """The host's name or address."""
        return urlsplit(self.base_url).hostname or ""

    @property
    def address(self) -> str:
        """Host and port, without a user name and a password."""
        return urlsplit(self.base_url).netloc.rpartition("@")[2]

    @property
    def secrets(self) -> frozenset[str]:
        """The secrets that are sent to it: the key, and those in the headers and in the address."""
        return frozenset((self.key, *secrets_in_headers(self.headers), *secrets_in_url(self.base_url)))

    @property
    def is_loopback(self) -> bool:
        """Whether it is on this machine."""
        return self.host in _LOOPBACK_HOSTS

    @property
    def needs_key(self) -> bool:
        """Whether a key must be set: not on loopback, and not if a header contains one."""
        carried = {name.lower() for name in self.headers} & {"authorization", "x-api-key"}
        return bool(self.key_variables) and not self.is_loopback and not carried

    def url(self, path: str) -> str:
        """Return the address of a dialect's path, such as `/v1/messages`.

        The version in the path is left out if the base URL has one (`/v1`, `/v1beta/openai`). A base URL that already
        ends with the path is returned unchanged. A query string is kept.
        """
        parts = urlsplit(self.base_url)
        base = parts.path.rstrip("/")
        segments = path.strip("/").split("/")
        tail = "/".join(segments[1:] if _VERSION.fullmatch(segments[0]) else segments)
        if base.endswith("/" + tail):
            joined = base
        elif any(_VERSION.fullmatch(segment) for segment in base.split("/")):
            joined = f"{base}/{tail}"
        else:
            joined = f"{base}/{'/'.join(segments)}"
        return urlunsplit((parts.scheme, parts.netloc, joined, parts.query, ""))


class Provider(Value, frozen=True):
    """What is known about a provider."""

    base_url: str
    dialect: str = "openai-chat"
    key_variables: tuple[str, ...] = ()
    base_url_variable: str = ""
    model: str = ""  # the default model; empty if only the server knows which models it has
    image_urls: bool = True  # whether its models take images by their address; if not, only as data
    remote_mcp: bool = False  # whether it connects to MCP servers itself, if it is asked in its own dialect
    web_search: bool = False  # whether its server can search the web by itself
    price_list: str = ""  # its name in genai-prices, if that is another one
    otel_name: str = ""  # its name in OpenTelemetry's conventions, if that is another one

    @property
    def is_local(self) -> bool:
        return (urlsplit(self.base_url).hostname or "") in _LOOPBACK_HOSTS


PROVIDERS: dict[str, Provider] = {
    "anthropic": Provider(
        "https://api.anthropic.com",
        "anthropic",
        ("ANTHROPIC_API_KEY",),
        base_url_variable="ANTHROPIC_BASE_URL",
        model="claude-sonnet-5-5",
        web_search=True,
        remote_mcp=True,
    ),
    "openai": Provider(
        "https://api.openai.com/v1",
        "openai-responses",
        ("OPENAI_API_KEY",),
        base_url_variable="OPENAI_BASE_URL",
        model="gpt-6.1-terra",
        web_search=True,
        remote_mcp=True,
    ),
    "openrouter": Provider(
        "https://openrouter.ai/api/v1", key_variables=("OPENROUTER_API_KEY",), model="anthropic/claude-sonnet-5.5"
    ),
    "groq": Provider("https://api.groq.com/openai/v1", key_variables=("GROQ_API_KEY",), model="openai/gpt-oss-120b"),
    "mistral": Provider(
        "https://api.mistral.ai/v1",
        key_variables=("MISTRAL_API_KEY",),
        model="mistral-medium-latest",
        otel_name="mistral_ai",
    ),
    "deepseek": Provider("https://api.deepseek.com", key_variables=("DEEPSEEK_API_KEY",), model="deepseek-v4-flash"),
    "together": Provider(
        "https://api.together.xyz/v1", key_variables=("TOGETHER_API_KEY",), model="openai/gpt-oss-120b"
    ),
    "fireworks": Provider(
        "https://api.fireworks.ai/inference/v1",
        key_variables=("FIREWORKS_API_KEY",),
        model="accounts/fireworks/models/gpt-oss-120b",
    ),
    "gemini": Provider(
        "https://generativelanguage.googleapis.com/v1beta/openai",
        key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        model="gemini-3.8-flash",
        price_list="google",
        otel_name="gcp.gemini",
    ),
    "xai": Provider(
        "https://api.x.ai/v1", key_variables=("XAI_API_KEY",), model="grok-4.7", price_list="x-ai", otel_name="x_ai"
    ),
    # "Image URL" is not among what Ollama supports: docs.ollama.com/api/openai-compatibility
    "ollama": Provider("http://127.0.0.1:11434/v1", image_urls=False),
    "vllm": Provider("http://127.0.0.1:8000/v1"),
    "llamacpp": Provider("http://127.0.0.1:8080/v1"),
    # LM Studio answers 400, "'url' field must be a base64 encoded image": lmstudio-bug-tracker 1120
    "lmstudio": Provider("http://127.0.0.1:1234/v1", image_urls=False),
}


def known_provider(name: str) -> Provider:
    """Return what is known about a provider; empty facts if it is not in the table."""
    return PROVIDERS.get(name, Provider(""))


def endpoint_of(name: str, variables: Mapping[str, str], **fields: Any) -> Endpoint:
    """Return the endpoint of a known provider, with its key and address from these variables; `fields` come first."""
    if (provider := PROVIDERS.get(name)) is None:
        raise ConfigError(f"there is no provider {name!r}{nearest(name, tuple(PROVIDERS))}")
    base_url = variables.get(provider.base_url_variable, "").strip() or provider.base_url
    key = next((found for v in provider.key_variables if (found := variables.get(v, "").strip())), "")
    known: dict[str, Any] = {
        "base_url": base_url if "://" in base_url else f"http://{base_url}",
        "dialect": provider.dialect,
        "key": key,
        "key_variables": provider.key_variables,
    }
    return Endpoint(provider=name, **(known | fields))


# --- facts -----------------------------------------------------------------------------------------------------------


def _model(window: int | None, abilities: str = "", output: int | None = None, **more: bool) -> ModelFacts:
    """Make the facts of one row. `abilities` are initials: i(mages), f(iles), t(hinking), s(chema of the output)."""
    return ModelFacts(
        window_tokens=window,
        output_tokens_max=output,
        images="i" in abilities,
        files="f" in abilities,
        thinking="t" in abilities,
        output_schema="s" in abilities,
        **more,
    )


# Claude models up to 4.5 take a budget for thinking, since 4.7 an effort, and 4.6 takes both. No Claude takes sampling
# options or a required call while it thinks; since 4.7 none takes sampling options at all.
_BUDGET = {"thinking_strict": True, "thinking_effort": False}
_BUDGET_OR_EFFORT = {"thinking_strict": True}
_EFFORT = {"thinking_strict": True, "thinking_budget": False, "sampling": False}


FACTS: tuple[tuple[str, ModelFacts], ...] = (
    ("claude-sonnet-4-[05]*", _model(200_000, "ift", 64_000, **_BUDGET)),
    ("claude-haiku-4-5*", _model(200_000, "ift", 64_000, **_BUDGET)),
    ("claude-*-4-[015]", _model(200_000, "ift", **_BUDGET)),
    ("claude-*-4-[015][-@]*", _model(200_000, "ift", **_BUDGET)),
    ("claude-*-4", _model(200_000, "ift", **_BUDGET)),
    ("claude-*-4[-@]2025*", _model(200_000, "ift", **_BUDGET)),
    ("claude-4-[15]-*", _model(200_000, "ift", **_BUDGET)),
    ("claude-4-[a-z]*", _model(200_000, "ift", **_BUDGET)),
    ("claude-3-7*", _model(200_000, "ift", 64_000, **_BUDGET)),
    ("claude-3*", _model(200_000, "if")),
    ("claude-*-4-6*", _model(1_000_000, "ifts", **_BUDGET_OR_EFFORT)),
    ("claude-4-6-*", _model(1_000_000, "ifts", **_BUDGET_OR_EFFORT)),
    ("claude-*-4-[78]*", _model(1_000_000, "ifts", **_EFFORT)),
    ("claude-4-[78]-*", _model(1_000_000, "ifts", **_EFFORT)),
    ("claude-*-5*", _model(1_000_000, "ifts", **_EFFORT)),
    ("claude-*", _model(None, "ift")),
    ("gpt-oss-*", _model(131_072, "ts")),
    ("gpt-6*", _model(1_050_000, "ifts")),
    ("gpt-5-6*", _model(1_050_000, "ifts")),
    ("gpt-5-5*", _model(1_000_000, "ifts")),
    ("gpt-5-4-mini*", _model(400_000, "ifts", 128_000)),
    ("gpt-5-4-nano*", _model(400_000, "ifts", 128_000)),
    ("gpt-5-4*", _model(1_050_000, "ifts", 128_000)),
    ("gpt-5*chat*", _model(128_000, "ifs")),
    ("gpt-5*", _model(400_000, "ifts", 128_000)),
    ("gpt-4-1*", _model(1_047_576, "ifs", 32_768)),
    ("gpt-realtime*", _model(32_000, "i", 4_096, voice=True)),
    ("gpt-4o*-realtime*", _model(128_000, "", 4_096, voice=True)),
    ("gpt-4o*-transcribe*", _model(16_000, "", 2_000, tools=False, transcription=True)),
    ("whisper-*", _model(None, tools=False, transcription=True)),
    ("gpt-4o*", _model(128_000, "ifs", 16_384)),
    ("o[134]", _model(200_000, "ifts", 100_000)),
    ("o[34]-*", _model(200_000, "ifts", 100_000)),
    ("gemini-*", _model(1_000_000, "ifts")),
    ("mistral-large-4*", _model(1_048_576, "is")),
    ("mistral-large-2512*", _model(262_144, "is")),
    ("mistral-medium-3-5*", _model(262_144, "is")),
    ("mistral-small-2603*", _model(262_144, "is")),
    ("mistral-*", _model(None, "s")),
    ("codestral-2508*", _model(256_000, "s")),
    ("deepseek-v4*", _model(1_000_000, "t")),
    ("deepseek-v3-2*", _model(128_000, "t")),
    ("grok-4-20*", _model(1_000_000, "its")),
    ("grok-4-3*", _model(1_000_000, "its")),
    ("grok-4-[567]*", _model(500_000, "its")),
    ("kimi-k3*", _model(1_000_000, "ts")),
    ("kimi-k2*", _model(131_072, "s")),
    ("glm-5-[23]*", _model(1_000_000, "ts")),
    ("smollm*", _model(None, "s", tools=False)),
    ("llava*", _model(None, "is", tools=False)),
    ("gemma3*", _model(None, "is", tools=False)),
)
"""Patterns of model names, and what is known about the models; the first match counts.

Names are compared in lower case, without anything before the last slash, and with dashes for dots, because the same
model is called `claude-sonnet-4-5` and `anthropic/claude-sonnet-4.5`. The region and the vendor that Bedrock puts first
are left out, too: `us.anthropic.claude-sonnet-4-5-20250929-v1:0`.
"""
_VENDOR = re.compile(r"(?:[a-z]+\.)?(?:anthropic|openai|deepseek|mistral)\.")


def facts_of(provider: str, model: str) -> ModelFacts:
    """Return what is known about a model; permissive facts if nothing is. A local server sets the window itself."""
    name = _VENDOR.sub("", model.lower().rpartition("/")[2], count=1).replace(".", "-")
    facts = next((facts for pattern, facts in FACTS if _fits(name, pattern)), ModelFacts())
    if (known := PROVIDERS.get(provider)) is None:
        return facts
    window_tokens = None if known.is_local else facts.window_tokens
    return msgspec.structs.replace(
        facts,
        window_tokens=window_tokens,
        image_urls=known.image_urls,
        remote_mcp=known.remote_mcp,
        web_search=known.web_search,
    )


def _fits(name: str, pattern: str) -> bool:
    # Comparing the beginning first avoids compiling most patterns, which would take longer than reading the
    # configuration.
    begins = pattern.partition("*")[0].partition("[")[0]
    return name.startswith(begins) and fnmatchcase(name, pattern)
