"""An agent that works for another one: a turn of its own, on a transcript of its own, inside the turn that called.

Its questions become questions of the call, its failure becomes the call's, and its usage counts for the whole tree.
Knows no store and no runtime: the app opens journals.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from ..agent import Agent
from ..errors import AgentFailed, LimitReached, ToolError
from ..events import Event, Failure, Nested, Outcome, QuestionAnswered, TurnFinished
from ..question import Answer, Hold
from ..text.template import is_directive
from ..tool import CallContext
from ..values import AgentResult, Text, ToolCall, user
from .loop import run_turn
from .turn import Turn

if TYPE_CHECKING:
    from .services import Services


async def recruit(
    services: Services, parent: Turn, agent: Agent, arguments: dict[str, Any], context: CallContext
) -> AgentResult | Hold | Any:
    """Run the agent and return its answer, or a hold if it has to ask a person."""
    call, path = context.call, (*parent.path, parent.agent.name)
    _check_path(parent, call, (*path, agent.name))
    journal = await services.journals.open(f"{parent.branch}/{call.id}")
    answer = _answer_below(context)
    if answer is not None and any(q.id == answer.question_id for q in journal.transcript.questions):
        await journal.append(QuestionAnswered(answer))
    message = user(_task_text(arguments), id=f"{call.id}-task", author=parent.agent.name)
    child = Turn(
        services,
        journal,
        id=f"{parent.id}/{call.id}",
        agent=agent.name,
        path=path,
        inputs=arguments,
        messages=(message,),
        parent=parent,
        call=call,
    )
    parent.agents_at_work[call.id] = child
    try:
        with journal.listen(_Forward(parent, call.id, agent.name)):
            await _run_below(services, child)
    finally:
        del parent.agents_at_work[call.id]
        parent.below[call.id] = child.transcript.turn_spent, child.transcript.offers
        services.journals.close(journal.conversation)
    if child.outcome is Outcome.WAITING:
        question = child.held[0]
        return Hold(msgspec.structs.replace(question, id=f"{call.id}/{question.id}", call_id=call.id))
    if child.failure is not None:
        failure = AgentFailed(child.failure.agent or agent.name, child.failure.message)
        raise ToolError(child.failure.message) if is_directive(call) else failure
    if child.outcome is not Outcome.DONE:
        raise ToolError(f"agent {agent.name!r} stopped: {child.reason}")
    text, sources = child.cited()
    return Text(text, citations=sources) if sources else child.result().output


async def _run_below(services: Services, child: Turn) -> None:
    """Run a turn that works for another one, within its time limit."""
    limit_s = child.limits.agent_s
    deadline = services.deadlines.until(asyncio.get_running_loop().time() + limit_s if limit_s else None)
    try:
        with deadline:
            await run_turn(child)
    except TimeoutError:
        name = child.agent.name
        said = f"agent {name!r} gave no answer within {limit_s:g} s (limits.agent_s); ask it for less"
        failure = Failure("AgentTimeout", said, agent=name)
        await child.append(TurnFinished(child.id, Outcome.FAILED, failure=failure, seconds=limit_s))
        raise ToolError(said) from None


def _check_path(parent: Turn, call: ToolCall, path: tuple[str, ...]) -> None:
    """Raise if agents are nested too deeply or recruit each other in a cycle."""
    above = f": {' -> '.join(path)}\n{parent.calls_above}".rstrip()
    if is_directive(call) and path[-1] in path[:-1]:
        raise ToolError(f"agents recruit each other in a cycle{above}")
    limit = parent.limits.agent_levels
    if len(path) > limit:
        said = f"agents are nested {len(path) - 1} levels deep (limits.agent_levels is {limit}){above}"
        raise LimitReached("limits.agent_levels", said)


def _answer_below(context: CallContext) -> Answer | None:
    answer, prefix = context.answer, f"{context.call.id}/"
    if answer is None or not answer.question_id.startswith(prefix):
        return None
    return msgspec.structs.replace(answer, question_id=answer.question_id.removeprefix(prefix))


class _Forward:
    """Emits an agent's events in the turn that it works for."""

    def __init__(self, turn: Turn, call_id: str, agent: str) -> None:
        self._turn, self._call_id, self._agent = turn, call_id, agent

    def put(self, event: Event, seq: int) -> None:
        self._turn.emit(Nested(self._call_id, self._agent, event))


def _task_text(arguments: dict[str, Any]) -> str:
    if list(arguments) == ["input"] and isinstance(arguments["input"], str):
        return arguments["input"]
    return msgspec.json.encode(arguments).decode()
