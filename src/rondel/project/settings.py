"""The values of a configuration: engines, the store, plugins, the gateway, and where each value came from.

Frozen, and safe to print: no repr shows a key, a header or a plugin's parameter.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from msgspec import Meta

from ..contracts.ledger import OnWriteFailure, Rule, UnknownPrice
from ..knowledge.settings import KnowledgeSettings, WebSearchSettings
from ..ledger.prices import Price
from ..limits import Limits
from ..mcp.spec import ServerSpec
from ..plugin import Plugin
from ..text.document import Amount, Count, Document, Mistakes, PositiveAmount, PositiveCount, Where
from ..text.redaction import shown_url
from ..values import Options, Value
from .lookup import find_plugin
from .trust import UntrustedFolder

TransformEntry: TypeAlias = str | list[Any] | dict[str, Any]
"""`"name"`, `["name", {option = ...}]` or `{name = "name", option = ...}`."""


class _Discreet(Value, frozen=True):
    """Settings whose repr shows only what `__rich_repr__` names: the rest may be secret."""

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return []

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    __str__ = __repr__


class RetrySettings(Value, frozen=True):
    attempts: PositiveCount = 3
    base_s: Amount = 1.0
    cap_s: Amount = 30.0


class FactSettings(Value, frozen=True):
    """Corrections of what Rondel knows about a model; None changes nothing."""

    window_tokens: PositiveCount | None = None
    output_tokens_max: PositiveCount | None = None
    tools: bool | None = None
    images: bool | None = None
    files: bool | None = None
    thinking: bool | None = None
    output_schema: bool | None = None
    image_urls: bool | None = None
    thinking_effort: bool | None = None
    thinking_budget: bool | None = None
    thinking_strict: bool | None = None
    sampling: bool | None = None
    remote_mcp: bool | None = None
    small: bool | None = None
    web_search: bool | None = None
    voice: bool | None = None
    transcription: bool | None = None


class EngineSettings(_Discreet, frozen=True):
    """One `[engines.<name>]` table."""

    MEANT: ClassVar[dict[str, str]] = dict.fromkeys(("url", "endpoint", "address"), "; did you mean 'base_url'?")

    provider: str = ""
    base_url: str = ""
    dialect: str = ""
    model: str = ""
    key: str = ""
    headers: dict[str, str] = {}
    body: dict[str, Any] = {}
    connect_s: PositiveAmount | None = None
    first_token_s: PositiveAmount | None = None
    idle_s: PositiveAmount | None = None
    context_tokens: PositiveCount | None = None
    threads: PositiveCount | None = None
    tool_format: Literal["native", "examples"] | None = None  # how an embedded model calls tools
    keep_s: Amount | None = None  # how long an embedded model stays loaded in the background after its last use
    fallback: tuple[str, ...] = ()
    retry: RetrySettings = RetrySettings()
    facts: FactSettings = FactSettings()
    models: tuple[str, ...] = ()
    """The models that the gateway lists for it; if there are any, callers can ask only for these."""
    transform: tuple[TransformEntry, ...] = ()
    model_transform: dict[str, tuple[TransformEntry, ...]] = {}
    """Transforms by pattern of the model's name, in addition to the engine's own."""
    image_networks: tuple[str, ...] = ()  # private networks that images may be fetched from: `10.1.0.0/16`
    prices: dict[str, Price] = {}
    """The price of a million tokens by pattern of the model's name; the first match counts."""

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("provider", self.provider), ("base_url", shown_url(self.base_url)), ("model", self.model)]


class StoreSettings(Value, frozen=True):
    path: str = ""
    durability: Literal["normal", "full"] = "normal"


class ToolSettings(Value, frozen=True):
    """`[tools]`: settings of the built-in tools."""

    pass_env: tuple[str, ...] = ()  # variables that processes get although they are secrets
    search_share: Annotated[float, Meta(gt=0, le=1)] = 0.1
    """The share of a model's window that the schemas of MCP tools may take; above it, the model searches them."""


class ImageSettings(Value, frozen=True):
    """`[images]`: which engines make pictures."""

    engine: str = ""  # `provider:model` with OpenAI's images API, or a name in `[engines]`
    fallback: tuple[str, ...] = ()  # the engines that are asked, in order, if it fails
    size: str = ""  # of pictures if none is chosen: `1024x1024` or `auto`
    options: dict[str, Any] = {}
    """More fields for the body of each request, such as `quality`."""

    @property
    def defaults(self) -> dict[str, Any]:
        """The values that are used where a request has none."""
        return {"size": self.size, **self.options} if self.size else self.options


class TelemetrySettings(_Discreet, frozen=True):
    """Where traces are sent, if there is an endpoint."""

    endpoint: str = ""
    headers: dict[str, str] = {}
    content: bool = False  # also send the texts of people, models and tools

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("endpoint", shown_url(self.endpoint)), ("content", self.content)]


class PluginSettings(_Discreet, frozen=True):
    name: str
    parameters: dict[str, Any] = {}
    lines: Document = Document("", {})  # the lines of the parameters, for errors when the plugin is made
    entry: str = ""  # the entry's id, if there are several of one plugin
    enabled: bool = True

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
"""The kinds of request for the router. Each may have a route and a list of fallbacks."""


