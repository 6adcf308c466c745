"""Decides which engine answers a request, and why.

The first rule that applies decides: the sub-agent tag, the project's own router, a model that the caller names, long
context, background, web search, thinking, the default. Each rule parses as little as possible: most requests are
decided without parsing their messages. Calls no engine.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable, Collection, Coroutine, Mapping
from functools import lru_cache
from typing import Any, TypeAlias, cast

from ...calling.threads import in_thread
from ...errors import ConfigError, EngineError, nearest
from ...project.config import canonical_engine, engine_problem
from ...project.lookup import import_attribute
from ...project.settings import Config
from ...text.document import Where
from ...values import Value
from ..relay.request import GatewayRequest, is_name
from .counting import Calibration, estimate
from .names import Names
from .routes import AGENT, MAIN, Route, Routes, Table
from .sessions import Sessions, project_named
from .tag import find_tag

LAST_TOKENS_MIN = 20_000  # A session whose last prompt was long keeps its route while its prompts are longer than this
NAMES_MAX = 256
NAME_MAX = 100  # callers ask for few models, but with every request: that many names, up to this length, are cached

_THINKING = frozenset(("thinking", "reasoning", "reasoning_effort", "enable_thinking"))

Custom: TypeAlias = Callable[..., Any]
Reason: TypeAlias = str | tuple[str, *tuple[object, ...]]
"""A text, or a format and its arguments: most reasons are never read, so they are formatted on demand."""
_Result: TypeAlias = tuple[Route | None, Reason]  # the route if the rule applies, and the reason


class RuleResult(Value, frozen=True):
    rule: str
    applies: bool
    reason: str


class Decision(Value, frozen=True):
    """Who answers: engines in the order in which they are tried, or an agent of the project."""

    rule: str
    engines: tuple[str, ...]
    why: str
    warnings: tuple[str, ...] = ()
    agent: str = ""
    tokens: int | None = None  # the tokens as the default engine would count them, if a rule needed to know
    estimated: int | None = None  # the same before calibration
    reasons: tuple[Reason, ...] = ()  # the reasons of the rules that were tried, in order; the last one applied
    fields: dict[str, Any] = {}  # fields of the body that are sent without the sub-agent tag

    @property
    def steps(self) -> tuple[RuleResult, ...]:
        tried = zip(_RULES, self.reasons, strict=False)
        return tuple(RuleResult(rule, rule == self.rule, _text(reason)) for (rule, _), reason in tried)

    def apply(self, request: GatewayRequest) -> None:
        for name, value in self.fields.items():
            request.set_field(name, value)


class Router:
    """The rules of one configuration. `default` is the engine to use if the configuration names none."""

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
        self._default_from = f"engine ({config.source('engine')})" if config.engine else "the best that was found"
        self.sessions = sessions or Sessions(self.settings.sessions_folder)
        self.calibration = calibration or Calibration()
        self.names = Names(config, os.environ if env is None else env)
        self._remembered = lru_cache(NAMES_MAX)(self._named)
        self._main = self._routes_of("", "")
        self._others: dict[tuple[str, str], Routes] = {}
        self._custom = _custom_router(config)
        self.has_custom = self._custom is not None
        self._custom_counts = self._custom is not None and _takes_tokens(self._custom)

    def decide(self, request: GatewayRequest) -> Coroutine[Any, Any, Decision]:
        return _Decider(self, request).decide()

    def routes(self, request: GatewayRequest) -> Routes:
        """Return the routes of a request's session and project. The cache is bounded by those that are configured."""
        settings = self.settings
        if not settings.sessions and not settings.projects:
            return self._main
        session = request.session if request.session in settings.sessions else ""
        project = self._project(request) if settings.projects else ""
        routes = self._others.get((session, project))
        if routes is None:
            routes = self._others[session, project] = self._routes_of(session, project)
        return routes

    def _routes_of(self, session: str, project: str) -> Routes:
        settings = self.settings
        tables: list[Table] = [(MAIN, settings.routes)]
        if project:
            tables.insert(0, (("gateway", "projects", project), settings.projects[project]))
        if session:
            tables.insert(0, (("gateway", "sessions", session), settings.sessions[session]))
        return Routes(self.config, tables, self.default, self._default_from)

    def _project(self, request: GatewayRequest) -> str:
        projects = self.settings.projects
        if named := request.project:
            return project_named(named, projects)
        if not (session := request.session):
            return ""
        found = self.sessions.project_of(session, request.at)
        return project_named(found, projects) if found else ""

    def named(self, text: str) -> tuple[str, str]:
        """Return the engine or agent that a text names, or what is wrong with it; both empty if unknown."""
        return self._remembered(text) if len(text) <= NAME_MAX else self._named(text)

    def _named(self, text: str) -> tuple[str, str]:
        if text.startswith(AGENT):
            agent = text.removeprefix(AGENT)
            if agent in self.agents:
                return text, ""
            return "", f"there is no agent {agent!r}{nearest(agent, tuple(self.agents))}"
        return self.names.find(text)

    async def ask_custom(self, decider: _Decider) -> Any:
        """Call the project's own router with a time limit; a synchronous function runs in a thread."""
        assert self._custom is not None
        arguments: list[Any] = [decider.request, self.config]
        if self._custom_counts:
            arguments.append(decider.tokens())
        async with asyncio.timeout(self.settings.routes.custom_s):
            if inspect.iscoroutinefunction(self._custom):
                return await self._custom(*arguments)
            said = await in_thread(self._custom, *arguments)
            return await said if inspect.isawaitable(said) else said


