"""The API as programs use it: talk, watch, change, look, each by its HTTP route."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import csv
import io
import random
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from rondel import Agent, App, Limits, Person, tool
from rondel.contracts.ledger import Rule
from rondel.events import MessageAdded, TurnStarted
from rondel.stores.memory import MemoryStore
from rondel.stores.sqlite import SqliteStore
from rondel.surfaces.web.server import ROUTES
from rondel.testing import Pause, Scripted, call
from rondel.values import user
from tests.web.served import WAIT_S, Site, site

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 32).decode()


async def texts(made: Site, id: str, **options: Any) -> list[str]:
    """What was said in a conversation and still counts."""
    exported = await made.json("GET", f"/api/conversations/{id}/export?format=json", **options)
    return ["".join(p["text"] for p in m["parts"] if p["type"] == "text") for m in exported["messages"]]


async def test_a_message_is_answered_and_listed():
    async with site(Agent("a", engine=Scripted("Hello back."))) as made:
        id = await made.start()
        await made.say(id, "Hello")
        assert await texts(made, id) == ["Hello", "Hello back."]
        page = await made.json("GET", "/api/conversations?limit=1")
        (info,), more = page["conversations"], page["more"]
        assert (info["id"], info["title"], info["state"], info["person"]) == (id, "Hello", "done", "user")
        assert not more
        shown = await made.json("GET", f"/api/conversations/{id}")
        assert (shown["agent"], shown["is_at_work"], shown["questions"]) == ("a", False, [])


class SlowStore(MemoryStore):
    """A store whose disk is busy until `is_free` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.is_free = asyncio.Event()

    async def append(self, *given: Any, **options: Any) -> Any:
        await self.is_free.wait()
        return await super().append(*given, **options)


async def test_a_conversation_whose_first_turn_has_not_begun_yet_is_there():
    store = SlowStore()
    async with site(Agent("a", engine=Scripted("Hello back.")), store=store) as made:
        id = await made.start()
        await made.json("POST", f"/api/conversations/{id}/messages", {"text": "Hello"})
        assert (await made.client.get(f"/api/conversations/{id}")).status_code == 200
        store.is_free.set()
        await made.app.drain()
        assert await texts(made, id) == ["Hello", "Hello back."]
        await made.json("DELETE", f"/api/conversations/{id}")
        assert (await made.client.get(f"/api/conversations/{id}")).status_code == 404


async def test_chat_takes_messages_and_returns_one():
    """A10: {messages} → {message}; 400 without messages; always answers; nothing is kept."""
    model = Scripted("42", RuntimeError("broken"))
    async with site(Agent("a", engine=model)) as made:
        messages = [
            {"role": "user", "content": "What is 40?"},
            {"role": "assistant", "content": "40"},
            {"role": "user", "content": "And 2 more?"},
        ]
        answer = await made.json("POST", "/api/chat", {"messages": messages})
        assert answer == {"message": {"role": "assistant", "content": "42"}}
        assert [m.text for m in model.prompts[0].messages] == ["What is 40?", "40", "And 2 more?"]
        wrongs: list[dict[str, Any]] = [{"messages": []}, {}]
        for wrong in wrongs:
            refused = await made.client.post("/api/chat", json=wrong)
            assert refused.status_code == 400
            assert "messages" in refused.json()["error"]
        failed = await made.client.post("/api/chat", json={"messages": messages})
        assert failed.status_code == 502
        assert failed.json()["error"]
        made.app.ledger.configure([Rule(tokens=1, mode="block")])
        limited = await made.client.post("/api/chat", json={"messages": messages})
        assert (limited.status_code, "retry-after" in limited.headers) == (429, True)
        assert "limit" in limited.json()["error"]
        assert (await made.json("GET", "/api/conversations"))["conversations"] == []


async def test_a_client_that_reconnects_at_random_gets_every_entry_once():
    """100 reconnects in one turn: no entry lost, none twice, and the text so far comes again."""

    @tool(idempotent=True)
    async def step(n: int) -> str:
        "Do a step."
        return f"step {n}"

    model = Scripted(*(call("step", n=n) for n in range(40)), "done")
    random.seed(7)
    limits = Limits(rounds=100)
    async with site(Agent("a", engine=model, tools=[step], limits=limits)) as made:
        id = await made.start()
        seen: list[int] = []
        finished = asyncio.Event()

        async def watch() -> None:
            connects = 0
            while not finished.is_set():
                connects += 1
                most = random.randrange(1, 4) if connects < 100 else 1_000
                async with asyncio.timeout(WAIT_S):
                    async for name, data in made.events(id, after=seen[-1] if seen else 0):
                        if name != "entry":
                            continue
                        seen.append(data["seq"])
                        if data["event"]["type"] == "turn_finished":
                            finished.set()
                        most -= 1
                        if not most or finished.is_set():
                            break

        async with asyncio.TaskGroup() as group:
            await made.json("POST", f"/api/conversations/{id}/messages", {"text": "go"})
            group.create_task(watch())
        assert seen == list(range(1, seen[-1] + 1))
        assert seen[-1] == (await made.json("GET", f"/api/conversations/{id}/entries"))["seq"]


