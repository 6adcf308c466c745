"""Extracts an agent's inputs from the message it gets, if that is text and the agent uses its inputs.

A model is asked once a turn, and the result is stored for a resumed turn. Inputs stay known until a later message
changes them. Required, because an agent must not run without its required inputs.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ..agent import Agent
from ..errors import InputError, ToolError
from ..events import InputsRead
from ..machine.turn import Turn
from ..plugin import Plugin
from ..prompt import Node
from ..templates.extract import Extraction, extract
from ..text.inputs import check, from_text, is_required
from ..text.template import scan
from ..values import Message

TASK = "Read the inputs of a program out of what a person wrote to it."
_USES = (("Input", 1), ("Input", 2), ("Inputs", 0), ("Get", 1))
"""Directives that use inputs, by name and number of arguments. `.Input` without arguments is the text itself."""


class Inputs(Plugin):
    """Extracts an agent's inputs from a text, if the agent uses them."""

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
                await turn.warn(self.name, "the inputs are left out: a model would have to extract them from the text")
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
    # A function with one optional input does not get a text that was only passed on: `time.now` takes a zone, not the
    # message to the agent that calls it.
    fields = turn.agent.inputs
    handed_on = "input" in turn.inputs and "input" not in fields
    return handed_on and turn.agent.function is not None and not any(map(is_required, fields.values()))


def uses_inputs(agent: Agent) -> bool:
    """Return whether an agent's texts use its inputs or pass them on."""
    return agent.function is not None or any(map(_speaks_of_inputs, (agent.template, *_texts(agent.nodes))))


@functools.lru_cache(maxsize=1_000)
def _speaks_of_inputs(text: str) -> bool:
    found = scan(text).all if "{{" in text else ()
    return any((directive.name, len(directive.arguments)) in _USES for directive in found)


def _texts(nodes: tuple[Any, ...]) -> list[str]:
    inner = [node for node in nodes if isinstance(node, Node)]
    return [text for node in inner for text in (node.text, *_texts(node.children))]


def said(turn: Turn) -> str:
    """Return the turn's input text; in a resumed turn, only the transcript has it."""
    messages: Sequence[Message] = turn.messages or turn.transcript.messages
    people = (m.text for m in reversed(messages) if m.role == "user" and not m.author.startswith("plugin:"))
    return next(people, "")


async def _asked(turn: Turn, text: str) -> Extraction:
    found = await extract(turn.engine_named("", kind="inputs"), turn.agent.inputs, text, task=TASK)
    turn.budget.tokens += found.usage.tokens_in + found.usage.tokens_out
    return found


def _checked(agent: Agent, values: dict[str, Any]) -> dict[str, Any]:
    try:
        return check(agent.name, agent.inputs, values)
    except ToolError as error:
        raise InputError(agent.name, str(error)) from None
