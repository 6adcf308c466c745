"""The contract of a plugin: it edits values at named points of the loop. And the chain that calls plugins in order.

The order is one visible list: prompts and calls pass down it, replies and results come up. A plugin keeps the state of
a turn in `turn.state[KEY]`, never on itself. tests/plugins/test_contract.py tests every plugin. Knows no concrete one.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from os import urandom
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

import msgspec

from .calling.callbacks import check_returned, is_async, is_awaitable
from .errors import InputError, LimitReached, PluginError, RondelError, nearest
from .events import Event, Outcome, PluginFailed
from .question import Hold
from .values import Reply, ToolCall, ToolResult

if TYPE_CHECKING:
    from .agent import Agent
    from .app.app import App
    from .contracts.command import Command
    from .machine.turn import Turn
    from .prompt import Prompt
    from .tool import Tool

T = TypeVar("T")


class Key(Generic[T]):
    """A typed key of `turn.state`."""

    def __init__(self, name: str, make: Callable[[], T]) -> None:
        self.name, self.make = name, make


class State:
    """The values that plugins keep for one turn, by key."""

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
    """The id of this entry if an agent has several of this plugin; it is the source of what the entry inserts."""
    required: ClassVar[bool] = False
    """If a required plugin raises, the turn fails; any other is reported and skipped. Policy plugins are required."""
    tools: Sequence[Tool] = ()
    """The tools that it offers. They are read when `lifespan` has begun, so it may set them there."""
    commands: Sequence[Command] = ()
    looks_for: Sequence[bytes] = ()
    """This plugin applies only to gateway requests that contain one of these texts outside their tools. The gateway
    relays a request without parsing it if no plugin can apply; an empty sequence applies to every request."""
    moves_prefix: bool = False
    """Whether what it adds before the end of a prompt changes from round to round. A provider's prompt cache, which
    needs a common prefix, then helps less."""
    holds_stream: bool | None = None
    """Whether nothing streams until `on_reply` has returned, so that people see exactly the reply that is stored. None
    means True for a plugin with an `on_reply`. Set it to False if `on_reply` only reads the text, or only sets
    `reply.next`."""

    made_with: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
    """The arguments of the constructor. A conversation that overrides a parameter uses them to make its own plugin."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "name" not in cls.__dict__:
            cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()
        if "__init__" in cls.__dict__:
            cls.__init__ = _remembering(cls.__init__)
        for method in vars(cls):
            if method.startswith("on_") and method not in HOOKS:
                raise RondelError(f"plugin {cls.name!r}: {method!r} is not a hook{nearest(method, HOOKS)}")
        _check_kinds(cls)

    def check(self, agent: Agent) -> None:
        """Raise RondelError if this plugin's settings cannot work with this agent; called when the agent is made."""

    def applies(self, turn: Turn) -> bool:
        """Return whether this plugin takes part in this turn. Cannot be async."""
        return True

    @contextlib.asynccontextmanager
    async def lifespan(self, app: App) -> AsyncGenerator[None]:
        """Open what the plugin needs, `yield` while the app runs, and close it. It may set `tools` before it yields."""
        yield

    async def on_turn_start(self, turn: Turn) -> None:
        """Called when a turn begins; the person's message is in the transcript."""

    async def on_prompt(self, turn: Turn, prompt: Prompt) -> Prompt:
        """Edit the prompt of each round."""
        return prompt

    async def on_reply(self, turn: Turn, reply: Reply) -> Reply:
        """Edit each reply before it is stored, and say where control goes (`reply.next`)."""
        return reply

    async def on_tool_call(self, turn: Turn, call: ToolCall) -> ToolCall | ToolResult | Hold:
        """Change a call, answer it, or hold it for a person, before it runs."""
        return call

    async def on_tool_result(self, turn: Turn, call: ToolCall, result: ToolResult) -> ToolResult:
        """Edit the result of a call before it is stored."""
        return result

    async def on_turn_end(self, turn: Turn, outcome: Outcome) -> None:
        """Called when the turn ends, or waits for an answer."""

    def on_event(self, turn: Turn, event: Event) -> Awaitable[None] | None:
        """See every event that watchers see, deltas included. If it is async, the turn waits for it."""


def _remembering(constructor: Callable[..., None]) -> Callable[..., None]:
    """Return a constructor that records its arguments in `made_with`."""

    @functools.wraps(constructor)
    def construct(self: Plugin, *arguments: Any, **named: Any) -> None:
        if "made_with" not in self.__dict__:  # else a subclass calls the constructor of its parent
            self.made_with = arguments, named
        constructor(self, *arguments, **named)

    return construct


