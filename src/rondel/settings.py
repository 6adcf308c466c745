"""What a configuration says, as values: engines, the store, plugins, the gateway, and where each of it came from.

Frozen, and safe to print: no repr shows a key, a header or a plugin's parameter. Knows no file and no environment.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from .charge import Rule
from .document import Document, Mistakes, Where
from .limits import Limits
from .lookup import find_plugin
from .plugin import Plugin
from .values import Options, Value

TransformEntry: TypeAlias = str | list[Any] | dict[str, Any]
"""`"name"`, `["name", {option = ...}]` or `{name = "name", option = ...}`."""


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
    image_urls: bool | None = None


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
    models: tuple[str, ...] = ()
    """The models that the gateway lists for it; with any, a caller can ask for no other."""
    transform: tuple[TransformEntry, ...] = ()
    model_transform: dict[str, tuple[TransformEntry, ...]] = {}
    """Patterns of models' names, and what is done for those models beside the engine's own transforms."""
    image_networks: tuple[str, ...] = ()
    """Networks that images may be fetched from although they are not public: `10.1.0.0/16`."""

    def __repr__(self) -> str:
        return f"EngineSettings({self.provider!r}, {shown_url(self.base_url)!r}, {self.model!r})"

    __str__ = __repr__

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("provider", self.provider), ("base_url", shown_url(self.base_url)), ("model", self.model)]


class StoreSettings(Value, frozen=True):
    path: str = ""
    durability: Literal["normal", "full"] = "normal"


class TelemetrySettings(Value, frozen=True):
    """Where traces are sent; nowhere without an endpoint. Its repr shows no header."""

    endpoint: str = ""
    headers: dict[str, str] = {}
    content: bool = False
    """Send what people, models and tools said, too."""

    def __repr__(self) -> str:
        return f"TelemetrySettings({shown_url(self.endpoint)!r}, content={self.content})"

    __str__ = __repr__

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("endpoint", shown_url(self.endpoint)), ("content", self.content)]


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


# --- the gateway ------------------------------------------------------------------------------------------------------

SCENARIOS = ("default", "background", "think", "long_context", "web_search", "image")
"""What a request may be, to a router. Each may have a route of its own, and a list of fallbacks."""


class RouteSettings(Value, frozen=True):
    """Which engine a kind of request goes to. None is not said here; an empty text or `default` is the default's."""

    default: str | None = None
    background: str | None = None
    think: str | None = None
    long_context: str | None = None
    web_search: str | None = None
    image: str | None = None
    long_context_tokens: int | None = None
    background_models: tuple[str, ...] | None = None
    """Patterns of the models that a caller asks for when the work is of little weight; compared without case."""

    def over(self, other: RouteSettings) -> RouteSettings:
        """These routes, and the other's where these say nothing."""
        given = {name: value for name in ROUTE_FIELDS if (value := getattr(self, name)) is not None}
        return RouteSettings(**{name: given.get(name, getattr(other, name)) for name in ROUTE_FIELDS})


ROUTE_FIELDS = RouteSettings.__struct_fields__


class MainRouteSettings(RouteSettings, frozen=True):
    """`[gateway.routes]`. The custom router is a function of the project that is asked before the rules."""

    long_context_tokens: int | None = 60_000
    background_models: tuple[str, ...] | None = ("*claude*haiku*",)
    custom: str = ""
    """`module:function`, which is given the request, the configuration and the tokens, and gives an engine or None."""
    custom_s: float = 2.0


class ProjectSettings(RouteSettings, frozen=True):
    """`[gateway.projects.<name>]`. `folder` is where the project is, for callers that say only that."""

    folder: str = ""


class FallbackSettings(Value, frozen=True):
    """Which engines are tried, in order, when the one of a route fails before its first token."""

    default: tuple[str, ...] = ()
    background: tuple[str, ...] = ()
    think: tuple[str, ...] = ()
    long_context: tuple[str, ...] = ()
    web_search: tuple[str, ...] = ()
    image: tuple[str, ...] = ()


class BudgetSettings(Value, frozen=True):
    """What a key may spend in a window of time: tokens, money, or both. The ledger keeps it."""

    tokens: int | None = None
    money: float | None = None
    window: Literal["day", "week", "month", "lifetime"] = "month"
    mode: Literal["block", "warn"] = "block"


class KeySettings(Value, frozen=True):
    """A caller's key. Its repr does not show it."""

    key: str = ""
    expires: str = ""
    """A day or a moment as ISO 8601, from which on it is no longer good; UTC where it says no zone."""
    models: tuple[str, ...] = ()
    """Patterns of the engines and models that it may use; all of them when there are none."""
    budget: BudgetSettings | None = None

    def __repr__(self) -> str:
        return f"KeySettings(expires={self.expires!r}, models={self.models!r})"

    __str__ = __repr__

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("expires", self.expires), ("models", self.models), ("budget", self.budget)]


class GatewaySettings(Value, frozen=True):
    """`[gateway]`: where other programs are served, who may come in, and which model answers whom."""

    host: str = "127.0.0.1"
    port: int = 8484
    body_mb_max: float = 64.0
    """A body that is longer is refused."""
    ping_s: float = 15.0
    """Something is sent after so long a silence, so that nobody on the way gives the connection up; 0 sends nothing."""
    hosts: tuple[str, ...] = ()
    """Names that this gateway goes by, beside those of its own machine."""
    origins: tuple[str, ...] = ()
    """Web pages that may ask it, beside its own: `https://chat.example`."""
    plugins: tuple[PluginSettings, ...] = ()
    """The gateway's agents. `image` is among them when there is a route for images."""
    routes: MainRouteSettings = MainRouteSettings()
    fallback: FallbackSettings = FallbackSettings()
    keys: dict[str, KeySettings] = {}
    projects: dict[str, ProjectSettings] = {}
    sessions: dict[str, RouteSettings] = {}
    sessions_folder: str = "~/.claude/projects"
    """Where a coding agent keeps its sessions' files, in a folder for each project; empty looks nowhere."""


class LedgerSettings(Value, frozen=True):
    """`[ledger]`: how much may be spent."""

    limits: tuple[Rule, ...] = ()


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
    gateway: GatewaySettings = GatewaySettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    ledger: LedgerSettings = LedgerSettings()
    path: str = ""
    """The file; empty when there is none."""
    project: str = ""
    """The file's folder: where `agents/` is, and where `module:attribute` is imported from."""
    warnings: tuple[str, ...] = ()
    exposed: tuple[str, ...] = ()
    """The warnings that are about callers' keys: nobody is served while others can read these."""
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
