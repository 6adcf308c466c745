"""The page in a real browser: its other screens, keys, connections, sizes, people, and what hostile text can do."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import re
import time
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, BrowserContext, Page, ViewportSize, expect

from rondel import Agent, Limits, tool
from rondel.events import MessageAdded, Outcome, TurnFinished, TurnStarted
from rondel.gateway.relay.record import Record
from rondel.project.settings import KeySettings
from rondel.stores.sqlite.store import SqliteStore
from rondel.surfaces.web.page import FOLDER
from rondel.testing import Pause, Scripted, call, say
from rondel.values import Citation, Message, Person, Text, Usage, user
from tests.helpers import rest_slow
from tests.web.served import WAIT_S, Site, site
from tests.web.visit import PHONE, at_rest, message, person, sees, send, visit

AXE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
FIRST_LOAD_BYTES_MAX = 90_000
KEYS = {
    "ann": KeySettings(key="ann-secret-key", person="ann"),
    "root": KeySettings(key="root-secret-key", roles=("admin",)),
}


def test_the_first_load_is_small():
    """What index.html names, compressed, and nothing that comes from elsewhere."""
    html = (FOLDER / "index.html").read_text(encoding="utf-8")
    named = re.findall(r'(?:src|href)="([^"]+)"', html)
    assert named
    assert all(name.startswith("/assets/") for name in named)
    main = FOLDER / next(name for name in named if name.endswith(".js")).removeprefix("/assets/")
    first = {name.removeprefix("/assets/") for name in named}
    first |= set(re.findall(r'from"\./([^"]+)"', main.read_text(encoding="utf-8")))
    size = sum(len(gzip.compress((FOLDER / name).read_bytes(), 6)) for name in first)
    assert len(gzip.compress(html.encode())) + size <= FIRST_LOAD_BYTES_MAX


# --- connections ------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def outliving(browser: Browser) -> AsyncGenerator[BrowserContext]:
    """A person whose tab stays open while the server is away."""
    context = await browser.new_context()
    context.set_default_timeout(WAIT_S * 1000)
    try:
        yield context
    finally:
        await context.close()


@pytest.mark.slow
async def test_the_page_goes_on_when_the_server_is_restarted_in_mid_answer(browser: Browser, tmp_path: Path):
    """The banner says that the connection is gone; the answer is complete after the restart, and nothing is twice."""
    first = Pause("The beginning ")
    path = str(tmp_path / "talks.db")
    async with outliving(browser) as context:
        page = await context.new_page()
        async with site(Agent("a", engine=Scripted(first)), store=SqliteStore(path)) as made:
            await page.goto(made.address)
            await send(page, "Tell me.")
            await sees(page, "The beginning")
            port = made.port
        await expect(page.get_by_text("The connection is gone")).to_be_visible()
        again = Scripted("The whole answer.", "More.")
        async with site(Agent("a", engine=again), store=SqliteStore(path), at=port):
            await expect(page.get_by_text("The connection is gone")).to_have_count(0)
            continue_ = page.get_by_role("button", name="Continue")
            whole = page.locator(".column").get_by_text("The whole answer.")
            await expect(continue_.or_(whole).first).to_be_visible()
            if await continue_.count():
                await continue_.click()
            await expect(whole).to_have_count(1)
            await expect(page.locator(".column").get_by_text("The beginning")).to_have_count(0)
            await at_rest(page)
            await send(page, "And?")
            await sees(page, "More.")


async def test_the_page_says_that_it_is_offline_and_comes_back_by_itself(browser: Browser):
    """What was said in the meantime is there afterwards, once."""
    pause = Pause("The beginning, ", "and the end.")
    async with site(Agent("a", engine=Scripted(pause))) as made, person(browser, made) as (context, _):
        page = await context.new_page()
        await page.goto(made.address)
        await send(page, "Go.")
        await sees(page, "The beginning,")
        gone = page.get_by_text("The connection is gone")
        await context.set_offline(True)
        await expect(gone).to_be_visible()
        pause.release()
        await made.app.drain()
        await context.set_offline(False)
        await expect(gone).to_have_count(0)
        await expect(page.locator("article.turn")).to_contain_text(["The beginning, and the end."])
        await at_rest(page)


@pytest.mark.parametrize(("days", "named"), [(-1, "Today"), (1, "Yesterday")])
@pytest.mark.slow
async def test_a_browser_whose_clock_is_a_day_off_shows_everything(browser: Browser, days: int, named: str):
    async with site(Agent("a", engine=Scripted("One.", "Two."))) as made:
        id = await made.start()
        await made.say(id, "First message")
        async with person(browser, made) as (context, _):
            await context.clock.set_fixed_time(datetime.now(UTC) + timedelta(days=days))
            page = await context.new_page()
            await page.goto(f"{made.address}/#/chat/{id}")
            await sees(page, "One.")
            await expect(page.locator(".side .day")).to_have_text(named)
            await send(page, "Second message")
            await sees(page, "Two.")
            await at_rest(page)
            await page.get_by_role("button", name="Trace", exact=True).last.click()
            await expect(page.get_by_role("tree", name="Steps")).to_be_visible()


@pytest.mark.slow
async def test_a_list_of_10000_conversations_stays_fast(browser: Browser, tmp_path: Path):
    """The page holds only the rows that are seen, and walking down and searching take no time that people notice."""
    store = SqliteStore(str(tmp_path / "talks.db"))
    async with site(Agent("a", engine=Scripted()), store=store) as made:
        for n in range(10_000):
            message = user(f"Conversation number {n}", id=f"m{n}")
            started = TurnStarted(f"t{n}", "a", person=Person("user"))
            finished = TurnFinished(f"t{n}", Outcome.DONE)
            await store.append(f"c{n:05}", 1, (started, MessageAdded(message), finished), at=1e9 + n, wait=False)
        async with visit(browser, made) as page:
            rows, list_ = page.locator(".side .item"), page.locator(".side .list")
            await expect(rows.first).to_contain_text("number 9999")
            began = time.monotonic()
            for at in range(1, 11):
                await list_.evaluate("(box) => { box.scrollTop = box.scrollHeight }")
                await expect(page.locator(".side")).to_contain_text(f"number {9_999 - at * 100 + 2}")
            await page.get_by_role("searchbox", name="Search conversations").fill("number 17")
            await expect(rows.first).to_contain_text("number 17")
            assert time.monotonic() - began < 15
            assert await rows.count() < 100


async def test_people_log_in_and_out_and_a_revoked_key_ends_the_stream(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
):
    """What a person may not see is not offered, and says so when its address is typed."""
    monkeypatch.setattr("rondel.surfaces.web.feed.PING_S", 0.1)
    pause = Pause("A secret begins ", "and ends.")
    async with site(Agent("a", engine=Scripted(pause)), keys=KEYS) as made, visit(browser, made) as page:
        key = page.get_by_label("Your key")
        await key.fill("wrong")
        await key.press("Enter")
        await expect(page.get_by_role("alert")).to_be_visible()
        await key.fill("ann-secret-key")
        await key.press("Enter")
        await expect(page.get_by_role("link", name="Traces")).to_be_visible()
        await expect(page.get_by_role("link", name="Usage")).to_have_count(0)
        await page.goto(f"{made.address}/#/usage")
        await expect(page.get_by_text("Only an admin can see this.")).to_be_visible()
        await page.get_by_role("link", name="To the chat").click()
        await send(page, "Go.")
        await sees(page, "A secret begins")
        made.set_keys({"root": KEYS["root"]})
        await expect(page.get_by_role("heading", name="Log in")).to_be_visible()
        await expect(page.get_by_text("A secret begins")).to_have_count(0)
        pause.release()
        await key.fill("root-secret-key")
        await key.press("Enter")
        await page.goto(f"{made.address}/#/settings")
        await page.get_by_role("button", name="Log out").click()
        await expect(page.get_by_role("heading", name="Log in")).to_be_visible()


# --- keys -------------------------------------------------------------------------------------------------------------


async def test_everything_is_reached_by_the_keyboard(browser: Browser):
    model = Scripted("One.", "Two.", Pause("Three "))
    async with site(Agent("a", engine=model), Agent("zed", engine=Scripted())) as made:
        id = await made.start()
        await made.say(id, "First message")
        await made.say(id, "Second message")
        async with visit(browser, made, f"#/chat/{id}") as page:
            await sees(page, "Two.")
            await page.keyboard.press("Control+k")
            search = page.get_by_role("combobox", name="Search")
            await expect(search).to_be_focused()
            await search.fill("trac")
            await search.press("Enter")
            await expect(page.get_by_role("heading", name="Traces")).to_be_visible()
            await page.keyboard.press("Control+k")
            await search.press("Escape")
            await expect(search).to_have_count(0)
            await page.keyboard.press("?")
            await expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_contain_text("Alt N")
            await page.keyboard.press("Escape")
            await expect(page.get_by_role("dialog")).to_have_count(0)
            await page.keyboard.press("Alt+n")
            await expect(page.get_by_role("heading", name="What would you like to do?")).to_be_visible()
            await expect(message(page)).to_be_focused()
            await page.goto(f"{made.address}/#/chat/{id}")
            await sees(page, "Two.")
            await message(page).fill("a line")
            await message(page).press("Shift+Enter")
            await expect(message(page)).to_have_value("a line\n")
            await message(page).press("Control+Enter")
            await sees(page, "Three")
            await page.get_by_label("Messages").focus()
            await page.keyboard.press("k")
            assert await page.evaluate("document.activeElement.matches('article.turn')")
            await page.keyboard.press("j")
            assert await page.evaluate("document.activeElement.matches('article.turn')")
            await page.keyboard.press("Escape")
            await sees(page, "stopped")


async def test_escape_in_a_dialog_closes_the_dialog_and_stops_nothing(browser: Browser):
    pause = Pause("It begins ", "and ends.")
    async with site(Agent("a", engine=Scripted(pause))) as made, visit(browser, made) as page:
        await send(page, "Go.")
        await sees(page, "It begins")
        await page.get_by_label("Messages").focus()
        await page.keyboard.press("?")
        await expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        pause.release()
        await sees(page, "and ends.")


CONTROL = 2  # the modifier, as the browser's protocol writes it
ESCAPE = {"key": "Escape", "code": "Escape", "windowsVirtualKeyCode": 27}
SEARCH = {"key": "k", "code": "KeyK", "windowsVirtualKeyCode": 75, "modifiers": CONTROL}
HELP, LETTER = {"key": "?", "text": "?"}, {"key": "j", "text": "j"}


async def test_keys_that_follow_each_other_at_once_are_not_lost(browser: Browser):
    """A dialog takes the keys as soon as it is asked for, and none after its Escape."""
    async with site(Agent("a", engine=Scripted())) as made, visit(browser, made, "#/traces") as page:
        await expect(page.get_by_role("heading", name="Traces")).to_be_visible()
        devtools: Any = await page.context.new_cdp_session(page)

        async def press(*keys: dict[str, Any]) -> None:
            async def send(type: str, key: dict[str, Any]) -> None:
                await devtools.send("Input.dispatchKeyEvent", {"type": type, **key})

            async with asyncio.TaskGroup() as group:  # no key waits for what the one before it does
                for key in keys:
                    group.create_task(send("keyDown", key))
                    group.create_task(send("keyUp", key))

        search = page.get_by_role("combobox", name="Search")
        for _ in range(5):
            await press(SEARCH, ESCAPE, HELP)
            await expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
            await press(ESCAPE, SEARCH, LETTER)
            await expect(search).to_have_value("j")
            await press(ESCAPE)
            await expect(page.get_by_role("dialog")).to_have_count(0)


# --- the other screens ------------------------------------------------------------------------------------------------

SETTINGS = (("engine", "scripted", "rondel.toml"), ("store.path", "talks.db", "default"))


def a_record(id: str, at: float, **options: Any) -> Record:
    return Record(id, at, dialect="openai-chat", asked="gpt", key="laptop", engine="scripted:test", **options)


async def _used(made: Site) -> str:
    id = await made.start()
    await made.say(id, "What is 40 and 2?")
    await made.say(id, "And once more?")
    made.records.add(a_record("r1", 1_700_000_000.0, outcome="done", status=200, usage=Usage(10, 5), seconds=1.2))
    made.records.add(a_record("r2", 1_700_000_001.0, outcome="failed", status=502, error="the provider is down"))
    return id


def _agent() -> Agent:
    @tool
    async def add(a: int, b: int) -> str:
        "Add two numbers."
        return str(a + b)

    used = Usage(120, 30)
    table = "| a | b |\n|---|---|\n| 1 | " + "wide " * 60 + "|\n"
    model = Scripted(
        call("add", a=40, b=2), say(f"It is **42**.\n\n{table}\n```python\nprint(40 + 2)\n```", usage=used),
        say("Still 42.", usage=used, thinking="Again."), "Another.", Pause("live "),
    )  # fmt: skip
    return Agent("a", "You are brief.", engine=model, tools=[add], description="Adds numbers.")


@pytest.mark.slow
async def test_traces_usage_gateway_agents_jobs_and_settings_show_what_happened(browser: Browser):
    """Two turns are compared line by line; requests appear as they happen, errors first; a prompt is assembled."""
    about = {"settings": lambda: SETTINGS, "files": {"a": "agents/a.md"}}
    async with site(_agent(), about=about) as made:
        id = await _used(made)
        async with visit(browser, made, "#/traces", permissions=["clipboard-read", "clipboard-write"]) as page:
            await page.get_by_role("row").filter(has_text="What is 40 and 2?").click()
            steps = page.get_by_role("tree", name="Steps")
            await expect(steps).to_contain_text("add")
            await steps.get_by_role("treeitem").first.click()
            await page.get_by_label("Step to compare with").select_option(index=1)
            await expect(page.locator(".diff .added").first).to_be_visible()
            await expect(page.locator(".diff .removed").first).to_be_visible()
            await page.locator("summary", has_text="Request of round 1").click()
            await expect(page.locator(".request")).to_contain_text("You are brief.")
            await page.get_by_role("button", name="Before plugins").click()
            await expect(page.locator(".request")).to_contain_text('"role": "user"')
            await page.get_by_role("button", name="Copy as curl").click()
            await expect(page.get_by_role("button", name="Copied")).to_be_visible()
            copied = await page.evaluate("navigator.clipboard.readText()")
            assert copied.startswith(f"curl {made.address}/v1/chat/completions")
            assert "What is 40 and 2?" in copied
            await page.get_by_role("button", name="Run in a new conversation").click()
            await sees(page, "Another.")
            await at_rest(page)
            await page.goto(f"{made.address}/#/traces/{id}")
            await steps.get_by_role("treeitem").first.click()
            other = page.get_by_label("Conversation to compare with")
            await other.select_option(index=1)
            await page.get_by_label("Step to compare with").select_option(index=1)
            await expect(page.locator(".diff .removed").first).to_be_visible()

            await page.goto(f"{made.address}/#/usage")
            await expect(page.get_by_text("All time")).to_be_visible()
            await page.get_by_label("Group by").select_option("agent")
            await expect(page.get_by_role("region", name="Usage")).to_contain_text("332")

            await page.goto(f"{made.address}/#/gateway")
            rows = page.get_by_role("region", name="Requests").locator("tbody tr")
            await expect(rows.first).to_contain_text("failed 502")
            made.records.add(a_record("r3", 1_700_000_009.0, outcome="refused", status=401))
            await expect(rows.first).to_contain_text("refused 401")
            await rows.nth(1).click()
            await expect(page.get_by_text("the provider is down")).to_be_visible()
            await expect(page.get_by_text("Its content was not stored.")).to_be_visible()
            made.records.add(a_record("r4", 1_700_000_010.0, outcome="failed", trace=id))
            await rows.first.click()
            await page.get_by_role("link", name="What was asked and answered").click()
            await expect(page.get_by_role("tree", name="Steps")).to_contain_text("add")

            await page.goto(f"{made.address}/#/agents/a")
            await page.get_by_label("A message").fill("Hi there")
            await page.get_by_role("button", name="Assemble").click()
            preview = page.get_by_role("region", name="Prompt preview")
            await expect(preview).to_contain_text("You are brief.")
            await expect(preview).to_contain_text("Hi there")

            await page.goto(f"{made.address}/#/jobs")
            await expect(page.get_by_text("No background jobs and no schedules.")).to_be_visible()

            await page.goto(f"{made.address}/#/settings")
            await expect(page.get_by_role("region", name="Settings")).to_contain_text("rondel.toml")
            await page.get_by_label("Theme").select_option("dark")
            assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(23, 23, 21)"
            await page.reload()
            assert await page.evaluate("document.documentElement.dataset.theme") == "dark"

            await page.goto(f"{made.address}/#/nonsense")
            await expect(page.get_by_text("There is no such screen.")).to_be_visible()
            await page.goto(f"{made.address}/#/chat/nonsense")
            await expect(page.get_by_text("does not exist any more")).to_be_visible()
            await page.goto(f"{made.address}/#/chat/{id}")
            await page.get_by_role("button", name="Trace", exact=True).last.click()
            await expect(page.get_by_role("complementary", name="Trace")).to_contain_text("Still 42.")


SCREENS = (
    "#/chat",
    "CHAT",
    "#/traces",
    "TRACE",
    "#/usage",
    "#/gateway",
    "#/agents",
    "#/jobs",
    "#/knowledge",
    "#/mcp",
    "#/settings",
)


@pytest.mark.parametrize(
    ("scheme", "viewport"),
    [("light", {"width": 1280, "height": 800}), pytest.param("dark", PHONE, marks=pytest.mark.slow)],
)
async def test_no_screen_has_a_known_barrier(browser: Browser, scheme: Any, viewport: Any):
    """axe-core finds nothing on any screen, wide and light, narrow and dark; and no screen is wider than its window."""
    about = {"settings": lambda: SETTINGS, "hints": ("ANTHROPIC_API_KEY would give you a better model",)}
    async with site(_agent(), about=about) as made:
        id = await _used(made)
        async with visit(browser, made, color_scheme=scheme, viewport=viewport, bypass_csp=True) as page:
            for screen in SCREENS:
                path = {"CHAT": f"#/chat/{id}", "TRACE": f"#/traces/{id}"}.get(screen, screen)
                await page.goto(f"{made.address}/{path}")
                await expect(page.locator("main h1, main .turn .meta").first).to_be_visible()
                await _no_barriers(page, screen)
                wide = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
                assert wide <= 0, (screen, wide)


async def _no_barriers(page: Page, where: str) -> None:
    if not await page.evaluate("'axe' in window"):
        await page.add_script_tag(path=AXE)
    found = await page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    said = [
        (
            one["id"],
            one["help"],
            [node["html"][:160] + " " + node.get("failureSummary", "")[:200] for node in one["nodes"][:3]],
        )
        for one in found["violations"]
    ]
    assert not said, (where, json.dumps(said, indent=1))


@pytest.mark.slow
async def test_right_to_left_text_zoom_phones_and_reduced_motion(browser: Browser):
    hebrew = "שלום עולם, זה משפט ארוך."
    async with site(Agent("a", engine=Scripted(hebrew, Pause("working ")))) as made:
        id = await made.start()
        await made.say(id, "مرحبا")
        zoomed: ViewportSize = {"width": 640, "height": 400}  # 1280 x 800 at 200 %
        options = {"viewport": PHONE, "reduced_motion": "reduce", "has_touch": True}
        async with visit(browser, made, f"#/chat/{id}", **options) as page:
            await sees(page, hebrew)
            for place in (".bubble", ".md-block"):
                assert await page.locator(place).first.evaluate("(e) => getComputedStyle(e).direction") == "rtl"
            await expect(page.locator(".side")).to_be_hidden()
            await page.get_by_role("button", name="Show the menu").tap()
            await expect(page.get_by_role("link", name="Traces")).to_be_visible()
            await page.keyboard.press("Escape")
            await expect(page.locator(".side")).to_be_hidden()
            await send(page, "go")
            await sees(page, "working")
            moving = "document.getAnimations().filter((one) => one.playState === 'running').length"
            assert await page.evaluate(moving) == 0
            await page.set_viewport_size(zoomed)
            for part in (message(page), page.get_by_role("button", name="Stop")):
                await expect(part).to_be_in_viewport()
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            await page.get_by_role("button", name="Stop").click()
            await sees(page, "stopped")


# --- too much ---------------------------------------------------------------------------------------------------------


PASTE = """(box) => {
  const data = new DataTransfer();
  data.setData('text/plain', 'x'.repeat(50_000_000));
  box.dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true }));
}"""


@pytest.mark.slow
async def test_a_paste_of_50_mb_is_refused_and_what_was_written_stays(browser: Browser):
    async with site(Agent("a", engine=Scripted("Fine."))) as made, visit(browser, made) as page:
        await message(page).fill("before")
        await message(page).evaluate(PASTE)
        await expect(page.get_by_role("alert")).to_contain_text("50,000,000 characters; at most 2,000,000")
        await expect(message(page)).to_have_value("before")
        await message(page).press("Enter")
        await sees(page, "Fine.")


@pytest.mark.slow
async def test_a_long_conversation_is_shown_in_part_and_can_be_walked_through(browser: Browser):
    """10,000 messages: the page holds a window of them. What is read does not move when the window does."""
    turns = 300
    model = Scripted(*(f"Answer {n}." for n in range(turns)), Pause("The newest "))
    async with site(Agent("a", engine=model, limits=Limits())) as made:
        conversation = made.app.conversation()
        for n in range(turns):
            await conversation.ask(f"Question {n}")
        async with visit(browser, made, f"#/chat/{conversation.id}") as page:
            await sees(page, f"Answer {turns - 1}.")
            articles = page.locator("article.turn")
            assert await articles.count() == 60
            await page.get_by_label("Messages").evaluate("(box) => { box.scrollTop = 0 }")
            held = page.get_by_text(f"Question {turns - 60}", exact=True)
            before = await held.evaluate("(e) => e.getBoundingClientRect().top")
            await page.get_by_role("button", name="Show earlier messages").click()
            await expect(page.get_by_text(f"Question {turns - 90}", exact=True)).to_be_attached()
            after = await held.evaluate("(e) => e.getBoundingClientRect().top")
            assert abs(after - before) < 80
            assert await articles.count() == 60
            await page.get_by_role("button", name="Show later messages").click()
            await expect(page.locator(".column").get_by_text(f"Answer {turns - 1}.")).to_be_attached()
            await page.get_by_role("button", name="Show earlier messages").click()
            await page.get_by_role("button", name="Newest").click()
            await expect(page.locator(".column").get_by_text(f"Answer {turns - 1}.")).to_be_in_viewport()
            await send(page, "More")
            await expect(page.locator(".column").get_by_text("The newest")).to_be_in_viewport()
            await page.get_by_role("button", name="Stop").click()
            await sees(page, "stopped")


@pytest.mark.slow
async def test_a_very_long_turn_is_shown_in_part(browser: Browser):
    """The page holds its message and its newest steps; earlier ones come when they are asked for."""

    @tool(idempotent=True)
    async def step(n: int) -> str:
        "Do a step."
        return f"step {n}"

    model = Scripted(*(call("step", n=n) for n in range(150)), "All done.")
    async with site(Agent("a", engine=model, tools=[step], limits=Limits(rounds=200))) as made:
        id = await made.start()
        await made.say(id, "Do 150 steps.")
        async with visit(browser, made, f"#/chat/{id}") as page:
            await sees(page, "All done.")
            cards = page.locator("article.turn details.fold")
            await expect(cards).to_have_count(99)
            await expect(page.locator(".bubble")).to_have_text(["Do 150 steps."])
            await page.get_by_role("button", name="Show earlier steps").click()
            await expect(cards).to_have_count(150)
            await expect(page.locator(".bubble")).to_have_count(1)


# --- hostile text -----------------------------------------------------------------------------------------------------

HOSTILE = """<script>alert(1)</script><img src="http://evil.test/i.png" onerror="alert(2)"><svg onload="alert(3)">\
<image href="http://evil.test/s.png"/></svg><iframe src="http://evil.test/f"></iframe>\
<style>@import "http://evil.test/c.css";body{background:url(http://evil.test/b.png)}</style>\
<form action="http://evil.test/"><button>Send</button></form><a href="javascript:alert(4)">x</a>\
<object data="http://evil.test/o"></object><link rel="stylesheet" href="http://evil.test/l.css">\
<meta http-equiv="refresh" content="0;url=http://evil.test/m"><base href="http://evil.test/">\
<video src="http://evil.test/v" autoplay></video><div style="background:url(http://evil.test/d.png)">y</div>\
<math><mtext><table><mglyph><style><img src=x onerror=alert(5)></style></mglyph></table></mtext></math>

![picture](http://evil.test/p.png) [link](javascript:alert(6)) [data](data:text/html,<script>alert(7)</script>)
<javascript:alert(8)>
[![nested](http://evil.test/n.png)](http://evil.test/go) [ref]: http://evil.test/r "title"

```html"><img src=x onerror=alert(9)>
<script>alert(10)</script>
```
"""


async def test_hostile_text_runs_nothing_and_asks_no_one(browser: Browser):
    """In answers, thinking, titles, tool names' arguments and results, file names, sources, errors and settings."""

    @tool
    async def fetch(what: str) -> str:
        "Fetch."
        return HOSTILE + what

    cited = Message("assistant", (Text("See [1].", citations=(
        Citation(url="javascript:alert(11)", title=HOSTILE, quote=HOSTILE, number=1),
        Citation(url="http://evil.test/source", title=HOSTILE, number=2),
    )),))  # fmt: skip
    model = Scripted(
        call("fetch", saying=HOSTILE, what=HOSTILE), say(HOSTILE, thinking=HOSTILE), cited, RuntimeError(HOSTILE)
    )
    about = {"settings": lambda: ((HOSTILE, HOSTILE, HOSTILE),), "hints": (HOSTILE,)}
    async with site(Agent("a", HOSTILE, engine=model, tools=[fetch], description=HOSTILE), about=about) as made:
        made.records.add(a_record("r", 1.0, outcome="failed", error=HOSTILE, why=HOSTILE, rule=HOSTILE))
        async with person(browser, made) as (context, watch):
            page = await context.new_page()
            await page.goto(made.address)
            await page.get_by_label("Attach files").set_input_files(
                {"name": '"><img src=x onerror=alert(12)>.svg', "mimeType": "image/svg+xml", "buffer": HOSTILE.encode()}
            )
            await send(page, HOSTILE)
            await sees(page, "picture")
            await at_rest(page)
            await send(page, "Sources?")
            mark = page.locator("sup a")
            await mark.hover()
            await expect(page.get_by_role("tooltip")).to_contain_text("alert(1)")
            await mark.click()
            await expect(page.locator(".sources")).to_be_visible()
            await send(page, "Fail.")
            await expect(page.locator(".note.error").first).to_be_visible()
            for fold in await page.locator("details").all():
                await fold.locator("summary").click()
            id = page.url.rpartition("/")[2]
            for path in ("traces", f"traces/{id}", "gateway", "agents/a", "settings", "usage", "chat"):
                await page.goto(f"{made.address}/#/{path}")
                await expect(page.locator("main h1").first).to_be_visible()
            await page.goto(f"{made.address}/#/chat/{id}")
            await expect(page.locator(".note.error").first).to_be_visible()
            bad = (
                "script:not([src]), iframe, object, embed, form[action], .md img, .md style, link[href^='http'], "
                "a[href^='javascript'], a[href^='data'], [onerror], [onload]"
            )
            assert await page.locator(bad).count() == 0
            assert page.url.startswith(made.address)
            assert len(context.pages) == 1
            # Blocked while it was taken apart, in a document that is never shown.
            watch.wrong = [one for one in watch.wrong if not one.startswith("console:")]


async def test_a_source_that_is_shown_stays_beside_its_mark(browser: Browser):
    """A card that made the conversation longer would scroll the mark away from the pointer, and back, without end."""
    quote = "What the source says. " * 30
    cited = Message("assistant", (Text("word\n\n" * 40 + "See [1].", citations=(
        Citation(url="http://source.test/", title="A source", quote=quote, number=1),
    )),))  # fmt: skip
    async with site(Agent("a", engine=Scripted(cited))) as made, person(browser, made) as (context, _):
        page = await context.new_page()
        await page.goto(made.address)
        await send(page, "Sources?")
        mark, card = page.locator("sup a"), page.get_by_role("tooltip")
        await expect(mark).to_be_visible()
        await at_rest(page)
        height = "document.querySelector('[aria-label=Messages]').scrollHeight"
        before, was = await page.evaluate(height), await mark.bounding_box()
        await mark.hover()
        await expect(card).to_contain_text("What the source says.")
        await expect(card).to_be_in_viewport(ratio=1)
        assert await page.evaluate(height) == before
        assert await mark.bounding_box() == was
        await page.locator("[aria-label=Messages]").evaluate("one => one.scrollBy(0, -100)")
        await expect(card).to_be_hidden()


STALLS = """() => {
  let last = performance.now(); window.longest = 0;
  setInterval(() => {
    const now = performance.now();
    window.longest = Math.max(window.longest, now - last);
    last = now;
  }, 20);
}"""


@pytest.mark.parametrize("text", rest_slow([
    "*a " * 10_000 + "end",
    "```json\n" + '{"a":' * 8_000 + "\n```\n\nend",
    "**a " * 2_400 + "end",
    "> " * 5_000 + "end",
    "```json\n" + '{"a":' * 800 + "\n```\n\nend",
    "```css\n" + "a{b:" * 10_000 + "\n```\n\nend",
], always=2), ids=["emphasis", "json", "strong", "quotes", "short-json", "css"])  # fmt: skip
async def test_no_text_freezes_the_page(browser: Browser, text: str):
    async with site(Agent("a", engine=Scripted(text))) as made, visit(browser, made) as page:
        await page.evaluate(STALLS)
        await send(page, "Go")
        await sees(page, "end")
        await at_rest(page)
        await page.wait_for_timeout(1_000)  # colours come after the text
        await expect(page.locator(".md")).to_contain_text("end")
        assert await page.evaluate("window.longest") < 4_000
