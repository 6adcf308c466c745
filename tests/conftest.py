"""How tests run: async ones in an event loop of their own, and hypothesis with few examples by default."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
from functools import cache
from pathlib import Path
from typing import Any

import httpcore2
import pytest
import uvloop
from hypothesis import settings

os.environ["RONDEL_KEEP"] = "0"  # embedded models in the process that uses them: no process outlives its test

# Reading the system's certificates takes a client 50 ms; the tests make hundreds of clients, for loopback.
httpcore2.default_ssl_context = cache(httpcore2.default_ssl_context)

gc.disable()  # while tests are collected: nearly all that is made then stays

TEST_S = 120.0  # A test that hangs fails after this long

LONG = ("web", "cli", "engines_local", "docs", "mcp", "discord", "distribution")
"""Folders whose tests start browsers, models and other processes."""

# No deadline: machines may be busy.
settings.register_profile("default", deadline=None, max_examples=10)
settings.register_profile("all", deadline=None, max_examples=100)
settings.load_profile("default")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a store can be: nothing is there yet."""
    return tmp_path / "rondel.db"


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """How many processes `-n auto` starts: one more than there are cores, because some tests only wait."""
    return min((os.cpu_count() or 1) + 1, 8)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files whose few tests take seconds, so that no process is left with one of them at the end."""
    items.sort(key=lambda item: item.path.parent.name not in LONG)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is an `async def`: on the event loop of the fixture `loop` if it uses that, or in the runner of
    the fixture `runner`, which several tests share."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None

    async def main() -> None:
        async with asyncio.timeout(TEST_S):
            await test(**{name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters})
        if pyfuncitem.path.parent.name == "http":  # the HTTP client leaves no task behind
            await asyncio.sleep(0)
            assert len(asyncio.all_tasks()) == 1, asyncio.all_tasks()

    if (shared := pyfuncitem.funcargs.get("runner")) is not None:
        shared.run(main())
        return True
    with asyncio.Runner(loop_factory=pyfuncitem.funcargs.get("loop")) as runner:
        runner.run(main())
    return True