async def test_clients_that_come_at_the_same_moment_each_get_every_entry(tmp_path: Path):
    store = SqliteStore(tmp_path / "rondel.db")
    async with site(Agent("a", engine=Scripted("Hi.", "Hi again.")), store=store) as made:
        id = await made.start()
        await made.say(id, "Hello")
        await made.say(id, "Hello again")
        last = (await made.json("GET", f"/api/conversations/{id}/entries"))["seq"]

        async def entries() -> list[int]:
            seen: list[int] = []
            async with contextlib.aclosing(made.events(id)) as events:
                async for name, data in events:
                    seen += [data["seq"]] if name == "entry" else []
                    if len(seen) == last:
                        return seen
            return seen

        for _ in range(5):
            made.web.feeds.close_all()
            async with asyncio.timeout(WAIT_S):
                assert await asyncio.gather(*(entries() for _ in range(5))) == [list(range(1, last + 1))] * 5


async def test_who_comes_late_sees_what_was_said_so_far_of_a_reply():
    """The first watcher, and a second one that joins later."""
    pause = Pause("The beginning, ", "and the end.")
    async with site(Agent("a", engine=Scripted(pause))) as made:
        id = await made.start()
        await made.json("POST", f"/api/conversations/{id}/messages", {"text": "go"})
        await pause.reached.wait()
        first, second = made.events(id, after=2), made.events(id, after=2)
        async with asyncio.timeout(WAIT_S):
            assert await _said(first, "The beginning, ") == "The beginning, "
            assert await _said(second, "The beginning, ") == "The beginning, "
            pause.release()
            assert await _said(first, "") == "and the end."
            assert await _said(second, "") == "and the end."
        await first.aclose()
        await second.aclose()


async def test_who_comes_late_sees_what_an_agent_below_has_said_so_far():
    pause = Pause("The helper begins, ", "and ends.")
    helper = Agent("helper", description="Helps.", engine=Scripted(pause, name="scripted:helper"))
    main = Agent("a", engine=Scripted(call("helper", input="Help."), "Done."), tools=[helper])
    async with site(main) as made:
        id = await made.start()
        await made.json("POST", f"/api/conversations/{id}/messages", {"text": "go"})
        await pause.reached.wait()
        async with asyncio.timeout(WAIT_S), contextlib.aclosing(made.events(id)) as events:
            async for name, data in events:
                if name == "live" and data["type"] == "nested" and data["event"]["type"] == "part_delta":
                    assert (data["agent"], data["event"]["text"]) == ("helper", "The helper begins, ")
                    break
        pause.release()
        await made.app.drain()


async def _said(events: AsyncGenerator[tuple[str, Any]], until: str) -> str:
    """The text that streams, until it is this, or until the end of the turn."""
    said = ""
    async for name, data in events:
        if name == "live" and data["type"] == "part_delta":
            said += data["text"]
            if said == until:
                break
        if name == "entry" and data["event"]["type"] == "turn_finished":
            break
    return said


async def test_a_turn_goes_on_when_nobody_watches_and_can_be_stopped():
    pause = Pause("I begin and never")
    async with site(Agent("a", engine=Scripted(pause))) as made:
        id = await made.start()
        await made.json("POST", f"/api/conversations/{id}/messages", {"text": "go"})
        await pause.reached.wait()
        assert (await made.json("GET", f"/api/conversations/{id}"))["is_at_work"]
        refused = await made.client.delete(f"/api/conversations/{id}")
        assert refused.status_code == 409
        assert (await made.json("POST", f"/api/conversations/{id}/stop"))["stopped"]
        await made.app.drain()
        assert await texts(made, id) == ["go", "I begin and never"]


async def test_an_interrupted_turn_is_resumed_once():
    store = MemoryStore()
    started = TurnStarted("t1", "a", person=Person("user"))
    await store.append("c1", 1, (started, MessageAdded(user("go"))), at=1.0)
    async with site(Agent("a", engine=Scripted("Done.")), store=store) as made:
        path = "/api/conversations/c1/resume"
        assert await made.json("POST", path) == {"resumed": True}
        await made.ended("c1", "t1")
        assert await texts(made, "c1") == ["go", "Done."]
        assert await made.json("POST", path) == {"resumed": False}


