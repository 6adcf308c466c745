"""Servers that never answer, flood, lie, or send too much: a turn goes on, and says what was wrong."""

from __future__ import annotations

import sys
import time
import tracemalloc

import pytest

from rondel import App
from rondel.events import Outcome
from rondel.mcp import stdio
from rondel.mcp.remote import checked_tool
from rondel.testing import call, say
from rondel.values import Media, ToolResult

from .helpers import agent_with, links_of, model_of, outcome, raw, results, tell

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the servers of these tests are POSIX programs")


async def test_a_result_of_50_mb_is_dropped_with_a_sentence_and_the_server_stays() -> None:
    agent = agent_with(raw(), steps=[call("mcp-raw-huge"), call("mcp-raw-echo", text="still here"), say("ok")])
    async with App(agent) as app:
        await tell(app)
    huge, echoed = results(agent)
    assert "its answer is larger than 16 MB and was dropped; ask for less" in huge
    assert echoed == "still here"


def test_a_line_without_end_is_not_kept() -> None:
    lines = stdio.Lines()
    tracemalloc.start()
    for _ in range(200):
        assert list(lines.feed(b"x" * (1 << 20))) == []
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * stdio.MESSAGE_BYTES_MAX


@pytest.mark.slow
@pytest.mark.parametrize("how", ["messages", "lines"])
async def test_a_flood_slows_the_server_down_and_not_us(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call ends at its limit; the server that goes on flooding is disconnected, and comes back."""
    monkeypatch.setattr(stdio, "FLOOD_S", 0.3)
    steps = [call("mcp-raw-flood", how=how), call("mcp-raw-echo", text="back"), say("ok")]
    agent = agent_with(raw(timeout_s=10.0), steps=steps)
    async with App(agent) as app:
        began = time.process_time()
        events = await tell(app)
        used = time.process_time() - began
    assert outcome(events) is Outcome.DONE
    flooded, echoed = results(agent)
    assert "sends more than 500 messages per second without end" in flooded
    assert echoed == "back"
    assert used < 5


async def test_a_server_that_answers_twice_or_with_nonsense_is_an_error_at_most() -> None:
    steps = [call("mcp-raw-twice"), call("mcp-raw-garbage"), call("mcp-raw-echo", text="fine"), say("ok")]
    agent = agent_with(raw(), steps=steps)
    async with App(agent) as app:
        await tell(app)
    twice, garbage, echoed = results(agent)
    assert twice == "first"
    assert "answered with something that is not a result" in garbage
    assert echoed == "fine"


async def test_an_answer_that_is_malformed_ends_its_call_at_once_and_half_a_character_is_replaced() -> None:
    steps = [call("mcp-raw-garbage", how="malformed"), call("mcp-raw-garbage", how="half"), say("ok")]
    agent = agent_with(raw(timeout_s=60.0), steps=steps)
    async with App(agent) as app:
        await tell(app)
    malformed, half = results(agent)
    assert "it answered with something that is not a result" in malformed
    assert half == "smile ?"


async def test_a_result_of_many_parts_is_cut_as_one_is() -> None:
    agent = agent_with(raw(), steps=[call("mcp-raw-garbage", how="parts"), say("ok")])
    async with App(agent) as app:
        await tell(app)
    (text,) = results(agent)
    assert len(text) < 33_000
    assert "[... cut: the result had" in text[-120:]
    (result,) = model_of(agent).prompts[1].messages[-1].parts
    assert isinstance(result, ToolResult)
    assert len(result.parts) <= 1_001


async def test_a_picture_is_what_its_bytes_are() -> None:
    """A provider refuses a prompt with a picture that is none, and every later one of the conversation."""
    agent = agent_with(raw(), steps=[call("mcp-raw-garbage", how="pictures"), say("ok")])
    async with App(agent) as app:
        await tell(app)
    (result,) = model_of(agent).prompts[1].messages[-1].parts
    assert isinstance(result, ToolResult)
    assert [part.mime for part in result.parts if isinstance(part, Media)] == ["image/png"]
    assert result.text.count("[image left out: it is none of PNG, JPEG, GIF and WebP]") == 3


async def test_tools_with_impossible_schemas_are_left_out_and_named() -> None:
    agent = agent_with(raw("liar", "liar"), steps=[call("mcp-liar-lies", a=1), say("ok")])
    async with App(agent) as app:
        await tell(app)
        problems = " | ".join(links_of(agent)[0].offer.problems)
    assert [spec.name for spec in model_of(agent).prompts[0].tools] == ["mcp-liar-twin", "mcp-liar-lies"]
    assert "'deep' is left out: its schema is nested more than 40 levels deep" in problems
    assert "'large' is left out: its schema is larger than 50,000 bytes" in problems
    assert "two tools named 'twin'" in problems
    assert results(agent) == ["lies was called"]


@pytest.mark.parametrize("schema", [[], "x", {"type": "string"}, {"properties": []}])
def test_a_schema_that_is_no_object_is_refused(schema: object) -> None:
    assert "is left out" in str(checked_tool("t", "", schema))


async def test_log_lines_on_stdout_do_no_harm() -> None:
    agent = agent_with(raw("raw", "noisy"), steps=[call("mcp-raw-echo", text="x"), say("ok")])
    async with App(agent) as app:
        await tell(app)
    assert results(agent) == ["x"]


async def test_a_server_that_never_answers_does_not_hold_up_the_first_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    from rondel.mcp import plugin

    monkeypatch.setattr(plugin, "WAIT_S", 0.2)
    agent = agent_with(raw("a", "mute"), steps=[say("without")])
    async with App(agent) as app:
        events = await tell(app)
    assert outcome(events) is Outcome.DONE
    assert "not used: a." in " ".join(message.text for message in model_of(agent).prompts[0].messages)


async def test_a_program_that_does_not_exist_is_one_sentence() -> None:
    spec = raw("a", retries=0).__class__("a", command="no-such-program-here", retries=0)
    agent = agent_with(spec, steps=[say("ok")])
    async with App(agent) as app:
        await tell(app)
        reason = links_of(agent)[0].status.reason
    assert reason == "there is no program 'no-such-program-here' on the PATH; install it, or write its whole path"
