"""Everything that happens, named in past participles: what the journal stores and what watchers see.

The durable events are the journal's entries. The deltas of values.py are events, too: watchers see them as they stream,
and only the finished round is stored. Knows no store and no surface.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from .charge import Charge, Scope
from .question import Answer, Question
from .values import Delta, Message, Outcome, Person, StopReason, ToolResult, Usage, Value

STATES = {
    "working": "working",
    Outcome.DONE: "completed",
    Outcome.LIMITED: "completed",
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
    """A turn began, or was resumed after an answer: then the same id starts again."""

    turn: str
    agent: str
    instructions: str = ""
    inputs: dict[str, Any] = {}
    path: tuple[str, ...] = ()
    """The agents above this one, outermost first."""
    scope: Scope = Scope()
    """What its surface knows about who and where; costs are charged to it."""
    person: Person = Person("")
    """Who started it."""


class MessageAdded(Value, frozen=True, tag="message_added"):
    """A message that is not a reply: from a person or a plugin, a digest, or the text of an error."""

    message: Message


class HistoryGiven(Value, frozen=True, tag="history_given"):
    """A conversation so far that comes from elsewhere, such as a gateway caller's: these messages come before all
    others. `owed` says whether they ask for a reply."""

    messages: tuple[Message, ...]
    owed: bool = True
    person: Person = Person("")
    """Whose conversation it is."""


class MessageQueued(Value, frozen=True, tag="message_queued"):
    """A message arrived while a turn was running; it is taken between rounds. A `quiet` one asks for no reply by itself
    and waits for the next round."""

    message: Message
    quiet: bool = False


class InboxTaken(Value, frozen=True, tag="inbox_taken"):
    """Queued messages were added to the transcript."""

    ids: tuple[str, ...]


class RoundFinished(Value, frozen=True, tag="round_finished"):
    """An engine answered.

    `next` is where control goes: `human`, `self`, `agent:<id>`, `message` if a message that follows owes a reply, or
    `again` if this reply was discarded. `ran` is False if the prompt was blank and no model was asked. A round
    `without_model` ran a directive or filled in a text.
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
    without_model: bool = False
    played_ms: int | None = None
    """How much of its audio was heard before it was stopped."""
    notices: tuple[str, ...] = ()
    """Notices for people who waited, such as why another engine was asked."""
    answered_by: str = ""
    """The engine that answered, if it is not `engine`, which was asked."""


class Spent(Value, frozen=True):
    """What agents have used: rounds that asked a model, calls, and tokens in and out."""

    rounds: int = 0
    calls: int = 0
    tokens: int = 0

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.rounds + other.rounds, self.calls + other.calls, self.tokens + other.tokens)


class CallStarted(Value, frozen=True, tag="call_started"):
    """Stored before a side effect that must not happen twice: without a CallFinished after a crash, the call is in
    doubt. For an idempotent tool it is not stored, only shown to watchers."""

    call_id: str
    name: str
    arguments: dict[str, Any] = {}


class CallFinished(Value, frozen=True, tag="call_finished"):
    """`spent` is what agents that worked for this call have used. `offers` are agents that the answer suggests: the
    agent that reads it may call them."""

    result: ToolResult
    seconds: float = 0.0
    spent: Spent = Spent()
    offers: tuple[str, ...] = ()


class CallHeld(Value, frozen=True, tag="call_held"):
    """A call waits for a person's answer."""

    question: Question


class QuestionAnswered(Value, frozen=True, tag="question_answered"):
    """A person, or a deadline, answered a question."""

    answer: Answer


class HandedOff(Value, frozen=True, tag="handed_off"):
    """The reply is now owed by `agent`."""

    agent: str
    by: str = ""
    reason: str = ""


class AgentChanged(Value, frozen=True, tag="agent_changed"):
    """The turns of this conversation start with `agent` from now on."""

    agent: str
    by: str = ""


class EngineChanged(Value, frozen=True, tag="engine_changed"):
    """The turns of this conversation ask `engine` from now on; empty for each agent's own engine."""

    engine: str


class SettingChanged(Value, frozen=True, tag="setting_changed"):
    """The turns of this conversation use another value from now on; None means the agent's own. `key` is
    `options.<name>`, `prompt.<node>` or `plugins.<name>.<parameter>`."""

    key: str
    value: Any = None