async def test_editing_regenerating_and_forking():
    async with site(Agent("a", engine=Scripted("one", "two", "three", "four"))) as made:
        id = await made.start()
        await made.say(id, "first")
        sent = await made.json("POST", f"/api/conversations/{id}/regenerate")
        await made.ended(id, sent["turn"])
        assert await texts(made, id) == ["first", "two"]
        sent = await made.json("POST", f"/api/conversations/{id}/edit", {"text": "better"})
        await made.ended(id, sent["turn"])
        assert await texts(made, id) == ["better", "three"]
        entries = (await made.json("GET", f"/api/conversations/{id}/entries"))["entries"]
        reply = [e["event"]["message"]["id"] for e in entries if e["event"]["type"] == "round_finished"][-1]
        other = (await made.json("POST", f"/api/conversations/{id}/fork", {"message": reply}))["id"]
        await made.say(other, "and now?")
        assert await texts(made, other) == ["better", "three", "and now?", "four"]
        assert await texts(made, id) == ["better", "three"]
        infos = (await made.json("GET", "/api/conversations"))["conversations"]
        assert {info["id"] for info in infos} == {id, other}


async def test_a_question_is_answered_over_http():
    @tool(approval="confirm")
    async def pay(amount: int) -> str:
        "Pay."
        return f"paid {amount}"

    async with site(Agent("a", engine=Scripted(call("pay", amount=3), "Done."), tools=[pay])) as made:
        id = await made.start()
        await made.say(id, "Pay 3.")
        (question,) = await made.json("GET", f"/api/conversations/{id}/questions")
        assert "pay" in question["text"]
        wrong = await made.client.post(f"/api/conversations/{id}/questions/nonsense", json={"text": "yes"})
        assert wrong.status_code == 409
        sent = await made.json("POST", f"/api/conversations/{id}/questions/{question['id']}", {"text": "yes"})
        await made.ended(id, sent["turn"])
        assert (await texts(made, id))[-1] == "Done."


async def test_files_are_typed_by_their_content_and_never_served_as_pages():
    html = base64.b64encode(b"<script>alert(1)</script>").decode()
    async with site(Agent("a", engine=Scripted("Nice."))) as made:
        id = await made.start()
        attachments = [{"name": "../../x.html", "data": html}, {"name": "picture.txt", "data": PNG}]
        body = {"text": "look", "attachments": attachments}
        sent = await made.json("POST", f"/api/conversations/{id}/messages", body)
        await made.ended(id, sent["turn"])
        entries = (await made.json("GET", f"/api/conversations/{id}/entries"))["entries"]
        parts = next(e["event"]["message"]["parts"] for e in entries if e["event"]["type"] == "message_added")
        media = [part for part in parts if part["type"] == "media"]
        assert [part["mime"] for part in media] == ["text/plain", "image/png"]
        assert [part["name"] for part in media] == ["x.html", "picture.txt"]
        assert all("data" not in part for part in media)
        page, picture = [await made.client.get(part["url"]) for part in media]
        assert page.headers["content-type"].startswith("text/plain")
        assert page.headers["content-disposition"] == "attachment"
        assert picture.headers["content-disposition"] == "inline"
        for answer in (page, picture):
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert "sandbox" in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"text": "   "}, 400, "empty"),
        ({"text": "x", "attachments": [{"name": "a", "data": "not base64!"}]}, 400, "Base64"),
        ({"text": "x", "attachments": [{"name": "a", "data": ""}]}, 400, "empty"),
        ({"text": "x" * 2_000_001}, 413, "2,000,001"),
        ({"text": "x", "attachments": [{"name": "a", "data": PNG}] * 21}, 413, "21 files"),
        ({"txt": "x"}, 400, "txt"),
        ({"text": 3}, 400, "$.text"),
        ([], 400, "body"),
    ],
)
async def test_a_wrong_message_is_one_sentence_and_nothing_is_kept(body: Any, status: int, said: str):
    async with site(Agent("a", engine=Scripted())) as made:
        id = await made.start()
        answer = await made.client.post(f"/api/conversations/{id}/messages", json=body)
        assert answer.status_code == status
        assert said in answer.json()["error"]
        assert (await made.json("GET", "/api/conversations"))["conversations"] == []


