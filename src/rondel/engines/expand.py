"""Speaks an agent's own words: a directive in them is a call, and the transcript says how far a sentence has come.

A round of an agent whose words have directives answers with their calls; the loop carries them out, beside each other
and durably, as it does with any call. The next round finds the results and goes on with the sentence. So a template
needs no model, a prompt is filled in before its model is asked, and what a model or a function says goes on where a
directive interrupted it, without asking again. Knows no store and no surface.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Literal, Protocol, TypeAlias, cast

import msgspec

from ..agent import Agent
from ..engine import Engine
from ..errors import RondelError
from ..events import HomeChanged
from ..facts import recalled_text
from ..inputs import is_required, typed
from ..prompt import HISTORY, Child, Node, Prompt
from ..template import MARK, Directive, Template, may_begin, parse, scan, unique
from ..tool import CallContext, Tool, tool
from ..transcript import CarriedOut
from ..turn import Turn
from ..values import (
    Delta,
    Media,
    ModelFacts,
    Part,
    PartDelta,
    PartFinished,
    PartStarted,
    ReplyFinished,
    ReplyStarted,
    Text,
    ToolCall,
    ToolResult,
)

Stage: TypeAlias = Literal["words", "function", "output"]
"""Whose directives a round carries out: the author's, the function that is the agent, or those in what was said."""

Values: TypeAlias = Mapping[tuple[str, ...], str]


class Agents(Protocol):
    """Who there is to recruit."""

    def agent(self, name: str = "") -> Agent: ...

    def knows_agent(self, name: str) -> bool: ...


# --- what is known before any turn ------------------------------------------------------------------------------------


class Script:
    """An agent's words, read once: their directives, and the tools that carry them out."""

    def __init__(self, agent: Agent, agents: Agents, ask: Tool) -> None:
        self.agent, self.agents = agent, agents
        texts = [agent.template] if agent.template else [node.text for node in _walk(agent.nodes)]
        self.templates = {text: found for text in texts if text and not (found := parse(text)).is_plain}
        self.directives = [d for text in texts if text in self.templates for d in self.templates[text].directives]
        self.working = unique(d for d in self.directives if d.works)
        self.function = _function_tool(agent) if agent.function is not None else None
        self.deferred = tuple(dict.fromkeys(d.agent for d in self.directives if d.name == "Defer"))
        """Agents that the author offers to the model."""
        self.tools = self._tools(ask)
        """What carries out directives; no model is told of these."""

    @property
    def is_needed(self) -> bool:
        return bool(self.agent.template or self.function or self.templates or self.agent.expands_output)

    @property
    def needs_model(self) -> bool:
        return not self.agent.template and self.function is None

    def _tools(self, ask: Tool) -> dict[str, Tool]:
        expands = self.agent.expands_output
        names = {d.name for d in self.directives}
        tools = [_recruiting(self.agents, d.agent) for d in self.working if d.name == "Get"]
        tools += [_recruiting(self.agents, name) for name in self.agent.recruits if expands]
        tools += [ask] if expands or names & {"AskUser", "Options"} else []
        tools += [_starting(self.agents)] if expands or "Start" in names else []
        tools += [self.function] if self.function else []
        return {tool.name: tool for tool in tools}

    def allows(self, directive: Directive) -> bool:
        """Whether a directive in what the agent says is carried out: it names nobody but this one and its recruits."""
        return not directive.agent or directive.agent in (self.agent.name, *self.agent.recruits)

    def heard(self, text: str) -> Template:
        """What the agent said, with the directives that it may use."""
        if not self.agent.expands_output:
            return Template(text)
        found = scan(text)
        allowed = tuple(d for d in found.directives if self.allows(d))
        return msgspec.structs.replace(found, directives=allowed)


def _walk(nodes: Iterable[Child]) -> Iterable[Node]:
    pending = [node for node in nodes if isinstance(node, Node)][::-1]
    while pending:
        node = pending.pop()
        if node.enabled:
            yield node
            pending.extend(child for child in reversed(node.children) if isinstance(child, Node))


def tool_name(agent: str) -> str:
    return agent.replace(".", "_")


