"""An agent uses the tools of MCP servers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rondel import Agent, App, tool
from rondel.events import CallProgressed, Outcome, Warned
from rondel.mcp.link import Link, retry_delay_s
from rondel.mcp.plugin import UNAVAILABLE
from rondel.mcp.process import Watchdog
from rondel.mcp.spec import ServerSpec
from rondel.plugin import Plugin
from rondel.project.lookup import find_plugin
from rondel.stores.sqlite import SqliteStore
from rondel.testing import Scripted, call, calls, say
from rondel.values import Reply
from tests.forked import run_script

from .helpers import agent_with, answer, links_of, model_of, outcome, plugin_of, raw, results, tell, until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the servers of these tests are POSIX programs")


async def test_a_server_s_tools_are_called_and_the_next_round_follows() -> None:
    """T15: tools are listed as mcp-<server>-<tool>, and the model reads what they return."""
    agent = agent_with(raw(), steps=[call("mcp-raw-echo", text="hello"), say("It said hello.")])
    async with App(agent) as app:
        turn = await app.conversation().send("Say hello")
        assert (await turn.result()).output == "It said hello."
    assert results(agent) == ["hello"]
    assert "mcp-raw-echo" in [spec.name for spec in model_of(agent).prompts[0].tools]


async def test_the_time_limit_of_a_call_is_kept() -> None:
    """T15: a server that never answers costs no more than its limit."""
    servers = raw("mute", timeout_s=0.2), raw()
    agent = agent_with(*servers, steps=[call("mcp-mute-silent"), call("mcp-raw-echo", text="on"), say("ok")])
    async with App(agent) as app:
        events = await tell(app)
    assert outcome(events) is Outcome.DONE
    assert results(agent) == ["'mcp-mute-silent' gave no result in time", "on"]


async def test_an_agent_starts_before_its_servers() -> None:
    agent = agent_with(raw("a", "mute", connect_s=30.0), steps=[])
    async with App(agent):
        assert links_of(agent)[0].status.state == "connecting"


async def test_a_server_that_is_down_costs_only_its_own_tools_and_is_named() -> None:
    """K04: only the servers that failed are named, and the others are used."""
    seen: list[list[str]] = []

    class Watcher(Plugin):
        holds_stream = False

        async def on_reply(self, turn: object, reply: Reply) -> Reply:  # type: ignore[override]
            seen.append(list(turn.state[UNAVAILABLE]))  # type: ignore[attr-defined]
            return reply

    bad = raw("bad", "broken", retries=0)
    model = Scripted(call("mcp-good-echo", text="hi"), say("done"))
    agent = Agent("helper", engine=model, plugins=[plugin_of(raw("good"), bad), Watcher()])
    async with App(agent) as app:
        events = await tell(app)
    (warning,) = [event for event in events if isinstance(event, Warned)]
    assert "'bad' is not available: it ended with the code 2, saying: the config file is missing" in warning.message
    notes = [m.text for m in model.prompts[0].messages if "MCP status" in m.text]
    assert len(notes) == 1
    assert "not used: bad." in notes[0]
    assert seen[0] == ["bad"]
    assert results(agent) == ["hi"]


def test_retries_wait_as_the_seed_says() -> None:
    """K04: 500·2^n ms, at most 2 s."""
    assert [retry_delay_s(n) for n in (1, 2, 3, 4, 9)] == [0.5, 1.0, 2.0, 2.0, 2.0]


async def test_a_server_is_tried_once_more_and_then_counts_as_down(tmp_path: Path) -> None:
    """K04: one extra attempt by default."""
    script = tmp_path / "flaky.sh"
    script.write_text(f"#!/bin/sh\necho x >> {tmp_path}/starts\nexit 1\n")
    script.chmod(0o755)
    agent = agent_with(raw("a").__class__("a", command=str(script)), steps=[say("ok")])
    async with App(agent) as app:
        await tell(app)
        assert links_of(agent)[0].status.state == "down"
        assert (tmp_path / "starts").read_text().count("x") == 2


async def test_a_server_that_dies_in_mid_call_is_an_error_and_comes_back() -> None:
    agent = agent_with(raw(), steps=[call("mcp-raw-die"), call("mcp-raw-echo", text="again"), say("ok")])
    async with App(agent) as app:
        await tell(app)
    died, echoed = results(agent)
    assert "failed during the call: it ended with the code 3, saying: out of memory" in died
    assert "may have had its effect" in died
    assert echoed == "again"


async def test_a_required_server_that_is_down_fails_the_turn() -> None:
    agent = agent_with(raw("a", "broken", required=True, retries=0), steps=[say("never")])
    async with App(agent) as app:
        turn = await app.conversation().send("hi")
        result = await turn.result(check=False)
    assert "the MCP server 'a' is not available: it ended with the code 2" in result.error
    assert model_of(agent).left == 1


async def test_progress_is_shown() -> None:
    agent = agent_with(raw(), steps=[call("mcp-raw-flood")])
    shown: list[str] = []
    async with App(agent) as app:
        view = await app.conversation().send("go")
        async for event in view:
            if isinstance(event, CallProgressed):
                if not shown:
                    await view.stop()
                shown.append(event.text)
    assert shown[0] == "more"


async def test_a_server_gets_no_secret_and_runs_in_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-of-the-user")
    model = Scripted(call("mcp-raw-about"), say("ok"))
    plugin = plugin_of(raw(env={"GIVEN": "yes"}), project=str(tmp_path))
    agent = Agent("helper", engine=model, plugins=[plugin])
    async with App(agent) as app:
        await tell(app)
    about = json.loads(results(agent)[0])
    assert about["env"]["GIVEN"] == "yes"
    assert "OPENAI_API_KEY" not in about["env"]
    assert "sk-secret-of-the-user" not in results(agent)[0]
    assert about["cwd"] == str(tmp_path)


async def test_no_server_can_shadow_another_or_a_local_tool() -> None:
    """K03: a server without a list of allowed tools hides nothing of the agent's own."""

    @tool(name="mcp-a-echo")
    async def mine(text: str) -> str:
        "My own."
        return f"mine: {text}"

    steps = [calls(call("mcp-a-echo", id="1", text="x"), call("mcp-a-b-echo", id="2", text="y")), say("ok")]
    model = Scripted(*steps)
    agent = Agent("helper", engine=model, tools=[mine], plugins=[plugin_of(raw("a"), raw("a-b"))])
    async with App(agent) as app:
        events = await tell(app)
    assert results(agent) == ["mine: x", "y"]
    names = [spec.name for spec in model.prompts[0].tools]
    assert len(names) == len(set(names))
    assert any("'mcp-a-echo'" in event.message for event in events if isinstance(event, Warned))


