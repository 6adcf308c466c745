"""How entries, summaries of conversations and jobs stand in their tables. Knows no thread and no transaction."""

from __future__ import annotations

import sqlite3
from typing import Any, TypeAlias

import msgspec

from ...events import Entry
from ...job import Job, JobKind
from ...store import ConversationInfo
from ...values import Usage

EntryRow: TypeAlias = tuple[str, int, float, str, str]
InfoRow: TypeAlias = tuple[str, str, str, str, int, int, str, float, float]
JobRow: TypeAlias = tuple[str, JobKind, str, float, str]

INFO_COLUMNS = "id, agent, title, state, seq, messages, usage, created_at, updated_at"
JOB_COLUMNS = "id, kind, key, at, payload"

_encode = msgspec.json.Encoder().encode
decode_entries = msgspec.json.Decoder(list[Entry]).decode
_decode_usage = msgspec.json.Decoder(Usage).decode
_decode_payload = msgspec.json.Decoder(dict[str, Any]).decode


def info_of(row: InfoRow) -> ConversationInfo:
    id, agent, title, state, seq, messages, usage, created_at, updated_at = row
    return ConversationInfo(id, agent, title, state, seq, messages, _decode_usage(usage), created_at, updated_at)


def load_info(connection: sqlite3.Connection, conversation: str) -> ConversationInfo | None:
    """A conversation's summary, brought forward by the entries that it lags behind."""
    row = connection.execute(f"select {INFO_COLUMNS} from conversations where id = ?", (conversation,)).fetchone()
    if row is None:
        return None
    info = info_of(row)
    entries = decode_entries(b"[" + joined_bodies(connection, conversation, info.seq, -1) + b"]")
    return info.after(*entries) if entries else info


def joined_bodies(connection: sqlite3.Connection, conversation: str, after: int, limit: int) -> bytes:
    """The entries behind `after` as one JSON text, without its brackets; a limit of -1 is none."""
    bodies: bytes | None = connection.execute(
        "select cast(group_concat(body, ',') as blob) from "
        "(select body from entries where conversation = ? and seq > ? order by seq limit ?)",
        (conversation, after, limit),
    ).fetchone()[0]
    return bodies or b""


def row_of(info: ConversationInfo) -> InfoRow:
    usage = _encode(info.usage).decode()
    times = (info.created_at, info.updated_at)
    return (info.id, info.agent, info.title, info.state, info.seq, info.messages, usage, *times)


def job_of(row: JobRow) -> Job:
    id, kind, key, at, payload = row
    return Job(id, kind, key, _decode_payload(payload), at)
