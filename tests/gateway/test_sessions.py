"""How programs name their conversations: each in a way of its own, and of these the newest and the oldest count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest

from rondel.stores.sqlite import SqliteStore

from .asking import request
from .raw import post_of
from .served import Served, engines
from .speech import played, says
from .upstream import WAIT_S, Upstream


@pytest.mark.parametrize(
    ("dialect", "headers", "body"),
    [
        ("anthropic", {"x-claude-code-session-id": "a1-b2"}, {}),
        ("anthropic", {}, {"metadata": {"user_id": '{"device_id":"44","account_uuid":"","session_id":"a1-b2"}'}}),
        ("anthropic", {}, {"metadata": {"user_id": "user_44_account_1_session_a1-b2"}}),
        ("openai-responses", {"session-id": "a1-b2", "thread-id": "c3"}, {"prompt_cache_key": "d4"}),
        ("openai-responses", {"session_id": "a1-b2"}, {}),
        ("openai-responses", {}, {"prompt_cache_key": "a1-b2"}),
        ("openai-chat", {"x-session-id": "a1-b2", "x-session-affinity": "c3"}, {}),
    ],
)
def test_a_conversation_has_the_name_that_its_program_gives_it(
    dialect: str, headers: dict[str, str], body: dict[str, Any]
) -> None:
    assert request(dialect, headers=headers, **body).session == "a1-b2"


@pytest.mark.parametrize("user", ["ann", '{"session_id":""}', '{"session_id":null}', "{", ""])
def test_a_user_who_names_no_conversation_has_none(user: str) -> None:
    assert request("anthropic", metadata={"user_id": user}).session == ""


@pytest.mark.parametrize("asked", ["a", "c"])
async def test_requests_are_charged_to_their_session_and_to_no_conversation_without_one(
    asked: str, upstream: Upstream, tmp_path: Path
) -> None:
    """Whether they are relayed (`a`) or answered by a turn (`c`). A scope of its own for each request without a session
    would fill the database."""
    dialect = {"a": "anthropic", "c": "openai-chat"}[asked]
    name = upstream.plays(*[played(dialect, says("Hello"), False)] * 4)
    with Served(tmp_path, engines(upstream)) as served, httpx2.Client(base_url=served.base_url, timeout=WAIT_S) as web:
        for headers in ({}, {"x-session-id": "one"}, {}, {"x-session-id": "one"}):
            answer = web.post(**post_of("anthropic", f"{asked}:{name}", streams=False), headers=headers)
            assert answer.status_code == 200, answer.text
    async with SqliteStore(tmp_path / "data" / "rondel" / "rondel.db") as store:
        page = await store.ledger_store.charges(0, 1 << 30, "", 10)
    assert sorted(charge.scope.conversation for charge in page.charges) == ["", "", "one", "one"]
