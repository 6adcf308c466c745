"""One browser for all tests of a process, and the event loop in which they drive it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from playwright.async_api import Browser, async_playwright, expect

from tests.web.chromium import ARGUMENTS, environment, executable
from tests.web.served import WAIT_S

expect.set_options(timeout=WAIT_S * 1000)


@pytest.fixture(scope="session")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="session")
def browser(runner: asyncio.Runner) -> Iterator[Browser]:
    path = executable()
    driver = async_playwright()
    started = runner.run(driver.__aenter__())
    arguments = [*ARGUMENTS, "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
    found = runner.run(started.chromium.launch(executable_path=path, args=arguments, env=environment(path)))
    yield found
    runner.run(found.close())
    runner.run(driver.__aexit__())
