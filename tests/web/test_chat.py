"""Talking in a real browser: what people do on the chat screen."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from playwright.async_api import Browser, expect

from rondel import Agent, tool
from rondel.contracts.ledger import Rule
from rondel.testing import Pause, Scripted, call, say
from rondel.values import Usage
from tests.web.served import site
from tests.web.visit import at_rest, message, person, sees, send, visit

WATCH_BLOCKS = """() => {
  window.removed = 0; window.changed = 0;
  const first = document.querySelector('.md-block'), column = document.querySelector('.column');
  first.marked = true;
  const all = { childList: true, subtree: true, characterData: true };
  new MutationObserver((seen) => {
    for (const one of seen) window.removed += [...one.removedNodes].filter((node) => node.marked).length;
  }).observe(column, all);
  new MutationObserver((seen) => { window.changed += seen.length; }).observe(first, all);
}"""


async def test_a_first_conversation_streams_and_finished_blocks_stay(browser: Browser):
    """The text so far is shown; a finished block is never drawn again, not even when the answer is complete."""
    pause = Pause("# Title\n\nFirst **paragraph**.\n\nSecond ", "paragraph.\n\n```python\nx = 1\n```\n")
    async with site(Agent("a", engine=Scripted(pause))) as made, visit(browser, made) as page:
        await expect(page.get_by_role("heading", name="What would you like to do?")).to_be_visible()
        await send(page, "Hello")
        await sees(page, "Second")
        await expect(page.locator(".bubble")).to_have_text("Hello")
        await page.evaluate(WATCH_BLOCKS)
        pause.release()
        await expect(page.locator(".md pre code .hljs-number")).to_have_text("1")
        await at_rest(page)
        assert await page.evaluate("[window.removed, window.changed]") == [0, 0]
        assert await page.locator(".md h1").inner_text() == "Title"
        await expect(page.locator(".side .item")).to_contain_text("Hello")
        assert await page.title() == "Hello · Rondel"


async def test_stop_regenerate_edit_and_the_arrows_between_versions(browser: Browser):
    model = Scripted(Pause("I begin"), "Second answer.", "Third answer.")
    async with site(Agent("a", engine=model)) as made, visit(browser, made) as page:
        await send(page, "Question")
        await sees(page, "I begin")
        await message(page).press("Escape")
        await sees(page, "stopped")
        await page.get_by_role("button", name="Regenerate").click()
        await sees(page, "Second answer.")
        await at_rest(page)
        await expect(page.get_by_text("2 / 2")).to_be_visible()
        await page.get_by_role("button", name="Earlier version").click()
        await sees(page, "I begin")
        await page.get_by_role("button", name="Later version").click()
        await sees(page, "Second answer.")
        await message(page).press("ArrowUp")
        edited = page.get_by_role("textbox", name="Your message")
        await expect(edited).to_have_value("Question")
        await edited.fill("A better question")
        await edited.press("Control+Enter")
        await sees(page, "Third answer.")
        await expect(page.get_by_text("3 / 3")).to_be_visible()
        await expect(page.locator(".bubble")).to_have_text("A better question")


async def test_an_answer_says_which_model_gave_it_and_why(browser: Browser):
    model, other = Scripted("From my own."), Scripted("From another.", name="other:large")
    async with site(Agent("a", engine=model), make_engine=lambda name: other) as made, visit(browser, made) as page:
        await send(page, "Who are you?")
        await sees(page, "From my own.")
        await page.get_by_role("button", name="scripted:test").click()
        await expect(page.get_by_text("scripted:test answered: it is the engine of a.")).to_be_visible()
        (info,) = (await made.json("GET", "/api/conversations"))["conversations"]
        await made.json("POST", f"/api/conversations/{info['id']}/engine", {"engine": "other:large"})
        await send(page, "And now?")
        await sees(page, "From another.")
        await page.get_by_role("button", name="other:large").click()
        await expect(page.get_by_text("other:large answered: it was chosen for this conversation.")).to_be_visible()


async def test_a_limit_that_only_warns_is_shown(browser: Browser):
    model = Scripted(say("Done.", usage=Usage(10, 10)), "Done again.")
    async with site(Agent("a", engine=model)) as made, visit(browser, made) as page:
        made.app.ledger.configure([Rule(tokens=5)])
        await send(page, "Go")
        await sees(page, "Done.")
        await send(page, "And again")
        await sees(page, "Done again.")
        await sees(page, "The day token limit of 5 has been reached.")


async def test_what_is_sent_while_it_works_is_queued_or_steers(browser: Browser):
    first = Pause("Working on it. ", "Done.")

    model = Scripted(first, "Answer to the second.", Pause("Again. "))
    async with site(Agent("a", engine=model)) as made, visit(browser, made) as page:
        await send(page, "one")
        await sees(page, "Working on it.")
        await page.get_by_role("combobox", name="While it works").select_option("queue")
        await send(page, "two")
        queued = page.locator(".bubble.queued")
        await expect(queued).to_have_text("two")
        await expect(page.get_by_text("answered after the current turn")).to_be_visible()
        first.release()
        await sees(page, "Answer to the second.")
        await expect(queued).to_have_count(0)
        await at_rest(page)
        await send(page, "three")
        await sees(page, "Again.")
        await page.get_by_role("combobox", name="While it works").select_option("steer")
        await send(page, "four, for the same turn")
        await expect(queued).to_have_text("four, for the same turn")
        await expect(page.get_by_text("read after the current step")).to_be_visible()
        await page.get_by_role("button", name="Stop").click()
        await sees(page, "stopped")


async def test_an_approval_shows_all_of_it_and_is_given_by_mouse_and_by_key(browser: Browser):
    """Keys that were meant for the message approve nothing."""

    @tool(approval="confirm")
    async def pay(amount: int, to: str) -> str:
        "Pay."
        return f"paid {amount}"

    whom = "Ann\n" + "x" * 300 + " the end"
    model = Scripted(
        call("pay", "p1", amount=3, to=whom), "Paid by mouse.",
        call("pay", "p2", amount=4, to="Bob"), "Refused by key.",
        call("pay", "p3", amount=5, to="Cy"), "Paid in the end.",
    )  # fmt: skip
    async with site(Agent("a", engine=model, tools=[pay])) as made, visit(browser, made) as page:
        await send(page, "Pay 3.")
        card = page.get_by_role("group", name="Waiting for you")
        await expect(card).to_contain_text("the end")
        await expect(card).to_contain_text("Ann")
        await expect(page.locator(".side .dot.waiting")).to_be_visible()
        await card.get_by_role("button", name="Yes").click()
        await sees(page, "Paid by mouse.")
        await expect(card).to_have_count(0)

        await send(page, "Pay 4.")
        await expect(card.get_by_role("button", name="Yes")).to_be_focused()
        await expect(page.locator(".ask.ready")).to_be_visible()
        await page.keyboard.press("2")
        await sees(page, "Refused by key.")

        await message(page).fill("Pay 5.")
        await message(page).press("Enter")
        await message(page).fill("I am writing 1")
        await expect(card).to_be_visible()
        await expect(message(page)).to_be_focused()
        await page.keyboard.type("11")
        await expect(message(page)).to_have_value("I am writing 111")
        await expect(card).to_be_visible()
        await card.get_by_role("button", name="Yes").click()
        await sees(page, "Paid in the end.")


@pytest.mark.slow
async def test_a_question_is_answered_in_ones_own_words_or_by_choosing(browser: Browser):
    model = Scripted(
        call("ask_user", "q1", question="Which colour?", options=["red", "blue"]), "Blue it is.",
        call("ask_user", "q2", question="Your name?"), "Hello, Ada.",
    )  # fmt: skip
    async with site(Agent("a", engine=model, tools=["ask_user"])) as made, visit(browser, made) as page:
        await send(page, "Ask me.")
        card = page.get_by_role("group", name="Waiting for you")
        await expect(card).to_contain_text("Which colour?")
        await card.get_by_role("button", name="blue").click()
        await sees(page, "Blue it is.")
        await send(page, "And?")
        await expect(card).to_contain_text("Your name?")
        await card.get_by_role("textbox", name="Your answer").fill("Ada")
        await page.keyboard.press("Enter")
        await sees(page, "Hello, Ada.")


@pytest.mark.slow
async def test_tools_nested_agents_and_thinking_are_shown_folded(browser: Browser):
    inner_pause = Pause("The inner agent thinks aloud, ", "and ends.")

    @tool
    async def add(a: int, b: int) -> str:
        "Add."
        return f"the sum is {a + b}"

    @tool
    async def broken() -> str:
        "Fail."
        raise ValueError("no such thing")

    outer = Scripted(
        "Hello.", call("add", a=40, b=2), call("broken"), call("helper", input="Help."),
        say("All done.", thinking="I should be brief."),
    )  # fmt: skip
    helper = Agent("helper", description="Helps.", engine=Scripted(inner_pause, name="scripted:helper"))
    main = Agent("a", engine=outer, tools=[add, broken, helper])
    async with site(main) as made, visit(browser, made) as page:
        await send(page, "Hello")
        await at_rest(page)
        await send(page, "Go.")
        await expect(page.locator(".note", has_text="The inner agent thinks aloud")).to_be_visible()
        inner_pause.release()
        await sees(page, "All done.")
        card = page.locator("details.fold", has_text="add")
        result = card.get_by_text("the sum is 42")
        await expect(result).to_be_hidden()
        await card.locator("summary").click()
        await expect(result).to_be_visible()
        await expect(page.get_by_role("img", name="failed")).to_be_visible()
        thought = page.locator("details.thinking")
        await expect(thought.locator("pre")).to_be_hidden()
        await thought.locator("summary").click()
        await expect(thought.locator("pre")).to_have_text("I should be brief.")


FILES = """(files) => { const data = new DataTransfer();
  for (const [name, size] of files)
    data.items.add(new File([new Uint8Array(size).fill(97)], name, { type: 'text/plain' }));
  return data; }"""


@pytest.mark.slow
async def test_files_come_by_button_by_paste_and_by_drop(browser: Browser):
    """Too many, too large and empty ones are refused with one sentence; what was attached and written stays."""
    model = Scripted("Got them.")
    async with site(Agent("a", engine=model)) as made, visit(browser, made) as page:
        box = message(page)
        await box.fill("Look")
        await page.get_by_label("Attach files").set_input_files(
            {"name": "one.txt", "mimeType": "text/plain", "buffer": b"first"}
        )
        files = page.locator(".files .file")
        await expect(files).to_have_count(1)
        pasted = await page.evaluate_handle(FILES, [["two.txt", 5]])
        await box.evaluate(
            "(box, data) => box.dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, bubbles: true }))",
            pasted,
        )
        await expect(files).to_have_count(2)

        async def drop(*given: list[Any]) -> None:
            data = await page.evaluate_handle(FILES, given)
            await page.locator("main.chat").dispatch_event("drop", {"dataTransfer": data})

        await drop(["three.txt", 5])
        await expect(files).to_have_count(3)
        alert = page.locator(".note.error")
        await drop(*(["many.txt", 1] for _ in range(1_000)))
        await expect(alert).to_have_text("1003 files are too many; attach at most 20.")
        await drop(["big.bin", 32_000_001])
        await expect(alert).to_have_text("big.bin is larger than 32 MB.")
        await drop(["nothing", 0])
        await expect(alert).to_contain_text("empty file")
        await expect(files).to_have_count(3)
        await page.get_by_role("button", name="Remove two.txt").click()
        await box.press("Enter")
        await sees(page, "Got them.")
        sent = [part.name for part in model.prompts[0].messages[-1].parts if hasattr(part, "mime")]
        assert sent == ["one.txt", "three.txt"]
        await expect(page.get_by_role("link", name="one.txt")).to_be_visible()


@pytest.mark.slow
async def test_drafts_wait_where_they_were_written(browser: Browser):
    async with site(Agent("a", engine=Scripted("One.", "Two."))) as made:
        ids = [await made.start(), await made.start()]
        for id in ids:
            await made.say(id, f"About {id}")
        async with visit(browser, made, f"#/chat/{ids[0]}") as page:
            await sees(page, "One.")
            await message(page).fill("half a thought")
            await page.goto(f"{made.address}/#/chat/{ids[1]}")
            await sees(page, "Two.")
            await expect(message(page)).to_have_value("")
            await page.reload()
            await page.goto(f"{made.address}/#/chat/{ids[0]}")
            await expect(message(page)).to_have_value("half a thought")
            # However fast one leaves:
            await page.evaluate(
                """hash => {
                    const box = document.querySelector("textarea[aria-label=Message]");
                    box.value = "a whole thought";
                    box.dispatchEvent(new Event("input", {bubbles: true}));
                    location.hash = hash;
                }""",
                f"#/chat/{ids[1]}",
            )
            await sees(page, "Two.")
            await page.goto(f"{made.address}/#/chat/{ids[0]}")
            await expect(message(page)).to_have_value("a whole thought")


@pytest.mark.slow
async def test_search_rename_delete_and_a_delete_in_another_tab(browser: Browser):
    async with site(Agent("a", engine=Scripted("Yes.", "No."))) as made:
        first, second = await made.start(), await made.start()
        await made.say(first, "Apples and pears")
        await made.say(second, "Bicycles")
        async with person(browser, made) as (context, _):
            page, other = await context.new_page(), await context.new_page()
            await page.goto(f"{made.address}/#/chat/{first}")
            await other.goto(f"{made.address}/#/chat/{first}")
            await sees(other, "Yes.")
            items = page.locator(".side .item")
            await expect(items).to_have_count(2)
            search = page.get_by_role("searchbox", name="Search conversations")
            await search.fill("pears")
            await expect(items).to_have_count(1)
            await search.fill("nowhere to be found")
            await expect(page.get_by_text("Nothing found.")).to_be_visible()
            await search.fill("")
            await expect(items).to_have_count(2)
            await page.get_by_role("button", name="Rename or delete Apples and pears").click()
            title = page.get_by_role("textbox", name="Title")
            await title.fill("Fruit")
            await title.press("Enter")
            await expect(page.get_by_role("banner").or_(page.locator(".chat-head"))).to_contain_text("Fruit")
            await page.get_by_role("button", name="Rename or delete Fruit").click()
            await page.get_by_role("button", name="Delete…").click()
            await page.get_by_role("button", name="Delete for ever").click()
            await expect(items).to_have_count(1)
            await expect(page.get_by_role("heading", name="What would you like to do?")).to_be_visible()
            await expect(other.get_by_text("does not exist any more")).to_be_visible()
            await other.get_by_role("button", name="Start a new one").click()
            await expect(other.get_by_role("heading", name="What would you like to do?")).to_be_visible()


@pytest.mark.slow
async def test_two_tabs_that_send_at_once_both_get_their_answer(browser: Browser):
    model = Scripted("Ready.", "First answer.", "Second answer.")
    async with site(Agent("a", engine=model)) as made:
        id = await made.start()
        await made.say(id, "Hello")
        async with person(browser, made) as (context, _):
            tabs = [await context.new_page(), await context.new_page()]
            for tab in tabs:
                await tab.goto(f"{made.address}/#/chat/{id}")
                await sees(tab, "Ready.")
            async with asyncio.TaskGroup() as group:
                for number, tab in enumerate(tabs):
                    group.create_task(send(tab, f"from tab {number}"))
            for tab in tabs:
                column = tab.locator(".column")
                await expect(column).to_contain_text("Second answer.")
                for text in ("from tab 0", "from tab 1", "First answer."):
                    await expect(column).to_contain_text(text)
                await expect(tab.locator(".bubble")).to_have_count(3)


@pytest.mark.parametrize("mode", ["background", "inline"])
async def test_the_end_of_a_background_job_is_a_note_and_no_message_of_the_person(browser: Browser, mode: Any):
    """B01: what the model reads of it is not for people, neither as it happens nor when the page is loaded again."""
    go = asyncio.Event()

    @tool(background=mode)
    async def report() -> str:
        "Make a report."
        await go.wait()
        return "it has 42 rows"

    model = Scripted(call("report"), "It has begun.", "As I said.")
    async with site(Agent("a", engine=model, tools=[report])) as made, visit(browser, made) as page:
        await send(page, "Report!")
        await sees(page, "It has begun.")
        go.set()
        await expect(page.get_by_text("Background job done: it has 42 rows")).to_be_visible()
        if mode == "background":
            await send(page, "And?")
        await sees(page, "As I said.")
        said = ["Report!", "And?"] if mode == "background" else ["Report!"]
        await expect(page.locator(".bubble")).to_have_text(said)
        await page.reload()
        await sees(page, "As I said.")
        await expect(page.locator(".bubble")).to_have_text(said)
