"""Who may do what: keys, sessions, owners, hosts, origins. Every route has its rights in one table."""

from __future__ import annotations

import asyncio

import pytest

from rondel import Agent
from rondel.contracts.ledger import Rule
from rondel.ledger.ledger import Ledger
from rondel.project.settings import KeySettings
from rondel.stores.memory import MemoryStore
from rondel.surfaces.web.people import COOKIE
from rondel.surfaces.web.server import ROUTES
from rondel.testing import Scripted
from tests.web.served import WAIT_S, site

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


async def test_what_a_key_may_use_holds_on_the_page_and_for_every_protocol():
    keys = {**KEYS, "eve": KeySettings(key="eve-secret", models=("agent:open", "cheap:*"))}
    eve = {"authorization": "Bearer eve-secret"}
    agents = [Agent("closed", engine=Scripted("No.")), Agent("open", engine=Scripted("Yes.", "Again."))]
    async with site(*agents, keys=keys) as made:
        assert [(one["name"], one["is_default"]) for one in await made.json("GET", "/api/agents", headers=eve)] == [
            ("open", True)
        ]
        id = await made.start(headers=eve)
        await made.say(id, "Hello", headers=eve)
        chat = {"messages": [{"role": "user", "content": "Hello"}], "agent": "closed"}
        run = {"threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "user", "content": "Hello"}]}
        for path, body in (
            ("/api/conversations", {"agent": "closed"}),
            ("/api/chat", chat),
            ("/api/agents/closed/prompt", {"text": "Hello"}),
            ("/agui/closed", run),
            (f"/api/conversations/{id}/engine", {"engine": "openai:gpt-5"}),
            (f"/api/conversations/{id}/rerun", {"turn": "t", "engine": "openai:gpt-5"}),
        ):
            refused = await made.client.post(path, json=body, headers=eve)
            assert refused.status_code in (403, 404), (path, refused.text)
            assert path.endswith("rerun") or "this key may not use" in refused.json()["error"]
        card = await made.client.get("/a2a/closed/.well-known/agent-card.json", headers=eve)
        assert card.status_code == 403
        made.set_keys({**keys, "eve": KeySettings(key="eve-secret", models=("agent:closed",))})
        later = await made.client.post(f"/api/conversations/{id}/messages", json={"text": "More"}, headers=eve)
        assert later.status_code == 403


async def test_the_budget_of_a_key_holds_on_the_page():
    rules = [Rule({"key": "ann-laptop"}, "day", tokens=1, mode="block")]
    ledger = Ledger(MemoryStore().ledger_store)
    ledger.configure(rules)
    async with site(Agent("a", engine=Scripted("For Bob.")), keys=KEYS, ledger=ledger) as made:
        messages = {"messages": [{"role": "user", "content": "Hello"}]}
        over = await made.client.post("/api/chat", json=messages, headers=ANN)
        assert over.status_code == 502, over.text
        assert "ann-laptop" in over.json()["error"]
        await made.json("POST", "/api/chat", messages, headers=BOB)


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
        made.set_keys(KEYS)
        assert (await made.client.get("/api/me")).status_code == 200
        await made.json("DELETE", "/api/session")
        made.client.cookies.clear()
        assert (await made.client.get("/api/me")).status_code == 401


async def test_wrong_keys_have_to_wait():
    async with site(Agent("a", engine=Scripted()), keys=KEYS) as made:
        found = [(await made.client.post("/api/session", json={"key": f"k{n}"})).status_code for n in range(12)]
        assert found[:10] == [401] * 10
        assert found[10:] == [429, 429]
        right = await made.client.post("/api/session", json={"key": "ann-secret"})
        assert right.status_code == 429
        assert int(right.headers["retry-after"]) > 0


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


async def test_a_revoked_key_ends_its_stream(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rondel.surfaces.web.feed.PING_S", 0.05)
    async with site(Agent("a", engine=Scripted("Hi.")), keys=KEYS) as made:
        id = await made.start(headers=ANN)
        await made.say(id, "Hello", headers=ANN)
        async with asyncio.timeout(WAIT_S):
            events = made.events(id, headers=ANN)
            await anext(events)
            made.set_keys({"bob": KEYS["bob"]})
            assert [name async for name, _ in events]  # what was stored, then the end


async def test_the_page_and_its_files_have_a_strict_policy():
    async with site(Agent("a", engine=Scripted())) as made:
        answer = await made.client.get("/", headers={"accept": "text/html"})
        policy = answer.headers["content-security-policy"]
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        for path in ("/assets/../server.py", "/assets/..%2fserver.py", "/assets/nothing.js"):
            assert (await made.client.get(path)).status_code == 404
