"""AG-UI 1.0, judged by `@ag-ui/client`: it checks every event and the order of them, and folds them into messages."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rondel import Agent, tool
from rondel.engines.fallback import Fallback
from rondel.errors import EngineDenied
from rondel.testing import Pause, Scripted, call, calls
from rondel.tools.ask_user import ask_user
from rondel.values import Reply, Text, Thinking, assistant
from tests.web.judge import judge
from tests.web.served import WAIT_S, site
from tests.web.test_access import ANN, BOB, KEYS


@tool(idempotent=True)
async def add(a: int, b: int) -> str:
    "Add two numbers."
    return str(a + b)


@tool(approval="confirm")
async def send(to: str) -> str:
    "Send a mail."
    return f"sent to {to}"


def kinds(found: dict[str, Any]) -> list[str]:
    return [event["type"] for event in found["events"]]


def outcome(found: dict[str, Any]) -> dict[str, Any]:
    assert not found["failed"], found["failed"]
    return found["events"][-1]["outcome"]


def said(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [(message["role"], message.get("content", "")) for message in found["messages"]]


async def test_a_front_end_sees_text_thinking_and_tools_of_a_thread_that_the_server_keeps():
    thinks = Reply(assistant(Thinking("Numbers, hm."), Text("Let me see.")))
    model = Scripted(thinks, call("add", a=2, b=3), "It is 5.", "Still 5.")
    async with site(Agent("a", engine=model, tools=[add])) as made, judge(made.address) as ag:
        first = await ag.run("a", "t1", "Hello")
        assert outcome(first) == {"type": "success"}
        assert said(first) == [("user", "Hello"), ("reasoning", "Numbers, hm."), ("assistant", "Let me see.")]
        second = await ag.run("a", "t1", "2 and 3?")
        assert kinds(second)[0] == "RUN_STARTED"
        assert {"TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT"} <= set(kinds(second))
        asked, result, answer = second["newMessages"]
        assert asked["toolCalls"][0]["function"] == {"name": "add", "arguments": '{"a":2,"b":3}'}
        assert (result["toolCallId"], result["content"]) == (asked["toolCalls"][0]["id"], "5")
        assert answer["content"] == "It is 5."
        assert second["events"][-1]["usage"][0]["provider"] == "scripted"
        # The server has the thread: its messages come again in the prompt once, not once per run.
        await ag.run("a", "t1", "Sure?")
        assert [m.text for m in model.prompts[-1].messages if m.role == "user"] == ["Hello", "2 and 3?", "Sure?"]
        (info,) = (await made.json("GET", "/api/conversations"))["conversations"]
        shown = await made.json("GET", f"/api/conversations/{info['id']}/export?format=json")
        ids = {message.get("id") for message in shown["messages"]}
        assert {message["id"] for message in second["newMessages"] if message["role"] == "assistant"} <= ids


async def test_the_usage_of_a_run_names_the_engine_that_answered():
    model = Fallback(Scripted(EngineDenied("no key"), name="a:m"), Scripted("Hello.", name="b:m"))
    async with site(Agent("a", engine=model)) as made, judge(made.address) as ag:
        (used,) = (await ag.run("a", "t1", "Hello"))["events"][-1]["usage"]
        assert (used["provider"], used["model"]) == ("b", "m")


async def test_a_front_end_edits_an_earlier_message_and_what_came_after_it_no_longer_counts():
    model = Scripted("One.", "Two.", "Three.", "Two again.", "Four.", "First again.")
    async with site(Agent("a", engine=model)) as made, judge(made.address) as ag:
        for text in ("first", "second", "third"):
            await ag.run("a", "t", text)
        # As front ends do it: the messages before the one that is edited, and a new one.
        edited = await ag.run("a", "t", "second, changed", keep=2)
        now = [("user", "first"), ("assistant", "One."), ("user", "second, changed"), ("assistant", "Two again.")]
        assert said(edited) == now
        assert [m.text for m in model.prompts[-1].messages if m.role != "system"] == [text for _, text in now[:-1]]
        stale = await ag.run("a", "t", headers={"x": "another tab"})
        assert said(stale) == now
        await ag.run("a", "t", "fourth")
        # The message itself, with its id and another text.
        changed = await ag.run("a", "t", keep=1, change="first, changed")
        assert said(changed) == [("user", "first, changed"), ("assistant", "First again.")]
        assert [m.text for m in model.prompts[-1].messages if m.role != "system"] == ["first, changed"]
        assert (await ag.run("a", "t"))["failed"] == ""
        body = _input("t", "new")
        body["messages"].insert(0, {"id": "t-1-0", "role": "user", "content": "second"})
        assert "the thread was changed elsewhere" in (await made.client.post("/agui/a", json=body)).text


async def test_a_client_that_leaves_does_not_stop_the_turn_and_finds_it_again():
    pause = Pause("The beginning, ", "and the end.")
    async with site(Agent("a", engine=Scripted(pause, "Later."))) as made, judge(made.address) as ag:
        left = await ag.run("a", "t", "Go", abortAfter="TEXT_MESSAGE_CONTENT")
        assert "TEXT_MESSAGE_CONTENT" in kinds(left)
        busy = await ag.run("a", "t", "Another", headers={"x": "another tab"})
        assert "a run is in progress" in busy["failed"]
        watching = asyncio.ensure_future(ag.run("a", "t", tell="TEXT_MESSAGE_CONTENT"))
        async with asyncio.timeout(WAIT_S):
            await ag.told.wait()
        pause.release()
        found = await watching
        assert said(found)[-1] == ("assistant", "The beginning, and the end.")
        assert said(found).count(("assistant", "The beginning, and the end.")) == 1
        assert outcome(found) == {"type": "success"}
        # Someone with nothing but the thread's id gets all of it, and asks no model.
        fresh = await ag.run("a", "t", headers={"x": "a third tab"})
        assert said(fresh) == [("user", "Go"), ("assistant", "The beginning, and the end.")]


async def test_questions_and_approvals_are_interrupts_that_a_later_run_answers():
    asks = call("ask_user", question="Which?", options=["red", "blue"], free_text=False)
    model = Scripted(call("send", to="a@b.c"), "Sent.", asks, "Blue it is.", call("send", to="x"), "All right.")
    async with site(Agent("a", engine=model, tools=[send, ask_user])) as made, judge(made.address) as ag:
        held = await ag.run("a", "t", "Write to a@b.c")
        (asked,) = outcome(held)["interrupts"]
        assert (asked["reason"], asked["toolCallId"]) == ("tool_call", held["messages"][-1]["toolCalls"][0]["id"])
        assert "Allow send to run" in asked["message"]
        assert held["pendingInterrupts"] == [asked]

        async def resume(id: str, thread: str = "t", **fields: Any) -> dict[str, Any]:
            return await ag.run("a", thread, parameters={"resume": [{"interruptId": id, **fields}]})

        new = await made.client.post("/agui/a", json=_input("t", "hurry"))
        assert "waits for an answer to 'approve:" in new.text
        wrong = await resume(asked["id"], status="resolved", payload={"approved": "perhaps"})
        assert "needs a payload such as" in wrong["failed"]
        resumed = [{"interruptId": "nonsense", "status": "resolved", "payload": {"approved": True}}]
        unknown = await made.client.post("/agui/a", json={**_input("t"), "resume": resumed})
        assert "was never asked" in unknown.text
        done = await resume(asked["id"], status="resolved", payload={"approved": True})
        assert outcome(done) == {"type": "success"}
        assert said(done)[-2:] == [("tool", "sent to a@b.c"), ("assistant", "Sent.")]
        assert "TOOL_CALL_START" not in kinds(done)
        again = await resume(asked["id"], status="resolved", payload={"approved": True})
        assert "it was answered already" in again["failed"]

        (choice,) = outcome(await ag.run("a", "t", "Which colour?"))["interrupts"]
        assert choice["responseSchema"]["properties"]["answer"]["enum"] == ["red", "blue"]
        assert "not one of: red, blue" in (await resume(choice["id"], status="resolved", payload="green"))["failed"]
        chosen = await resume(choice["id"], status="resolved", payload={"answer": "blue"})
        assert said(chosen)[-1] == ("assistant", "Blue it is.")
        (asked,) = outcome(await ag.run("a", "t", "Write again"))["interrupts"]
        refused = await resume(asked["id"], status="cancelled")
        assert [text for role, text in said(refused) if role == "tool"][-1].startswith("denied")


async def test_the_front_ends_own_tools_are_called_there_and_the_turn_goes_on_with_their_results():
    model = Scripted(
        calls(call("where"), call("colour", value="red")), "You are in Oslo.", call("where"), "Never mind.", "Bye."
    )
    tools = [
        {"name": "where", "description": "Where the person is.", "parameters": {"type": "object", "properties": {}}},
        {"name": "colour", "description": "Set the colour.", "parameters": {"type": "object"}},
    ]
    context = [{"description": "The page", "value": "settings"}]
    given: dict[str, Any] = {"parameters": {"tools": tools, "context": context}, "state": {"theme": "dark"}}
    async with site(Agent("a", engine=model, tools=[add])) as made, judge(made.address) as ag:
        asked = await ag.run("a", "t", "Where am I?", **given)
        pending = outcome(asked)["pendingToolCallIds"]
        assert pending == [one["id"] for one in asked["messages"][-1]["toolCalls"]]
        assert {spec.name for spec in model.prompts[0].tools} == {"add", "where", "colour"}
        told = next(m.text for m in model.prompts[0].messages if m.role == "system")
        assert "The page: settings" in told
        assert '{"theme":"dark"}' in told
        results = [
            {"id": f"r{n}", "role": "tool", "toolCallId": id, "content": text}
            for n, (id, text) in enumerate(zip(pending, ("Oslo", "done"), strict=True))
        ]
        answered = await ag.run("a", "t", messages=results, **given)
        assert outcome(answered) == {"type": "success"}
        assert said(answered)[-3:] == [("tool", "Oslo"), ("tool", "done"), ("assistant", "You are in Oslo.")]
        # A person who goes on instead leaves no call open.
        assert outcome(await ag.run("a", "t", "And now?", **given))["pendingToolCallIds"]
        went_on = await ag.run("a", "t", "Forget it", **given)
        assert said(went_on)[-1] == ("assistant", "Never mind.")
        taken = await ag.run("a", "t", "x", parameters={"tools": [{"name": "add", "description": ""}]})
        assert "there is already a tool 'add'" in taken["failed"]


async def test_agents_that_work_for_agents_are_subagents_with_events_of_their_own():
    helper = Agent("helper", engine=Scripted(call("add", a=1, b=1), "Two."), tools=[add], description="Helps.")
    model = Scripted(call("helper", input="1+1?"), "The helper says two.")
    async with site(Agent("a", engine=model, tools=[helper.as_tool()])) as made, judge(made.address) as ag:
        found = await ag.run("a", "t", "1+1?")
        assert outcome(found) == {"type": "success"}
        (started,) = [event for event in found["events"] if event["type"] == "SUBAGENT_STARTED"]
        assert (started["name"], started["parentToolCallId"]) == ("helper", started["subagentRunId"])
        inner = [event for event in found["events"] if event.get("subagentRunId") == started["subagentRunId"]]
        assert {"TOOL_CALL_START", "TOOL_CALL_RESULT", "TEXT_MESSAGE_CONTENT"} <= {event["type"] for event in inner}
        assert inner[-1]["type"] == "SUBAGENT_FINISHED"
        assert said(found)[-1] == ("assistant", "The helper says two.")


async def test_a_turn_that_fails_or_is_stopped_says_so():
    pause = Pause("Half ", "of it.")
    model = Scripted(RuntimeError("the model is gone"), pause)
    async with site(Agent("a", engine=model)) as made, judge(made.address) as ag:
        failed = await ag.run("a", "t1", "Hello")
        assert failed["failed"] == "the model is gone"
        assert kinds(failed)[-1] == "RUN_ERROR"
        running = asyncio.ensure_future(ag.run("a", "t2", "Hello"))
        await pause.reached.wait()
        (info,) = [one for one in (await made.json("GET", "/api/conversations"))["conversations"] if one["title"]][:1]
        await made.json("POST", f"/api/conversations/{info['id']}/stop")
        stopped = await running
        assert outcome(stopped) == {"type": "cancelled"}
        assert said(stopped)[-1] == ("assistant", "Half ")


async def test_nobody_reads_or_continues_anothers_thread():
    model = Scripted("For Ann.", "For Bob.")
    async with site(Agent("a", engine=model), keys=KEYS) as made:
        for_ann = await made.client.post("/agui/a", json=_input("t", "My secret"), headers=ANN)
        assert "For Ann." in for_ann.text
        (info,) = (await made.json("GET", "/api/conversations", headers=ANN))["conversations"]
        for thread in ("t", info["id"]):
            shown = await made.client.post("/agui/a", json=_input(thread), headers=BOB)
            assert '"messages":[]' in shown.text
        for_bob = await made.client.post("/agui/a", json=_input(info["id"], "Hi"), headers=BOB)
        assert "For Bob." in for_bob.text
        assert [m.text for m in model.prompts[-1].messages if m.role == "user"] == ["Hi"]
        mine = await made.client.post("/agui/a", json=_input(info["id"]), headers=ANN)
        assert "My secret" in mine.text


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"runId": "r", "messages": []}, 400, "threadId"),
        ({"threadId": "", "runId": "r", "messages": []}, 400, "threadId must have 1 to 200 characters"),
        ({"threadId": "t", "runId": "r", "messages": [{"role": "user"}]}, 400, "`id`"),
        ({"threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "user", "content": " "}]}, 200, "is empty"),
        (
            {"threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "user", "content": [{"type": "video"}]}]},
            200,
            "neither text nor an image",
        ),
        ({"threadId": "t", "runId": "r", "messages": [], "x": 1, "forwardedProps": {"y": 2}}, 200, "RUN_FINISHED"),
    ],
)
async def test_wrong_input_is_one_sentence(body: Any, status: int, said: str):
    async with site(Agent("a", engine=Scripted())) as made:
        answer = await made.client.post("/agui/a", json=body)
        assert answer.status_code == status
        assert said in answer.text
        unknown = await made.client.post("/agui/nobody", json=_input("t", "x"))
        assert (unknown.status_code, unknown.json()["error"]) == (404, "there is no agent 'nobody'")


async def test_a_body_that_is_too_large_is_refused_before_it_is_read():
    async with site(Agent("a", engine=Scripted())) as made:
        reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
        head = "POST /agui/a HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: 50000000"
        writer.write(f"{head}\r\n\r\n".encode())
        async with asyncio.timeout(WAIT_S):
            assert b" 413 " in await reader.readline()
        writer.close()


async def test_a_page_of_another_site_may_run_agents_only_if_its_origin_is_allowed():
    async with site(Agent("a", engine=Scripted("Hi.")), origins=["https://app.example"]) as made:
        other = {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
        assert (await made.client.post("/agui/a", json=_input("t", "x"), headers=other)).status_code == 403
        assert (await made.client.options("/agui/a", headers=other)).status_code == 403
        ours = {"origin": "https://app.example", "sec-fetch-site": "cross-site"}
        asked = await made.client.options("/agui/a", headers=ours)
        assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (204, "https://app.example")
        answer = await made.client.post("/agui/a", json=_input("t", "x"), headers=ours)
        assert "Hi." in answer.text
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
        assert (await made.client.post("/api/conversations", json={}, headers=ours)).status_code == 403


def _input(thread: str, *texts: str) -> dict[str, Any]:
    messages = [{"id": f"m{n}{text}", "role": "user", "content": text} for n, text in enumerate(texts)]
    return {"threadId": thread, "runId": "r", "messages": messages}
