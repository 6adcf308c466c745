"""Which engine answers a request, and why.

The rules in their order; the first that applies decides: the sub-agent tag, the project's own router, a model that the
caller names, long context, background, web search, thinking, the default. Each asks for no more of the request than it
needs: most requests are decided without looking into their messages. Knows no network; asks no engine.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, TypeAlias, cast

from ..config import SAME, canonical_engine, engine_problem
from ..document import Where, dotted
from ..errors import ConfigError, EngineError, nearest
from ..lookup import import_attribute
from ..settings import SCENARIOS, Config, ProjectSettings, RouteSettings
from ..values import Value
from .counting import BYTES_PER_TOKEN_MIN, Calibration, estimate, tokens_at_most
from .kinds import asks_to_think, searches_the_web
from .names import Names
from .request import Request
from .sessions import Sessions, project_named
from .tag import find_tag

LAST_TOKENS_MIN = 20_000
"""A session whose last prompt was long stays where it is while its prompts are longer than this."""
AGENT = "agent:"
ROUTES = ("gateway", "routes")

Custom: TypeAlias = Callable[..., Any]
_Said: TypeAlias = tuple[str, str]
"""The engine that a rule names, or none; and the reason."""


class Step(Value, frozen=True):
    """A rule that was asked, what it said, and why."""

    rule: str
    applies: bool
    reason: str


class Decision(Value, frozen=True):
    """Who answers: the engines in the order in which they are tried, or an agent of the project."""

    rule: str
    engines: tuple[str, ...]
    why: str
    warnings: tuple[str, ...] = ()
    agent: str = ""
    tokens: int | None = None
    """The tokens of the request, where a rule had them counted, as the default engine would count them."""
    estimated: int | None = None
    """The same before it was corrected by what that engine counted before."""
    steps: tuple[Step, ...] = ()
    """The rules that were asked, in their order; the last one decided."""
    fields: dict[str, Any] = {}
    """Fields of the body that are sent otherwise than they came: without the sub-agent tag."""

    def apply(self, request: Request) -> None:
        """Put what the decision changes into the request."""
        for name, value in self.fields.items():
            request.set_field(name, value)


class Router:
    """The rules of one configuration. `default` is the engine to take when the configuration names none."""

    def __init__(
        self,
        config: Config,
        *,
        default: str = "",
        agents: Collection[str] = (),
        sessions: Sessions | None = None,
        calibration: Calibration | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.config, self.agents = config, agents
        self.settings = config.gateway
        self.default = config.engine or default
        self.default_from = f"engine ({config.source('engine')})" if config.engine else "the best that was found"
        self.sessions = sessions or Sessions(self.settings.sessions_folder)
        self.calibration = calibration or Calibration()
        self.names = Names(config, os.environ if env is None else env)
        self._canonical: dict[str, str] = {}
        self.tables: tuple[tuple[tuple[str, ...], RouteSettings], ...] = ((ROUTES, self.settings.routes),)
        """The tables of routes that count where neither a session nor a project has its own."""
        self._places: dict[tuple[tuple[str, ...], str], str] = {}
        self._custom = _custom_router(config)
        self._custom_counts = self._custom is not None and _takes_tokens(self._custom)

    async def decide(self, request: Request) -> Decision:
        return await _Question(self, request).answer()

    async def ask_custom(self, question: _Question) -> Any:
        """What the project's own router says, within its time; a function that blocks has a thread for itself."""
        assert self._custom is not None
        arguments: list[Any] = [question.request, self.config]
        if self._custom_counts:
            arguments.append(question.tokens)
        async with asyncio.timeout(self.settings.routes.custom_s):
            if inspect.iscoroutinefunction(self._custom):
                return await self._custom(*arguments)
            said = await asyncio.to_thread(self._custom, *arguments)
            return await said if inspect.isawaitable(said) else said

    @property
    def has_custom(self) -> bool:
        return self._custom is not None

    def engine_of(self, value: str) -> str:
        """The engine that a value of the configuration names; there are few of them, and each is looked up once."""
        name = self._canonical.get(value)
        if name is None:
            name = self._canonical[value] = canonical_engine(value, self.config.engines)
        return name

    def where(self, table: tuple[str, ...], key: str) -> str:
        """A key of a table of routes, with the line that sets it."""
        place = self._places.get((table, key))
        if place is None:
            name = dotted((*table, key))
            source = self.config.source(name)
            place = self._places[table, key] = f"{name} ({source})" if source.where.path else name
        return place