class TurnsUndone(Value, frozen=True, tag="turns_undone"):
    """The conversation continues as it was before `turn` began: that turn and all later ones no longer count. The
    journal keeps them, and what their tools did outside stays done."""

    turn: str
    by: str = ""


class Renamed(Value, frozen=True, tag="renamed"):
    """A person gave the conversation a title; empty for its first message again."""

    title: str


class InputsRead(Value, frozen=True, tag="inputs_read"):
    """An agent's inputs were read from a text; `usage` is that of the model that read them, if any."""

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
    """The facts that an agent's turn learned, once per turn. It is stored in the conversation that people see, also if
    the agent worked for another one."""

    turn: str
    agent: str
    facts: tuple[Learned, ...] = ()
    usage: Usage = Usage()
    engine: str = ""
    model: str = ""
    seconds: float = 0.0


JobStatus: TypeAlias = Literal["queued", "running", "done", "failed", "cancelled"]
JobMode: TypeAlias = Literal["background", "inline"]
"""How a job reports its end: with a digest for the next turn, or with a turn of its own."""

DIGEST_LINE_CHARS_MAX = 120


class Digest(Value, frozen=True):
    """The result of a job, as the next turn of its conversation reads it."""

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
    """A background job began. Its transcript is the conversation `<conversation>/<job>`."""

    job: str
    name: str
    agent: str
    at: float
    mode: JobMode = "background"
    steps: tuple[str, ...] = ()
    """The tools and agents that run one after the other."""


class JobFinished(Value, frozen=True, tag="job_finished"):
    """A background job ended."""

    job: str
    status: JobStatus
    digest: Digest


class Trimmed(Value, frozen=True, tag="trimmed"):
    """The oldest messages were left out of a prompt; the transcript keeps them."""

    messages: int
    tokens: int
    window_tokens: int


class PluginFailed(Value, frozen=True, tag="plugin_failed"):
    """A plugin raised in a hook, and was skipped."""

    plugin: str
    hook: str
    message: str


class Warned(Value, frozen=True, tag="warned"):
    """Something does not work as its author intended; the turn continues without it."""

    plugin: str
    message: str


class LimitHit(Value, frozen=True, tag="limit_hit"):
    """A limit ended the turn."""

    name: str
    message: str


class TurnFinished(Value, frozen=True, tag="turn_finished"):
    """A turn ended, or waits for a person."""

    turn: str
    outcome: Outcome
    reason: str = ""
    failure: Failure | None = None
    usage: Usage = Usage()
    seconds: float = 0.0

    @property
    def state(self) -> str:
        """The outcome's name in the A2A protocol."""
        return STATES[self.outcome]


DurableEvent: TypeAlias = (
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
    | AgentChanged
    | EngineChanged
    | SettingChanged
    | TurnsUndone
    | Renamed
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
"""The events that the journal stores."""


class Entry(Value, frozen=True):
    """A stored event: `seq` counts from 1 in its conversation, `at` is seconds since the epoch."""

    seq: int
    at: float
    event: DurableEvent


# --- live: watchers only ----------------------------------------------------------------------------------------------


class RoundStarted(Value, frozen=True, tag="round_started"):
    """An engine is about to be asked. `message` is the id that the reply will have."""

    round: int
    agent: str
    engine: str
    message: str = ""


class JobChanged(Value, frozen=True, tag="job_changed"):
    """A job of this conversation began, made progress or ended."""

    job: str
    status: JobStatus
    progress: float | None = None
    text: str = ""


class CallProgressed(Value, frozen=True, tag="call_progressed"):
    """A tool reports its progress."""

    call_id: str
    text: str
    progress: float | None = None
    """From 0 to 1, if the tool knows."""


class UsageRecorded(Value, frozen=True, tag="usage_recorded"):
    """A call was charged to the ledger."""

    charge: Charge


class SpendingWarned(Value, frozen=True, tag="spending_warned"):
    """A limit of the ledger that only warns was reached."""

    message: str
    window: str
    window_key: str
    dimension: str = ""
    value: str = ""


class Lagged(Value, frozen=True, tag="lagged"):
    """This watcher fell behind: live deltas were dropped, and it continues from the journal."""

    after: int


class Nested(Value, frozen=True, tag="nested"):
    """An event of an agent that works for a call of this turn."""

    call_id: str
    agent: str
    event: Event


Event: TypeAlias = (
    DurableEvent | Delta | RoundStarted | JobChanged | CallProgressed | UsageRecorded | SpendingWarned | Lagged | Nested
)