def _recruiting(agents: Agents, name: str) -> Tool:
    """Lets an agent work that is looked for when it is needed: nobody need declare it before."""

    async def run(arguments: dict[str, Any], context: CallContext) -> Any:
        return await context.turn.recruit(agents.agent(name), arguments, context)

    return Tool(name=tool_name(name), run=run, timeout_s=0, idempotent=True, tags=("agent",))


def _starting(agents: Agents) -> Tool:
    async def run(arguments: dict[str, Any], context: CallContext) -> str:
        agent, turn = arguments["agent"], context.turn
        if not agents.knows_agent(agent):
            return f"Invalid Starting Agent: {agent}"
        changed = HomeChanged(agent, by=turn.agent.name)
        if (root := await turn.root()).transcript is turn.transcript:
            await turn.append(changed, wait=False)
        else:
            await root.append(changed, wait=False)
        return f"New Starting Agent: {agent}"

    return Tool(name="start_agent", run=run, idempotent=True)


def _function_tool(agent: Agent) -> Tool:
    function = agent.function
    if isinstance(function, Tool):
        return msgspec.structs.replace(function, name=tool_name(agent.name))
    assert function is not None
    return tool(name=tool_name(agent.name))(function)


# --- one turn ---------------------------------------------------------------------------------------------------------


