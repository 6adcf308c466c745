"""The Model Context Protocol: gives our agents the tools, prompts and resources of other programs, and offers our
agents to them.

`spec.py` and `names.py` are pure. `plugin.py` is what an agent gets; it imports the SDK (the extra `rondel[mcp]`) in a
thread when the first server is connected. `server.py` serves agents. Knows no project file and no surface.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .plugin import McpServers
    from .server import make_server

__all__ = ["McpServers", "make_server"]


def __getattr__(name: str) -> Any:
    # The settings of a project need only spec.py, which must not import everything else.
    if home := {"McpServers": "plugin", "make_server": "server"}.get(name):
        return getattr(import_module(f".{home}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
