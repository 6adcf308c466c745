"""A project's own plugin that injects tools. It is copied into the project of a gateway under test."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
from collections import Counter
from collections.abc import AsyncGenerator

from rondel import App, Plugin, tool


@tool(idempotent=True)
def add(a: int, b: int) -> str:
    "Add two numbers."
    return str(a + b)


@tool(idempotent=True)
async def never() -> str:
    "Take for ever."
    await asyncio.Event().wait()
    return ""


@tool(idempotent=True)
async def census(kinds: list[str]) -> str:
    "Count what lives in this process."
    gc.collect()
    found = Counter(type(thing).__name__ for thing in gc.get_objects())
    return json.dumps({"tasks": len(asyncio.all_tasks()), **{kind: found[kind] for kind in kinds}})


class Lender(Plugin):
    """Learns its tools while it starts, as a plugin for a server of tools does."""

    name = "lender"
    looks_for = (b"[inject]",)

    @contextlib.asynccontextmanager
    async def lifespan(self, app: App) -> AsyncGenerator[None]:
        self.tools = (add, never, census)
        yield
