"""`kill -9`: servers do not outlive us."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .helpers import HERE, until

PROGRAM = """
import asyncio, sys
from rondel import Agent, App
from rondel.mcp.plugin import McpServers
from rondel.mcp.spec import ServerSpec
from rondel.testing import Scripted

async def main():
    spec = ServerSpec("a", command=sys.executable, args=(sys.argv[1], "stubborn", "0", sys.argv[2]))
    plugin = McpServers.of([spec])
    async with App(Agent("helper", engine=Scripted(), plugins=[plugin])):
        await plugin.links[0].settled(60)
        print("ready", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="process groups are POSIX")
async def test_a_stubborn_server_and_its_child_are_gone_after_kill_9(tmp_path: Path) -> None:
    told = tmp_path / "pids"
    command = [sys.executable, "-c", PROGRAM, str(HERE / "raw.py"), str(told)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        pids = [int(pid) for pid in told.read_text().split()]
        assert all(map(_lives, pids))
        process.kill()
    await until(lambda: not any(map(_lives, pids)))


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return os.path.isdir("/proc/self") is False