class Expanding:
    """The engine of an agent's words in one turn. `model` is asked for what they leave open."""

    def __init__(self, script: Script, turn: Turn, model: Engine) -> None:
        self._script, self._turn, self._model = script, turn, model

    @property
    def name(self) -> str:
        if self._script.needs_model:
            return self._model.name
        return "template" if self._script.agent.template else "function"

    @property
    def facts(self) -> ModelFacts:
        return self._model.facts if self._script.needs_model else ModelFacts()

    @property
    def asks_nobody(self) -> bool:
        return not self._script.needs_model or bool(self._missing()) or self._interrupted() is not None

    def fill(self, nodes: tuple[Node, ...]) -> tuple[Node, ...] | None:
        """The author's words with everything in its place; None when all of them are blank: then nobody is asked.

        Nothing is filled in while something is still to be found out: those words go nowhere.
        """
        if not self._script.needs_model:  # a blank message must not keep these from speaking
            return (Node("words", text=self._script.agent.template or self.name, role="system"), *nodes)
        if not self._script.templates or self._missing():
            return nodes
        values = self._carried_out()
        filled = tuple(self._filled(node, values) for node in nodes)
        return filled if any(node.text.strip() for node in _walk(filled) if node.id != HISTORY) else None

    def _filled(self, node: Node, values: Values) -> Node:
        children = tuple(self._filled(c, values) if isinstance(c, Node) else c for c in node.children)
        template = self._script.templates.get(node.text)
        text = node.text if template is None else self._text(template, values)
        return msgspec.structs.replace(node, text=text, children=children)

    async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        if missing := self._missing():
            for delta in self._begin(missing):
                yield delta
        elif (interrupted := self._interrupted()) is not None:
            for delta in _say(self._text(*_rest(self._script, interrupted)), said=_said(interrupted)):
                yield delta
        elif template := self._script.agent.template:
            text = self._script.templates.get(template, Template(template))
            for delta in _say(self._text(text, self._carried_out()), said=self._said_before()):
                yield delta
        elif self._script.function is not None:
            for delta in self._function_says(self._script.function):
                yield delta
        else:
            async with aclosing(self._listen(prompt)) as deltas:
                async for delta in deltas:
                    yield delta

    # --- how far it has come ------------------------------------------------------------------------------------------

    def _done(self, stage: Stage) -> list[CarriedOut]:
        name = self._script.agent.name
        return [done for done in self._turn.transcript.carried_out if done.agent == name and _stage(done) == stage]

    def _carried_out(self) -> dict[tuple[str, ...], str]:
        """What the directives in the author's words have given."""
        return {key: text for done in self._done("words") for key, text in _results(done)}

    def _missing(self) -> Sequence[Directive]:
        if not self._script.working:
            return ()
        values = self._carried_out()
        return [directive for directive in self._script.working if directive.key not in values]

    def _interrupted(self) -> CarriedOut | None:
        """What was said up to a directive that has been carried out since."""
        done = self._done("output") if self._script.agent.expands_output else []
        return done[-1] if done else None

    def _said_before(self) -> str:
        return next((said for done in reversed(self._done("words")) if (said := _said(done))), "")

    def _text(self, template: Template, values: Values) -> str:
        known = {d.key: value for d in template.directives if (value := self._known(d)) is not None}
        return template.fill({**known, **values})

    def _known(self, directive: Directive) -> str | None:
        """What needs nobody's work: inputs, facts, the name of a tool that is on offer."""
        turn, arguments = self._turn, directive.arguments
        match directive.name:
            case "Input":
                return self._input(*arguments)
            case "Inputs":
                return self._definitions(arguments[0]) if arguments else _fenced(_lines(turn.inputs))
            case "Fact":
                return recalled_text(turn.top, *arguments, agent=self._script.agent.name)
            case "Defer":
                return tool_name(directive.agent)
            case _:
                return None

    def _input(self, field: str = "", default: str = "") -> str:
        turn = self._turn
        if not field:
            return turn.transcript.turn_input or ""
        value = turn.inputs.get(field)
        return default if value is None or value == "" else _as_text(value)

    def _definitions(self, agent: str) -> str:
        if not self._script.agents.knows_agent(agent):
            return f"[error: no agent is named {agent!r}]"
        fields = cast("dict[str, dict[str, Any]]", self._script.agents.agent(agent).inputs)
        return _fenced(f"{name}: {_definition(field)}" for name, field in fields.items())

    # --- what it says -------------------------------------------------------------------------------------------------

    def _begin(self, missing: Sequence[Directive]) -> Iterable[Delta]:
        """The calls of the author's directives; of a template first what stands before them."""
        said = ""
        if self._script.agent.template:
            template = self._script.templates[self._script.agent.template]
            first = next(d for d in template.directives if d.works)
            before = scan(template.text[: first.start])
            said = self._text(before, {})
        return _interrupt(said, said, self._calls(missing, "words"), shown=bool(said))

    def _calls(self, directives: Sequence[Directive], stage: Stage) -> list[ToolCall]:
        place = len(self._turn.transcript.messages)
        return [
            ToolCall(f"d{place}.{n}", *self._call_of(directive), opaque=_mark(stage, directive.key))
            for n, directive in enumerate(directives)
        ]

    def _call_of(self, directive: Directive) -> tuple[str, dict[str, Any]]:
        """The tool that carries a directive out, and its arguments."""
        first, *others = directive.arguments
        match directive.name:
            case "AskUser":
                return "ask_user", {"question": first}
            case "Options":
                return "ask_user", {"question": first, "options": others, "free_text": False}
            case "Start":
                return "start_agent", {"agent": first}
            case _:
                return tool_name(first), self._arguments(first, *others)

    def _arguments(self, agent: str, text: str | None = None) -> dict[str, Any]:
        """What a recruited agent is given: the text that is written, or what this agent was given itself."""
        known = self._script.agents.knows_agent(agent)
        fields = self._script.agents.agent(agent).inputs if known else {}
        if text is not None:
            return {next(iter(fields)) if len(fields) == 1 else "input": text}
        given = self._turn.inputs
        passed = {name: value for name, value in given.items() if name in fields} if fields else given
        return passed or {"input": self._turn.transcript.turn_input or ""}

    def _function_says(self, function: Tool) -> Iterable[Delta]:
        done = self._done("function")
        if not done:
            place = len(self._turn.transcript.messages)
            arguments = _arguments_of(function, self._turn)
            return _interrupt("", "", [ToolCall(f"d{place}.0", function.name, arguments, opaque=_mark("function", ()))])
        result = done[-1].results[0]
        if result.is_error:
            raise RondelError(result.text.removeprefix(f"{function.name!r} failed: "))
        return self._say_or_interrupt(result.text, [part for part in result.parts if isinstance(part, Media)])

    def _say_or_interrupt(self, text: str, media: Sequence[Part] = ()) -> Iterable[Delta]:
        heard = self._script.heard(text)
        if working := unique(d for d in heard.directives if d.works):
            said = self._text(scan(text[: next(d for d in heard.directives if d.works).start]), {})
            return _interrupt(said, text, self._calls(working, "output"), shown=True)
        return _say(self._text(heard, {}) if not heard.is_plain else text, media=media)

    async def _listen(self, prompt: Prompt) -> AsyncGenerator[Delta]:
        """The model's answer as it comes, up to a directive that it may use; the calls of it, when the answer ends."""
        outlet = Outlet(self._script) if self._script.agent.expands_output else None
        async with aclosing(cast(AsyncGenerator[Delta], self._model.stream(prompt))) as deltas:
            async for delta in deltas:
                if outlet is None:
                    yield delta
                    continue
                for shown in outlet.put(delta):
                    yield shown
        if outlet is not None:
            for delta in self._close(outlet):
                yield delta

    def _close(self, outlet: Outlet) -> Iterable[Delta]:
        """What is left to say of an answer that was held back, or the calls that it waits for."""
        if outlet.end is None:
            return
        texts = sorted(outlet.texts)
        if outlet.stopped_at is None or outlet.has_calls:
            yield from outlet.release()
            yield outlet.end
            return
        whole = self._script.heard("".join(outlet.texts[index] for index in texts))
        working = unique(d for d in whole.directives if d.works)
        kept = "" if working else self._text(whole, {})
        opaque = {MARK: {"text": whole.text, "said": outlet.said}} if working else {}
        if not working:
            yield PartDelta(outlet.stopped_at, kept.removeprefix(outlet.said))
        for index in texts:
            yield PartFinished(index, Text(kept, opaque=opaque) if index == texts[0] else Text(""))
        for n, call in enumerate(self._calls(working, "output"), outlet.parts):
            yield PartStarted(n, call)
            yield PartFinished(n, call)
        yield msgspec.structs.replace(outlet.end, stop="calls") if working else outlet.end


