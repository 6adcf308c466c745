"""The names of servers' tools for models: `mcp-<server>-<tool>`, unique for any names of tools. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256

PREFIX = "mcp-"
LENGTH_MAX = 64
_BAD = re.compile(r"[^a-zA-Z0-9_-]")


def tool_name(server: str, tool: str, servers: Iterable[str] = ()) -> str:
    """Return the name of a server's tool. `servers` are the names of all servers of the agent.

    A name that another server could also produce (`a` with `b-c`, `a-b` with `c`), that is too long or that has other
    characters ends with a hash of server and tool, so it depends only on these names.
    """
    name = f"{PREFIX}{server}-{tool}"
    fits = len(name) <= LENGTH_MAX and not _BAD.search(name)
    shadows = any(
        other != server and name.startswith(f"{PREFIX}{other}-") and len(other) > len(server) for other in servers
    )
    if fits and not shadows and not _looks_hashed(tool):
        return name
    digest = sha256(f"{server}\0{tool}".encode("utf-8", "replace")).hexdigest()[:8]
    return f"{_BAD.sub('_', name)[: LENGTH_MAX - 9]}_{digest}"


def _looks_hashed(tool: str) -> bool:
    """Return whether a tool's own name could be the hashed name of another one."""
    return re.search(r"_[0-9a-f]{8}$", tool) is not None
