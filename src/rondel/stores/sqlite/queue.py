"""The queue of pending jobs that the workers of one database share, and the signals that they send each other.

Jobs that are due wait for their key in the order of `position`. A claim is granted to the first, in one transaction,
and belongs to its worker until the job is deleted or the worker dies: the worker's file lock is the lease, and the
operating system releases it. Knows no event loop and no thread.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ...contracts.runtime import Claim, Job, Signal
from . import live
from .executor import Executor

logger = logging.getLogger("rondel.store")

SCHEMA = (
    # 0: its time has not come; 1: it waits for its key; 2: it is claimed.
    "alter table jobs add column state integer not null default 1",
    "create index jobs_by_key on jobs (key) where state > 0",
    """
    create table signals (
        position integer primary key,
        worker   text not null,
        body     text not null    -- JSON
    )
    """,
    "create index signals_by_worker on signals (worker)",
)

LATER, WAITING, CLAIMED = 0, 1, 2

SIGNALS_MAX = 100
"""Signals that wait for one worker. More are refused: its process is suspended, or a sender repeats itself."""

JOB_COLUMNS = "id, kind, key, at, payload, slots"
_PUT = f"insert into jobs ({JOB_COLUMNS}, worker, state) values (?, ?, ?, ?, ?, ?, ?, ?) on conflict (id) do nothing"

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Signal).decode
_decode_payload = msgspec.json.Decoder(dict[str, Any]).decode


class Queue:
    """The queue as one worker sees it. `own` returns its id; `is_dead` says whether another worker has died."""

    def __init__(self, own: Callable[[], str], is_dead: Callable[[str], bool]) -> None:
        self._own, self._is_dead = own, is_dead
        self._alone: bool | None = None

    def forget_others(self) -> None:
        """Forget what is known of other workers, which may have written since the last time."""
        self._alone = None

    def put(self, connection: sqlite3.Connection, job: Job, payload: str) -> Claim | None:
        """Put a job unless it is known, and return the state of its claim. If possible, it is claimed in the same
        transaction, because another commit would cost as much again."""
        alone = job.slots == 1 and self._is_alone(connection)
        blocked = not alone and self._is_blocked(connection, job.key, job.slots, job.id)
        state = LATER if job.at else WAITING if blocked else CLAIMED
        row = (job.id, job.kind, job.key, job.at, payload, job.slots, self._own(), state)
        put = connection.execute(_PUT, row)
        if put.rowcount != 1:
            return None
        return "granted" if state == CLAIMED else "waiting"

    def claim(self, connection: sqlite3.Connection, id: str, *, patient: bool) -> tuple[Claim, str, int]:
        """Return the state of a claim, the key of the job, and the last entry of the conversation that it names."""
        row = connection.execute("select position, key, slots, worker from jobs where id = ?", (id,)).fetchone()
        if row is None or row[3] != self._own():
            return "gone", "", 0
        position, key, slots, _ = row
        blocked = self._is_blocked(connection, key, slots, id, before=position if patient else 0)
        # Only a change is written: every write wakes all waiting workers, which would wake each other forever.
        state = WAITING if blocked else CLAIMED
        connection.execute("update jobs set state = ?1 where id = ?2 and state <> ?1", (state, id))
        return ("waiting" if blocked else "granted"), key, last_seq(connection, key)

    def forget(self, connection: Executor, ids: Sequence[str]) -> None:
        """Delete finished jobs, but only those that this worker holds: another one may have taken over the same id."""
        if len(ids) == 1:  # the usual case, at half the cost
            connection.execute("delete from jobs where worker = ? and id = ?", (self._own(), ids[0]))
        else:
            connection.execute(
                "delete from jobs where worker = ? and id in (select value from json_each(?))",
                (self._own(), _encode(ids).decode()),
            )

    def forget_conversation(self, connection: sqlite3.Connection, conversation: str) -> None:
        """Delete the turns and deadlines of a conversation that no living worker runs: none of them may bring it back.
        Background work ends by itself, with its status, when it finds no conversation."""
        rows = connection.execute(
            # The character after `#` ends the range of the keys that start with it.
            "select id, worker, state from jobs where key = ?1 or (key > ?1 || '#' and key < ?1 || '$')",
            (conversation,),
        ).fetchall()
        doomed = [id for id, worker, state in rows if state != CLAIMED or not self._is_alive(worker)]
        connection.execute("delete from jobs where id in (select value from json_each(?))", (_encode(doomed).decode(),))

    def _is_alive(self, worker: str) -> bool:
        return worker == self._own() or not self._is_dead(worker)

    def take_orphans(self, connection: sqlite3.Connection, key: str) -> list[Job]:
        """Take over the jobs that no other living worker holds, of one key or of all, and return them."""
        own, wanted = self._own(), "(?1 = '' or key = ?1)"
        for (id,) in connection.execute("select distinct worker from jobs where worker <> ?", (own,)).fetchall():
            if self._is_dead(id):
                connection.execute(
                    f"update jobs set worker = ?2, state = min(state, ?4) where worker = ?3 and {wanted}",
                    (key, own, id, WAITING),
                )
        for (id,) in connection.execute(
            "select worker from signals union select worker from live_events union select worker from subscribers"
        ).fetchall():
            if id != own and self._is_dead(id):
                connection.execute("delete from signals where worker = ?", (id,))
                live.forget(connection, id)
        rows = connection.execute(
            f"select {JOB_COLUMNS} from jobs where worker = ?2 and {wanted} order by position", (key, own)
        )
        return [Job(id, kind, key, _decode_payload(payload), at, slots) for id, kind, key, at, payload, slots in rows]

    def may_write(self, connection: sqlite3.Connection, key: str) -> bool:
        """Return whether no other living worker has a claim on a job of this key. Cheap while this worker is alone, if
        `forget_others` is called when others have written."""
        return self._is_alone(connection) or self.holder(connection, key) is None

    def holder(self, connection: sqlite3.Connection, key: str, job: str = "") -> tuple[str, str] | None:
        """Return the id and the worker of the first claimed job of this key, or of the named job, if another living
        worker holds it."""
        held = connection.execute(
            "select id, worker from jobs where id = ?1"
            if job
            else "select id, worker from jobs where key = ?1 and state > 0 and state = ?2 order by position",
            (job,) if job else (key, CLAIMED),
        ).fetchall()
        return next(((id, worker) for id, worker in held if self.is_alive_elsewhere(worker)), None)

    def _is_alone(self, connection: sqlite3.Connection) -> bool:
        """Return whether no other worker has a job that runs or waits to run."""
        if self._alone is None:
            workers = connection.execute("select worker from jobs where state > 0").fetchall()
            self._alone = all(id == self._own() for (id,) in workers)
        return self._alone

    def _is_blocked(
        self, connection: sqlite3.Connection, key: str, slots: int, id: str, before: int | None = None
    ) -> bool:
        """Return whether no slot is free for a job, or another living worker waits before this position (None is
        anywhere).

        A key with one slot is granted to a worker, which runs its own jobs one at a time.
        """
        rivals = connection.execute(
            "select worker, state from jobs where key = ?1 and state > 0 and id <> ?5 "
            "and (state = ?2 or (state = ?3 and (?4 is null or position < ?4)))",
            (key, CLAIMED, WAITING, before, id),
        ).fetchall()
        taken = 0
        for worker, state in rivals:
            if self.is_alive_elsewhere(worker):
                if state == WAITING:
                    return True
                taken += 1
            elif slots > 1 and state == CLAIMED and worker == self._own():
                taken += 1
        return taken >= slots

    def is_alive_elsewhere(self, worker: str) -> bool:
        # A worker's file is created when its id is first used; a worker that only appends needs none.
        return worker != self._own() and not self._is_dead(worker)

    # --- signals ------------------------------------------------------------------------------------------------------

    def send(self, connection: sqlite3.Connection, signal: Signal) -> bool:
        """Leave a signal for a job that another living worker runs."""
        if (found := self.holder(connection, signal.key, signal.job)) is None:
            return False
        job, worker = found
        sent = connection.execute(
            "insert into signals (worker, body) "
            "select ?1, ?2 where (select count(*) from signals where worker = ?1) < ?3",
            (worker, _encode(msgspec.structs.replace(signal, job=job)).decode(), SIGNALS_MAX),
        )
        return sent.rowcount == 1

    def receive(self, connection: sqlite3.Connection) -> list[Signal]:
        """Take the signals for this worker. Unreadable ones are dropped: a newer Rondel may send other kinds."""
        own = (self._own(),)
        rows = connection.execute("select body from signals where worker = ? order by position", own).fetchall()
        connection.execute("delete from signals where worker = ?", own)
        signals: list[Signal] = []
        for (body,) in rows:
            try:
                signals.append(_decode(body))
            except msgspec.MsgspecError as error:
                logger.warning("a signal of another process could not be read: %s", error)
        return signals


def has_signal(connection: sqlite3.Connection, worker: str) -> bool:
    return connection.execute("select 1 from signals where worker = ? limit 1", (worker,)).fetchone() is not None


def last_seq(connection: sqlite3.Connection, conversation: str) -> int:
    row = connection.execute("select seq from conversations where id = ?", (conversation,)).fetchone()
    return row[0] if row else 0
