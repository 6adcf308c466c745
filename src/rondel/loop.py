"""The loop. It answers what is unanswered until nothing is, and it holds no policy: limits, approval and trimming are
plugins, retries wrap the engine. Resume is this loop again on the same transcript.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, NamedTuple, cast

from .errors import AgentFailed
from .events import CallHeld, CallStarted, MessageAdded, Outcome, RoundStarted
from .prompt import Prompt
from .question import Hold
from .tool import CallContext, Tool, error_of, explain, result_of
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
    started = turn.round_began = turn.now()
    prompt = await turn.plugins.prompt(turn, turn.prompt())
    turn.emit(RoundStarted(turn.transcript.turn_rounds + 1, turn.agent.name, turn.engine.name))
    if prompt.is_blank:
        await turn.keep(Reply(Message("assistant")), ran=False, seconds=0.0, first_token_s=None)
        return
    reply, first_token_at = await stream_reply(turn, prompt)
    reply = await turn.plugins.reply(turn, reply)
    if turn.plugins.holds_stream and reply.next != "again":
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


class Ready(NamedTuple):
    """A call that nothing stands in the way of."""

    call: ToolCall
    tool: Tool
    arguments: dict[str, Any]


async def answer_calls(turn: Turn, calls: list[ToolCall]) -> None:
    """Judge, then run: neighbours that may run beside each other together. What has finished stays finished."""
    deadline = asyncio.get_running_loop().time() + turn.limits.batch_s
    for batch in turn.batches(calls):
        ready = [admitted for call in batch if (admitted := await admit(turn, call))]
        await mark_started(turn, ready)
        if len(ready) == 1:
            await perform(turn, ready[0], deadline)
        elif ready:
            await perform_together(turn, ready, deadline)


async def admit(turn: Turn, call: ToolCall) -> Ready | None:
    """What the plugins and the tool say to a call before it runs. None when that answers it, or holds it."""
    verdict = await turn.plugins.call(turn, call)
    if isinstance(verdict, ToolCall):
        call, verdict = verdict, turn.check(verdict)
        if isinstance(verdict, dict):
            return Ready(call, turn.tools[call.name], verdict)
    await settle(turn, call, verdict)
    return None


async def mark_started(turn: Turn, ready: list[Ready]) -> None:
    """On disk before anything happens that must not happen twice; of what may, whoever watches is told."""
    must_know: list[CallStarted] = []
    for call, tool, _ in ready:
        started = CallStarted(call.id, call.name, call.arguments)
        if tool.idempotent:
            turn.emit(started)
        else:
            must_know.append(started)
    if must_know:
        await turn.append(*must_know)


async def perform_together(turn: Turn, ready: list[Ready], deadline: float) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            for one in ready:
                group.create_task(perform(turn, one, deadline))
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def perform(turn: Turn, ready: Ready, deadline: float) -> None:
    """Run a tool. What a smarter model could have avoided becomes an error result that it reads."""
    (call, tool, arguments), began = ready, turn.now()
    limit = turn.limit_of(tool, deadline)
    try:
        with limit:
            value = await tool.run(arguments, CallContext(call, turn, turn.answer_to(call.id)))
    except AgentFailed:
        raise
    except Exception as error:
        value = error_of(call, f"{call.name!r} gave no result in time" if limit.expired else explain(call, error))
    if not isinstance(value, Hold):
        value = result_of(call, value, chars_max=turn.limits.result_chars)
    await settle(turn, call, value, turn.now() - began)


async def settle(turn: Turn, call: ToolCall, answer: ToolResult | Hold, seconds: float = 0.0) -> None:
    """Keep what a call came to: a question, or a result, which may be the last word of the turn."""
    if isinstance(answer, Hold):
        await turn.append(CallHeld(answer.question), wait=False)
        return
    result = await turn.plugins.result(turn, call, answer)
    said = (MessageAdded(turn.own_message(result.text)),) if result.final else ()
    await turn.append(turn.finished(result, seconds), *said, wait=False)
