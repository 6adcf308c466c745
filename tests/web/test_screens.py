"""Knowledge bases, MCP servers, jobs, usage and the offer of a model, over the API and in a real browser."""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from array import array
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from playwright.async_api import Browser, expect

from rondel import Agent, tool
from rondel.charge import Scope
from rondel.contracts.embedder import Embedded, Embedder, Vector
from rondel.contracts.ledger import Rule
from rondel.engines.local.weights import Url, Weights, is_present, path_of, pull
from rondel.knowledge.base import KnowledgeBase
from rondel.knowledge.bases import Knowledge
from rondel.knowledge.settings import KnowledgeSettings
from rondel.ledger.ledger import Ledger
from rondel.mcp.plugin import McpServers
from rondel.mcp.spec import ServerSpec
from rondel.stores.memory import MemoryStore
from rondel.stores.sqlite.knowledge import SqliteKnowledge
from rondel.testing import Scripted, ScriptedImages, call, say
from rondel.text.schedule import parse
from rondel.values import Usage
from tests.gateway.served import Served
from tests.mcp.helpers import raw
from tests.web.served import WAIT_S, Site, site
from tests.web.visit import PHONE, message, sees, send, visit


async def until(look: Callable[[], Awaitable[Any]]) -> Any:
    async with asyncio.timeout(WAIT_S):
        while not (found := await look()):
            await asyncio.sleep(0.02)
        return found


# --- knowledge --------------------------------------------------------------------------------------------------------


async def test_rondel_serve_syncs_a_base(tmp_path: Path):
    """The page is part of the gateway's process there, not a server of its own."""
    config = 'engine = "echo"\n[knowledge.docs]\nfolders = ["docs"]\nembedder = "none"\n'
    with Served(tmp_path / "here", config, files={"docs/a.md": "# Kettles\n"}) as served:
        async with httpx2.AsyncClient(base_url=served.base_url, timeout=WAIT_S) as client:
            assert (await client.post("/api/knowledge/docs/sync", json={})).status_code == 200

            async def is_done() -> bool:
                (base,) = (await client.get("/api/knowledge")).json()
                return base["sync"]["state"] == "done" and base["documents"] == 1

            await until(is_done)


def vector(text: str) -> Vector:
    return array("f", (1.0, float(len(text) % 7)))


class Slow:
    """Embeds when it is let."""

    name, dimensions = "slow:words", 2

    def __init__(self) -> None:
        self.may = asyncio.Event()

    async def embed(self, texts: list[str]) -> Embedded:
        await self.may.wait()
        return Embedded([vector(text) for text in texts], Usage(len(texts)))


def base(folder: Path, name: str, embedder: Embedder | None = None) -> Knowledge:
    store = SqliteKnowledge(folder / f"{name}.db")
    settings = KnowledgeSettings(folders=("docs",))
    return Knowledge([KnowledgeBase(name, settings, store, project=str(folder), embedder=embedder)], store)


async def test_a_base_is_synced_with_progress_cancelled_tried_again_and_searched(browser: Browser, tmp_path: Path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "refunds.md").write_text("# Refunds\n\nMoney comes back within 14 days.\n")
    (tmp_path / "docs" / "broken.pdf").write_bytes(b"%PDF-1.4 nonsense")
    slow = Slow()
    knowledge = base(tmp_path, "docs", slow)  # type: ignore[arg-type]
    async with site(Agent("a", engine=Scripted()), knowledge=knowledge) as made:
        async with visit(browser, made, "#/knowledge") as page:
            card = page.get_by_role("region", name="docs")
            await expect(card).to_contain_text("never")
            await card.get_by_role("button", name="Sync").click()
            bar = page.get_by_role("progressbar", name="Sync of docs")
            await expect(card).to_contain_text("Embedding…")
            await expect(bar).to_be_visible()
            assert (await made.client.post("/api/knowledge/docs/sync", json={})).status_code == 409
            await card.get_by_role("button", name="Cancel").click()
            await expect(card).to_contain_text("Cancelled.")
            slow.may.set()
            await card.get_by_role("button", name="Try again").click()
            await expect(card).to_contain_text("1 added, 0 unchanged; 1 chunks embedded.")
            await expect(card).to_contain_text("1 file could not be read.")
            await page.get_by_label("Search the knowledge").fill("refunds")
            await page.keyboard.press("Enter")
            await expect(page.locator(".passages")).to_contain_text("Money comes back")
            await card.get_by_role("link", name="Documents").click()
            rows = page.get_by_role("region", name="Documents").locator("tbody tr")
            await expect(rows.first).to_contain_text("broken.pdf")
            await page.get_by_label("Filter documents").fill("refunds")
            await expect(rows).to_have_count(1)
        found = await made.json("GET", "/api/knowledge/search?query=money&base=docs")
        assert found[0]["where"].endswith("docs/refunds.md")
        for path in ("/api/knowledge/search?query=x&base=nope", "/api/knowledge/nope/documents"):
            assert (await made.client.get(path)).status_code == 404
        assert (await made.client.get("/api/knowledge/search?query=%20")).status_code == 400


