"""Who may do what: keys, sessions, owners, hosts, origins. Every route has its rights in one table."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import httpx2
import pytest

from rondel import Agent, tool
from rondel.gateway.relay.record import Record
from rondel.project.settings import KeySettings
from rondel.surfaces.web.observe import LISTED_MAX
from rondel.surfaces.web.people import COOKIE, SESSIONS_MAX, WRONG_MAX
from rondel.surfaces.web.server import ROUTES
from rondel.testing import Scripted, call
from rondel.text.schedule import parse
from rondel.tools.ask_user import ask_user
from rondel.values import Person
from tests.web.served import WAIT_S, read_events, site

KEYS = {
    "ann-laptop": KeySettings(key="ann-secret", person="ann"),
    "bob": KeySettings(key="bob-secret"),
    "root": KeySettings(key="root-secret", roles=("admin",)),
}
ANN, BOB, ROOT = ({"authorization": f"Bearer {name}-secret"} for name in ("ann", "bob", "root"))


def test_the_rights_of_every_route():
    """A new route must be added here, so that somebody thinks about who may call it."""
    # The cards of A2A need a key, too: they name agents, and whoever serves with keys wants no strangers.
    public = {("POST", "/api/session"), ("GET", "/api/openapi.json")}
    admin = {
        ("GET", "/api/usage"),
        ("GET", "/api/usage.csv"),
        ("GET", "/api/settings"),
        ("PATCH", "/api/settings"),
        ("GET", "/api/problems"),
        ("GET", "/api/requests"),
        ("GET", "/api/requests/events"),
        ("GET", "/api/knowledge"),
        ("GET", "/api/knowledge/search"),
        ("GET", "/api/knowledge/{base}/documents"),
        ("POST", "/api/knowledge/{base}/sync"),
        ("POST", "/api/knowledge/{base}/cancel"),
        ("GET", "/api/mcp"),
        ("GET", "/api/mcp/{server}/tools"),
        ("POST", "/api/mcp/{server}/reconnect"),
        ("POST", "/api/mcp/{server}/login"),
        ("DELETE", "/api/mcp/{server}/login"),
        ("POST", "/api/mcp/{server}/cancel"),
        ("POST", "/api/models/{model}/download"),
        ("POST", "/api/models/{model}/cancel"),
        ("DELETE", "/api/models"),
    }
    found = {(route.method, route.path): route.rights for route in ROUTES}
    assert {key for key, rights in found.items() if rights == "public"} == public
    assert {key for key, rights in found.items() if rights == "admin"} == admin


async def test_no_route_but_the_public_ones_answers_a_stranger():
    async with site(Agent("a", engine=Scripted()), keys=KEYS) as made:
        for route in ROUTES:
            if route.rights == "public":
                continue
            path = route.path.replace("{", "").replace("}", "")
            for headers in ({}, {"authorization": "Bearer wrong"}, {"cookie": f"{COOKIE}=nonsense"}):
                answer = await made.client.request(route.method, path, headers=headers)
                assert answer.status_code == 401, route.path


async def test_people_see_and_cancel_the_jobs_of_their_own_conversations_only():
    """Also those of an agent that works for another one: they belong to the conversation that the person sees."""

    @tool(background="background")
    async def research() -> str:
        "Research for ever."
        await asyncio.Event().wait()
        return ""

    helper = Agent("helper", engine=Scripted(call("research"), "Begun."), tools=[research], description="Helps")
    main = Agent("a", engine=Scripted(call("helper", input="Look."), "It works."), tools=[helper])
    async with site(main, keys=KEYS) as made:
        id = await made.start(headers=ANN)
        await made.say(id, "Research.", headers=ANN)
        (job,) = (await made.json("GET", "/api/jobs", headers=ANN))["jobs"]
        assert job["conversation"] == id
        assert (await made.json("GET", "/api/jobs", headers=BOB))["jobs"] == []
        assert (await made.json("GET", "/api/jobs", headers=ROOT))["jobs"] == [job]
        path = f"/api/jobs/{job['id']}/cancel"
        assert (await made.client.post(path, headers=BOB)).status_code == 404
        assert (await made.client.post(path, headers=ANN)).status_code == 200


async def test_the_jobs_of_others_do_not_crowd_out_one_s_own():
    async with site(Agent("a", engine=Scripted("Hello.")), keys=KEYS) as made:
        id = await made.start(headers=BOB)
        await made.say(id, "hi", headers=BOB)
        plan = parse({"say": "News", "cron": "0 8 * * *"})
        for number in range(LISTED_MAX):
            await made.app.timetable.add("a", plan, conversation=f"of-another-{number}", id=f"a{number:03}")
        await made.app.timetable.add("a", plan, conversation=id, id="mine")
        (mine,) = (await made.json("GET", "/api/jobs", headers=BOB))["schedules"]
        assert mine["conversation"] == id
        assert len((await made.json("GET", "/api/jobs", headers=ROOT))["schedules"]) == LISTED_MAX


async def test_nobody_sees_or_changes_anothers_conversation():
    async with site(Agent("a", engine=Scripted("For Ann.", "Again.")), keys=KEYS) as made:
        id = await made.start(headers=ANN)
        assert (await made.client.get(f"/api/conversations/{id}", headers=BOB)).status_code == 404
        await made.say(id, "My secret", headers=ANN)
        assert (await made.json("GET", "/api/conversations", headers=BOB))["conversations"] == []
        for route in ROUTES:
            if "{id}" in route.path:
                path = route.path.replace("{id}", id).replace("{", "").replace("}", "")
                answer = await made.client.request(route.method, path, headers=BOB, json={"text": "x", "title": "x"})
                assert answer.status_code in (400, 404), route.path
                assert "secret" not in answer.text
        (info,) = (await made.json("GET", "/api/conversations", headers=ROOT))["conversations"]
        assert (info["id"], info["person"]) == (id, "ann")
        for route in ROUTES:
            if route.rights == "admin":
                assert (await made.client.request(route.method, route.path, headers=BOB)).status_code == 403


async def test_a_key_that_may_not_use_the_default_agent_starts_with_the_first_that_it_may():
    keys = {"eve": KeySettings(key="eve-secret", models=("agent:open", "small"))}
    eve = {"authorization": "Bearer eve-secret"}
    small = Scripted("Yes.", name="small")
    agents = [Agent("closed", engine=Scripted()), Agent("open", engine=small)]
    async with site(*agents, keys=keys, make_engine={"small": small}.__getitem__) as made:
        (agent,) = await made.json("GET", "/api/agents", headers=eve)
        assert (agent["name"], agent["is_default"]) == ("open", True)
        id = await made.start(headers=eve)
        await made.json("POST", f"/api/conversations/{id}/engine", {"engine": "small"}, headers=eve)
        await made.say(id, "Hello", headers=eve)
        made.set_keys({"eve": KeySettings(key="eve-secret", models=("agent:open",))})
        later = await made.client.post(f"/api/conversations/{id}/messages", json={"text": "More"}, headers=eve)
        assert later.status_code == 403, "the engine that was chosen is not the key's any more"


async def test_a_session_is_a_cookie_that_no_script_reads_and_that_ends_with_its_key():
    async with site(Agent("a", engine=Scripted()), keys=KEYS) as made:
        wrong = await made.client.post("/api/session", json={"key": "nonsense"})
        assert wrong.status_code == 401
        answer = await made.client.post("/api/session", json={"key": "ann-secret"})
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert answer.json()["person"]["id"] == "ann"
        assert (await made.json("GET", "/api/me"))["person"]["id"] == "ann"
        (session,) = await made.json("GET", "/api/sessions")
        assert (await made.client.delete(f"/api/sessions/{session['id']}", headers=BOB)).status_code == 404
        made.set_keys({**KEYS, "ann-laptop": KeySettings(key="changed", person="ann")})
        assert (await made.client.get("/api/me")).status_code == 401
        assert await made.json("GET", "/api/sessions", headers=ROOT) == []
        made.set_keys(KEYS)
        assert (await made.client.get("/api/me")).status_code == 200
        await made.json("DELETE", "/api/session")
        made.client.cookies.clear()
        assert (await made.client.get("/api/me")).status_code == 401


async def test_a_stranger_with_wrong_keys_must_wait_and_locks_no_one_out():
    async with site(Agent("a", engine=Scripted("x")), keys=KEYS) as made:
        stranger = httpx2.AsyncHTTPTransport(local_address="127.0.0.2")
        async with httpx2.AsyncClient(base_url=made.address, transport=stranger, timeout=WAIT_S) as client:
            for _ in range(WRONG_MAX):
                assert (await client.post("/api/session", json={"key": "guess"})).status_code == 401
            limited = await client.post("/api/session", json={"key": "guess"})
            assert (limited.status_code, "retry-after" in limited.headers) == (429, True)
        assert (await made.client.post("/api/session", json={"key": "ann-secret"})).status_code == 200


@pytest.mark.parametrize("proxies", [(), ("127.0.0.0/8",)])
async def test_only_a_known_proxy_says_where_a_log_in_comes_from(proxies: tuple[str, ...]):
    async with site(Agent("a", engine=Scripted()), keys=KEYS, proxies=proxies) as made:

        async def log_in(key: str, address: str) -> httpx2.Response:
            # What the stranger sends comes first; the proxy adds the address that it sees.
            headers = {"x-forwarded-for": f"203.0.113.9, {address}", "x-forwarded-proto": "https"}
            return await made.client.post("/api/session", json={"key": key}, headers=headers)

        for _ in range(WRONG_MAX):
            assert (await log_in("guess", "198.51.100.1")).status_code == 401
        assert (await log_in("ann-secret", "198.51.100.1")).status_code == 429
        other = await log_in("ann-secret", "198.51.100.2")
        assert other.status_code == (200 if proxies else 429)
        assert ("Secure" in other.headers.get("set-cookie", "")) == bool(proxies)


@pytest.mark.parametrize(
    "addresses",
    [
        ["2001:db8:1:1::{n:x}"],
        ["2001:db8::2", "2001:DB8::2", "2001:0db8:0::2", "[2001:db8:0:0::2]:{n}"],
        ["::ffff:198.51.100.7", "198.51.100.7"],
    ],
)
async def test_one_caller_has_one_address_however_it_is_written(addresses: list[str]):
    """A caller with IPv6 has a whole network of addresses."""
    async with site(Agent("a", engine=Scripted()), keys=KEYS, proxies=("127.0.0.1",)) as made:
        found: list[int] = []
        for n in range(WRONG_MAX + 1):
            headers = {"x-forwarded-for": addresses[n % len(addresses)].format(n=n)}
            found.append((await made.client.post("/api/session", json={"key": "guess"}, headers=headers)).status_code)
        assert found == [401] * WRONG_MAX + [429]


async def test_only_an_admin_reads_where_the_engine_was_set():
    about = {"hints": ("set it in /home/root/rondel.toml",)}
    async with site(Agent("a", engine=Scripted()), keys=KEYS, about=about) as made:
        assert (await made.json("GET", "/api/me", headers=ROOT))["hints"] == list(about["hints"])
        me = await made.json("GET", "/api/me", headers=ANN)
        assert (me["engine_why"], me["hints"]) == ("the owner of this server chose it", [])


async def test_what_a_proxy_passes_on_as_an_address_is_bounded():
    async with site(Agent("a", engine=Scripted()), keys=KEYS, proxies=("127.0.0.1",)) as made:
        for n in range(WRONG_MAX + 1):
            headers = {"x-forwarded-for": "x" * 10_000 + str(n)}
            answer = await made.client.post("/api/session", json={"key": "guess"}, headers=headers)
        assert answer.status_code == 429, "addresses that differ only in what is cut off are the same"


async def test_the_sessions_of_one_key_lock_no_one_out():
    async with site(Agent("a", engine=Scripted()), keys=KEYS) as made:

        async def log_in(key: str) -> dict[str, str]:
            _, token = await made.web.people.log_in(made.web.gate, key, "", "127.0.0.1")
            return {"cookie": f"{COOKIE}={token}"}

        async def me(cookie: dict[str, str]) -> int:
            return (await made.client.get("/api/me", headers=cookie)).status_code

        anns = await log_in("ann-secret")
        bobs = [await log_in("bob-secret") for _ in range(SESSIONS_MAX)]
        newest = await log_in("root-secret")
        # Whoever has most of them loses the oldest, and not who came first or comes last.
        assert [await me(cookie) for cookie in (anns, *bobs[:3], bobs[-1], newest)] == [200, 401, 401, 200, 200, 200]
        (mine,) = await made.json("GET", "/api/sessions", headers=anns)
        assert mine["key"] == "ann-laptop"


async def test_the_new_conversations_of_one_person_cost_no_one_else_theirs():
    async with site(Agent("a", engine=Scripted("Hello.")), keys=KEYS) as made:
        anns = await made.start(headers=ANN)
        bobs = [await made.start(headers=BOB) for _ in range(3)]
        for n in range(20_000):  # as `POST /api/conversations` does
            made.web.add_new(f"new-{n}", Person("bob"), "a")
        assert (await made.client.get(f"/api/conversations/{bobs[0]}", headers=BOB)).status_code == 404
        await made.say(anns, "Hello", headers=ANN)


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
async def test_no_other_site_can_change_anything(headers: dict[str, str]):
    async with site(Agent("a", engine=Scripted())) as made:
        answer = await made.client.post("/api/conversations", json={}, headers=headers)
        assert answer.status_code == 403
        if "sec-fetch-site" not in headers:
            assert (await made.client.get("/api/conversations", headers=headers)).status_code == 403


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({}, id="removed"),
        pytest.param({"root": KeySettings(key="root-secret", person="eve", roles=("admin",))}, id="another-person"),
        pytest.param({"root": KeySettings(key="root-secret", person="root")}, id="lost-its-role"),
    ],
)
async def test_a_key_that_was_revoked_or_changed_ends_its_stream(
    changed: dict[str, KeySettings], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rondel.surfaces.web.feed.PING_S", 0.05)
    keys = {"root": KeySettings(key="root-secret", person="root", roles=("admin",))}
    async with site(Agent("a", engine=Scripted("Hi.")), keys=keys) as made:
        root = {"authorization": "Bearer root-secret"}
        id = await made.start(headers=root)
        await made.say(id, "Hello", headers=root)
        async with asyncio.timeout(WAIT_S):
            events = made.events(id, headers=root)
            await anext(events)
            made.set_keys({"bob": KEYS["bob"], **changed})
            assert [name async for name, _ in events]  # what was stored, then the end


async def test_a_revoked_key_ends_its_stream_of_requests_although_they_never_pause(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rondel.surfaces.web.observe.PING_S", 0.05)
    async with (
        site(Agent("a", engine=Scripted()), keys=KEYS) as made,
        asyncio.timeout(WAIT_S),
        made.client.stream("GET", "/api/requests/events", headers=ROOT) as answer,
    ):
        lines = answer.aiter_lines()
        await anext(lines)  # it watches
        made.set_keys({"bob": KEYS["bob"]})
        made.records.add(Record("first", 0.0, "openai-chat"))
        count = 0
        async for _ in read_events(lines):
            made.records.add(Record("next", 0.0, "openai-chat"))
            count += 1
        assert count


async def test_a_stranger_cannot_fill_memory_with_a_log_in():
    async with site(Agent("a", engine=Scripted()), keys=KEYS) as made:
        answer = await made.client.post("/api/session", json={"key": "k" * 20_000})
        assert (answer.status_code, answer.json()["error"]) == (413, "the body is larger than 16 KB; send less")

        async def pieces() -> AsyncGenerator[bytes]:
            for _ in range(1_000):
                yield b" " * 1_000

        named = {"content-type": "application/json"}
        assert (await made.client.post("/api/session", content=pieces(), headers=named)).status_code == 413


async def test_the_page_and_its_files_have_a_strict_policy():
    async with site(Agent("a", engine=Scripted())) as made:
        answer = await made.client.get("/", headers={"accept": "text/html"})
        policy = answer.headers["content-security-policy"]
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        for path in ("/assets/../server.py", "/assets/..%2fserver.py", "/assets/nothing.js"):
            assert (await made.client.get(path)).status_code == 404


LIMITED = {
    "guest": KeySettings(key="guest-secret", models=("agent:helper", "small")),
    "engines": KeySettings(key="engines-secret", models=("small",)),
}
GUEST, ENGINES = ({"authorization": f"Bearer {name}-secret"} for name in LIMITED)


def asked_over_every_door(agent: str) -> list[tuple[str, str, dict[str, object]]]:
    """Requests that begin a turn of an agent."""
    message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "Hi"}]}
    said = {"id": "1", "role": "user", "content": "Hi"}
    return [
        ("POST", "/api/conversations", {"agent": agent}),
        ("POST", "/api/chat", {"agent": agent, "messages": [{"role": "user", "content": "Hi"}]}),
        ("POST", f"/api/agents/{agent}/prompt", {"text": "Hi"}),
        ("POST", f"/agui/{agent}", {"threadId": "t", "runId": "1", "messages": [said]}),
        ("POST", f"/a2a/{agent}", {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}),
    ]


async def test_no_door_leads_to_an_agent_or_a_model_that_a_key_may_not_use():
    big, small = Scripted(name="big"), Scripted(*["Fine."] * 9, name="small")
    agents = Agent("boss", engine=big), Agent("helper", engine=small)
    async with site(*agents, keys=LIMITED, make_engine={"big": big, "small": small}.__getitem__) as made:
        headers = {**GUEST, "a2a-version": "1.0"}
        assert [one["name"] for one in await made.json("GET", "/api/agents", headers=GUEST)] == ["helper"]
        for agent, status in (("boss", 403), ("helper", 200)):
            for method, path, body in asked_over_every_door(agent):
                answer = await made.client.request(method, path, json=body, headers=headers)
                assert (answer.status_code, path) == (status, path), answer.text
        assert (await made.client.get("/.well-known/agent-card.json", headers=headers)).status_code == 403
        for method, path, body in asked_over_every_door("helper"):
            assert (await made.client.request(method, path, json=body, headers=ENGINES)).status_code == 403
        id = await made.start("helper", headers=GUEST)
        turn = (await made.json("POST", f"/api/conversations/{id}/messages", {"text": "Hello"}, headers=GUEST))["turn"]
        await made.ended(id, turn, headers=GUEST)
        for engine, status in (("big", 403), ("Big", 403), ("small", 200)):
            for path, body in (("engine", {"engine": engine}), ("rerun", {"engine": engine, "turn": turn})):
                answer = await made.client.post(f"/api/conversations/{id}/{path}", json=body, headers=GUEST)
                assert answer.status_code == status, answer.text
        made.set_keys({"guest": KeySettings(key="guest-secret", models=("agent:boss",))})
        for path, body in (
            ("messages", {"text": "More"}),
            ("regenerate", {}),
            ("edit", {"text": "More"}),
            ("resume", {}),
        ):
            answer = await made.client.post(f"/api/conversations/{id}/{path}", json=body, headers=GUEST)
            assert answer.status_code == 403, path
        assert (await made.client.get(f"/api/conversations/{id}", headers=GUEST)).status_code == 200
    assert big.prompts == []


@pytest.mark.parametrize("door", ["a2a", "a2a-answer", "agui", "agui-answer"])
async def test_no_protocol_leads_to_the_engine_that_another_key_has_chosen(door: str):
    """A person may have several keys. A conversation keeps its engine, and each key is checked against it."""
    keys = {
        "full": KeySettings(key="full-secret", person="ann"),
        "guest": KeySettings(key="guest-secret", person="ann", models=("agent:helper", "small")),
    }
    full = {"authorization": "Bearer full-secret"}
    asks = call("ask_user", question="Which?") if "answer" in door else "Fine."
    big, small = Scripted(asks, *["Fine."] * 3, name="big"), Scripted(name="small")
    agent = Agent("helper", engine=small, tools=[ask_user])
    made_engines = {"big": big, "small": small}
    async with site(agent, keys=keys, make_engine=made_engines.__getitem__) as made:
        id = await made.start("helper", headers=full)
        await made.json("POST", f"/api/conversations/{id}/engine", {"engine": "big"}, headers=full)
        turn = (await made.json("POST", f"/api/conversations/{id}/messages", {"text": "Hi"}, headers=full))["turn"]
        await made.ended(id, turn, headers=full)
        asked = len(big.prompts)
        message: dict[str, object] = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "More"}]}
        message |= {"taskId": f"{id}~{turn}"} if "answer" in door else {"contextId": id}
        rpc = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
        run: dict[str, object] = {"threadId": id, "runId": "1", "messages": []}
        if door == "agui-answer":
            (question,) = await made.json("GET", f"/api/conversations/{id}/questions", headers=full)
            resolved = {"interruptId": question["id"], "status": "resolved", "payload": {"answer": "This"}}
            run |= {"resume": [resolved]}
        else:
            run |= {"messages": [{"id": "1", "role": "user", "content": "More"}]}
        path, body = ("/a2a/helper", rpc) if door.startswith("a2a") else ("/agui/helper", run)
        answer = await made.client.post(path, json=body, headers={**GUEST, "a2a-version": "1.0"})
        assert "may not use 'big'" in answer.text
        assert len(big.prompts) == asked


async def test_what_is_said_through_any_door_counts_for_the_key():
    async with site(Agent("a", engine=Scripted(*["Fine."] * 9)), keys=KEYS) as made:
        headers = {**BOB, "a2a-version": "1.0"}
        for method, path, body in asked_over_every_door("a"):
            await made.client.request(method, path, json=body, headers=headers)
        id = await made.start(headers=BOB)
        await made.say(id, "Hello", headers=BOB)
        sent = await made.json("POST", f"/api/conversations/{id}/edit", {"text": "Hello again"}, headers=BOB)
        await made.ended(id, sent["turn"], headers=BOB)
        report = await made.json("GET", "/api/usage?by=key", headers=ROOT)
        assert [(row["value"], row["totals"]["calls"]) for row in report["rows"]] == [("bob", 5)]


async def test_a_conversation_whose_engine_was_chosen_first_stays_with_its_person():
    engine = Scripted("Fine.", name="e")
    async with site(Agent("a", engine=engine), keys=KEYS, make_engine=lambda name: engine) as made:
        id = await made.start(headers=BOB)
        await made.json("POST", f"/api/conversations/{id}/engine", {"engine": "e"}, headers=BOB)
        assert (await made.client.get(f"/api/conversations/{id}", headers=ANN)).status_code == 404
        await made.say(id, "Hello", headers=BOB)
        (info,) = (await made.json("GET", "/api/conversations", headers=BOB))["conversations"]
        assert info["id"] == id


async def test_a_fork_is_answered_by_the_same_agent():
    agents = Agent("a", engine=Scripted("I am a.")), Agent("b", engine=Scripted("I am b.", "Still b."))
    async with site(*agents, keys=KEYS) as made:
        id = await made.start("b", headers=BOB)
        await made.say(id, "Hello", headers=BOB)
        messages = (await made.json("GET", f"/api/conversations/{id}/export?format=json", headers=BOB))["messages"]
        body = {"message": messages[-1]["id"]}
        other = (await made.json("POST", f"/api/conversations/{id}/fork", body, headers=BOB))["id"]
        await made.say(other, "And now?", headers=BOB)
        assert "Still b." in (await made.client.get(f"/api/conversations/{other}/export", headers=BOB)).text