class RouteSettings(Value, frozen=True):
    """The engine for each kind of request. None is not set; an empty text or `default` is the default route."""

    default: str | None = None
    background: str | None = None
    think: str | None = None
    long_context: str | None = None
    web_search: str | None = None
    image: str | None = None
    long_context_tokens: PositiveCount | None = None
    background_models: tuple[str, ...] | None = None
    """Patterns of the models that callers use for background work; case is ignored."""

    def over(self, other: RouteSettings) -> RouteSettings:
        """Return these routes, with the other's where these are not set."""
        given = {name: value for name in ROUTE_FIELDS if (value := getattr(self, name)) is not None}
        return RouteSettings(**{name: given.get(name, getattr(other, name)) for name in ROUTE_FIELDS})


ROUTE_FIELDS = RouteSettings.__struct_fields__


class MainRouteSettings(RouteSettings, frozen=True):
    """`[gateway.routes]`. The custom router is a function of the project that is called before the rules."""

    long_context_tokens: PositiveCount | None = 60_000
    background_models: tuple[str, ...] | None = ("*claude*haiku*",)
    embedding: str = ""  # the embedder for requests to /v1/embeddings that name none
    image_generation: str = ""  # the image engine for requests to /v1/images/ that name none; else that of [images]
    custom: str = ""
    """`module:function`, which takes the request, the configuration and the tokens, and returns an engine or None."""
    custom_s: PositiveAmount = 2.0


class ProjectSettings(RouteSettings, frozen=True):
    """`[gateway.projects.<name>]`. `folder` identifies the project for callers that send only their folder."""

    folder: str = ""


class FallbackSettings(Value, frozen=True):
    """The engines that are tried, in order, if a route's engine fails before its first token."""

    default: tuple[str, ...] = ()
    background: tuple[str, ...] = ()
    think: tuple[str, ...] = ()
    long_context: tuple[str, ...] = ()
    web_search: tuple[str, ...] = ()
    image: tuple[str, ...] = ()
    embedding: tuple[str, ...] = ()
    image_generation: tuple[str, ...] = ()


class BudgetSettings(Value, frozen=True):
    """What a key may spend in a period: tokens, money, or both. The ledger enforces it."""

    tokens: Count | None = None
    money: Amount | None = None
    window: Literal["day", "week", "month", "lifetime"] = "month"
    mode: Literal["block", "warn"] = "block"


class KeySettings(_Discreet, frozen=True):
    """A caller's key."""

    key: str = ""
    expires: str = ""  # the date or time (ISO 8601, UTC by default) at which the key expires
    models: tuple[str, ...] = ()  # patterns of the engines and models that it may use; all if there are none
    person: str = ""  # whose key it is, on the page and in the API; by default, a person of the key's name
    roles: tuple[str, ...] = ()  # that person's roles: `admin` may see everything
    budget: BudgetSettings | None = None

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("expires", self.expires), ("models", self.models), ("budget", self.budget)]


class GatewaySettings(Value, frozen=True):
    """`[gateway]`: where it listens, who may connect, and which model answers."""

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8484
    body_mb_max: PositiveAmount = 64.0  # a larger body is refused
    ping_s: Amount = 15.0
    """How often a silent stream sends a keep-alive ping, so that no proxy closes the connection; 0 sends none."""
    cool_down_s: Amount = 5.0  # how long a failed engine is skipped at first, if another one can answer; 0 skips none
    drain_s: Amount = 30.0  # how long running requests may take after a stop; those left then end with an error
    trace: bool = False  # store each request with its content, for a trace
    hosts: tuple[str, ...] = ()  # host names of this gateway, besides those of its own machine
    origins: tuple[str, ...] = ()  # web origins that may call it: `https://chat.example`
    proxies: tuple[str, ...] = ()  # addresses of reverse proxies, which say where a request comes from
    plugins: tuple[PluginSettings, ...] = ()
    """The gateway's plugins. `image` is among them if there is a route for images."""
    routes: MainRouteSettings = MainRouteSettings()
    fallback: FallbackSettings = FallbackSettings()
    keys: dict[str, KeySettings] = {}
    projects: dict[str, ProjectSettings] = {}
    sessions: dict[str, RouteSettings] = {}
    sessions_folder: str = "~/.claude/projects"
    """Where a coding agent keeps its session files, in a folder for each project; empty turns this off."""


# --- Discord ----------------------------------------------------------------------------------------------------------

DISCORD_COMMANDS = (
    "chat",
    "imagine",
    "usage",
    "model",
    "agent",
    "mode",
    "reset",
    "stop",
    "trace",
    "jobs",
    "forget",
    "channels",
)
"""The subcommands of `/ai`. Each can be switched off."""

Scoping: TypeAlias = Literal["auto", "reply", "thread", "channel", "user"]
"""What a conversation is: a chain of replies, a thread, a channel, or a person. `auto` is a channel where the bot
answers everything and in threads, and a chain of replies elsewhere."""

