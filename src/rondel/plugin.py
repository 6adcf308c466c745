"""The contract of a plugin: it edits values at named points of the loop. And the chain that calls plugins in order.

Order is one visible list: prompts and calls go down it, replies and results come up. State per turn lives in
`turn.state[KEY]`, never on the plugin. Knows no concrete plugin.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

import msgspec

from .errors import InputError, LimitReached, PluginError, RondelError, nearest
from .events import Event, Outcome, PluginFailed
from .question import Hold
from .values import Reply, ToolCall, ToolResult

if TYPE_CHECKING:
    from .app import App
    from .command import Command
    from .prompt import Prompt
    from .tool import Tool
    from .turn import Turn

T = TypeVar("T")


class Key(Generic[T]):
    """A typed place in `turn.state`."""

    __slots__ = ("make", "name")

    def __init__(self, name: str, make: Callable[[], T]) -> None:
        self.name, self.make = name, make


class State:
    """What plugins keep for the length of a turn."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: dict[Key[Any], Any] = {}

    def __getitem__(self, key: Key[T]) -> T:
        value = self._values.get(key)
        if value is None:
            value = self._values[key] = key.make()
        return cast(T, value)

    def __setitem__(self, key: Key[T], value: T) -> None:
        self._values[key] = value


class Plugin:
    """Override what you need; every default changes nothing."""

    name: ClassVar[str] = ""
    entry: str = ""
    """Which of several entries of this plugin in one agent; what it inserts bears it as its source."""
    required: ClassVar[bool] = False
    """A policy plugin fails closed: when it raises, the turn fails. Any other is reported and skipped."""
    tools: Sequence[Tool] = ()
    commands: Sequence[Command] = ()
    looks_for: Sequence[bytes] = ()
    """Texts of which a foreign request's body must hold one for this plugin to apply. The gateway passes a request that
    nobody wants to see on without reading it; none means that the plugin wants to see every one."""
    moves_prefix: bool = False
    """What this plugin puts into a prompt changes from round to round before its end: a provider's prompt cache, which
    lives on a common beginning, helps less."""
    holds_stream: bool = False
    """This plugin must see the reply before anybody else does: nothing streams until `on_reply` is through."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "name" not in cls.__dict__:
            cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()
        for method in vars(cls):
            if method.startswith("on_") and method not in HOOKS:
                raise RondelError(f"plugin {cls.name!r} has no hook to be called by: {method}{nearest(method, HOOKS)}")

    def applies(self, turn: Turn) -> bool:
        """Whether this plugin takes part in this turn."""
        return True

    @contextlib.asynccontextmanager
    async def lifespan(self, app: App) -> AsyncGenerator[None]:
        """Around the app's whole life: open and close what the plugin needs."""
        yield

    async def on_turn_start(self, turn: Turn) -> None:
        """A turn begins; the person's message is in the transcript."""

    async def on_prompt(self, turn: Turn, prompt: Prompt) -> Prompt:
        """Before each round: edit what the engine is told."""
        return prompt

    async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
        """After each round, before the reply is kept: edit it, and say where control goes (`reply.next`)."""
        return reply

    async def on_tool_call(self, turn: Turn, call: ToolCall) -> ToolCall | ToolResult | Hold:
        """Before a call is answered: change it, answer it, or hold it for a person."""
        return call

    async def on_tool_result(self, turn: Turn, call: ToolCall, result: ToolResult) -> ToolResult:
        """After a tool ran, before its result is kept."""
        return result

    async def on_turn_end(self, turn: Turn, outcome: Outcome) -> None:
        """The turn comes to rest."""

    def on_event(self, turn: Turn, event: Event) -> None:
        """Watch only: everything that watchers see, deltas included."""


EDITING = ("on_prompt", "on_reply", "on_tool_call", "on_tool_result")
HOOKS = ("on_turn_start", *EDITING, "on_turn_end", "on_event")


