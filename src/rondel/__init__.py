"""Rondel: agents that talk, work and call each other.

Importing this reads no file and no environment and starts nothing; what is heavy is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .tool import tool  # at once: a module of this name exists, and would hide the function when it is loaded later

if TYPE_CHECKING:
    from .agent import Agent
    from .app.app import App, ask, default_plugins, run
    from .contracts.command import Command
    from .engine import Engine
    from .errors import ConfigError, EngineError, LimitReached, QuestionError, RondelError, StoreError, ToolError
    from .events import Event, Outcome
    from .limits import Limits
    from .machine.conversation import Conversation, TurnView
    from .plugin import Key, Plugin
    from .prompt import Node, Prompt
    from .question import Answer, Hold, Question
    from .tool import Approval, CallContext, NoResult, Tool, Toolbox
    from .values import AgentResult, Media, Message, Options, OutputSchema, Reply, Text

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "AgentResult",
    "Answer",
    "App",
    "Approval",
    "CallContext",
    "Command",
    "ConfigError",
    "Conversation",
    "Engine",
    "EngineError",
    "Event",
    "Hold",
    "Key",
    "LimitReached",
    "Limits",
    "Media",
    "Message",
    "NoResult",
    "Node",
    "Options",
    "Outcome",
    "OutputSchema",
    "Plugin",
    "Prompt",
    "Question",
    "QuestionError",
    "Reply",
    "RondelError",
    "StoreError",
    "Text",
    "Tool",
    "ToolError",
    "Toolbox",
    "TurnView",
    "ask",
    "default_plugins",
    "run",
    "tool",
]

_HOMES = {
    "agent": "Agent",
    "app.app": "App ask default_plugins run",
    "contracts.command": "Command",
    "machine.conversation": "Conversation TurnView",
    "engine": "Engine",
    "errors": "ConfigError EngineError LimitReached QuestionError RondelError StoreError ToolError",
    "events": "Event Outcome",
    "limits": "Limits",
    "plugin": "Key Plugin",
    "prompt": "Node Prompt",
    "question": "Answer Hold Question",
    "tool": "Approval CallContext NoResult Tool Toolbox",
    "values": "AgentResult Media Message Options OutputSchema Reply Text",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if home := _HOME_OF.get(name):
        value = globals()[name] = getattr(import_module(f".{home}", __name__), name)
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