def _check_kinds(cls: type[Plugin]) -> None:
    """Raise for an async method where nothing can wait for it, and for a lifespan that is not a context manager."""
    for method in ("applies", "check"):
        if is_async(getattr(cls, method)):
            raise RondelError(
                f"plugin {cls.name!r}: {method} is called where nothing can wait, so it cannot be async; write "
                f"`def {method}`, and do what takes time in another hook"
            )
    if is_async(cls.lifespan):
        raise RondelError(
            f"plugin {cls.name!r}: lifespan must be an async context manager; write @contextlib.asynccontextmanager "
            "above it, and yield once"
        )


JUDGED_TIMES_MAX = 4  # how often required plugins are asked again about a call that they keep changing
SHOWN_ALREADY = "it changed a text that was already shown, so the change is dropped; remove `holds_stream = False`"
EDITING = ("on_prompt", "on_reply", "on_tool_call", "on_tool_result")
HOOKS = ("on_turn_start", *EDITING, "on_turn_end", "on_event")


class Chain:
    """Plugins in order. Only the hooks that a plugin overrides are called."""

    def __init__(self, plugins: Iterable[Plugin]) -> None:
        self.plugins = tuple(plugins)
        for kind in {type(plugin) for plugin in self.plugins}:
            _check_kinds(kind)
        self._conditional = [plugin for plugin in self.plugins if type(plugin).applies is not Plugin.applies]
        self._hooks: dict[str, list[tuple[Plugin, Callable[..., Any]]]] = {
            hook: [(p, _hook(p, hook)) for p in self.plugins if getattr(type(p), hook) is not getattr(Plugin, hook)]
            for hook in HOOKS
        }
        self._subsets: dict[tuple[int, ...], Chain] = {}
        self.holds_stream = any(map(_holds_stream, self.plugins))
        self.watches = bool(self._hooks["on_event"])

    def for_turn(self, turn: Turn, failed: list[tuple[Plugin, Exception]]) -> Chain:
        """Return the plugins that take part in this turn. If `applies` raises, the plugin is added to `failed`."""
        left_out: tuple[int, ...] = ()
        for plugin in self._conditional:
            try:
                if applies := plugin.applies(turn):
                    check_returned("applies", applies)
                    continue
            except Exception as error:
                failed.append((plugin, error))
            left_out += (id(plugin),)
        if not left_out:
            return self
        if left_out not in self._subsets:
            self._subsets[left_out] = Chain(plugin for plugin in self.plugins if id(plugin) not in left_out)
        return self._subsets[left_out]

    @property
    def tools(self) -> list[Tool]:
        return [tool for plugin in self.plugins for tool in plugin.tools]

    @property
    def editors(self) -> list[tuple[Plugin, Callable[[Turn, Prompt], Awaitable[Prompt]]]]:
        """The plugins that edit prompts, in order, each with a function that makes its edit."""

        def guarded(plugin: Plugin, hook: Callable[..., Any]) -> Callable[[Turn, Prompt], Awaitable[Prompt]]:
            return lambda turn, prompt: self._edit(turn, plugin, "on_prompt", prompt, hook, prompt)

        return [(plugin, guarded(plugin, hook)) for plugin, hook in self._hooks["on_prompt"]]

    async def prompt(self, turn: Turn, prompt: Prompt) -> Prompt:
        for plugin, hook in self._hooks["on_prompt"]:
            prompt = await self._edit(turn, plugin, "on_prompt", prompt, hook, prompt)
        return prompt

    async def reply(self, turn: Turn, reply: Reply) -> Reply:
        for plugin, hook in reversed(self._hooks["on_reply"]):
            edited: Reply = await self._edit(turn, plugin, "on_reply", reply, hook, reply)
            if edited is reply:
                continue
            if edited.message is not reply.message and not self.holds_stream and edited.text != reply.text:
                await report(turn, plugin, "on_reply", RondelError(SHOWN_ALREADY))
                edited = msgspec.structs.replace(edited, message=reply.message)
            reply = keep_stronger_next(reply, edited)
        return reply

    async def call(self, turn: Turn, call: ToolCall) -> ToolCall | ToolResult | Hold:
        """Ask the plugins about a call. If it changes after a required plugin has seen it, that plugin is asked again:
        only a call that it allowed runs, whatever the order of the list."""
        guards: list[tuple[Plugin, Callable[..., Any]]] = []
        for plugin, hook in self._hooks["on_tool_call"]:
            before = _frozen(call) if guards else b""
            verdict = await self._edit(turn, plugin, "on_tool_call", call, hook, call)
            # A plugin may have changed the arguments in place: then the object is the same, but its bytes differ.
            if guards and isinstance(verdict, ToolCall) and (verdict is not call or _frozen(verdict) != before):
                verdict = await self._judge_again(turn, guards, verdict)
            if not isinstance(verdict, ToolCall):
                return verdict
            call = verdict
            if plugin.required:
                guards.append((plugin, hook))
        return call

    async def _judge_again(
        self, turn: Turn, guards: list[tuple[Plugin, Callable[..., Any]]], call: ToolCall
    ) -> ToolCall | ToolResult | Hold:
        for _ in range(JUDGED_TIMES_MAX):
            judged = _frozen(call)
            for plugin, hook in guards:
                verdict = await self._edit(turn, plugin, "on_tool_call", call, hook, call)
                if not isinstance(verdict, ToolCall):
                    return verdict
                call = verdict
            if _frozen(call) == judged:
                return call
        from .tool import error_of

        return error_of(call, "not run: the plugins that decide about this call keep changing it")

    async def result(self, turn: Turn, call: ToolCall, result: ToolResult) -> ToolResult:
        for plugin, hook in reversed(self._hooks["on_tool_result"]):
            result = await self._edit(turn, plugin, "on_tool_result", result, hook, call, result)
        return result

    async def start(self, turn: Turn) -> None:
        for plugin, hook in self._hooks["on_turn_start"]:
            await self._tell(turn, plugin, "on_turn_start", hook)

    async def end(self, turn: Turn, outcome: Outcome) -> None:
        for plugin, hook in reversed(self._hooks["on_turn_end"]):
            await self._tell(turn, plugin, "on_turn_end", hook, outcome)

    def watch(self, turn: Turn, event: Event) -> None:
        """Show an event to the plugins. `finish_watching` awaits what async hooks returned."""
        for plugin, hook in self._hooks["on_event"]:
            try:
                if is_awaitable(returned := hook(turn, event)):
                    turn.watching.append((plugin, event, cast("Awaitable[None]", returned)))
            except Exception as error:
                _report_watching(turn, plugin, event, error)

    async def finish_watching(self, turn: Turn) -> None:
        """Wait for the async hooks that have been called for events, in the order of the events."""
        while turn.watching:
            plugin, event, returned = turn.watching.pop(0)
            try:
                await returned
            except Exception as error:
                _report_watching(turn, plugin, event, error)

    async def _edit(
        self, turn: Turn, plugin: Plugin, name: str, value: Any, hook: Callable[..., Any], *given: Any
    ) -> Any:
        """Return a value as edited by a hook, or unchanged if the hook fails."""
        try:
            result = await hook(turn, *given)
            if result is None:
                raise TypeError("returned None; return the value, edited or unchanged")
            return result
        except Exception as error:
            await report(turn, plugin, name, error)
            return value

    async def _tell(self, turn: Turn, plugin: Plugin, name: str, hook: Callable[..., Any], *given: Any) -> None:
        try:
            await hook(turn, *given)
        except Exception as error:
            await report(turn, plugin, name, error)


