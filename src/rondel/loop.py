"""The loop. It answers what is unanswered until nothing is, and it holds no policy: limits, approval and trimming are
plugins, retries wrap the engine. Resume is this loop again on the same transcript.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import cast

from .errors import AgentFailed, LimitReached, ToolError, nearest
from .events import CallFinished, CallHeld, CallStarted, MessageAdded, Outcome, RoundStarted
from .prompt import Prompt
from .question import Hold
from .tool import CallContext, error_of, result_of
from .turn import Turn
from .values import Delta, Message, Notice, Reply, ReplyBuilder, ToolCall, ToolResult, deltas_of


async def run_turn(turn: Turn) -> Outcome:
    """Answer what is unanswered until nothing is."""
    async with turn.open():
        while turn.outcome is None:
            if calls := turn.unanswered_calls():
                await answer_calls(turn, calls)
            elif turn.held:
                turn.outcome = Outcome.WAITING
            elif await turn.take_inbox() or turn.awaits_reply():
                await ask_engine(turn)
            else:
                turn.outcome = Outcome.DONE
    return turn.outcome or Outcome.FAILED


# --- one round --------------------------------------------------------------------------------------------------------


async def ask_engine(turn: Turn) -> None:
    """Prompt down the plugins, stream, reply up the plugins, append."""
    started = turn.now()
    prompt = await turn.plugins.prompt(turn, turn.prompt())
    turn.emit(RoundStarted(turn.transcript.turn_rounds + 1, turn.agent.name, turn.engine.name))
    if prompt.is_blank:
        await turn.keep(Reply(Message("assistant")), ran=False, seconds=0.0, first_token_s=None)
        return
    reply, first_token_at = await stream_reply(turn, prompt)
    reply = await turn.plugins.reply(turn, reply)
    if turn.plugins.holds_stream:
        for delta in deltas_of(reply):
            turn.emit(delta)
    first_token_s = None if first_token_at is None else first_token_at - started
    await turn.keep(reply, ran=True, seconds=turn.now() - started, first_token_s=first_token_s)


async def stream_reply(turn: Turn, prompt: Prompt) -> tuple[Reply, float | None]:
    """What the engine says, shown as it comes unless a plugin must see it first."""
    builder = turn.builder = ReplyBuilder()
    add, emit, held, first_token_at = builder.add, turn.emit, turn.plugins.holds_stream, None
    async with aclosing(cast(AsyncGenerator[Delta], turn.engine.stream(prompt))) as deltas:
        async for delta in deltas:
            if first_token_at is None and type(delta) is not Notice:
                first_token_at = turn.now()
            add(delta)
            if not held:
                emit(delta)
    return builder.reply(), first_token_at


# --- the calls of a round ---------------------------------------------------------------------------------------------


async def answer_calls(turn: Turn, calls: list[ToolCall]) -> None:
    """Each through the plugins; those that may run beside each other together. What has finished stays finished."""
    deadline = asyncio.get_running_loop().time() + turn.limits.batch_s
    for batch in batches(turn, calls):
        if len(batch) == 1:
            await answer_call(turn, batch[0], deadline)
            continue
        try:
            async with asyncio.TaskGroup() as group:
                for call in batch:
                    group.create_task(answer_call(turn, call, deadline))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None


def batches(turn: Turn, calls: list[ToolCall]) -> Iterator[list[ToolCall]]:
    """Calls in order, neighbours that may run in parallel together."""
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


async def answer_call(turn: Turn, call: ToolCall, deadline: float) -> None:
    started = turn.now()
    answer = await turn.plugins.call(turn, call)
    if isinstance(answer, ToolCall):
        answer = await perform(turn, answer, deadline)
    if isinstance(answer, Hold):
        await turn.append(CallHeld(answer.question), wait=False)
        return
    result = await turn.plugins.result(turn, call, answer)
    said = (MessageAdded(turn.own_message(result.text)),) if result.final else ()
    await turn.append(CallFinished(result, turn.now() - started), *said, wait=False)


async def perform(turn: Turn, call: ToolCall, deadline: float) -> ToolResult | Hold:
    """Run a call's tool. What a smarter model could have avoided becomes an error result that it reads."""
    tool, name = turn.tools.get(call.name), call.name
    if tool is None:
        return error_of(call, f"no tool is named {name!r}{nearest(name, list(turn.tools))}")
    if call.broken:
        return error_of(call, f"the arguments of {name!r} are not a JSON object: {call.broken[:200]!r}")
    if turn.is_in_doubt(call.id) and not tool.idempotent:
        return error_of(call, f"interrupted: the program ended while {name!r} ran; it may have had its effect")
    try:
        arguments = tool.validate(call.arguments)
    except ToolError as error:
        return error_of(call, str(error))
    await turn.append(CallStarted(call.id, name, call.arguments), wait=not tool.idempotent)
    timeout = asyncio.timeout_at(turn.deadline_of(tool, deadline))
    try:
        async with timeout:
            value = await tool.run(arguments, CallContext(call, turn, turn.answer_to(call.id)))
    except AgentFailed:
        raise
    except Exception as error:
        value = error_of(call, f"{name!r} gave no result in time" if timeout.expired() else explain(name, error))
    return value if isinstance(value, Hold) else result_of(call, value, chars_max=turn.limits.result_chars)


def explain(name: str, error: Exception) -> str:
    """What a model is told of a tool that raised. An error that was raised for it speaks for itself."""
    if isinstance(error, (ToolError, LimitReached)):
        return str(error)
    return f"{name!r} failed: {type(error).__name__}: {error}"
