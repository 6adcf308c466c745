"""What a configuration says, as values: engines, the store, plugins, and where each of it came from.

Frozen, and safe to print: no repr shows a key, a header or a plugin's parameter. Knows no file and no environment.
"""

from __future__ import annotations

from typing import Any, Literal

from .document import Document, Mistakes, Where
from .limits import Limits
from .lookup import find_plugin
from .plugin import Plugin
from .values import Options, Value


class RetrySettings(Value, frozen=True):
    attempts: int = 3
    base_s: float = 1.0
    cap_s: float = 30.0


class FactSettings(Value, frozen=True):
    """What the person knows better about a model; None leaves what Rondel knows."""

    window_tokens: int | None = None
    output_tokens_max: int | None = None
    tools: bool | None = None
    images: bool | None = None
    files: bool | None = None
    thinking: bool | None = None
    output_schema: bool | None = None


class EngineSettings(Value, frozen=True):
    """One `[engines.<name>]` table. Its repr shows no key, no header and no body."""

    provider: str = ""
    base_url: str = ""
    dialect: str = ""
    model: str = ""
    key: str = ""
    headers: dict[str, str] = {}
    body: dict[str, Any] = {}
    connect_s: float | None = None
    first_token_s: float | None = None
    idle_s: float | None = None
    context_tokens: int | None = None
    threads: int | None = None
    fallback: tuple[str, ...] = ()
    retry: RetrySettings = RetrySettings()
    facts: FactSettings = FactSettings()

    def __repr__(self) -> str:
        return f"EngineSettings({self.provider!r}, {shown_url(self.base_url)!r}, {self.model!r})"

    __str__ = __repr__

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("provider", self.provider), ("base_url", shown_url(self.base_url)), ("model", self.model)]


class StoreSettings(Value, frozen=True):
    path: str = ""
    durability: Literal["normal", "full"] = "normal"


class PluginSettings(Value, frozen=True):
    """A plugin that a file names. Its repr shows no parameter's value."""

    name: str
    parameters: dict[str, Any] = {}
    lines: Document = Document("", {})
    """Where the parameters stand, for errors when the plugin is made."""
    entry: str = ""
    """The entry's own id: which of several entries of one plugin."""
    enabled: bool = True

    def __repr__(self) -> str:
        return f"PluginSettings({self.name!r}, {sorted(self.parameters)})"

    __str__ = __repr__

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("name", self.name), ("parameters", sorted(self.parameters))]

    def make(self, project: str = "", *, mistakes: Mistakes | None = None) -> Plugin:
        lines, where = self.lines, self.lines.where()
        plugin = find_plugin(self.name, self.parameters, where, project=project, document=lines, mistakes=mistakes)
        if self.entry:
            plugin.entry = self.entry
        return plugin


class Source(Value, frozen=True):
    """Where a value in force came from: a line of a file, variables, or neither, which is the default."""

    where: Where = Where()
    variables: tuple[str, ...] = ()

    def __str__(self) -> str:
        places = (str(self.where), *(f"${variable}" for variable in self.variables))
        return ", ".join(place for place in places if place) or "default"


class Config(Value, frozen=True):
    """What is in force: the file, the variables that win over it, and the defaults."""

    engine: str = ""
    agent: str = ""
    engines: dict[str, EngineSettings] = {}
    store: StoreSettings = StoreSettings()
    limits: Limits = Limits()
    options: Options = Options()
    plugins: tuple[PluginSettings, ...] = ()
    path: str = ""
    """The file; empty when there is none."""
    project: str = ""
    """The file's folder: where `agents/` is, and where `module:attribute` is imported from."""
    warnings: tuple[str, ...] = ()
    sources: dict[str, Source] = {}

    def source(self, key: str) -> Source:
        return self.sources.get(key, Source())


def shown_url(text: str) -> str:
    """A text without the password and the query of the web address that it may be."""
    if "://" not in text:
        return text
    head, _, query = text.partition("?")
    scheme, _, rest = head.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}" + ("?***" if query else "")
