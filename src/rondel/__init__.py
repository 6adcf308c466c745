"""Rondel: agents that talk, work and call each other.

Importing this reads no file and no environment and starts nothing; heavy modules are loaded when they are first used.
`__init__.pyi` has the same names for type checkers, and docs/reference/python.md describes them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

# At once: a module of this name exists, and would hide the function when it is loaded later.
from .tool import tool as tool

__version__ = "0.1.0"

_HOMES = {
    "agent": "Agent Fact",
    "app.app": "App ask default_plugins run",
    "charge": "Charge Scope",
    "contracts.command": "Chat Command",
    "contracts.endpoint": "Endpoint",
    "contracts.images": "GeneratedImages ImageEngine ImageRequest",
    "contracts.ledger": "Rule",
    "contracts.store": "Store",
    "contracts.surface": "Surface",
    "dialects": "DIALECTS",
    "engine": "Engine EngineInfo",
    "engines.fallback": "Fallback",
    "engines.http": "HttpEngine",
    "engines.retry": "Retry",
    "engines.transform": "Transform transformed",
    "errors": (
        "AgentFailed ConfigError EngineDenied EngineError EngineGarbled EngineOverloaded EngineTimeout "
        "EngineUnreachable InputError LimitReached NotTrusted PluginError PromptRejected QuestionError ReplyTooLong "
        "RondelError StoreBusy StoreConflict StoreDamaged StoreError StoreFull StoreTooNew TokenLimitError ToolError "
        "TurnFailed"
    ),
    "events": (
        "AgentChanged CallFinished CallHeld CallProgressed CallStarted Digest DurableEvent EngineChanged Entry Event "
        "FactsLearned Failure HandedOff HistoryGiven InboxTaken InputsRead JobChanged JobFinished JobStarted Lagged "
        "Learned LimitHit MessageAdded MessageQueued Nested PluginFailed QuestionAnswered Renamed RoundFinished "
        "RoundStarted SettingChanged SpendingWarned Spent Trimmed TurnFinished TurnStarted TurnsUndone "
        "UsageRecorded Warned"
    ),
    "fetching": "FetchError",
    "fetching.http": "HttpFetcher",
    "gateway.bridge.registry": "Registry",
    "knowledge.tool": "search_knowledge",
    "knowledge.web.tool": "web_search",
    "ledger.ledger": "Ledger",
    "limits": "Limits",
    "machine.answer_text": "AnswerText",
    "machine.conversation": "Conversation TurnView",
    "machine.images": "Images",
    "machine.transcript": "Transcript",
    "machine.turn": "Turn",
    "plugin": "Key Plugin",
    "project.engines": "engine_at",
    "project.folder": "Project",
    "project.settings": "Config",
    "prompt": "Node Prompt",
    "question": "Answer Hold Question",
    "stores.memory": "MemoryStore",
    "stores.sqlite": "SqliteStore",
    "surfaces.session": "Session",
    "text.schedule": "Schedule",
    "text.template": "escape",
    "tool": "Approval CallContext NoResult Tool Toolbox error_of",
    "tools.ask_user": "ask_user",
    "tools.background": "cancel_job list_jobs",
    "tools.calculate": "calculate",
    "tools.clock": "current_time",
    "tools.finish": "finish",
    "tools.generate_image": "generate_image",
    "tools.schedule": "cancel_schedule list_schedules schedule",
    "tools.shell": "run_shell",
    "values": (
        "AgentResult Citation Delta Example Foreign Handoff Media MediaDelta Message ModelFacts Notice Options Outcome "
        "OutputSchema Part PartDelta PartFinished PartStarted Person Played Reply ReplyBuilder ReplyFinished "
        "ReplyStarted Text Thinking ToolCall ToolResult ToolSpec Usage assistant deltas_of system user"
    ),
}
"""The public names by the module that has them."""

_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
__all__ = sorted((*_HOME_OF, "tool"))  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if home := _HOME_OF.get(name):
        value = globals()[name] = getattr(import_module(f".{home}", __name__), name)
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