async def test_a_call_is_approved_first_whatever_the_server_says() -> None:
    agent = agent_with(raw(approval="confirm"), steps=[call("mcp-raw-echo", text="hi"), say("ok")])
    async with App(agent) as app:
        assert outcome(await tell(app)) is Outcome.WAITING
        question = await answer(app, "no")
    assert "Allow mcp-raw-echo to run" in question.text
    assert results(agent) == ["denied by the user"]


async def test_tools_that_always_ask_do_so_although_the_others_do_not() -> None:
    agent = agent_with(raw(ask=("ec*",)), steps=[call("mcp-raw-echo", text="hi"), say("ok")])
    async with App(agent) as app:
        assert outcome(await tell(app)) is Outcome.WAITING
        assert "Allow mcp-raw-echo to run" in (await answer(app, "yes")).text
    assert results(agent) == ["hi"]


def test_a_new_command_is_a_new_server() -> None:
    """What was approved for one program holds for no other one of the same name."""

    def identity(*more: object, **fields: Any) -> str:
        spec, lock = raw("raw", "", *more, **fields), asyncio.Lock()
        return Link(spec, env={}, folder="", watchdog=Watchdog(), import_lock=lock, logins=None).identity

    assert identity() == identity(timeout_s=9.0, retries=3)
    assert len({identity(), identity("--other"), identity(env={"A": "1"}, cwd="/tmp")}) == 2


async def test_a_changed_description_is_approved_again_and_the_model_sees_the_old_one() -> None:
    steps = [
        call("mcp-raw-echo", id="1", text="one"),
        call("mcp-raw-change", id="2"),
        call("mcp-raw-echo", id="3", text="two"),
        say("ok"),
    ]
    agent = agent_with(raw(), steps=steps)
    async with App(agent) as app:
        links = None
        turn = await app.conversation("c").send("go")
        async for _ in turn:
            pass
        links = links_of(agent)
        # The list may have come after the third call was made: then the change is seen by the next message.
        await until(lambda: "id_rsa" in links[0].tool("echo").description)
        if not await app.conversation("c").questions():
            model_of(agent).add(call("mcp-raw-echo", id="4", text="two"), say("ok"))
            await tell(app, "again")
        for prompt in model_of(agent).prompts:
            assert all("id_rsa" not in spec.description for spec in prompt.tools)
        question = await answer(app, "no")
        assert "has changed its tool echo since you approved it" in question.text
        assert "id_rsa" in question.text
        assert "description has changed, and the user refused it" in results(agent)[-1]
        model_of(agent).add(call("mcp-raw-echo", id="5", text="three"), say("ok"))
        await tell(app, "once more")
        await answer(app, "yes")
        model_of(agent).add(call("mcp-raw-echo", id="6", text="four"), say("ok"))
        await tell(app, "and now without a question")
        assert not await app.conversation("c").questions()
    assert [said.split()[-1] for said in results(agent)[-2:]] == ["three", "four"]
    assert any("id_rsa" in spec.description for spec in model_of(agent).prompts[-1].tools)


