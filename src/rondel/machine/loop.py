"""The loop. It answers what is unanswered until nothing is, and it holds no policy: limits, approval and trimming are
plugins, retries wrap the engine. Resume is this loop again on the same transcript.
"""

from __future__ import annotations

from ..engine import close
from ..events import Outcome, RoundStarted
from ..prompt import Prompt
from ..values import Message, Notice, Reply, ReplyBuilder, deltas_of
from .calls import answer_calls
from .ending import Lifetime
from .replies import append_reply
from .turn import Turn


async def run_turn(turn: Turn) -> Outcome:
    """Answer what is unanswered until nothing is."""
    async with Lifetime(turn):
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


async def ask_engine(turn: Turn) -> None:
    """Prompt down the plugins, stream, reply up the plugins, append."""
    started = turn.round_began = turn.now()
    prompt = await turn.plugins.prompt(turn, turn.prompt())
    turn.reply_id = turn.new_id("msg")
    turn.emit(RoundStarted(turn.transcript.turn_rounds + 1, turn.agent.name, turn.engine.name, turn.reply_id))
    if prompt.is_blank:
        await append_reply(turn, Reply(Message("assistant")), ran=False)
        return
    reply, first_token_at = await stream_reply(turn, prompt)
    reply = await turn.plugins.reply(turn, reply)
    if turn.plugins.holds_stream and reply.next != "again":
        for delta in deltas_of(reply):
            turn.emit(delta)
    first_token_s = None if first_token_at is None else first_token_at - started
    await append_reply(turn, reply, seconds=turn.now() - started, first_token_s=first_token_s)


async def stream_reply(turn: Turn, prompt: Prompt) -> tuple[Reply, float | None]:
    """Return the engine's reply, and when its first token came. It is shown as it streams unless a plugin must see the
    whole reply first."""
    builder = turn.builder = ReplyBuilder()
    add, emit, held, first_token_at = builder.add, turn.emit, turn.plugins.holds_stream, None
    deltas = turn.engine.stream(prompt)
    try:
        async for delta in deltas:
            if first_token_at is None and type(delta) is not Notice:
                first_token_at = turn.now()
            add(delta)
            if not held:
                emit(delta)
                if turn.watching:
                    await turn.plugins.finish_watching(turn)
    finally:
        await close(deltas)
    return builder.reply(), first_token_at