class Chain:
    """Plugins in order, with the hooks that each really overrides: a plugin that does nothing costs nothing."""

    __slots__ = ("_hooks", "_picky", "_subsets", "holds_stream", "plugins", "watches")

    def __init__(self, plugins: Iterable[Plugin]) -> None:
        self.plugins = tuple(plugins)
        self._picky = any(type(plugin).applies is not Plugin.applies for plugin in self.plugins)
        self._hooks: dict[str, list[tuple[Plugin, Callable[..., Any]]]] = {
            hook: [(p, getattr(p, hook)) for p in self.plugins if getattr(type(p), hook) is not getattr(Plugin, hook)]
            for hook in HOOKS
        }
        self._subsets: dict[tuple[int, ...], Chain] = {}
        self.holds_stream = any(plugin.holds_stream for plugin in self.plugins)
        self.watches = bool(self._hooks["on_event"])

    def for_turn(self, turn: Turn) -> Chain:
        """The plugins that take part in this turn."""
        if not self._picky:
            return self
        applying = tuple(plugin for plugin in self.plugins if plugin.applies(turn))
        if len(applying) == len(self.plugins):
            return self
        key = tuple(map(id, applying))
        if key not in self._subsets:
            self._subsets[key] = Chain(applying)
        return self._subsets[key]

    @property
    def tools(self) -> list[Tool]:
        return [tool for plugin in self.plugins for tool in plugin.tools]

    @property
    def editors(self) -> list[tuple[Plugin, Callable[[Turn, Prompt], Awaitable[Prompt]]]]:
        """The plugins that edit prompts, in order, each with its edit."""

        def guarded(plugin: Plugin, hook: Callable[..., Any]) -> Callable[[Turn, Prompt], Awaitable[Prompt]]:
            return lambda turn, prompt: self._edit(turn, plugin, "on_prompt", hook(turn, prompt), prompt)

        return [(plugin, guarded(plugin, hook)) for plugin, hook in self._hooks["on_prompt"]]

    async def prompt(self, turn: Turn, prompt: Prompt) -> Prompt:
        for plugin, hook in self._hooks["on_prompt"]:
            prompt = await self._edit(turn, plugin, "on_prompt", hook(turn, prompt), prompt)
        return prompt

    async def reply(self, turn: Turn, reply: Reply) -> Reply:
        for plugin, hook in reversed(self._hooks["on_reply"]):
            edited = await self._edit(turn, plugin, "on_reply", hook(turn, reply), reply)
            reply = keep_stronger_next(reply, edited)
        return reply

    async def call(self, turn: Turn, call: ToolCall) -> ToolCall | ToolResult | Hold:
        for plugin, hook in self._hooks["on_tool_call"]:
            verdict = await self._edit(turn, plugin, "on_tool_call", hook(turn, call), call)
            if not isinstance(verdict, ToolCall):
                return verdict
            call = verdict
        return call

    async def result(self, turn: Turn, call: ToolCall, result: ToolResult) -> ToolResult:
        for plugin, hook in reversed(self._hooks["on_tool_result"]):
            result = await self._edit(turn, plugin, "on_tool_result", hook(turn, call, result), result)
        return result

    async def start(self, turn: Turn) -> None:
        for plugin, hook in self._hooks["on_turn_start"]:
            await self._tell(turn, plugin, "on_turn_start", hook(turn))

    async def end(self, turn: Turn, outcome: Outcome) -> None:
        for plugin, hook in reversed(self._hooks["on_turn_end"]):
            await self._tell(turn, plugin, "on_turn_end", hook(turn, outcome))

    def watch(self, turn: Turn, event: Event) -> None:
        for plugin, hook in self._hooks["on_event"]:
            try:
                hook(turn, event)
            except Exception as error:
                if not isinstance(event, PluginFailed):
                    turn.emit(PluginFailed(plugin.name, "on_event", f"{type(error).__name__}: {error}"))

    async def _edit(self, turn: Turn, plugin: Plugin, hook: str, edited: Awaitable[Any], value: Any) -> Any:
        try:
            result = await edited
            if result is None:
                raise TypeError("returned None; return the value, edited or as it was")
            return result
        except Exception as error:
            await _report(turn, plugin, hook, error)
            return value

    async def _tell(self, turn: Turn, plugin: Plugin, hook: str, told: Awaitable[None]) -> None:
        try:
            await told
        except Exception as error:
            await _report(turn, plugin, hook, error)


async def _report(turn: Turn, plugin: Plugin, hook: str, error: Exception) -> None:
    """A plugin that raises is reported and skipped, unless it is required. A limit that it found is no failure of the
    plugin, and neither is what an agent cannot run on."""
    if isinstance(error, (LimitReached, InputError)):
        raise error
    said = str(error) if isinstance(error, RondelError) else f"{type(error).__name__}: {error}"
    if plugin.required:
        raise PluginError(plugin.name, hook, said) from error
    await turn.append(PluginFailed(plugin.name, hook, said))


def keep_stronger_next(before: Reply, after: Reply) -> Reply:
    """Where control goes, when plugins disagree: once more beats a hand-off, a hand-off beats self, self beats human;
    of equals the first stays."""
    if _strength(before.next) < _strength(after.next) or before.next == after.next == "human":
        return after
    return msgspec.structs.replace(after, next=before.next, next_message=before.next_message or after.next_message)


def _strength(target: str) -> int:
    return {"human": 0, "self": 1, "again": 3}.get(target, 2)
