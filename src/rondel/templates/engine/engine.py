"""The engine of an agent's own text in one turn: it reads from the transcript how much of the text was sent."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeAlias, cast

import msgspec

from ...engine import Engine
from ...errors import RondelError
from ...machine.transcript import CarriedOut
from ...machine.turn import Turn
from ...prompt import HISTORY, Node, Prompt
from ...text.attached import code_block
from ...text.inputs import is_required, typed
from ...text.template import MARK, Directive, Key, Template, scan, unique
from ...tool import Tool
from ...values import Delta, Media, ModelFacts, Part, PartDelta, PartFinished, PartStarted, Text, ToolCall
from ..facts import recalled_text
from .marks import Stage, interrupt, mark, results, said_of, say, spoken, stage_of, text_of
from .output import OutputStream
from .script import Script, tool_name, walk

Values: TypeAlias = Mapping[Key, str]


class TemplateEngine:
    """Answers with an agent's own text in one turn, and calls `model` where the text leaves something open."""

    def __init__(self, script: Script, turn: Turn, model: Engine) -> None:
        self._script, self._turn, self._model = script, turn, model

    @property
    def name(self) -> str:
        if self._script.needs_model:
            return "words" if self.without_model else self._model.name
        return "template" if self._script.agent.template else "function"

    @property
    def facts(self) -> ModelFacts:
        return self._model.facts if self._script.needs_model else ModelFacts()

    @property
    def without_model(self) -> bool:
        return not self._script.needs_model or bool(self._missing()) or self._interrupted() is not None

    def fill(self, nodes: tuple[Node, ...]) -> tuple[Node, ...] | None:
        """Return the author's nodes with all values filled in; None if all of them are blank: then no model is called.
        Nothing is filled in while a directive still has to run, because that prompt is not sent."""
        if not self._script.needs_model:  # without a model, it answers a blank message, too
            return (Node("words", text=self._script.agent.template or self.name, role="system"), *nodes)
        if not self._script.templates or self._missing():
            return nodes
        values = self._results()
        filled = tuple(self._filled(node, values) for node in nodes)
        return filled if any(node.text.strip() for node in walk(filled) if node.id != HISTORY) else None

    def _filled(self, node: Node, values: Values) -> Node:
        children = tuple(self._filled(c, values) if isinstance(c, Node) else c for c in node.children)
        template = self._script.templates.get(node.text)
        text = node.text if template is None else self._text(template, values)
        return msgspec.structs.replace(node, text=text, children=children)

    async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        if (own := self._own_words()) is not None:
            for delta in own:
                yield delta
            return
        async with aclosing(self._model_says(prompt)) as deltas:
            async for delta in deltas:
                yield delta

    def _own_words(self) -> Iterable[Delta] | None:
        if missing := self._missing():
            return self._begin(missing)
        if (interrupted := self._interrupted()) is not None:
            whole, values = self._script.parse_output(text_of(interrupted)), self._results("output")
            if missing := _ready(unique(d for d in whole.all if d.works), values):
                return interrupt(said_of(interrupted), "", self._calls(missing, "output", values))
            return say(self._spoken(whole, values), said=said_of(interrupted))
        if template := self._script.agent.template:
            text = self._script.templates.get(template, Template(template))
            before = next((said for done in reversed(self._done("words")) if (said := said_of(done))), "")
            return say(self._spoken(text, self._results()), said=before)
        return None if self._script.function is None else self._function_says(self._script.function)

    # --- progress in the transcript -----------------------------------------------------------------------------------

    def _done(self, stage: Stage) -> list[CarriedOut]:
        name = self._script.agent.name
        return [done for done in self._turn.transcript.carried_out if done.agent == name and stage_of(done) == stage]

    def _results(self, stage: Stage = "words") -> dict[Key, str]:
        return {key: text for done in self._done(stage) for key, text in results(done)}

    def _missing(self) -> Sequence[Directive]:
        """Return the author's directives that can run now: those without a result whose arguments are known."""
        return _ready(self._script.working, self._results()) if self._script.working else ()

    def _interrupted(self) -> CarriedOut | None:
        """Return the output that a directive interrupted which has run since. The rounds after it belong to it: they
        ran directives whose arguments were not known before."""
        done = self._done("output") if self._script.agent.expands_output else []
        return done[0] if done else None

    def _text(self, template: Template, values: Values) -> str:
        known = {d.key: value for d in template.directives if (value := self._known(d, values)) is not None}
        return template.fill({**known, **values})

    def _spoken(self, template: Template, values: Values) -> Text:
        offers = [d.agent for d in unique(template.directives) if d.name == "Defer"]
        return spoken(self._text(template, values), offers)

    def _given(self, directive: Directive, values: Values) -> list[str]:
        """Return the arguments as texts. Those that are directives have their results, or are filled in."""
        return [
            one if isinstance(one, str) else values[one.key] if one.key in values else self._known(one, values) or ""
            for one in directive.arguments
        ]

    def _known(self, directive: Directive, values: Values) -> str | None:
        """Return the value of a directive that needs no call: an input, a fact, the name of an offered tool."""
        turn, arguments = self._turn, self._given(directive, values)
        match directive.name:
            case "Input":
                return self._input(*arguments)
            case "Inputs":
                return self._definitions(arguments[0]) if arguments else _yaml(_lines(turn.inputs))
            case "Fact":
                return recalled_text(turn.top, *arguments, agent=self._script.agent.name)
            case "Defer":
                return tool_name(directive.agent)
            case _:
                return None

    def _input(self, field: str = "", default: str = "") -> str:
        turn = self._turn
        if not field:
            return turn.transcript.turn_input.text
        value = turn.inputs.get(field)
        return default if value is None or value == "" else _as_text(value)

    def _definitions(self, agent: str) -> str:
        if not self._script.agents.knows_agent(agent):
            return f"[error: no agent is named {agent!r}]"
        fields = cast("dict[str, dict[str, Any]]", self._script.agents.agent(agent).inputs)
        return _yaml(f"{name}: {_definition(field)}" for name, field in fields.items())

    # --- replies ------------------------------------------------------------------------------------------------------

    def _begin(self, missing: Sequence[Directive]) -> Iterable[Delta]:
        """Yield the calls of the author's directives; in a template, first the text before them."""
        said = ""
        if self._script.agent.template:
            template = self._script.templates[self._script.agent.template]
            first = next(d for d in template.directives if any(one.works for one in d.walk()))
            said = self._text(scan(template.text[: first.start]), {})
        shown = bool(said) and not self._done("words")  # a later round shows no more of it before the end
        return interrupt(said, "", self._calls(missing, "words", self._results()), shown=shown)

    def _calls(self, directives: Sequence[Directive], stage: Stage, values: Values) -> list[ToolCall]:
        index = self._turn.transcript.index
        return [
            ToolCall(f"d{index}.{n}", *self._call_of(directive, values), opaque=mark(stage, directive.key))
            for n, directive in enumerate(directives)
        ]

    def _call_of(self, directive: Directive, values: Values) -> tuple[str, dict[str, Any]]:
        first, *others = self._given(directive, values)
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
        """Return a recruited agent's arguments: the text in the directive, else this agent's own inputs."""
        known = self._script.agents.knows_agent(agent)
        fields = self._script.agents.agent(agent).inputs if known else {}
        if text is not None:
            return {next(iter(fields)) if len(fields) == 1 else "input": text}
        given = self._turn.inputs
        passed = {name: value for name, value in given.items() if name in fields} if fields else given
        return passed or {"input": self._turn.transcript.turn_input.text}

    def _function_says(self, function: Tool) -> Iterable[Delta]:
        done = self._done("function")
        if not done:
            index = self._turn.transcript.index
            arguments = _arguments_of(function, self._turn)
            return interrupt("", "", [ToolCall(f"d{index}.0", function.name, arguments, opaque=mark("function", ()))])
        result = done[-1].results[0]
        if result.is_error:
            raise RondelError(result.text.removeprefix(f"{function.name!r} failed: "))
        return self._say_or_interrupt(result.text, [part for part in result.parts if isinstance(part, Media)])

    def _say_or_interrupt(self, text: str, media: Sequence[Part] = ()) -> Iterable[Delta]:
        parsed = self._script.parse_output(text)
        if working := _ready(unique(d for d in parsed.all if d.works), {}):
            first = next(d for d in parsed.directives if any(one.works for one in d.walk()))
            said = self._text(self._script.parse_output(text[: first.start]), {})
            return interrupt(said, text, self._calls(working, "output", {}), shown=True)
        return say(self._spoken(parsed, {}), media=media)

    async def _model_says(self, prompt: Prompt) -> AsyncGenerator[Delta]:
        """Yield the model's reply up to a directive that it may use, and the directives' calls when the reply ends."""
        output = OutputStream(self._script) if self._script.agent.expands_output else None
        async with aclosing(cast(AsyncGenerator[Delta], self._model.stream(prompt))) as deltas:
            async for delta in deltas:
                if output is None:
                    yield delta
                    continue
                for shown in output.put(delta):
                    yield shown
        if output is not None:
            for delta in self._close(output):
                yield delta

    def _close(self, output: OutputStream) -> Iterable[Delta]:
        """Yield the rest of a reply that was held back, or the calls that it waits for."""
        if output.end is None:
            return
        texts = sorted(output.texts)
        if output.stopped_at is None or output.has_calls:
            yield from output.release()
            yield output.end
            return
        whole = self._script.parse_output("".join(output.texts[index] for index in texts))
        working = _ready(unique(d for d in whole.all if d.works), {})
        kept = Text("", opaque={MARK: {"said": output.said, "text": whole.text}})
        if not working:
            kept = self._spoken(whole, {})
            yield PartDelta(output.stopped_at, kept.text.removeprefix(output.said))
        for index in texts:
            yield PartFinished(index, kept if index == texts[0] else Text(""))
        for n, call in enumerate(self._calls(working, "output", {}), output.parts):
            yield PartStarted(n, call)
            yield PartFinished(n, call)
        yield msgspec.structs.replace(output.end, stop="calls") if working else output.end


