"""Reads an agent's inputs out of what it is told, when that is a text and the agent makes use of them.

Arguments of a call are values already and are only checked. A text is asked about once a turn, and what came of it is
kept: a turn that goes on finds it in the transcript. What an earlier message said stays known until a later one says
otherwise. Required, because an agent must not run on inputs that are not there. Knows no app.
"""

from __future__ import annotations

import functools
from typing import Any

from ..agent import Agent
from ..errors import InputError, ToolError
from ..events import InputsRead, Spent
from ..extract import Extraction, extract
from ..inputs import check, from_text, is_required
from ..plugin import Plugin
from ..prompt import Node
from ..template import scan
from ..turn import Turn
from ..values import Message

TASK = "Read the inputs of a program out of what a person wrote to it."
_USES = (("Input", 1), ("Input", 2), ("Inputs", 0), ("Get", 1))
"""Directives by their names and how many arguments they have. `.Input` alone is the text itself."""


class Inputs(Plugin):
    name = "inputs"
    required = True

    def applies(self, turn: Turn) -> bool:
        return bool(turn.agent.inputs) and uses_inputs(turn.agent)

    async def on_turn_start(self, turn: Turn) -> None:
        agent, fields = turn.agent, turn.agent.inputs
        kept = turn.transcript.inputs.get(agent.name)
        if kept is not None and kept.turn == turn.id:
            turn.inputs = kept.values
            return
        given = {name: value for name, value in turn.inputs.items() if name in fields}
        if given and not turn.previewing:
            turn.inputs = _checked(agent, given)
            return
        text = "" if _needs_nothing(turn) else said(turn)
        if (values := from_text(fields, text)) is None:
            if turn.previewing:
                await turn.warn(self.name, "a model would read the inputs out of the text, and nobody is asked here")
                return
            began = turn.now()
            found = await _asked(turn, text)
            known = kept.values if kept else {}
            turn.inputs = _checked(agent, {**known, **found.values})
            seconds = turn.now() - began
            read = InputsRead(turn.id, agent.name, turn.inputs, found.usage, found.engine, found.model, seconds)
        else:
            turn.inputs = values if turn.previewing else _checked(agent, values)
            read = InputsRead(turn.id, agent.name, turn.inputs)
        if not turn.previewing:
            await turn.append(read, wait=False)


def _needs_nothing(turn: Turn) -> bool:
    """A function with one input that need not be given is not given what was only handed on: `time.now` takes a zone,
    not what its recruiter was told."""
    fields = turn.agent.inputs
    handed_on = "input" in turn.inputs and "input" not in fields
    return handed_on and turn.agent.function is not None and not any(map(is_required, fields.values()))


def uses_inputs(agent: Agent) -> bool:
    """Whether an agent does anything with its inputs but being called with them: its words speak of them, or hand them
    on."""
    return agent.function is not None or any(map(_speaks_of_inputs, (agent.template, *_texts(agent.nodes))))


@functools.lru_cache(maxsize=1_000)
def _speaks_of_inputs(text: str) -> bool:
    found = scan(text).directives if "{{" in text else ()
    return any((directive.name, len(directive.arguments)) in _USES for directive in found)


def _texts(nodes: tuple[Any, ...]) -> list[str]:
    found: list[str] = []
    for node in nodes:
        if isinstance(node, Node):
            found += [node.text, *_texts(node.children)]
    return found


def said(turn: Turn) -> str:
    """What this turn was told; a turn that goes on has it in the transcript only."""
    messages: tuple[Message, ...] = turn.messages or tuple(turn.transcript.messages)
    people = (m.text for m in reversed(messages) if m.role == "user" and not m.author.startswith("plugin:"))
    return next(people, "")


async def _asked(turn: Turn, text: str) -> Extraction:
    found = await extract(turn.engine_named("", kind="inputs"), turn.agent.inputs, text, task=TASK)
    turn.budget.spent += Spent(tokens=found.usage.tokens_in + found.usage.tokens_out)
    return found


def _checked(agent: Agent, values: dict[str, Any]) -> dict[str, Any]:
    try:
        return check(agent.name, agent.inputs, values)
    except ToolError as error:
        raise InputError(agent.name, str(error)) from None