async def test_what_was_approved_is_remembered_by_the_next_process(tmp_path: Path) -> None:
    """A tool that changed while nothing ran is held, too."""
    store = tmp_path / "rondel.db"
    agent = agent_with(raw(), steps=[call("mcp-raw-echo", text="one"), say("ok")])
    async with App(agent, store=SqliteStore(str(store))) as app:
        await tell(app)
        link = links_of(agent)[0]
        pins = link.pins
    assert list(pins) == ["echo"]
    again = agent_with(raw(), steps=[say("ok")])
    async with App(again, store=SqliteStore(str(store))) as app:
        await tell(app, conversation="d")
        assert links_of(again)[0].pins == pins


async def test_resources_are_a_source_that_is_searched() -> None:
    model = Scripted(say("at nine"))
    retrieve = find_plugin("retrieve", {"source": {"mcp": "raw"}, "limit": 1})
    agent = Agent("helper", engine=model, plugins=[plugin_of(raw()), retrieve])
    async with App(agent) as app:
        await tell(app, "When does the train leave?")
    said = "\n".join(message.text for message in model.prompts[0].messages)
    assert "> The train leaves at nine." in said
    assert "notes://trip" in said
    assert "garden" not in said


SLOW_DISK = """
import asyncio, sys, threading, time
from rondel import Agent, App
from rondel.testing import Scripted
from tests.mcp.helpers import plugin_of, raw

class SlowDisk:
    reached, ready = threading.Event(), threading.Event()

    def find_spec(self, name, path=None, target=None):
        if name == "rondel.mcp.session":
            self.reached.set()
            self.ready.wait()

sys.meta_path.insert(0, SlowDisk())
"""
SLOW_IMPORT = f"""{SLOW_DISK}
from rondel.mcp.source import McpSource

async def main():
    async with App(Agent("helper", engine=Scripted(), plugins=[plugin_of(raw())])), asyncio.TaskGroup() as group:
        searching = group.create_task(McpSource("raw").search("train", 1))
        await asyncio.to_thread(SlowDisk.reached.wait)
        asyncio.get_running_loop().time = lambda: time.monotonic() + 1_000.0
        for _ in range(10):  # every timer that is due
            await asyncio.sleep(0)
        SlowDisk.ready.set()
    sys.stdout.write(searching.result()[0].text)

asyncio.run(main())
"""
FIVE_SERVERS = f"""{SLOW_DISK}
async def main():
    servers = [raw(str(number)) for number in range(5)]
    async with App(Agent("helper", engine=Scripted(), plugins=[plugin_of(*servers)])):
        while not SlowDisk.reached.is_set():
            await asyncio.sleep(0.01)
        threads = [thread for thread in threading.enumerate() if thread.name == "rondel-blocking"]
        sys.stdout.write(str(len(threads)))
        SlowDisk.ready.set()

asyncio.run(main())
"""


def test_a_server_has_all_of_its_time_to_connect_however_long_the_import_of_the_sdk_takes() -> None:
    ran = run_script(SLOW_IMPORT)
    assert "train" in ran.stdout, ran.stderr


def test_an_agent_with_five_servers_starts_with_one_thread() -> None:
    ran = subprocess.run([sys.executable, "-c", FIVE_SERVERS], capture_output=True, text=True, timeout=60, check=False)
    assert ran.stdout == "1", ran.stderr


class ClosingLink(Link):
    """Its connection is being closed when the link is cancelled: then a scope of the SDK ends the cancellation."""

    async def _connected(self) -> None:
        closing = asyncio.get_running_loop().create_future()
        with contextlib.suppress(asyncio.CancelledError):
            await closing


async def test_a_link_that_is_cancelled_while_its_connection_closes_ends() -> None:
    link = ClosingLink(
        ServerSpec("s", command="x"),
        env={},
        folder="",
        watchdog=Watchdog(),
        import_lock=asyncio.Lock(),
        logins=None,
    )
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        running = group.create_task(link.run())
        await asyncio.sleep(0)
        link.is_ending = True
        running.cancel()
    assert running.done()


# --- questions of servers ---------------------------------------------------------------------------------------------


