"""How a turn begins and ends: the entries around its rounds, and the outcome for every way in which it can end."""

from __future__ import annotations

import asyncio
import inspect
import logging
from types import TracebackType
from typing import cast

import msgspec

from ..engine import Engine, EngineInfo
from ..errors import AgentFailed, EngineError, LimitReached, RondelError, StoreError
from ..events import DurableEvent, Failure, LimitHit, MessageAdded, Outcome, QuestionAnswered, TurnFinished, TurnStarted
from ..question import Answer
from ..tool import error_of
from ..values import Foreign, Played, ToolCall
from .calls import call_finished
from .replies import append_reply, error_message, own_message
from .turn import Turn

log = logging.getLogger("rondel.turn")


class Lifetime:
    """`async with Lifetime(turn):` begins the turn, and ends it with an outcome, whatever is raised in the block.

    Only a cancellation that is not a stop is passed on: the app is closing, or the turn above was stopped. Then nothing
    is appended, and the transcript says how to resume.
    """

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    async def __aenter__(self) -> None:
        self._turn.task = asyncio.current_task()
        try:
            await _begin(self._turn)
            if self._turn.stopping:  # before it began; its message is kept
                raise asyncio.CancelledError
        except BaseException as error:
            if not await self.__aexit__(type(error), error, None):
                raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        turn = self._turn
        if turn.ending:
            return True  # it failed while it began
        turn.ending = True
        if isinstance(error, asyncio.CancelledError):
            if not turn.stopping:
                _release_engine(turn)
                return False
            if turn.task is not None:
                turn.task.uncancel()
        try:
            await _end(turn, error)
        except RondelError as broken:  # the disk, or a required plugin's `on_turn_end`
            _fail(turn, broken)
            turn.emit(TurnFinished(turn.id, Outcome.FAILED, failure=turn.failure))
        if turn.watching:
            await turn.plugins.finish_watching(turn)
        _release_engine(turn)
        return True


async def _begin(turn: Turn) -> None:
    transcript, resolved = turn.transcript, turn.resolved
    if turn.words is not None:
        turn.top = (await turn.root()).transcript
    events: list[DurableEvent] = []
    if transcript.turn != turn.id or transcript.outcome is not None:
        agent, instructions = resolved.agent.name, resolved.instructions
        events.append(
            TurnStarted(
                turn.id, agent, instructions, turn.inputs, turn.path, scope=turn.given_scope, person=turn.person
            )
        )
    events += [MessageAdded(message) for message in turn.messages if message.id not in transcript.ids]
    if events:
        await turn.append(*events, wait=False)  # the job that brought them is stored already
    await turn.report_left_out()
    await turn.plugins.start(turn)


def _release_engine(turn: Turn) -> None:
    """Drop the engine that refers back to the turn: the cycle would keep the turn, with all its messages, until the
    garbage collector runs."""
    for _, _, returned in turn.watching:  # after a cancellation there is no waiting
        if inspect.iscoroutine(returned):
            returned.close()
    turn.watching.clear()
    turn.engine = cast(Engine, EngineInfo(turn.engine.name, turn.engine.facts))
    turn.words = turn.charged_engine = None


async def _end(turn: Turn, error: BaseException | None) -> None:
    if isinstance(error, asyncio.CancelledError):
        await _end_stopped(turn)
    elif isinstance(error, LimitReached):
        turn.outcome, turn.reason, turn.error = Outcome.LIMITED, str(error), error
        await _append_partial_reply(turn)
        await _close_calls(turn, f"not run: {error}")
        await turn.append(LimitHit(error.name, str(error)))
    elif isinstance(error, StoreError):
        raise error
    elif error is not None:
        failure = _fail(turn, error)
        await _close_calls(turn, f"not run: {failure.message}")
        await turn.append(error_message(turn, f"The turn failed: {failure.message}"))
    outcome = turn.outcome or Outcome.FAILED
    await turn.plugins.end(turn, outcome)
    if turn.agent.job and outcome is Outcome.DONE:
        await turn.services.background.start_chain(
            turn
        )  # before the end is stored: after a crash in between it starts again
    usage, seconds = turn.transcript.turn_usage, turn.now() - turn.started_at
    await turn.append(TurnFinished(turn.id, outcome, turn.reason, turn.failure, usage, seconds))


def _fail(turn: Turn, error: BaseException) -> Failure:
    failure = Failure(
        name=type(error).__name__,
        message=str(error) or type(error).__name__,
        code=error.code if isinstance(error, EngineError) else "",
        provider=error.provider if isinstance(error, EngineError) else "",
        agent=error.agent if isinstance(error, AgentFailed) else turn.agent.name,
    )
    turn.outcome, turn.error, turn.failure = Outcome.FAILED, error, failure
    if not isinstance(error, RondelError):
        log.error("turn %s of conversation %s failed", turn.id, turn.conversation, exc_info=error)
    return failure


async def _end_stopped(turn: Turn) -> None:
    """Keep what was said so far and leave no call open, so that the next turn can continue from here."""
    turn.outcome = Outcome.STOPPED
    await _append_partial_reply(turn)
    said = turn.transcript.interrupted
    await _close_calls(turn, "not finished: the turn was stopped", stopped=True)
    if said:
        await turn.append(own_message(turn, said))


async def _append_partial_reply(turn: Turn) -> None:
    """Append the received part of a reply that was cut off, without its calls, and without a server tool's call at its
    end: providers refuse a call of their own tools that has no result."""
    if turn.builder is None or turn.plugins.holds_stream:
        return
    reply = turn.builder.reply()
    parts = tuple(part for part in reply.message.parts if not isinstance(part, ToolCall))
    while parts and isinstance(parts[-1], Foreign):
        parts = parts[:-1]
    if parts:
        message, played = msgspec.structs.replace(reply.message, parts=parts), turn.played or Played()
        reply = msgspec.structs.replace(reply, message=played.cut(message), stop="interrupted")
        await append_reply(turn, reply, seconds=turn.now() - turn.round_began, played_ms=played.ms)


async def _close_calls(turn: Turn, why: str, *, stopped: bool = False) -> None:
    events: list[DurableEvent] = []
    for open_call in turn.transcript.calls.values():
        if open_call.question is not None and stopped:
            events.append(QuestionAnswered(Answer(open_call.question.id, open_call.question.default, by="stop")))
        if open_call.result is None:
            events.append(call_finished(turn, error_of(open_call.call, why)))
    if events:
        await turn.append(*events)


async def close_waiting_turn(turn: Turn) -> None:
    turn.stopping = turn.ending = True
    await _end(turn, asyncio.CancelledError())
