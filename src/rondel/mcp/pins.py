"""The descriptions that tools had when they were approved, in the store. A tool whose description has changed is
held."""

from __future__ import annotations

import msgspec

from ..contracts.store import Store
from .link import Link, Pin
from .remote import RemoteTool

NAMESPACE = "mcp-pins"


async def load_pins(store: Store, identity: str) -> dict[str, Pin]:
    prefix, pins, after = f"{identity}:", dict[str, Pin](), ""
    while keys := await store.keys(NAMESPACE, prefix, after=after):
        for key in keys:
            if data := await store.get(NAMESPACE, key):
                pins[key.removeprefix(prefix)] = msgspec.json.decode(data, type=Pin)
        after = keys[-1]
    return pins


async def pin(store: Store, link: Link, tool: RemoteTool) -> None:
    """Store a tool as approved."""
    made = Pin(tool.digest, tool.description, tool.schema)
    await store.put(NAMESPACE, f"{link.identity}:{tool.name}", msgspec.json.encode(made))
    link.pins[tool.name] = made
    link.version += 1


def as_approved(link: Link, tool: RemoteTool) -> RemoteTool:
    """Return what a model may be told about a tool: the approved description, or its own if none was approved."""
    known = link.pins.get(tool.name)
    if known is None or known.digest == tool.digest:
        return tool
    return msgspec.structs.replace(tool, description=known.description, schema=known.schema)
