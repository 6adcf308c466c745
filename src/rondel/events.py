"""What happened, in past participles: what the journal keeps and what watchers see.

Entries of the journal are the durable events. The deltas of values.py are events too: they reach watchers as they
stream and are not kept (the finished round is). Knows no store and no surface.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal, TypeAlias

from .charge import Charge, Scope
from .question import Answer, Question
from .values import Delta, Message, StopReason, ToolResult, Usage, Value


class Outcome(StrEnum):
    DONE = "done"
    WAITING = "waiting"
    FAILED = "failed"
    STOPPED = "stopped"


STATES = {
    "working": "working",
    Outcome.DONE: "completed",
    Outcome.WAITING: "input-required",
    Outcome.FAILED: "failed",
    Outcome.STOPPED: "canceled",
}
"""The names that the A2A protocol gives to a turn's states."""


class Failure(Value, frozen=True):
    """Why a turn failed. `name` is the error's class; `provider` and `code` say where it came from."""

    name: str
    message: str
    code: str = ""
    provider: str = ""
    agent: str = ""


# --- durable: the entries of the journal ------------------------------------------------------------------------------


class TurnStarted(Value, frozen=True, tag="turn_started"):
    """A turn begins (or goes on after an answer: then the same id starts again)."""

    turn: str
    agent: str
    instructions: str = ""
    inputs: dict[str, Any] = {}
    path: tuple[str, ...] = ()
    """The agents above this one, outermost first."""
    scope: Scope = Scope()
    """What the surface that it came from knows of who and where; what is spent is charged to it."""


class MessageAdded(Value, frozen=True, tag="message_added"):
    """A message that the loop did not make itself: a person's, a plugin's, a digest, or the text of an error."""

    message: Message


class HistoryGiven(Value, frozen=True, tag="history_given"):
    """A foreign program's conversation so far: these messages stand before all others, and a reply is owed."""

    messages: tuple[Message, ...]


class MessageQueued(Value, frozen=True, tag="message_queued"):
    """A message came while a turn was at work; it is taken between rounds. A `quiet` one owes no reply: it waits for a
    round that is asked anyway."""

    message: Message
    quiet: bool = False


class InboxTaken(Value, frozen=True, tag="inbox_taken"):
    ids: tuple[str, ...]


class RoundFinished(Value, frozen=True, tag="round_finished"):
    """An engine answered.

    `next` is where control goes: `human`, `self`, `agent:<id>`, `message` when a message that follows owes a reply, or
    `again` when this reply was thrown away. `ran` is False for a blank prompt that asked nobody. `free` is a round that
    needed no model: a directive was carried out, or a text was filled in.
    """

    message: Message
    stop: StopReason = "end"
    usage: Usage = Usage()
    engine: str = ""
    model: str = ""
    agent: str = ""
    next: str = "human"
    ran: bool = True
    seconds: float = 0.0
    first_token_s: float | None = None
    free: bool = False


class Spent(Value, frozen=True):
    """What agents used: rounds that asked a model, calls, and tokens in and out."""

    rounds: int = 0
    calls: int = 0
    tokens: int = 0

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.rounds + other.rounds, self.calls + other.calls, self.tokens + other.tokens)


class CallStarted(Value, frozen=True, tag="call_started"):
    """Committed before a side effect that must not happen twice: without a CallFinished after a crash, the call is in
    doubt. Of a tool marked idempotent it is not kept, only told to whoever watches."""

    call_id: str
    name: str
    arguments: dict[str, Any] = {}


class CallFinished(Value, frozen=True, tag="call_finished"):
    """`spent` is what the agents used that worked for this call. `offers` are agents that the answer suggests: whoever
    reads it may call them."""

    result: ToolResult
    seconds: float = 0.0
    spent: Spent = Spent()
    offers: tuple[str, ...] = ()


class CallHeld(Value, frozen=True, tag="call_held"):
    question: Question


class QuestionAnswered(Value, frozen=True, tag="question_answered"):
    answer: Answer


class HandedOff(Value, frozen=True, tag="handed_off"):
    """The reply is now owed by `agent`."""

    agent: str
    by: str = ""
    reason: str = ""


class HomeChanged(Value, frozen=True, tag="home_changed"):
    """The turns of this conversation begin with `agent` from now on."""

    agent: str
    by: str = ""


class EngineChanged(Value, frozen=True, tag="engine_changed"):
    """The turns of this conversation ask `engine` from now on, and not their agent's own; empty: its own again."""

    engine: str


class InputsRead(Value, frozen=True, tag="inputs_read"):
    """An agent's inputs were read out of a text; the usage is that of the model which was asked for them, if any."""

    turn: str
    agent: str
    values: dict[str, Any]
    usage: Usage = Usage()
    engine: str = ""
    model: str = ""
    seconds: float = 0.0