async def test_looking_at_traces_usage_agents_jobs_and_settings():
    async with site(Agent("a", "You are brief.", engine=Scripted("Yes."))) as made:
        id = await made.start()
        await made.say(id, "Hello?")
        trace = await made.json("GET", f"/api/conversations/{id}/trace")
        assert [child["kind"] for child in trace["children"]] == ["turn"]
        page = await made.client.get(f"/api/conversations/{id}/trace?format=html")
        assert page.headers["content-disposition"].startswith("attachment")
        usage = await made.json("GET", "/api/usage?by=agent&window=day")
        assert usage["totals"]["lifetime"]["calls"] == 1
        table = await made.client.get("/api/usage.csv?by=agent&window=day")
        (row,) = csv.DictReader(io.StringIO(table.text))
        assert (row["window"], row["agent"], row["calls"]) == (usage["rows"][0]["key"], "a", "1")
        (agent,) = await made.json("GET", "/api/agents")
        assert (agent["name"], agent["is_default"]) == ("a", True)
        preview = await made.json("POST", "/api/agents/a/prompt", {"text": "Hi"})
        assert [m["message"]["role"] for m in preview["messages"]] == ["system", "user"]
        assert await made.json("GET", "/api/jobs") == {"jobs": [], "schedules": []}
        metrics = await made.client.get("/metrics")
        assert "rondel_calls_total 1" in metrics.text


async def test_a_rounds_request_is_shown_in_its_dialect_and_run_again_with_another_engine():
    @tool
    async def add(a: int, b: int, why: dict[str, list[str]] | None = None) -> str:
        "Add two numbers."
        return str(a + b)

    adding = call("add", "c1", a=40, b=2, why={"key-secret": ["sk-secret"]})
    model = Scripted(adding, "It is 42, sk-secret.", "Once more.", "Again: 42.")

    def hide(text: str) -> str:
        return text.replace("sk-secret", "***").replace("key-secret", "***")

    def other(name: str) -> Scripted:
        return Scripted("From another.", name=name)

    agent = Agent("a", "You are brief: sk-secret.", engine=model, tools=[add], inputs={})
    async with site(agent, about={"hide": hide}, make_engine=other) as made:
        id = await made.start()
        await made.say(id, "What is 40 and 2, sk-secret?")
        await made.say(id, "And?")
        turn = (await made.json("GET", f"/api/conversations/{id}/trace"))["children"][0]["id"]
        first, second = [
            await made.json("GET", f"/api/conversations/{id}/request?turn={turn}&round={n}") for n in (1, 2)
        ]
        assert (first["dialect"], first["is_own"]) == ("openai-chat", False)
        assert [one["role"] for one in first["after"]["messages"]] == ["system", "user"]
        assert [one["role"] for one in second["after"]["messages"]] == ["system", "user", "assistant", "tool"]
        assert first["before"]["tools"][0]["function"]["name"] == "add"
        for query in (f"turn={turn}&round=9", "turn=nope"):
            assert (await made.client.get(f"/api/conversations/{id}/request?{query}")).status_code == 404
        again = await made.json("POST", f"/api/conversations/{id}/rerun", {"turn": turn, "engine": "other:one"})
        assert again["engine"] == "other:one"
        entries = (await made.json("GET", f"/api/conversations/{again['id']}/entries"))["entries"]
        assert not any(one["event"]["type"] == "history_given" for one in entries)
        await made.app.drain()
        assert (await made.app.conversation(again["id"]).transcript()).messages[-1].text == "From another."
        shared = [
            await made.client.get(f"/api/conversations/{id}/trace?format=html{more}") for more in ("", "&content=no")
        ]
        shared += [
            await made.client.get(f"/api/conversations/{id}/trace?{more}") for more in ("format=markdown", "content=no")
        ]
        assert not [one.text for one in shared if "sk-secret" in one.text or "key-secret" in one.text]
        assert "40 and 2" in shared[0].text
        assert "40 and 2" not in shared[1].text
        assert "add" in shared[1].text


async def test_every_route_is_described():
    async with site(Agent("a", engine=Scripted())) as made:
        described = await made.json("GET", "/api/openapi.json")
        listed = {(m.upper(), p) for p, methods in described["paths"].items() for m in methods}
        assert listed == {(route.method, route.path) for route in ROUTES}
        for path in listed:
            assert (await made.client.request("PUT", path[1].replace("{", "").replace("}", ""))).status_code == 405
        missing = await made.client.get("/api/nothing")
        assert (missing.status_code, "/api/nothing" in missing.json()["error"]) == (404, True)


