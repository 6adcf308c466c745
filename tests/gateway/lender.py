"""A project's own plugin that lends tools. It is copied into the project of a gateway under test."""

from __future__ import annotations

import asyncio
import gc
import json
from collections import Counter

from rondel import Plugin, tool


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
    name = "lender"
    looks_for = (b"[lend]",)
    tools = (add, never, census)
