"""How summaries of conversations and jobs stand in their tables. Pure."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from ...job import Job, JobKind
from ...store import ConversationInfo
from ...values import Usage

EntryRow: TypeAlias = tuple[str, int, float, str, str]
InfoRow: TypeAlias = tuple[str, str, str, str, int, int, str, float, float]
JobRow: TypeAlias = tuple[str, JobKind, str, float, str]

INFO_COLUMNS = "id, agent, title, state, seq, messages, usage, created_at, updated_at"
JOB_COLUMNS = "id, kind, key, at, payload"

_encode = msgspec.json.Encoder().encode
_decode_usage = msgspec.json.Decoder(Usage).decode
_decode_payload = msgspec.json.Decoder(dict[str, Any]).decode


def info_of(row: InfoRow) -> ConversationInfo:
    id, agent, title, state, seq, messages, usage, created_at, updated_at = row
    return ConversationInfo(id, agent, title, state, seq, messages, _decode_usage(usage), created_at, updated_at)


def row_of(info: ConversationInfo) -> InfoRow:
    usage = _encode(info.usage).decode()
    times = (info.created_at, info.updated_at)
    return (info.id, info.agent, info.title, info.state, info.seq, info.messages, usage, *times)


def job_of(row: JobRow) -> Job:
    id, kind, key, at, payload = row
    return Job(id, kind, key, _decode_payload(payload), at)