class _Decider:
    """Applies the rules to one request."""

    warnings: tuple[str, ...] = ()
    counted: int | None = None
    estimated: int | None = None

    def __init__(self, router: Router, request: GatewayRequest) -> None:
        self.router, self.request = router, request
        self.routes = router.routes(request)
        self.fields: dict[str, Any] = {}

    async def decide(self) -> Decision:
        reasons: list[Reason] = []
        for rule, apply in _RULES:
            route, reason = apply(self) or await self._ask_custom()  # only the project's own router is awaited
            reasons.append(reason)
            if route is not None:
                return Decision(
                    rule,
                    route.engines,
                    _text(reason),
                    warnings=self.warnings,
                    agent=route.agent,
                    tokens=self.counted,
                    estimated=self.estimated,
                    reasons=tuple(reasons),
                    fields=self.fields,
                )
        raise ConfigError(
            "no engine answers this request: give [gateway.routes] a default, or set `engine`",
            path=self.router.config.path,
        )

    def _warn(self, text: str) -> None:
        self.warnings += (text,)

    # --- what is named: by a tag, by the project's own router, by the caller ------------------------------------------

    def tag(self) -> _Result:
        tag = find_tag(self.request)
        if tag is None:
            return None, "no sub-agent tag is in the prompt"
        self.fields = tag.fields
        if not is_name(tag.model):
            self._warn("the sub-agent tag names no model: it contains a line break or NUL")
            return None, "the tag names no model"
        name, problem = self.router.named(tag.model)
        if not name:
            self._warn(f"the sub-agent tag names {tag.model!r}: {problem or self.router.names.unknown(tag.model)}")
            return None, ("the tag names {!r}, which is not known", tag.model)
        return self.routes.to(name), f"a sub-agent tag in the prompt names {tag.model!r}"

    def custom(self) -> _Result | None:
        # None means that there is one, which `decide` then awaits.
        return None if self.router.has_custom else (None, "the project has no router of its own")

    async def _ask_custom(self) -> _Result:
        routes = self.router.settings.routes
        custom = routes.custom
        try:
            said = await self.router.ask_custom(self)
        except TimeoutError:
            self._warn(f"the router {custom!r} did not answer within {routes.custom_s:g} s and was passed over")
            return None, "it took too long"
        except Exception as error:  # the request must be answered, whatever the project's function raises
            self._warn(f"the router {custom!r} failed and was passed over: {type(error).__name__}: {error}")
            return None, f"it raised {type(error).__name__}"
        if said is None or said == "":
            return None, f"{custom!r} leaves it to the rules"
        name, problem = self._meant(said) if isinstance(said, str) else ("", f"{said!r} is not text")
        if not name:
            self._warn(f"the router {custom!r} says {said!r}: {problem}")
            return None, f"it says {said!r}, which is not known"
        return self.routes.to(name), f"{custom!r} says {said!r}"

    def _meant(self, text: str) -> tuple[str, str]:
        """Resolve a name from the project's own code, which may name any engine or agent, unlike a caller."""
        engines = self.router.config.engines
        name = canonical_engine(text, engines)
        if not text.startswith(AGENT) and not engine_problem(name, engines):
            return name, ""
        name, problem = self.router.named(text)
        return name, problem or self.router.names.unknown(text)

    def explicit(self) -> _Result:
        model = self.request.model
        name, problem = self.router.named(model)
        if name:
            return self.routes.to(name), f"the caller asks for {model!r}"
        if problem:
            self._warn(f"the caller asks for {model!r}: {problem}")
            return None, ("{!r} names no engine: {}", model, problem)
        return None, ("{!r} names no engine that is known here", model)

    # --- what the request is ------------------------------------------------------------------------------------------

    def long_context(self) -> _Result:
        if (route := self.routes.long_context) is None:
            return None, "there is no route for long context"
        request, limit = self.request, self.routes.long_context_tokens
        last = self.router.sessions.last_tokens(request.session) if request.session else 0
        needed = min(limit, LAST_TOKENS_MIN) if last > limit else limit
        if self.router.calibration.has_at_most(needed, request, self.routes.default.name):
            return None, ("with {:,} bytes it has fewer than {:,} tokens", request.size_bytes, needed)
        try:
            tokens = self.tokens()
        except EngineError as error:
            return None, f"its tokens cannot be counted: {error}"
        if tokens > limit:
            return route, f"about {tokens:,} tokens are more than {limit:,}, and {route.why}"
        if tokens > needed:
            before = f"the session's last prompt had {last:,}, more than {limit:,}"
            return route, f"about {tokens:,} tokens, and {before}, and {route.why}"
        return None, ("about {:,} tokens are not more than {:,}", tokens, needed)

    def tokens(self) -> int:
        """Count the tokens as the default engine would, once."""
        if self.counted is None:
            self.estimated = estimate(self.request)
            self.counted = self.router.calibration.correct(self.routes.default.name, self.estimated)
        return self.counted

    def background(self) -> _Result:
        if (route := self.routes.background) is None:
            return None, "there is no route for background work"
        model = self.request.model
        if pattern := self.routes.background_pattern(model):
            return route, f"{model!r} matches {pattern!r}, and {route.why}"
        return None, ("{!r} matches none of {}", model, self.routes.background_models)

    def web_search(self) -> _Result:
        if (route := self.routes.web_search) is None:
            return None, "there is no route for web search"
        if not _searches_the_web(self.request):
            return None, "it has no tool for web search"
        return route, f"it has a tool for web search, and {route.why}"

    def think(self) -> _Result:
        if (route := self.routes.think) is None:
            return None, "there is no route for thinking"
        if not _asks_to_think(self.request):
            return None, "it does not ask for thinking"
        return route, f"it asks for thinking, and {route.why}"

    def default(self) -> _Result:
        route = self.routes.default
        return (route if route.name else None), route.why


