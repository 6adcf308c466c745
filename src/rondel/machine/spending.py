"""What a turn's engine calls are charged to, and how much the whole tree of agents may still spend."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from ..charge import Scope, Tell
from ..engine import Engine, EngineInfo
from ..events import Event, SpendingWarned, Spent, UsageRecorded
from ..limits import Limits, ReplyBound
from ..values import Message

if TYPE_CHECKING:
    from ..contracts.embedder import Embedder
    from ..contracts.images import GeneratedImages, ImageRequest
    from .turn import Turn


class Budget(msgspec.Struct, eq=False):
    """What a tree of agents has used. The turn that a person sees and all turns that work for it share one."""

    limits: Limits
    began_at: float
    rounds: int = 0
    calls: int = 0
    tokens: int = 0

    def add(self, spent: Spent) -> None:
        self.rounds += spent.rounds
        self.calls += spent.calls
        self.tokens += spent.tokens


def charged_engine(turn: Turn, engine: EngineInfo | str, kind: str = "") -> Engine:
    return turn.services.charge(
        engine, partial(scope_of, turn, kind), partial(_record, turn), partial(_reply_bound, turn)
    )


def charged_embedder(turn: Turn, embedder: Embedder, tells: Callable[[], bool] = lambda: True) -> Embedder:
    """Return the embedder, charged to the turn. Events stop when `tells` returns false, because the turn has ended."""
    tell: Tell = lambda event: _record(turn, event) if tells() else None  # noqa: E731
    return turn.services.charge_embedder(embedder, partial(scope_of, turn, "embedding"), tell)


async def make_images(turn: Turn, request: ImageRequest) -> GeneratedImages:
    """Return pictures that a call of this turn requests, charged to it."""
    scope = lambda: scope_of(turn, "image")  # noqa: E731
    return await turn.services.images.make(request, scope, lambda event: _record(turn, event))


def _reply_bound(turn: Turn) -> ReplyBound:
    """Return how long the next reply may become, at most what the whole tree of agents has left."""
    bound, most = turn.limits.reply_bound, turn.budget.limits.tree_tokens
    left = most - turn.budget.tokens
    return bound if left >= bound.tokens else ReplyBound("limits.tree_tokens", max(left, 0), bound.bytes)


def _record(turn: Turn, event: Event) -> None:
    """Emit an event of the ledger; a warning once in a turn. The tree has spent what the ledger charges, also if an
    upstream reported no usage or a reply was cut off."""
    if isinstance(event, SpendingWarned):
        if not turn.is_first_warning("ledger", event.message):
            return
    elif isinstance(event, UsageRecorded):
        turn.budget.tokens += event.charge.tokens
    turn.emit(event)


def scope_of(turn: Turn, kind: str = "") -> Scope:
    """Return what a call of this turn is charged to. A turn that works for another one spends that one's budget."""
    scope = turn.scopes.get(kind)
    if scope is None:
        scope = turn.scopes[kind] = _scope(turn, kind)
    return scope


def _scope(turn: Turn, kind: str) -> Scope:
    given = turn.given_scope
    kind = kind or given.kind or ("agent" if turn.path or "/" in turn.conversation else "chat")
    if turn.parent is not None:
        given = given.over(scope_of(turn.parent, kind))
        return msgspec.structs.replace(given, kind=kind, agent=turn.agent.name)
    person = turn.person
    author = given.person or _newest_author(turn.transcript.messages, person.id)
    # A caller keeps its conversation itself. A request that names no session has none: a scope of its own for each of
    # these requests would be most of the cost of its charge.
    own = "" if turn.caller is not None else turn.conversation.partition("/")[0]
    return msgspec.structs.replace(
        given,
        kind=kind,
        agent=turn.agent.name,
        conversation=given.conversation or own,
        person=author,
        roles=given.roles or (person.roles if author == person.id else ()),
    )


def _newest_author(messages: list[Message], starter: str) -> str:
    """Return the person who spoke last; plugins and agents may have written user messages, too. A job or a schedule
    speaks for the person who started it."""
    for message in reversed(messages):
        if message.role == "user" and not message.author.startswith(("plugin:", "agent:")):
            return starter if message.author.startswith(("job:", "schedule:")) else message.author
    return ""