class Learned(Value, frozen=True):
    """A fact as it was learned; `name` is `agent.fact`."""

    name: str
    value: Any
    local: bool = False
    tags: tuple[str, ...] = ()


class FactsLearned(Value, frozen=True, tag="facts_learned"):
    """What an agent's turn taught the conversation, once for each turn. It stands in the conversation that people see,
    also when the agent worked for another one."""

    turn: str
    agent: str
    facts: tuple[Learned, ...] = ()
    usage: Usage = Usage()
    engine: str = ""
    model: str = ""
    seconds: float = 0.0


JobStatus: TypeAlias = Literal["queued", "running", "done", "failed", "cancelled"]
JobMode: TypeAlias = Literal["background", "inline"]
"""What the end of a job brings: a digest for the next turn, or a turn of its own."""

DIGEST_LINE_CHARS_MAX = 120


class Digest(Value, frozen=True):
    """What became of a job, as the next turn of its conversation hears it."""

    id: str
    name: str
    success: bool
    summary: str
    detail: str = ""
    at: float = 0.0

    @property
    def line(self) -> str:
        """`name completed: summary`, on one line of at most 120 characters."""
        line = " ".join(f"{self.name} {'completed' if self.success else 'failed'}: {self.summary}".split())
        return line if len(line) <= DIGEST_LINE_CHARS_MAX else line[: DIGEST_LINE_CHARS_MAX - 1] + "…"


class JobStarted(Value, frozen=True, tag="job_started"):
    """Work was handed to the background. It has a transcript of its own: the conversation `<conversation>/<job>`."""

    job: str
    name: str
    agent: str
    at: float
    mode: JobMode = "background"
    steps: tuple[str, ...] = ()
    """The tools and agents that run one after the other."""


class JobFinished(Value, frozen=True, tag="job_finished"):
    job: str
    status: JobStatus
    digest: Digest


class Trimmed(Value, frozen=True, tag="trimmed"):
    """So many of the oldest messages were left out of a prompt; the transcript keeps them."""

    messages: int
    tokens: int
    window_tokens: int


class PluginFailed(Value, frozen=True, tag="plugin_failed"):
    plugin: str
    hook: str
    message: str


class Warned(Value, frozen=True, tag="warned"):
    """Something is not as its author meant it; the turn goes on without it."""

    plugin: str
    message: str


class LimitHit(Value, frozen=True, tag="limit_hit"):
    name: str
    message: str


class TurnFinished(Value, frozen=True, tag="turn_finished"):
    turn: str
    outcome: Outcome
    reason: str = ""
    failure: Failure | None = None
    usage: Usage = Usage()
    seconds: float = 0.0

    @property
    def state(self) -> str:
        return STATES[self.outcome]


Kept: TypeAlias = (
    TurnStarted
    | MessageAdded
    | HistoryGiven
    | MessageQueued
    | InboxTaken
    | RoundFinished
    | CallStarted
    | CallFinished
    | CallHeld
    | QuestionAnswered
    | HandedOff
    | HomeChanged
    | EngineChanged
    | InputsRead
    | FactsLearned
    | JobStarted
    | JobFinished
    | Trimmed
    | PluginFailed
    | Warned
    | LimitHit
    | TurnFinished
)
"""The events that the journal keeps."""


class Entry(Value, frozen=True):
    """A kept event in its place: `seq` counts from 1 in its conversation, `at` is seconds since the epoch."""

    seq: int
    at: float
    event: Kept


# --- live: watchers only ----------------------------------------------------------------------------------------------


class RoundStarted(Value, frozen=True, tag="round_started"):
    round: int
    agent: str
    engine: str


class JobChanged(Value, frozen=True, tag="job_changed"):
    """A job of this conversation began, got on or ended."""

    job: str
    status: JobStatus
    progress: float | None = None
    text: str = ""


class CallProgressed(Value, frozen=True, tag="call_progressed"):
    """A tool says how far it is."""

    call_id: str
    text: str
    progress: float | None = None
    """How much of it is done, from 0 to 1, where the tool knows."""


class UsageRecorded(Value, frozen=True, tag="usage_recorded"):
    """A call was charged to the ledger."""

    charge: Charge


class SpendingWarned(Value, frozen=True, tag="spending_warned"):
    """What may be spent in a window has been spent; the rule only warns."""

    message: str
    window: str
    window_key: str
    dimension: str = ""
    value: str = ""


class Lagged(Value, frozen=True, tag="lagged"):
    """This watcher fell behind: live deltas were left out, and it reads on from the journal."""

    after: int


class Nested(Value, frozen=True, tag="nested"):
    """An event of an agent that works for a call of this turn."""

    call_id: str
    agent: str
    event: Event


Event: TypeAlias = (
    Kept | Delta | RoundStarted | JobChanged | CallProgressed | UsageRecorded | SpendingWarned | Lagged | Nested
)