def _hook(plugin: Plugin, name: str) -> Callable[..., Any]:
    """Return a hook of a plugin. All but `on_event` are awaited, also if their author wrote them without `async`."""
    hook: Callable[..., Any] = getattr(plugin, name)
    if name == "on_event" or inspect.iscoroutinefunction(hook):
        return hook

    async def awaited(*given: Any) -> Any:
        result = hook(*given)
        return await result if is_awaitable(result) else result

    return awaited


def _frozen(call: ToolCall) -> bytes:
    """Return a call as bytes, to see whether it changed; a call that cannot be encoded counts as changed."""
    try:
        return msgspec.json.encode((call.id, call.name, call.arguments, call.broken))
    except (TypeError, ValueError, RecursionError):
        return urandom(16)


def _holds_stream(plugin: Plugin) -> bool:
    return type(plugin).on_reply is not Plugin.on_reply if plugin.holds_stream is None else plugin.holds_stream


def _report_watching(turn: Turn, plugin: Plugin, event: Event, error: Exception) -> None:
    if not isinstance(event, PluginFailed):
        turn.emit(PluginFailed(plugin.name, "on_event", f"{type(error).__name__}: {error}"))


async def report(turn: Turn, plugin: Plugin, hook: str, error: Exception) -> None:
    """Report a plugin that raised; raise PluginError if it is required. Limits and wrong inputs are not failures of the
    plugin, and are raised again."""
    if isinstance(error, (LimitReached, InputError)):
        raise error
    said = str(error) if isinstance(error, RondelError) else f"{type(error).__name__}: {error}"
    if plugin.required:
        raise PluginError(plugin.name, hook, said) from error
    await turn.append(PluginFailed(plugin.name, hook, said))


def keep_stronger_next(before: Reply, after: Reply) -> Reply:
    """Choose where control goes when plugins disagree: `again` beats a handoff, a handoff beats `self`, `self` beats
    `human`; of two equal ones the first stays."""
    if _strength(before.next) < _strength(after.next) or before.next == after.next == "human":
        return after
    return msgspec.structs.replace(after, next=before.next, next_message=before.next_message or after.next_message)


def _strength(target: str) -> int:
    return {"human": 0, "self": 1, "again": 3}.get(target, 2)