class Outlet:
    """Lets an answer through as far as it is settled: up to a directive, or what may become one."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._pending = ""
        self._held: list[Delta] = []
        self.texts: dict[int, str] = {}
        self.parts = 0
        """One more than the highest index of a part."""
        self.has_calls = False
        self.stopped_at: int | None = None
        """The part that a directive interrupted."""
        self.said = ""
        self.end: ReplyFinished | None = None

    def put(self, delta: Delta) -> Iterable[Delta]:
        if isinstance(delta, PartStarted):
            self.parts = max(self.parts, delta.index + 1)
            self.has_calls = self.has_calls or isinstance(delta.part, ToolCall)
            if isinstance(delta.part, Text):
                self.texts[delta.index] = ""
        if isinstance(delta, ReplyFinished):
            self.end = delta
        elif isinstance(delta, PartDelta) and delta.index in self.texts:
            yield from self._more(delta)
        elif isinstance(delta, PartFinished) and delta.index in self.texts:
            yield from self._finished(delta)
        else:
            yield delta

    def _more(self, delta: PartDelta) -> Iterable[Delta]:
        self.texts[delta.index] += delta.text
        if self.stopped_at is not None:
            self._held.append(delta)
            return
        self._pending += delta.text
        found = self._script.heard(self._pending)
        if found.directives:
            self.stopped_at = delta.index
            end = found.directives[0].start
            self._held.append(PartDelta(delta.index, self._pending[end:]))
        else:
            end = may_begin(self._pending)
        settled, self._pending = self._pending[:end], self._pending[end:]
        yield from self._show(delta.index, scan(settled).fill({}))

    def _finished(self, delta: PartFinished) -> Iterable[Delta]:
        text = cast(Text, delta.part).text
        self.texts[delta.index] = text
        if self.stopped_at is not None:
            self._held.append(delta)
            return
        rest, self._pending = self._pending, ""
        yield from self._show(delta.index, rest)
        plain = self._script.heard(text).fill({})
        yield delta if plain == text else PartFinished(delta.index, msgspec.structs.replace(delta.part, text=plain))

    def _show(self, index: int, text: str) -> Iterable[Delta]:
        if text:
            self.said += text
            yield PartDelta(index, text)

    def release(self) -> Iterable[Delta]:
        """What was held back, as it is: the answer goes on with calls of the model's own."""
        yield from self._held


