"""A trace as an HTML page: alone, escaped, and usable when it is long. Judged by a real parser, and by a browser if the
machine has one."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import pytest
from playwright.async_api import async_playwright
from selectolax.lexbor import LexborHTMLParser

from rondel.events import FactsLearned, Learned, PluginFailed
from rondel.trace import TraceNode, build
from rondel.trace.page import OPEN_NODES_MAX, TEXT_CHARS_MAX, page
from rondel.values import ToolCall
from tests.trace.journals import called, journal, long_conversation, said, turn
from tests.web.chromium import ARGUMENTS, environment, executable

EVIL = (
    "</pre></bdi></details></title></script></style><script>document.title='owned'</script>"
    '<img src=x onerror="document.title=\'owned\'"><svg onload=alert(1)><a href="javascript:alert(1)">x</a>'
    "<style>*{display:none}</style><!-- --><iframe srcdoc='<script>1</script>'></iframe>&lt;b&gt;&#60;i&#62;<![CDATA["
    "<base href=//x.invalid><form action=//x.invalid><meta http-equiv=refresh content='0;url=//x.invalid'>"
)
ELEMENTS = {
    *("html", "head", "meta", "title", "style", "body", "header", "main", "script", "h1", "p", "code", "time", "span"),
    *("dl", "div", "dt", "dd", "button", "details", "summary", "table", "thead", "tbody", "tr", "th", "td", "ol", "li"),
    *("bdi", "pre", "svg", "rect"),
}
ATTRIBUTES = {
    *(
        "lang",
        "charset",
        "http-equiv",
        "content",
        "name",
        "class",
        "datetime",
        "hidden",
        "type",
        "data-action",
        "scope",
    ),
    *("open", "dir", "tabindex", "aria-label", "role", "viewbox", "preserveaspectratio", "aria-hidden", "x", "y"),
    *("width", "height"),
}


def hostile() -> TraceNode:
    """Everybody says the same evil thing, in every place where something can be said."""
    events = turn(
        said(EVIL, ToolCall("c", EVIL, {EVIL: EVIL})),
        *called("c", EVIL, EVIL, error=True),
        PluginFailed(EVIL, EVIL, EVIL),
        FactsLearned("t1", EVIL, (Learned(EVIL, EVIL),)),
        said(EVIL, engine=EVIL),
        agent=EVIL,
        text=EVIL,
        instructions=EVIL,
    )
    return build(journal(*events), {}, conversation=EVIL)


def parsed(root: TraceNode) -> LexborHTMLParser:
    return LexborHTMLParser(page(root))


def test_nothing_that_anybody_said_becomes_markup():
    """O01: the page escapes what agents, models, tools and people said."""
    tree = parsed(hostile())
    nodes = [node for node in tree.root.traverse(include_text=False)] if tree.root else []
    assert {node.tag for node in nodes} <= ELEMENTS
    assert {name.lower() for node in nodes for name in node.attributes} <= ATTRIBUTES
    assert not any((value or "").startswith("javascript:") for node in nodes for value in node.attributes.values())
    assert [len(tree.css(tag)) for tag in ("script", "style", "title", "main", "header")] == [1, 1, 1, 1, 1]
    assert any(node.text() == EVIL for node in tree.css("pre")), "it is shown, letter for letter"


def test_only_its_own_style_and_script_may_run_and_nothing_is_fetched():
    tree = parsed(hostile())
    policy = tree.css_first('meta[http-equiv="Content-Security-Policy"]').attributes["content"] or ""
    for tag in ("style", "script"):
        own = tree.css_first(tag).text()
        assert f"{tag}-src 'sha256-{base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()}'" in policy
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    own = tree.css_first("style").text() + tree.css_first("script").text()
    assert not re.search(r"url\(|@import|https?:|innerHTML|insertAdjacent|eval|fetch", own)


def test_control_characters_half_characters_and_turned_lines_are_shown_and_not_carried():
    text = "a\x00b\x1b[31m\r\nc\x7f \ud800 \u202etxt.exe"
    html = page(build(journal(*turn(said(text * 9), text="go")), {}))
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff\u202e]", html)
    assert "a␀b␛[31m\nc␡ ? [U+202E]txt.exe" in html
    html.encode()


def test_a_text_that_is_too_long_is_cut_and_says_so():
    html = page(build(journal(*turn(said("x" * (TEXT_CHARS_MAX + 1234)))), {}))
    assert "1,234 more characters are left out here; rondel trace --json has them." in html
    assert len(html) < 3 * TEXT_CHARS_MAX


def test_totals_problems_and_who_spent_it_stand_at_the_top():
    entries = turn(
        said("", ToolCall("c", "look"), tokens=1500), *called("c", "look", "no such file", error=True), said("Sorry.")
    )
    tree = parsed(build(journal(*entries), {}, conversation="talk"))
    numbers = {pair.css_first("dt").text(): pair.css_first("dd").text() for pair in tree.css(".totals div")}
    assert (numbers["turns"], numbers["model calls"], numbers["tool calls"], numbers["problems"]) == (
        "1",
        "2",
        "1",
        "1",
    )
    assert (numbers["tokens in"], numbers["cost"]) == ("1,500", "not known")
    rows = [[cell.text() for cell in row.css("th, td")] for row in tree.css("tbody tr")]
    assert rows == [["helper", "x:model", "2", "1.0 s", "1,500", "0", "1,500", ""]]
    assert [node.css_first(".name").text() for node in tree.css("li.wrong")] == ["look"]


def test_everything_opens_with_the_keyboard_and_says_what_it_is():
    """Native elements only: what can be opened is a summary, what can be pressed is a button."""
    tree = parsed(hostile())
    assert all(node.parent and node.parent.tag == "details" for node in tree.css("summary"))
    assert all(node.attributes.get("tabindex") == "0" and node.attributes.get("aria-label") for node in tree.css("pre"))
    assert all(node.attributes.get("aria-hidden") == "true" for node in tree.css("svg"))
    assert tree.css_first("html").attributes["lang"] == "en"
    assert "width=device-width" in (tree.css_first('meta[name="viewport"]').attributes["content"] or "")
    assert "prefers-color-scheme: dark" in tree.css_first("style").text()


@pytest.mark.slow
def test_of_a_long_trace_only_the_last_turn_stands_open():
    short, long = parsed(build(long_conversation(60), {})), parsed(build(long_conversation(10_000), {}))
    assert len(short.css("li > details")) == len(short.css("li > details[open]"))
    standing = long.css(".tree > li > details[open]")
    assert len(standing) == 1
    assert len(long.css("li > details")) > 20 * OPEN_NODES_MAX
    assert len(long.css("li > details[open]")) < OPEN_NODES_MAX


def test_nothing_yet_is_a_page_that_says_so():
    assert "Nothing has happened in this conversation yet." in page(build([], {}, conversation="c"))


# --- in a browser -----------------------------------------------------------------------------------------------------


async def test_a_browser_shows_it_runs_our_script_and_nobody_elses(tmp_path: Path):
    (tmp_path / "trace.html").write_text(page(hostile()), encoding="utf-8")
    chromium, printed = executable(), list[str]()
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=chromium, args=ARGUMENTS, env=environment(chromium))
        shown = await browser.new_page()
        shown.on("console", lambda message: printed.append(message.text))
        shown.on("pageerror", lambda error: printed.append(str(error)))
        await shown.goto(f"file://{tmp_path}/trace.html")
        assert (await shown.title()).startswith("Agent trace: ")
        assert await shown.locator(".tools").is_visible(), "our script ran"
        assert await shown.locator("script").count() == 1
        assert await shown.locator("pre").first.text_content() == EVIL
        await browser.close()
    assert printed == []