async def test_elicitation_is_a_question_and_the_answer_goes_to_the_server() -> None:
    agent = agent_with(raw(), steps=[call("mcp-raw-ask"), say("ok")])
    async with App(agent) as app:
        assert outcome(await tell(app)) is Outcome.WAITING
        question = await answer(app, "Ada")
    assert "The MCP server raw asks:" in question.text
    assert "\x1b" not in question.text
    assert 'hello {"name": "Ada"}' in results(agent)[0]


async def test_a_declined_question_is_told_to_the_server() -> None:
    agent = agent_with(raw(), steps=[call("mcp-raw-ask"), say("ok")])
    async with App(agent) as app:
        await tell(app)
        await answer(app, "decline")
    assert results(agent) == ["declined"]


async def test_two_questions_of_one_call_are_asked_one_after_the_other_and_a_wrong_answer_is_asked_again() -> None:
    agent = agent_with(raw(), steps=[call("mcp-raw-steps"), say("ok")])
    async with App(agent) as app:
        await tell(app)
        first = await answer(app, "Ada")
        second = await answer(app, "old")
        third = await answer(app, "36")
    assert "What is your name?" in first.text
    assert "And how old?" in second.text
    assert "'old' is not possible: give a whole number" in third.text
    assert '{"age": 36}' in results(agent)[0]


async def test_a_question_survives_a_restart(tmp_path: Path) -> None:
    store = tmp_path / "rondel.db"
    agent = agent_with(raw(), steps=[call("mcp-raw-steps")])
    async with App(agent, store=SqliteStore(str(store))) as app:
        await tell(app)
        await answer(app, "Ada")
    again = agent_with(raw(), steps=[say("done")])
    async with App(again, store=SqliteStore(str(store))) as app:
        question = await answer(app, "36")
    assert "And how old?" in question.text
    assert '{"age": 36}' in results(again)[0]


async def test_sampling_needs_approval_and_is_charged() -> None:
    agent = agent_with(raw(), steps=[call("mcp-raw-sample"), say("Hi from the model"), say("ok")])
    async with App(agent) as app:
        kinds: list[str] = []
        app.ledger.on("usage.recorded", lambda recorded: kinds.append(recorded.charge.scope.kind))
        assert outcome(await tell(app)) is Outcome.WAITING
        assert len(model_of(agent).prompts) == 1
        question = await answer(app, "yes")
    assert "May the MCP server raw ask scripted:test this" in question.text
    assert "Say hi" in question.text
    assert "Hi from the model" in results(agent)[0]
    assert kinds == ["chat", "sampling", "chat"]


async def test_refused_sampling_asks_no_model() -> None:
    agent = agent_with(raw(), steps=[call("mcp-raw-sample"), say("ok")])
    async with App(agent) as app:
        await tell(app)
        await answer(app, "no")
    assert "the user refused" in results(agent)[0]
    assert len(model_of(agent).prompts) == 2


# --- processes --------------------------------------------------------------------------------------------------------


async def test_a_server_and_what_it_started_end_with_the_app(tmp_path: Path) -> None:
    told = tmp_path / "pids"
    agent = agent_with(raw("a", "stubborn", 0, told), steps=[say("ok")])
    async with App(agent) as app:
        await tell(app)
        pids = [int(pid) for pid in told.read_text().split()]
        assert all(map(_lives, pids))
    assert not any(map(_lives, pids))


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") if os.path.exists(f"/proc/{pid}/stat") else open(os.devnull) as file:
        return ") Z" not in file.read()


async def test_agents_with_equal_servers_share_a_connection() -> None:
    one, two = plugin_of(raw()), plugin_of(raw())
    agents = [Agent(name, engine=Scripted(), plugins=[plugin]) for name, plugin in (("one", one), ("two", two))]
    async with App(*agents):
        assert one.links[0] is two.links[0]


async def test_equal_servers_of_two_projects_run_in_two_folders(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    agents: list[Agent] = []
    for folder in folders:
        folder.mkdir()
        model, plugin = Scripted(call("mcp-raw-about"), say("ok")), plugin_of(raw(), project=str(folder))
        agents.append(Agent(folder.name, engine=model, plugins=[plugin]))
    async with App(*agents) as app:
        for agent in agents:
            await (await app.conversation(agent=agent.name).send("go")).result()
    assert [json.loads(results(agent)[0])["cwd"] for agent in agents] == list(map(str, folders))


async def test_a_stopped_turn_cancels_the_call() -> None:
    agent = agent_with(raw(timeout_s=60.0), steps=[call("mcp-raw-silent")])
    async with App(agent) as app:
        chat = app.conversation("c")
        view = await chat.send("go")
        async for event in view:
            if type(event).__name__ == "CallStarted":
                break
        await asyncio.sleep(0)
        assert await view.stop()
        result = await view.result()
    assert "stopped" in result.error