def _ready(working: Sequence[Directive], values: Values) -> list[Directive]:
    """Return the directives without a result whose arguments all have one. Empty only if none is missing."""
    return [
        directive
        for directive in working
        if directive.key not in values
        and all(one.key in values for given in directive.inner for one in given.walk() if one.works)
    ]


def _arguments_of(function: Tool, turn: Turn) -> dict[str, Any]:
    """Return a function's arguments: the inputs that it takes, or the whole message if it takes only one."""
    known = cast("dict[str, Any]", function.schema.get("properties", {}))
    needed = cast("list[str]", function.schema.get("required", []))
    given = {name: value for name, value in turn.inputs.items() if name in known}
    if given or not known:
        return given
    only = needed if len(needed) == 1 else list(known) if len(known) == 1 else []
    return {only[0]: turn.transcript.turn_input.text} if only else {}


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _lines(values: Mapping[str, Any]) -> Iterable[str]:
    return (f"{name}: {msgspec.json.encode(value).decode()}" for name, value in values.items())


def _definition(field: Mapping[str, Any]) -> str:
    about = f"{field['description']} " if field.get("description") else ""
    need = "required" if is_required(field) else "optional"
    return f"{about}({typed(field).get('type', 'any')}, {need})"


def _yaml(lines: Iterable[str]) -> str:
    return code_block("\n".join(lines), "yaml")
