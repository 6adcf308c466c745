"""A2A 1.0, judged by the client of the official SDK."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from a2a.utils.errors import A2AError

from rondel import Agent, Media, tool
from rondel.testing import Pause, Scripted, call
from rondel.tools.ask_user import ask_user
from tests.web.served import WAIT_S, Site, site
from tests.web.test_access import ANN, BOB, KEYS
from tests.web.test_agui import send

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 32


@contextlib.asynccontextmanager
async def client(made: Site, *, agent: str = "", streaming: bool = False, **headers: str) -> AsyncGenerator[Client]:
    """The SDK's client of an agent, by its card."""
    async with httpx.AsyncClient(headers=headers, timeout=WAIT_S) as http:
        base = f"{made.address}/a2a/{agent}" if agent else made.address
        card = await A2ACardResolver(http, base).get_agent_card()
        factory = ClientFactory(ClientConfig(streaming=streaming, httpx_client=http))
        yield factory.create(card)


def saying(text: str, id: str = "m1", *, parts: tuple[Part, ...] = (), **fields: str) -> SendMessageRequest:
    message = Message(message_id=id, role=Role.ROLE_USER, parts=[Part(text=text), *parts], **fields)
    return SendMessageRequest(message=message)


async def task(asked: Client, request: SendMessageRequest) -> Task:
    """Send without streaming, and return the task."""
    (found,) = [one async for one in asked.send_message(request)]
    return found.task


def answer(found: Task) -> str:
    return "".join(part.text for artifact in found.artifacts for part in artifact.parts)


async def test_a_task_is_done_read_and_listed_and_its_context_is_a_conversation():
    model = Scripted("Hello back.", "And again.")
    async with site(Agent("a", engine=model, description="Greets.")) as made, client(made) as asked:
        first = await task(asked, saying("Hello"))
        assert (first.status.state, answer(first)) == (TaskState.TASK_STATE_COMPLETED, "Hello back.")
        assert [message.parts[0].text for message in first.history] == ["Hello"]
        again = await task(asked, saying("Hello", context_id=first.context_id))
        assert again.id == first.id  # the same message, sent again
        second = await task(asked, saying("More", "m2", context_id=first.context_id))
        assert second.context_id == first.context_id
        assert [m.text for m in model.prompts[-1].messages if m.role == "user"] == ["Hello", "More"]
        assert answer(await asked.get_task(GetTaskRequest(id=first.id))) == "Hello back."
        page = await asked.list_tasks(ListTasksRequest(page_size=1))
        assert ([one.id for one in page.tasks], page.total_size) == ([second.id], 2)
        rest = await asked.list_tasks(ListTasksRequest(page_token=page.next_page_token, include_artifacts=True))
        assert [answer(one) for one in rest.tasks] == ["Hello back."]
        assert rest.next_page_token == ""
        (info,) = (await made.json("GET", "/api/conversations"))["conversations"]
        assert info["id"] == first.context_id