_RULES: tuple[tuple[str, Callable[[_Decider], _Result | None]], ...] = (
    ("tag", _Decider.tag),
    ("custom", _Decider.custom),
    ("explicit", _Decider.explicit),
    ("long_context", _Decider.long_context),
    ("background", _Decider.background),
    ("web_search", _Decider.web_search),
    ("think", _Decider.think),
    ("default", _Decider.default),
)


def _text(reason: Reason) -> str:
    return reason if isinstance(reason, str) else reason[0].format(*reason[1:])


# --- web search and thinking, from the top level of a body ------------------------------------------------------------


def _searches_the_web(request: GatewayRequest) -> bool:
    if "web_search_options" in request.fields:
        return True
    if not request.tools_hold(b'"web_search'):
        return False
    tools: Any = request.field("tools")
    found = map(_table, cast("list[Any]", tools) if isinstance(tools, list) else ())
    return any(str(tool.get("type", "")).startswith("web_search") for tool in found)


def _asks_to_think(request: GatewayRequest) -> bool:
    if _THINKING.isdisjoint(request.fields):
        return False
    thinking, reasoning = _table(request.field("thinking")), _table(request.field("reasoning"))
    if (thinking and thinking.get("type") != "disabled") or reasoning.get("enabled") or reasoning.get("max_tokens"):
        return True
    effort = reasoning.get("effort") or request.field("reasoning_effort")
    return effort not in (None, "", "none") or request.field("enable_thinking") is True


def _table(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


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
    # Tokens are counted only for a function that takes them as its third parameter.
    try:
        parameters = inspect.signature(custom).parameters.values()
    except (TypeError, ValueError):
        return False
    return len([p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)]) > 2