DiscordId: TypeAlias = str | int


class DiscordRule(Value, frozen=True):
    """`[[discord.rules]]`: what differs for a server, a channel, a role or a person. The last matching rule that sets a
    value wins."""

    guild: DiscordId = ""
    channel: DiscordId = ""
    role: DiscordId = ""
    person: DiscordId = ""
    enabled: bool | None = None
    agent: str = ""
    model: str = ""
    mode: str = ""
    conversation: Scoping | None = None


class ModeSettings(Value, frozen=True):
    """`[discord.modes.<name>]`: a preset that people choose for a channel. What it does not set stays the agent's."""

    agent: str = ""
    model: str = ""
    instructions: str = ""
    options: Options = Options()


class DiscordSettings(_Discreet, frozen=True):
    """`[discord]`: the bot."""

    token: str = ""  # without one, DISCORD_TOKEN
    agent: str = ""  # who answers; the project's first agent if it is empty
    conversation: Scoping = "auto"
    whitelist: tuple[DiscordId, ...] = ()  # channels in which every message is answered
    restrict: tuple[DiscordId, ...] = ()  # if there are any, the only channels in which the bot answers
    keep_lists: bool = False  # changes of both lists at run time survive a restart
    answer_bots: bool = False
    bot_turns_max: Count = 4  # answers to bots in a row; a person's message starts again
    context_messages: Annotated[int, Meta(ge=0, le=100)] = 8  # around a mention, for the model; 0 gives it none
    reply_depth: Annotated[int, Meta(ge=0, le=20)] = 3  # messages above a reply that the model gets
    stream: bool = True
    edit_s: Amount = 1.0  # the least time between two edits of an answer
    long_answers: Literal["messages", "thread", "file"] = "messages"
    messages_max: Annotated[int, Meta(ge=1, le=50)] = 5
    """A longer answer becomes a thread or a file, if `long_answers` says so."""
    notice_s: Amount = 3.0  # after how long a notice says that the bot is working; 0 for none
    report_jobs: bool = True  # say when a background job is over
    summary_engine: str = ""  # the engine that sums up long results of jobs; empty leaves them as they are
    approvers: tuple[DiscordId, ...] = ()  # roles that may answer questions that others were asked
    commands: tuple[str, ...] = ()  # slash commands that the model may call; `*` is all of them
    command_s: Amount = 60.0  # how long such a command may take
    extensions: tuple[str, ...] = ()  # discord.py extensions to load: modules with a `setup`
    slash: tuple[str, ...] = DISCORD_COMMANDS
    drain_s: Amount = 20.0  # how long running answers may take after a stop; the next start finishes the rest
    shards: PositiveCount | None = None
    rules: tuple[DiscordRule, ...] = ()
    modes: dict[str, ModeSettings] = {}

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        shown = (name for name in self.__struct_fields__ if name != "token")
        return [(name, getattr(self, name)) for name in shown]


class LedgerSettings(Value, frozen=True):
    """`[ledger]`: how much may be spent."""

    limits: tuple[Rule, ...] = ()
    on_write_failure: OnWriteFailure = "allow"
    """Whether calls are allowed while charges cannot be written, for example because the disk is full."""
    unknown_price: UnknownPrice = "block"  # what a blocking limit of money does with a call whose price is unknown
    estimated_price: Price = Price(5.0, 25.0)  # the price for `estimate`: about that of a large hosted model


class Source(Value, frozen=True):
    """Where an effective value came from: a line of a file, variables, an option of the command, or none of them,
    which is the default."""

    where: Where = Where()
    variables: tuple[str, ...] = ()
    option: str = ""

    def __str__(self) -> str:
        origins = (str(self.where), *(f"${variable}" for variable in self.variables), self.option)
        return ", ".join(origin for origin in origins if origin) or "default"


class Config(Value, frozen=True):
    """The effective configuration: the file, the variables that override it, and the defaults."""

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
    tools: ToolSettings = ToolSettings()
    knowledge: dict[str, KnowledgeSettings] = {}
    web_search: WebSearchSettings = WebSearchSettings()
    images: ImageSettings = ImageSettings()
    discord: DiscordSettings | None = None  # None without a table `[discord]`
    mcp: tuple[ServerSpec, ...] = ()
    path: str = ""  # the file, or an empty text
    project: str = ""  # the file's folder: where `agents/` is, and where `module:attribute` is imported from
    warnings: tuple[str, ...] = ()
    exposed: tuple[str, ...] = ()
    """Warnings about callers' keys that others can read: the gateway refuses to serve with these."""
    sources: dict[str, Source] = {}

    @property
    def is_trusted(self) -> bool:
        """False for a project that was only inspected: none of its code runs, and none of its addresses is used."""
        return not isinstance(self.project, UntrustedFolder)

    def check_trusted(self) -> None:
        """Raise NotTrusted if the project's folder is not trusted."""
        if isinstance(self.project, UntrustedFolder):
            raise self.project.refusal()

    def source(self, key: str) -> Source:
        """Return where the value of a key comes from."""
        return self.sources.get(key, Source())