async def test_a_task_streams_survives_its_client_and_can_be_cancelled():
    pause, endless = Pause("The beginning, ", "and the end."), Pause("Half ", "never")
    async with site(Agent("a", engine=Scripted(pause, endless))) as made, client(made, streaming=True) as asked:
        events = asked.send_message(saying("Go"))
        async with asyncio.timeout(WAIT_S):
            first = await anext(events)
            assert first.WhichOneof("payload") == "task"
            while not (await anext(events)).HasField("artifact_update"):
                pass
            await events.aclose()
            seen: list[StreamResponse] = []
            async for event in asked.subscribe(SubscribeToTaskRequest(id=first.task.id)):
                seen.append(event)
                if event.HasField("artifact_update"):
                    pause.release()
        text = "".join(e.artifact_update.artifact.parts[0].text for e in seen if e.HasField("artifact_update"))
        assert text == "The beginning, and the end."
        assert seen[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED
        with pytest.raises(A2AError, match="has ended"):
            _ = [event async for event in asked.subscribe(SubscribeToTaskRequest(id=first.task.id))]
        with pytest.raises(A2AError, match="has ended already"):
            await asked.cancel_task(CancelTaskRequest(id=first.task.id))
        second = await anext(asked.send_message(saying("Go", "m2")))
        await endless.reached.wait()
        stopped = await asked.cancel_task(CancelTaskRequest(id=second.task.id))
        assert (stopped.status.state, answer(stopped)) == (TaskState.TASK_STATE_CANCELED, "Half ")


async def test_questions_and_approvals_are_input_required_and_a_message_answers_them():
    asks = call("ask_user", question="Which?", options=["red", "blue"], free_text=False)
    model = Scripted(call("send", to="a@b.c"), "Sent.", asks, "Blue.", RuntimeError("the model is gone"))
    async with site(Agent("a", engine=model, tools=[send, ask_user])) as made, client(made, agent="a") as asked:
        held = await task(asked, saying("Write"))
        assert held.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
        assert "Allow send to run" in held.status.message.parts[0].text
        with pytest.raises(A2AError, match="waits for input"):
            await task(asked, saying("Hurry", "m2", context_id=held.context_id))
        done = await task(asked, saying("yes", "m3", task_id=held.id))
        assert (done.id, done.status.state, answer(done)) == (held.id, TaskState.TASK_STATE_COMPLETED, "Sent.")
        with pytest.raises(A2AError, match="has ended; leave taskId out"):
            await task(asked, saying("yes", "m4", task_id=held.id))
        choice = await task(asked, saying("Which?", "m5", context_id=held.context_id))
        with pytest.raises(A2AError, match="not one of: red, blue"):
            await task(asked, saying("green", "m6", task_id=choice.id))
        assert answer(await task(asked, saying("blue", "m7", task_id=choice.id))) == "Blue."
        failed = await task(asked, saying("Fail", "m8"))
        assert failed.status.state == TaskState.TASK_STATE_FAILED
        assert failed.status.message.parts[0].text == "the model is gone"


async def test_files_go_in_and_come_out():
    @tool
    async def draw() -> Media:
        "Draw."
        return Media("image", "image/png", PNG, name="fox.png")

    model = Scripted("I see.", call("draw"), "Here it is.")
    async with site(Agent("a", engine=model, tools=[draw])) as made, client(made) as asked:
        seen = await task(asked, saying("Look", parts=(Part(raw=PNG, filename="a.png", media_type="image/png"),)))
        (given,) = [part for part in model.prompts[0].messages[-1].parts if getattr(part, "data", b"")]
        assert (given.mime, given.data) == ("image/png", PNG)
        assert base64.b64encode(seen.history[0].parts[1].raw) == base64.b64encode(PNG)
        drawn = await task(asked, saying("Draw", "m3"))
        (file,) = [artifact for artifact in drawn.artifacts if artifact.name != "answer"]
        assert (file.name, file.parts[0].raw, file.parts[0].media_type) == ("fox.png", PNG, "image/png")
        with pytest.raises(A2AError, match="send a file in `raw`"):
            await task(asked, saying("x", "m2", parts=(Part(url="http://127.0.0.1/x", media_type="video/mp4"),)))


async def test_nobody_sees_or_changes_anothers_task():
    async with (
        site(Agent("a", engine=Scripted("For Ann.")), keys=KEYS) as made,
        client(made, **ANN) as ann,
        client(made, **BOB) as bob,
    ):
        mine = await task(ann, saying("My secret"))
        for ask in (
            bob.get_task(GetTaskRequest(id=mine.id)),
            bob.cancel_task(CancelTaskRequest(id=mine.id)),
            task(bob, saying("x", task_id=mine.id)),
            task(bob, saying("x", context_id=mine.context_id)),
            bob.list_tasks(ListTasksRequest(context_id=mine.context_id)),
        ):
            with pytest.raises(A2AError, match=r"there is no (task|context)"):
                await ask
        assert (await bob.list_tasks(ListTasksRequest())).total_size == 0
        assert (await made.client.get("/.well-known/agent-card.json")).status_code == 401


@pytest.mark.parametrize(
    ("body", "version", "code", "said"),
    [
        ({"method": "GetTask", "params": {"id": "x"}}, "1.0", -32001, "there is no task 'x'"),
        ({"method": "GetTask", "params": {}}, "1.0", -32602, "missing required field `id`"),
        ({"method": "Nonsense"}, "1.0", -32601, "there is no method 'Nonsense'"),
        ({"method": "CreateTaskPushNotificationConfig"}, "1.0", -32003, "push notifications"),
        ({"method": "GetTask", "params": {"id": "x"}}, "", -32009, "A2A 0.3 is not supported here"),
        ({"method": "SendStreamingMessage", "params": {"message": 1}}, "1.0", -32602, "message"),
        ({"method": 5}, "1.0", -32600, "method"),
        ({"method": "ListTasks", "params": {"pageSize": 1000}}, "1.0", -32602, "from 1 to 100"),
    ],
)
async def test_mistakes_have_the_protocols_codes(body: dict[str, Any], version: str, code: int, said: str):
    async with site(Agent("a", engine=Scripted())) as made:
        asked = {"jsonrpc": "2.0", "id": 7, **body}
        got = await made.client.post("/a2a/a", json=asked, headers={"a2a-version": version} if version else {})
        assert (got.status_code, got.json()["error"]["code"]) == (200, code)
        assert said in got.json()["error"]["message"]
        broken = await made.client.post("/a2a/a", content=b"{", headers={"content-type": "application/json"})
        assert broken.json()["error"]["code"] == -32700
        assert (await made.client.post("/a2a/nobody", json=asked)).status_code == 404
