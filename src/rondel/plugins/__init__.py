"""The plugins that come with Rondel: `from rondel.plugins import Retrieve`. Each is loaded when it is first used.

`default_plugins()` in app/registry.py has their order. `__init__.pyi` has the same names for type checkers.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME_OF = {
    "ApprovalGate": "approval",
    "Attachments": "attachments",
    "AutoReply": "auto_reply",
    "Clock": "clock",
    "Duration": "duration",
    "Facts": "facts",
    "History": "history",
    "ImageAgent": "image_agent",
    "Inputs": "inputs",
    "LimitsGuard": "limits",
    "Log": "log",
    "MemoryAgent": "memory",
    "Position": "position",
    "RepairArguments": "repair",
    "Reroll": "reroll",
    "Respond": "respond",
    "Retrieve": "retrieve",
    "Skills": "skills",
    "SoftFailures": "soft_failures",
    "Telemetry": "telemetry",
    "TextTools": "text_tools",
    "Todo": "todo",
    "Trim": "trim",
}
__all__ = sorted(_HOME_OF)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if home := _HOME_OF.get(name):
        value = globals()[name] = getattr(import_module(f".{home}", __name__), name)
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