async def test_a_change_does_not_wait_for_the_turn_of_another_process(tmp_path: Path):
    path, pause = tmp_path / "rondel.db", Pause("I begin ")

    def other(name: str) -> Scripted:
        return Scripted(name=name)

    async with (
        App(Agent("a", engine=Scripted(pause)), store=SqliteStore(path)) as elsewhere,
        site(Agent("a", engine=Scripted()), store=SqliteStore(path), recover=False, make_engine=other) as made,
    ):
        view = await elsewhere.conversation("c").send("Hello", person=Person("user"))
        await pause.reached.wait()
        async with asyncio.timeout(WAIT_S):
            while await made.app.store.info("c") is None:  # its first entries are written within milliseconds
                await asyncio.sleep(0.01)
            for method, path, body in (("POST", "/engine", {"engine": "other:one"}), ("PATCH", "", {"title": "New"})):
                answer = await made.client.request(method, f"/api/conversations/c{path}", json=body)
                assert (answer.status_code, answer.json()["error"][:15]) == (409, "another process")
            pause.release()
            await view.result()
        await made.json("PATCH", "/api/conversations/c", {"title": "Newer"})
        assert (await made.json("GET", "/api/conversations/c"))["info"]["title"] == "Newer"


async def test_a_deleted_conversation_ends_its_streams():
    async with site(Agent("a", engine=Scripted("Hi."))) as made:
        id = await made.start()
        await made.say(id, "Hello")
        async with asyncio.timeout(WAIT_S):
            events = made.events(id, after=0)
            assert (await anext(events))[1]["seq"] == 1
            await made.json("DELETE", f"/api/conversations/{id}")
            assert [data async for _, data in events][-1]["event"]["type"] == "turn_finished"
        assert (await made.client.get(f"/api/conversations/{id}")).status_code == 404


def test_every_route_is_in_the_documentation():
    page = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
    who = {"public": "everyone", "person": "you", "admin": "admins"}
    rows = {f"| `{one.method} {one.path}` | {one.summary} | {who[one.rights]} |" for one in ROUTES}
    assert {line for line in page.splitlines() if line.startswith("| `")} == rows


def test_the_keys_of_the_page_are_in_the_documentation():
    root = Path(__file__).parents[2]
    keys = re.search(
        r"const KEYS.*?= \[(.*?)\];", (root / "web/src/parts/Palette.tsx").read_text(encoding="utf-8"), re.S
    )
    assert keys
    rows = {f"| {key} | {does} |" for key, does in re.findall(r'\["([^"]+)", "([^"]+)"\]', keys[1])}
    page = (root / "docs" / "page.md").read_text(encoding="utf-8").partition("## Keyboard")[2]
    assert rows == {line for line in page.splitlines() if line.startswith("| ")} - {"| key | does |"}


async def test_odd_numbers_and_names_are_one_sentence_and_no_failure():
    async with site(Agent("a", engine=Scripted("Hi."))) as made:
        id = await made.start()
        await made.say(id, "Hello")
        message = (await made.json("GET", f"/api/conversations/{id}/export?format=json"))["messages"][0]["id"]
        here = f"/api/conversations/{id}"
        for path, status in (
            (f"{here}/media/{message}/²", 404),
            (f"{here}/media/{message}/99", 404),
            (f"{here}/media/{message}/{'9' * 5_000}", 404),
            (f"{here}/entries?after={10**20}", 400),
            (f"{here}/events?after={10**20}", 400),
        ):
            assert (await made.client.get(path)).status_code == status, path
        async with made.client.stream("GET", f"{here}/events", headers={"last-event-id": b"\xb2"}) as answer:
            assert answer.status_code == 200
        for engine in ("big:" + "x" * 600, "big:a\nb"):
            assert (await made.client.post(f"{here}/engine", json={"engine": engine})).status_code == 400


async def test_messages_that_waited_when_the_server_ended_are_answered_first(tmp_path: Path):
    """`rondel serve` takes up nothing by itself; who speaks again is answered in the order of their messages."""
    path, pause = tmp_path / "rondel.db", Pause("I begin ")
    async with site(Agent("a", engine=Scripted(pause)), store=SqliteStore(path), recover=False) as made:
        id = await made.start()
        for text in ("one", "two"):
            await made.json("POST", f"/api/conversations/{id}/messages", {"text": text})
        await pause.reached.wait()
    engine = Scripted("First.", "Second.", "Third.")
    async with site(Agent("a", engine=engine), store=SqliteStore(path), recover=False) as made:
        await made.say(id, "three")
    assert [prompt.messages[-1].text for prompt in engine.prompts] == ["one", "two", "three"]
