"""Stores an agent's declared facts at the end of a turn, extracted from its answer.

An answer that is a JSON object contains them; for any other answer a model is asked once, for all facts together.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..events import FactsLearned, Outcome
from ..machine.turn import Turn
from ..plugin import Plugin
from ..templates.extract import Extraction, extract
from ..templates.facts import fields_of, learned
from ..text.lenient import parse_object

TASK = "Read facts out of what was asked and answered."


class Facts(Plugin):
    """Stores what an agent has learned at the end of a turn."""

    name = "facts"

    def applies(self, turn: Turn) -> bool:
        return bool(turn.agent.facts)

    async def on_turn_end(self, turn: Turn, outcome: Outcome) -> None:
        if outcome is not Outcome.DONE or not turn.transcript.ran:
            return
        root = await turn.root()
        if turn.id in root.transcript.turns_learned:
            return
        began = turn.now()
        found = await self._found(turn)
        event = FactsLearned(
            turn.id,
            turn.agent.name,
            learned(turn.agent, found.values),
            found.usage,
            found.engine,
            found.model,
            turn.now() - began,
        )
        if root.transcript is turn.transcript:
            await turn.append(event, wait=False)
        else:
            await root.append(event, wait=False)

    async def _found(self, turn: Turn) -> Extraction:
        output = turn.transcript.output
        if (values := parse_object(output)) is not None:
            return Extraction(values)
        if not output.strip():
            return Extraction({})
        text = "\n\n".join((*_inputs(turn), f"Answered: {output}"))
        found = await extract(turn.engine_named("", kind="facts"), fields_of(turn.agent.facts), text, task=TASK)
        turn.budget.tokens += found.usage.tokens_in + found.usage.tokens_out
        return found


def _inputs(turn: Turn) -> Iterator[str]:
    """Yield the agent's input: the message, and a person's answers to the questions in its template."""
    transcript = turn.transcript
    yield f"Asked: {next((m.text for m in reversed(transcript.messages) if m.role == 'user'), '')}"
    for done in transcript.carried_out:
        for call, result in zip(done.message.calls, done.results, strict=True):
            if "question" in call.arguments:
                yield f"The person was asked: {call.arguments['question']}\nThe person said: {result.text}"