async def test_an_embedding_model_is_downloaded_only_with_consent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from rondel.engines.local.minilm import LocalEmbedder

    monkeypatch.setenv("RONDEL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "docs").mkdir()
    knowledge = base(tmp_path, "docs", LocalEmbedder(_weights(tmp_path, "tiny")))
    async with site(Agent("a", engine=Scripted()), knowledge=knowledge) as made:
        (status,) = await made.json("GET", "/api/knowledge")
        assert status["download"]["size"] == "1 MB"
        refused = await made.client.post("/api/knowledge/docs/sync", json={})
        assert refused.status_code == 409
        assert "is not downloaded (1 MB, MIT)" in refused.json()["error"]
        assert await made.json("GET", "/api/knowledge/search?query=words") == []
        assert not path_of(_weights(tmp_path, "tiny")).exists()
        await made.json("POST", "/api/knowledge/docs/sync", {"download": True})

        async def over() -> Any:
            (status,) = await made.json("GET", "/api/knowledge")
            return status["sync"]["state"] != "running" and status

        assert (await until(over))["sync"]["state"] == "done"
        assert path_of(_weights(tmp_path, "tiny")).exists()


# --- MCP servers ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_mcp_servers_show_how_they_are_and_what_they_offer(browser: Browser, tmp_path: Path):
    """One that is down says why, and is tried again when a person asks; no route adds one or names a command."""
    down = ServerSpec("gone", command=str(tmp_path / "missing"), env={"TOKEN": "very-secret"}, retries=0)
    plugin = McpServers.of([raw("tools"), down], logins=str(tmp_path))
    async with (
        site(Agent("a", engine=Scripted(), plugins=[plugin])) as made,
        visit(browser, made, "#/mcp") as page,
    ):
        tools, gone = (page.get_by_role("region", name=name) for name in ("tools", "gone"))
        await expect(tools).to_contain_text("Connected", timeout=60_000)
        await expect(tools).to_contain_text("12 tools")
        await tools.locator("summary", has_text="Tools").click()
        await tools.locator("summary", has_text="echo").click()
        await expect(tools).to_contain_text("Say it again.")
        await expect(gone).to_contain_text("Not available")
        (tmp_path / "missing").write_text(f"#!/bin/sh\nexec {raw().command} {raw().args[0]}\n")
        (tmp_path / "missing").chmod(0o755)
        await gone.get_by_role("button", name="Try again now").click()
        await expect(gone).to_contain_text("Connected")
        await tools.get_by_role("button", name="Reconnect").click()
        await expect(tools).to_contain_text("Connected")
        assert "very-secret" not in (await made.client.get("/api/mcp")).text
        wrong = await made.client.post("/api/mcp/gone/login")
        assert (wrong.status_code, wrong.json()["error"]) == (400, "the MCP server 'gone' has no log-in")
        for method, path in (("POST", "/api/mcp"), ("POST", "/api/mcp/new"), ("PATCH", "/api/mcp/gone")):
            assert (await made.client.request(method, path, json={"command": "sh"})).status_code in (404, 405)


@pytest.mark.slow
async def test_a_person_logs_in_to_an_mcp_server_from_the_page(browser: Browser, tmp_path: Path):
    from tests.mcp.test_login import Guarded, serving

    guarded = Guarded()
    async with serving(guarded):
        plugin = McpServers.of([ServerSpec("web", url=f"{guarded.url}/mcp", retries=0)], logins=str(tmp_path))
        async with site(Agent("a", engine=Scripted(), plugins=[plugin])) as made:
            context = await browser.new_context()
            page = await context.new_page()
            await page.goto(f"{made.address}/#/mcp")
            card = page.get_by_role("region", name="web")
            await expect(card).to_contain_text("Needs a log-in", timeout=60_000)
            await card.get_by_role("button", name="Log in").click()
            link = card.get_by_role("link", name="Open the log-in")
            await expect(link).to_be_visible()
            await card.get_by_role("button", name="Cancel").click()
            await expect(link).to_have_count(0)
            await card.get_by_role("button", name="Log in").click()
            async with context.expect_page() as opened:
                await link.click()
            await expect((await opened.value).get_by_text("You are logged in.")).to_be_visible()
            await expect(card).to_contain_text("Connected")
            await card.get_by_role("button", name="Log out").click()
            await expect(card.get_by_role("button", name="Log out")).to_have_count(0)
            await context.close()


# --- a model for a newcomer -------------------------------------------------------------------------------------------


def _weights(folder: Path, name: str) -> Weights:
    data = name.encode() * 300_000
    (folder / f"{name}.source").write_bytes(data)
    return Weights(
        name=name,
        title=f"The {name} model",
        description="says little",
        file=f"{name}.gguf",
        sha256=hashlib.sha256(data).hexdigest(),
        size_bytes=len(data),
        licence="MIT",
        addresses=(Url((folder / f"{name}.source").as_uri()),),
    )


class Offer:
    def __init__(self, *models: Weights) -> None:
        self._models, self.said_no, self.used = models, False, False
        self.made: Site | None = None

    def models(self) -> tuple[Weights, ...]:
        return self._models

    def is_present(self, model: Any) -> bool:
        return is_present(model)

    def download(self, model: Any) -> Any:
        return pull(model)

    def declined(self) -> bool:
        return self.said_no

    def decline(self) -> None:
        self.said_no = True

    async def downloaded(self) -> None:
        assert self.made is not None
        web, self.used = self.made.web, True
        web.about = msgspec.structs.replace(web.about, engine="local:tiny", why="it was downloaded")


async def test_a_newcomer_is_offered_a_model_and_then_talks_to_it(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Nothing is downloaded before they agree; a "no" is remembered and can be changed."""
    monkeypatch.setenv("RONDEL_CACHE", str(tmp_path / "cache"))
    tiny = _weights(tmp_path, "tiny")
    offer = Offer(tiny)
    about = {"offer": offer}
    async with site(Agent("a", engine=Scripted("Hello there.")), about=about) as made:
        offer.made = made
        async with visit(browser, made) as page:
            card = page.get_by_role("region", name="Models for this computer")
            await expect(card).to_contain_text("1 MB, licence MIT: says little")
            await card.get_by_role("button", name="No, thanks").click()
            await expect(card).to_have_count(0)
            await page.reload()
            await expect(page.get_by_text("No model is downloaded.")).to_be_visible()
            assert not path_of(tiny).exists()
            await page.get_by_role("button", name="Choose one").click()
            await card.get_by_role("button", name="Download").click()
            await expect(page.get_by_text("Using local:tiny: it was downloaded.")).to_be_visible()
            assert path_of(tiny).exists()
            assert offer.used
            await send(page, "Hi")
            await sees(page, "Hello there.")
            await expect(message(page)).to_have_value("")
        assert (await made.client.post("/api/models/other/download")).status_code == 404


# --- jobs and usage ---------------------------------------------------------------------------------------------------


async def test_a_failed_job_is_run_again_with_what_it_was_asked(browser: Browser):
    asked: list[str] = []

    @tool(background="background")
    async def research(topic: str) -> str:
        "Research in the background."
        asked.append(topic)
        if len(asked) == 1:
            raise ValueError("the source cannot be reached")
        return f"Three papers on {topic}."

    model = Scripted(call("research", topic="foxes"), say("I began.", usage=Usage(1_234, 321)))
    async with site(Agent("a", engine=model, tools=[research])) as made:
        id = await made.start()
        await made.say(id, "Research foxes.")
        await made.app.drain()
        (job,) = (await made.json("GET", "/api/jobs"))["jobs"]
        assert job["status"] == "failed"
        async with visit(browser, made, "#/jobs") as page:
            rows = page.get_by_role("region", name="Jobs").locator("tbody tr")
            await expect(rows).to_contain_text(["the source cannot be reached"])
            await rows.get_by_role("button", name="Try again").click()
            await expect(rows).to_contain_text(["Three papers on foxes.", "the source cannot be reached"])
            assert asked == ["foxes", "foxes"]
            await rows.nth(1).get_by_role("button", name="Try again").click()
            await expect(page.get_by_role("alert")).to_contain_text("was already retried")
            await page.goto(f"{made.address}/#/usage")
            usage = page.get_by_role("region", name="Usage")
            await expect(usage).to_contain_text("1,298")
            await expect(usage).to_contain_text("no price")
        assert (await made.client.post("/api/jobs/nope/retry")).status_code == 404
        assert len((await made.json("GET", "/api/jobs"))["jobs"]) == 2


async def test_usage_over_time_its_limits_and_schedules_are_shown(browser: Browser):
    ledger = Ledger(MemoryStore().ledger_store)
    ledger.configure([Rule({"key": "laptop"}, "month", tokens=1_000, mode="block"), Rule(money=1.0)])
    async with site(Agent("a", engine=Scripted()), ledger=ledger) as made:
        now = time.time()
        for day in range(3):
            scope = Scope("chat", model=f"model-{day % 2}", key="laptop")
            await ledger.record(scope, Usage(100, 50), at=now - day * 86_400)
        plan = parse({"say": "Summarise the news", "cron": "0 8 * * 1-5", "zone": "Europe/Berlin"})
        await made.app.timetable.add("a", plan, conversation="c", id="s")
        async with visit(browser, made, "#/usage") as page:
            chart = page.get_by_role("img", name="Tokens over time")
            await expect(chart.locator("canvas")).to_be_visible()
            await expect(chart).to_contain_text("model-1")
            meter = page.get_by_role("meter", name="key laptop")
            await expect(meter).to_have_attribute("aria-valuenow", re.compile("^(15|30|45)$"))  # a month may have begun
            await expect(page.get_by_text("of 1,000")).to_be_visible()
            await expect(page.get_by_text("everything · day · warn")).to_be_visible()
            await page.set_viewport_size(PHONE)
            width = await chart.evaluate("(one) => one.clientWidth")
            await expect(chart.locator("canvas")).to_have_js_property("clientWidth", width)
            await page.goto(f"{made.address}/#/jobs")
            schedules = page.get_by_role("region", name="Schedules")
            await expect(schedules).to_contain_text("Summarise the news")
            await expect(schedules).to_contain_text("0 8 * * 1-5 Europe/Berlin")
            await schedules.get_by_role("button", name="Cancel").click()
            await expect(page.get_by_text("No background jobs and no schedules.")).to_be_visible()


# --- pictures ---------------------------------------------------------------------------------------------------------


async def test_a_picture_that_an_agent_makes_is_in_the_transcript(browser: Browser):
    model = Scripted(call("generate_image", prompt="A red fox"), "Here it is.")
    agent = Agent("a", engine=model, tools=["generate_image"])
    async with site(agent, images=ScriptedImages()) as made, visit(browser, made) as page:
        await send(page, "Draw a fox.")
        await sees(page, "Here it is.")
        await page.reload()
        picture = page.locator("article.turn img.picture")
        await expect(picture).to_have_attribute("alt", "a-red-fox.png")
        assert await picture.evaluate("async (one) => { await one.decode(); return one.naturalWidth }") == 64
