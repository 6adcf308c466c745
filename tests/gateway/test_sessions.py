"""How programs name their conversations: each in a way of its own, and of these the newest and the oldest count."""

from __future__ import annotations

from typing import Any

import pytest

from .asking import request


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
