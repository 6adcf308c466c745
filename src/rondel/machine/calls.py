"""Answers the calls of a round: plugins and schemas judge each call, then those that may run do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from ..contracts.deadline import Deadline
from ..errors import AgentFailed, ToolError, nearest
from ..events import CallFinished, CallHeld, CallStarted
from ..question import Hold
from ..text.template import is_directive
from ..tool import CallContext, Tool, error_of, explain, result_of
from ..values import Handoff, ToolCall, ToolResult, Value
from .replies import ARGUMENTS_LEVELS_MAX, TOO_DEEP, own_message
from .turn import Turn


class Ready(Value, frozen=True):
    """A call that may run."""

    call: ToolCall
    tool: Tool
    arguments: dict[str, Any]


async def answer_calls(turn: Turn, calls: list[ToolCall]) -> None:
    """Judge, then run. Neighbours that may run in parallel do; a call that has finished stays finished."""
    deadline = asyncio.get_running_loop().time() + turn.limits.batch_s
    for batch in _batches(turn, calls):
        ready = [admitted for call in batch if (admitted := await _admit(turn, call))]
        await _mark_started(turn, ready)
        if len(ready) == 1:
            await _perform(turn, ready[0], deadline)
        elif ready:
            await _perform_together(turn, ready, deadline)


def _batches(turn: Turn, calls: list[ToolCall]) -> Iterator[list[ToolCall]]:
    """Group neighbours that may run in parallel, in order."""
    batch: list[ToolCall] = []
    for call in calls:
        tool = turn.tools.get(call.name)
        if call.parallel and (tool is None or tool.parallel):
            batch.append(call)
            continue
        if batch:
            yield batch
        yield [call]
        batch = []
    if batch:
        yield batch


async def _admit(turn: Turn, call: ToolCall) -> Ready | None:
    """Ask the plugins and the tool whether a call may run. None if one of them has answered or held it."""
    verdict = await turn.plugins.call(turn, call)
    if isinstance(verdict, ToolCall):
        call, verdict = verdict, _check(turn, verdict)
        if isinstance(verdict, dict):
            return Ready(call, turn.tools[call.name], verdict)
    await _settle(turn, call, verdict)
    return None


def _check(turn: Turn, call: ToolCall) -> dict[str, Any] | ToolResult:
    """Return the arguments for a call's tool, or the error result that says why it cannot run."""
    tool, name, unoffered = turn.tools.get(call.name), call.name, turn.resolved.unoffered
    if tool is None or (name in unoffered and name not in turn.suggested and not is_directive(call)):
        known = [known for known in turn.tools if known not in unoffered or known in turn.suggested]
        return error_of(call, f"no tool is named {name!r}{nearest(name, known)}")
    if call.broken == TOO_DEEP:
        return error_of(
            call,
            f"the arguments of {name!r} are nested more than {ARGUMENTS_LEVELS_MAX} levels deep; make them flatter",
        )
    if call.broken:
        return error_of(call, f"the arguments of {name!r} are not a JSON object: {call.broken[:200]!r}")
    opened = turn.transcript.calls.get(call.id)
    if opened is not None and opened.started and not tool.idempotent:  # started and not finished: a crash came between
        return error_of(call, f"interrupted: the program ended while {name!r} ran; it may have had its effect")
    if is_directive(call) and "agent" in tool.tags:
        return call.arguments  # an agent that a directive calls accepts incomplete arguments
    try:
        return tool.validate(call.arguments)
    except ToolError as error:
        return error_of(call, str(error))


async def _mark_started(turn: Turn, ready: list[Ready]) -> None:
    """Record that these calls start. Those that must not run twice are stored before they run; the others are only
    shown to watchers."""
    must_know: list[CallStarted] = []
    for one in ready:
        started = CallStarted(one.call.id, one.call.name, one.call.arguments)
        if one.tool.idempotent:
            turn.emit(started)
        else:
            must_know.append(started)
    if must_know:
        await turn.append(*must_know)


async def _perform_together(turn: Turn, ready: list[Ready], deadline: float) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            for one in ready:
                group.create_task(_perform(turn, one, deadline))
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def _perform(turn: Turn, ready: Ready, deadline: float) -> None:
    """Run a tool. A mistake that a smarter model could have avoided becomes an error result, which it reads."""
    call, began = ready.call, turn.now()
    limit = _time_limit(turn, ready.tool, deadline)
    try:
        with limit:
            value = await ready.tool.run(ready.arguments, CallContext(call, turn, turn.answer_to(call.id)))
        if isinstance(value, Handoff) and not turn.services.registry.knows_agent(value.agent):
            raise ToolError(f"no agent is named {value.agent!r}, so none takes over")
        value = value if isinstance(value, Hold) else result_of(call, value, chars_max=turn.limits.result_chars)
    except AgentFailed:
        raise
    except Exception as error:
        told = f"{call.name!r} gave no result in time" if limit.expired else explain(call, error)
        value = error_of(call, told, chars_max=turn.limits.result_chars)
    await _settle(turn, call, value, turn.now() - began)


def _time_limit(turn: Turn, tool: Tool, batch: float) -> Deadline:
    if tool.timeout_s == 0:
        return turn.services.deadlines.until(None)
    timeout_s = turn.limits.call_s if tool.timeout_s is None else tool.timeout_s
    return turn.services.deadlines.until(min(batch, asyncio.get_running_loop().time() + timeout_s))


async def _settle(turn: Turn, call: ToolCall, answer: ToolResult | Hold, seconds: float = 0.0) -> None:
    if isinstance(answer, Hold):
        await turn.append(CallHeld(answer.question), wait=False)
        return
    result = await turn.plugins.result(turn, call, answer)
    said = (own_message(turn, result.text),) if result.final else ()
    await turn.append(call_finished(turn, result, seconds), *said, wait=False)


def call_finished(turn: Turn, result: ToolResult, seconds: float = 0.0) -> CallFinished:
    """Return the event for the end of a call, with what the agent that worked for it has used and suggests."""
    below = turn.below.pop(result.call_id, None)
    return CallFinished(result, seconds) if below is None else CallFinished(result, seconds, *below)
