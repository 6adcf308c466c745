"""Makes docs/page.png: the page in a real browser, with a real model. Nothing in the picture is made up.

    python docs/page.py docs/page.png "What is 1234 * 5678?" "What is 86400 * 7?"

Each further argument is a message that is sent; the script waits for each answer, opens the trace of the last one and
takes the picture. The model is the one that `rondel` picks here; RONDEL_ENGINE names another. Needs the packages of the
tests (playwright, pillow) and a built page.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, ViewportSize, sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.web.chromium import ARGUMENTS, environment, executable

WAIT_S = 180
BYTES_MAX = 150_000
COLOURS = 128
SIZE: ViewportSize = {"width": 1320, "height": 860}
TOML = 'agent = "house"\n'
AGENT = """---
description: Answers questions, and calculates.
tools: [calculate]
---
You are a helpful assistant. Be brief. Calculate with the tool, and say the result in one sentence.
"""


def serve(folder: Path, home: Path) -> tuple[subprocess.Popen[str], str]:
    """Start `rondel serve` there; give the process and the address that it prints."""
    (folder / "agents").mkdir(parents=True)
    (folder / "rondel.toml").write_text(TOML, encoding="utf-8")
    (folder / "agents" / "house.md").write_text(AGENT, encoding="utf-8")
    env = {**os.environ, "RONDEL_TRUST": str(folder), "RONDEL_STORE": str(home / "talks.db")}
    env |= {"XDG_STATE_HOME": str(home), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "rondel", "serve", "--port", "0"]
    server = subprocess.Popen(command, cwd=folder, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert server.stdout is not None
    said = ""
    for line in server.stdout:
        said += line
        if found := re.search(r"http://127\.0\.0\.1:\d+", line):
            return server, found[0]
    raise SystemExit(f"the server did not start:\n{said}")


def talk(page: Page, messages: Sequence[str]) -> None:
    """Send the messages one after the other, and open what is behind the last answer."""
    for number, text in enumerate(messages, 1):
        box = page.get_by_role("textbox", name="Message", exact=True)
        box.fill(text)
        box.press("Enter")
        page.locator("article.turn .meta").nth(number - 1).wait_for(timeout=WAIT_S * 1000)
    page.get_by_role("button", name="Trace", exact=True).last.click()
    page.get_by_role("tree", name="Steps").wait_for()
    page.mouse.move(0, 0)


def compressed(picture: bytes) -> bytes:
    out = io.BytesIO()
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(
        out, "PNG", optimize=True
    )
    return out.getvalue()


def main(target: str, *messages: str) -> None:
    path = executable()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        server, address = serve(Path(folder, "house"), Path(folder, "home"))
        try:
            browser = driver.chromium.launch(executable_path=path, args=list(ARGUMENTS), env=environment(path))
            page = browser.new_page(viewport=SIZE, locale="en-US", color_scheme="light")
            page.goto(address)
            talk(page, messages or ["What is 1234 * 5678?"])
            made = compressed(page.screenshot())
            browser.close()
        finally:
            server.terminate()
            server.communicate(timeout=WAIT_S)
    if len(made) > BYTES_MAX:
        raise SystemExit(f"the picture has {len(made):,} bytes; at most {BYTES_MAX:,} are wanted")
    Path(target).write_bytes(made)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