class _Question:
    """One request, while it is decided."""

    def __init__(self, router: Router, request: Request) -> None:
        self.router, self.request = router, request
        self.config, self.settings = router.config, router.settings
        self.warnings: list[str] = []
        self.fields: dict[str, Any] = {}
        self.counted: int | None = None
        self.estimated: int | None = None
        self.routes: RouteSettings = self.settings.routes
        self.tables = router.tables
        if self.settings.sessions or self.settings.projects:
            self.tables = tuple(self._tables())
            for _, table in reversed(self.tables[:-1]):
                self.routes = table.over(self.routes)

    async def answer(self) -> Decision:
        steps: list[Step] = []
        for rule, ask in _RULES:
            said = ask(self)
            name, reason = said if isinstance(said, tuple) else await said
            steps.append(Step(rule, bool(name), reason))
            if name:
                return self._decision(rule, name, reason, tuple(steps))
        raise ConfigError(
            "no engine answers this request: give [gateway.routes] a default, or set `engine`", path=self.config.path
        )

    def _decision(self, rule: str, name: str, reason: str, steps: tuple[Step, ...]) -> Decision:
        agent = name.removeprefix(AGENT) if name.startswith(AGENT) else ""
        engines = () if agent else tuple(dict.fromkeys((name, *self._fallbacks(rule))))
        return Decision(
            rule, engines, reason, tuple(self.warnings), agent, self.counted, self.estimated, steps, self.fields
        )

    # --- what is configured, and where --------------------------------------------------------------------------------

    def _tables(self) -> Iterator[tuple[tuple[str, ...], RouteSettings]]:
        """The tables of routes that count for this request, the nearest first, each with its key."""
        settings = self.settings
        if settings.sessions and (session := settings.sessions.get(self.request.session)) is not None:
            yield ("gateway", "sessions", self.request.session), session
        if settings.projects and (project := self._project()):
            yield ("gateway", "projects", project), settings.projects[project]
        yield ROUTES, settings.routes

    def _project(self) -> str:
        projects: dict[str, ProjectSettings] = self.settings.projects
        if named := self.request.project:
            return project_named(named, projects)
        if not (session := self.request.session):
            return ""
        found = self.router.sessions.project_of(session, self.request.at)
        return project_named(found, projects) if found else ""

    def _where(self, key: str) -> str:
        """The key that sets a route, with its line."""
        for path, table in self.tables:
            if getattr(table, key) is not None:
                return self.router.where(path, key)
        return self.router.where(ROUTES, key)

    def _route(self, scenario: str, because: str) -> tuple[str, str]:
        """The engine of a scenario whose rule applies; empty when it has no route."""
        value: str | None = getattr(self.routes, scenario)
        if value is None:
            return "", f"{because}, but there is no route for it"
        if value in SAME:
            name, why = self.default()
            return name, f"{because}, and {self._where(scenario)} is the same as the default: {why}"
        name = self.router.engine_of(value)
        return name, f"{because}, and {self._where(scenario)} names {name!r}"

    def _fallbacks(self, rule: str) -> list[str]:
        scenario = rule if rule in SCENARIOS else "default"
        names: tuple[str, ...] = getattr(self.settings.fallback, scenario)
        if not names and getattr(self.routes, scenario) in SAME:
            names = self.settings.fallback.default
        return [self.router.engine_of(name) for name in names]

    # --- what is named: by a tag, by the project's own router, by the caller ------------------------------------------

    def tag(self) -> tuple[str, str]:
        tag = find_tag(self.request)
        if tag is None:
            return "", "no sub-agent tag is in the prompt"
        self.fields = tag.fields
        name, problem = self._named(tag.model)
        if not name:
            self._warn(f"the sub-agent tag names {tag.model!r}: {problem or self.router.names.unknown(tag.model)}")
            return "", f"the tag names {tag.model!r}, which is not known"
        return name, f"a sub-agent tag in the prompt names {tag.model!r}"

    def custom(self) -> tuple[str, str] | Awaitable[tuple[str, str]]:
        return self._asked() if self.router.has_custom else ("", "no router of the project's own is configured")

    async def _asked(self) -> tuple[str, str]:
        custom, routes = self.settings.routes.custom, self.settings.routes
        try:
            said = await self.router.ask_custom(self)
        except TimeoutError:
            self._warn(f"the router {custom!r} did not answer within {routes.custom_s:g} s and was passed over")
            return "", "it took too long"
        except Exception as error:  # whatever a project's function raises must not keep a request from its answer
            self._warn(f"the router {custom!r} failed and was passed over: {type(error).__name__}: {error}")
            return "", f"it raised {type(error).__name__}"
        if said is None or said == "":
            return "", f"{custom!r} leaves it to the rules"
        name, problem = self._meant(said) if isinstance(said, str) else ("", f"{said!r} is no text")
        if not name:
            self._warn(f"the router {custom!r} says {said!r}: {problem}")
            return "", f"it says {said!r}, which is not known"
        return name, f"{custom!r} says {said!r}"

    def _meant(self, text: str) -> tuple[str, str]:
        """The engine or agent that the project's own code names: any that there is, unlike what a caller may name."""
        name = canonical_engine(text, self.config.engines)
        if not text.startswith(AGENT) and not engine_problem(name, self.config.engines):
            return name, ""
        name, problem = self._named(text)
        return name, problem or self.router.names.unknown(text)

    def explicit(self) -> tuple[str, str]:
        model = self.request.model
        name, problem = self._named(model)
        if name:
            return name, f"the caller asks for {model!r}"
        if problem:
            self._warn(f"the caller asks for {model!r}: {problem}")
        return (
            "",
            f"{model!r} names no engine: {problem}" if problem else f"{model!r} names no engine that is known here",
        )

    def _named(self, text: str) -> tuple[str, str]:
        """The engine or agent that a text names, or what is wrong with it; neither when it names nothing at all."""
        if text.startswith(AGENT):
            agent = text.removeprefix(AGENT)
            if agent in self.router.agents:
                return text, ""
            return "", f"there is no agent {agent!r}{nearest(agent, tuple(self.router.agents))}"
        return self.router.names.find(text)

    # --- what the request is ------------------------------------------------------------------------------------------

    def long_context(self) -> tuple[str, str]:
        if self.routes.long_context is None:
            return "", "there is no route for long context"
        limit = self.routes.long_context_tokens or 0
        last = self.router.sessions.last_tokens(self.request.session) if self.request.session else 0
        needed = min(limit, LAST_TOKENS_MIN) if last > limit else limit
        if self._has_at_most(needed):
            return "", f"with {self.request.size_bytes:,} bytes it has fewer than {needed:,} tokens"
        try:
            tokens = self.tokens
        except EngineError as error:
            return "", f"its tokens cannot be counted: {error}"
        if tokens > limit:
            return self._route("long_context", f"about {tokens:,} tokens are more than {limit:,}")
        if tokens > needed:
            because = f"about {tokens:,} tokens, and the session's last prompt had {last:,}, more than {limit:,}"
            return self._route("long_context", because)
        return "", f"about {tokens:,} tokens are not more than {needed:,}"

    def _has_at_most(self, tokens: int) -> bool:
        """Whether the request's bytes alone say that it has no more tokens than these."""
        ratio = self.router.calibration.ratio(self._default_name())
        if self.request.size_bytes / BYTES_PER_TOKEN_MIN * ratio > tokens:
            return False
        most = tokens_at_most(self.request)
        return most is not None and most * ratio <= tokens

    @cached_property
    def tokens(self) -> int:
        """As the default engine would count them: that is who is spared."""
        self.estimated = estimate(self.request)
        self.counted = self.router.calibration.correct(self._default_name(), self.estimated)
        return self.counted

    def background(self) -> tuple[str, str]:
        if self.routes.background is None:
            return "", "there is no route for background work"
        model = self.request.model.lower()
        for pattern in self.routes.background_models or ():
            if fnmatchcase(model, pattern.lower()):
                return self._route("background", f"{self.request.model!r} fits {pattern!r}")
        return (
            "",
            f"{self.request.model!r} fits none of {', '.join(self.routes.background_models or ()) or 'no patterns'}",
        )

    def web_search(self) -> tuple[str, str]:
        if self.routes.web_search is None:
            return "", "there is no route for web search"
        if not searches_the_web(self.request):
            return "", "it has no tool for web search"
        return self._route("web_search", "it has a tool for web search")

    def think(self) -> tuple[str, str]:
        if self.routes.think is None:
            return "", "there is no route for thinking"
        if not asks_to_think(self.request):
            return "", "it does not ask for thinking"
        return self._route("think", "it asks for thinking")

    def default(self) -> tuple[str, str]:
        name = self._default_name()
        if self.routes.default is None or self.routes.default in SAME:
            return name, f"{self.router.default_from} is {name!r}"
        return name, f"{self._where('default')} names {name!r}"

    def _default_name(self) -> str:
        value = self.routes.default
        return self.router.default if value is None or value in SAME else self.router.engine_of(value)

    def _warn(self, text: str) -> None:
        self.warnings.append(text)


_RULES: tuple[tuple[str, Callable[[_Question], _Said | Awaitable[_Said]]], ...] = (
    ("tag", _Question.tag),
    ("custom", _Question.custom),
    ("explicit", _Question.explicit),
    ("long_context", _Question.long_context),
    ("background", _Question.background),
    ("web_search", _Question.web_search),
    ("think", _Question.think),
    ("default", _Question.default),
)
"""The rules in their order."""


# --- the project's own router -----------------------------------------------------------------------------------------


def _custom_router(config: Config) -> Custom | None:
    name = config.gateway.routes.custom
    if not name:
        return None
    source = config.source("gateway.routes.custom").where
    where = source if source.path else Where(config.path)
    found: Any = import_attribute(name, where, project=config.project)
    if not callable(found):
        raise where.error(f"the router {name!r} cannot be called; name a function")
    return cast(Custom, found)


def _takes_tokens(custom: Custom) -> bool:
    """A function with a third parameter is given the tokens; counting them for one that ignores them is a waste."""
    try:
        parameters = inspect.signature(custom).parameters.values()
    except (TypeError, ValueError):
        return False
    return len([p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)]) > 2
