"""What commands show, as plain values: conversations, plugins, tools, jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from ..contracts.command import Table
from ..contracts.runtime import JobInfo
from ..contracts.store import ConversationInfo, Found
from ..plugin import HOOKS, Plugin
from ..text.printable import one_line
from ..tool import Tool

if TYPE_CHECKING:
    from ..jobs.timetable import Scheduled


def conversations_table(infos: Sequence[ConversationInfo], now: float) -> Table | str:
    rows = tuple(
        (
            short_id(info.id),
            when(info.updated_at, now),
            "waiting for you" if info.state == "waiting" else info.state,
            one_line(info.agent, 16),
            one_line(info.title, 120) or "(empty)",
        )
        for info in infos
    )
    return Table(rows, ("id", "when", "state", "agent", "about"), wraps=False) if rows else "No conversations yet."


def found_table(found: Sequence[Found], now: float) -> Table | str:
    rows = tuple(
        (short_id(info.id), when(info.updated_at, now), one_line(info.title, 40), one_line(excerpt, 200))
        for info, excerpt in ((one.info, one.excerpt) for one in found)
    )
    return Table(rows, ("id", "when", "about", "found"), flexible=2, wraps=False) if rows else "Nothing was found."


def short_id(id: str) -> str:
    """Return the last characters: they are unique on one machine, and accepted wherever an id is."""
    return id if len(id) <= 12 else id[-10:]


def when(at: float, now: float) -> str:
    ago = max(0.0, now - at)
    if ago < 60:
        return "just now"
    if ago < 3600:
        return f"{int(ago // 60)} min ago"
    if ago < 86_400:
        return f"{int(ago // 3600)} h ago"
    moment = datetime.fromtimestamp(at).astimezone()
    return moment.strftime("%d %b %Y") if ago > 300 * 86_400 else moment.strftime("%d %b, %H:%M")


def hooks_of(plugin: Plugin) -> tuple[str, ...]:
    return tuple(hook for hook in HOOKS if getattr(type(plugin), hook) is not getattr(Plugin, hook))


def plugins_table(plugins: Iterable[Plugin]) -> Table:
    def does(plugin: Plugin) -> str:
        hooks = ", ".join(hook.removeprefix("on_") for hook in hooks_of(plugin))
        tools = f"tools: {', '.join(tool.name for tool in plugin.tools)}" if plugin.tools else ""
        return "; ".join(part for part in (hooks, tools) if part)

    rows = tuple(
        (str(number), plugin.name, "yes" if plugin.required else "", does(plugin))
        for number, plugin in enumerate(plugins, 1)
    )
    return Table(rows, ("", "plugin", "required", "hooks"))


def tools_table(tools: Mapping[str, Tool]) -> Table | str:
    def asks(tool: Tool) -> bool:
        return tool.approval is not None and tool.approval.mode == "confirm"

    rows = tuple((name, "yes" if asks(tool) else "", one_line(tool.description, 200)) for name, tool in tools.items())
    return Table(rows, ("tool", "asks first", "what it does")) if rows else "This agent has no tools."


def jobs_table(jobs: Sequence[JobInfo], schedules: Sequence[Scheduled]) -> Table | str:
    rows = [(job.id, one_line(job.name, 24), status_text(job), one_line(job.summary or job.text, 120)) for job in jobs]
    rows += [(one.id, str(one.schedule), "scheduled", one_line(one.schedule.say, 120)) for one in schedules]
    return Table(tuple(rows), ("id", "what", "status", "about")) if rows else "No background jobs and no schedules."


def status_text(job: JobInfo) -> str:
    return f"{job.status} {job.progress:.0%}" if job.progress is not None and not job.is_over else job.status