# --- deltas -----------------------------------------------------------------------------------------------------------


def _say(text: str, *, said: str = "", media: Sequence[Part] = ()) -> Iterable[Delta]:
    """A whole text, of which only the rest is shown when its beginning was."""
    yield ReplyStarted()
    yield PartStarted(0, Text(""))
    if rest := text.removeprefix(said):
        yield PartDelta(0, rest)
    yield PartFinished(0, Text(text))
    for index, part in enumerate(media, 1):
        yield PartStarted(index, part)
        yield PartFinished(index, part)
    yield ReplyFinished()


def _interrupt(said: str, text: str, calls: Sequence[ToolCall], *, shown: bool = False) -> Iterable[Delta]:
    """The beginning of a text, and the calls that it waits for. What is kept of it is how it goes on."""
    yield ReplyStarted()
    if shown:
        yield PartStarted(0, Text(""))
        if said:
            yield PartDelta(0, said)
        yield PartFinished(0, Text("", opaque={MARK: {"text": text, "said": said}}))
    for index, call in enumerate(calls, 1 if shown else 0):
        yield PartStarted(index, call)
        yield PartFinished(index, call)
    yield ReplyFinished("calls")


# --- what a transcript says of directives -----------------------------------------------------------------------------


def _mark(stage: Stage, key: tuple[str, ...]) -> dict[str, Any]:
    return {MARK: {"stage": stage, "key": list(key)}}


def _stage(done: CarriedOut) -> str:
    return done.message.calls[0].opaque[MARK]["stage"]


def _kept(done: CarriedOut) -> dict[str, str]:
    """What was kept of a text that was interrupted."""
    for part in done.message.parts:
        if isinstance(part, Text) and MARK in part.opaque:
            return part.opaque[MARK]
    return {}


def _said(done: CarriedOut) -> str:
    return _kept(done).get("said", "")


def _rest(script: Script, done: CarriedOut) -> tuple[Template, Values]:
    return script.heard(_kept(done).get("text", "")), dict(_results(done))


def _results(done: CarriedOut) -> Iterable[tuple[tuple[str, ...], str]]:
    for call, result in zip(done.message.calls, done.results, strict=True):
        key = tuple(call.opaque[MARK]["key"])
        yield key, _inserted(key, result)


def _inserted(key: tuple[str, ...], result: ToolResult) -> str:
    """What stands in a directive's place."""
    if not result.is_error:
        return result.text
    return f"[error calling {key[1] if key[0] in ('Get', 'Start') else 'the user'}: {result.text}]"


# --- values as text ---------------------------------------------------------------------------------------------------


def _arguments_of(function: Tool, turn: Turn) -> dict[str, Any]:
    """What a function is given: the inputs that it knows, or all that was said as the one thing that it takes."""
    known = cast("dict[str, Any]", function.schema.get("properties", {}))
    needed = cast("list[str]", function.schema.get("required", []))
    given = {name: value for name, value in turn.inputs.items() if name in known}
    if given or not known:
        return given
    only = needed if len(needed) == 1 else list(known) if len(known) == 1 else []
    return {only[0]: turn.transcript.turn_input or ""} if only else {}


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _lines(values: Mapping[str, Any]) -> Iterable[str]:
    return (f"{name}: {msgspec.json.encode(value).decode()}" for name, value in values.items())


def _definition(field: Mapping[str, Any]) -> str:
    about = f"{field['description']} " if field.get("description") else ""
    need = "required" if is_required(field) else "optional"
    return f"{about}({typed(field).get('type', 'any')}, {need})"


def _fenced(lines: Iterable[str]) -> str:
    """A block that nothing in it can end."""
    text = "\n".join(lines)
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}yaml\n{text}\n{fence}"
