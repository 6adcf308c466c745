"""A person at the page: tabs in which nothing may leave the origin, no dialog may open and no script may fail."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Any

from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, expect

from tests.web.served import WAIT_S, Site

DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}


class Watch:
    """What a tab did that it must not do."""

    def __init__(self, address: str) -> None:
        self.address, self.wrong = address, list[str]()

    def attach(self, page: Page) -> None:
        page.on("request", self._request)
        page.on("dialog", lambda dialog: self.wrong.append(f"dialog: {dialog.message}"))
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("popup", lambda popup: self.wrong.append(f"popup: {popup.url}"))
        page.on("console", self._console)

    def _request(self, request: Any) -> None:
        if not request.url.startswith((self.address, "data:", "blob:")):
            self.wrong.append(f"request: {request.url}")

    def _console(self, message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text:
            self.wrong.append(f"console: {message.text}")


@contextlib.asynccontextmanager
async def person(browser: Browser, made: Site, **options: Any) -> AsyncGenerator[tuple[BrowserContext, Watch]]:
    """A browser profile: cookies, drafts and theme of its own."""
    context = await browser.new_context(viewport=options.pop("viewport", DESKTOP), locale="en-US", **options)
    context.set_default_timeout(WAIT_S * 1000)
    watch = Watch(made.address)
    context.on("page", watch.attach)
    try:
        yield context, watch
    finally:
        await context.close()
    assert not watch.wrong, watch.wrong


@contextlib.asynccontextmanager
async def visit(browser: Browser, made: Site, path: str = "", **options: Any) -> AsyncGenerator[Page]:
    """One tab of a person of its own."""
    async with person(browser, made, **options) as (context, _):
        page = await context.new_page()
        await page.goto(f"{made.address}/{path}")
        yield page


def message(page: Page) -> Locator:
    return page.get_by_role("textbox", name="Message", exact=True)


async def send(page: Page, text: str) -> None:
    await message(page).fill(text)
    await message(page).press("Enter")


async def sees(page: Page, text: str) -> None:
    """The text is in the last turn."""
    await expect(page.locator("article.turn").last).to_contain_text(text)


async def at_rest(page: Page) -> None:
    """The turn is over: its line of numbers is there."""
    await expect(page.locator("article.turn").last.get_by_role("button", name="Trace")).to_be_visible()
