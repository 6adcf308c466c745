"""Tests of the HTTP client leave no task behind."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from .raw_server import WAIT_S


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None

    async def main() -> None:
        async with asyncio.timeout(WAIT_S):
            await test(**{name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters})
        await asyncio.sleep(0)  # what was closed last is told so
        assert len(asyncio.all_tasks()) == 1, asyncio.all_tasks()

    with asyncio.Runner(loop_factory=pyfuncitem.funcargs.get("loop")) as runner:
        runner.run(main())
    return True
