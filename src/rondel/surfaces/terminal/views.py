"""Lists and trees for people: conversations, plugins, tools, a trace. Values in, things that rich prints out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text
from rich.tree import Tree

from ...job import JobInfo
from ...plugin import HOOKS, Plugin
from ...store import ConversationInfo
from ...timetable import Scheduled
from ...tool import Tool
from ...trace import TraceNode, arguments_text, details, facts_text, note_text, round_text
from ...values import Message
from .clean import clean, one_line
from .listing import Listing, cut

OUTPUT_CHARS_MAX = 300
_STATES = {"working": "cut off", "waiting": "waits for you"}
"""What a state means to a person: a conversation at work that nobody works on was cut off."""
_STYLES = {"done": "green", "waiting": "yellow", "failed": "red", "stopped": "yellow", "working": "cyan"}


def conversations_table(infos: Sequence[ConversationInfo], now: float, *, at_work: str = "") -> RenderableType:
    """`at_work` is the conversation that a turn is really at work in, here and now."""
    if not infos:
        return Text("There are no conversations yet.")
    made = Listing("id", "when", "state", "agent", "about")
    for info in infos:
        state = "at work" if info.id == at_work else _STATES.get(info.state, info.state)
        made.add_row(
            short_id(info.id),
            when(info.updated_at, now),
            Text(state, _STYLES.get(info.state, "")),
            one_line(info.agent, 16),
            cut(one_line(info.title, 120) or "(nothing was said)"),
        )
    return made


def short_id(id: str) -> str:
    """The last characters: they tell conversations of one machine apart, and are an id wherever one is asked for."""
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
    """The hooks that a plugin really overrides."""
    return tuple(hook for hook in HOOKS if getattr(type(plugin), hook) is not getattr(Plugin, hook))


def plugins_table(plugins: Iterable[Plugin]) -> RenderableType:
    made = Listing("", "plugin", "required", "hooks")
    for place, plugin in enumerate(plugins, 1):
        hooks = ", ".join(hook.removeprefix("on_") for hook in hooks_of(plugin))
        tools = f"tools: {', '.join(tool.name for tool in plugin.tools)}" if plugin.tools else ""
        made.add_row(
            str(place),
            plugin.name,
            "yes" if plugin.required else "",
            "; ".join(part for part in (hooks, tools) if part),
        )
    return made


def tools_table(tools: Mapping[str, Tool]) -> RenderableType:
    if not tools:
        return Text("This agent has no tools.")
    made = Listing("tool", "asks first", "what it does")
    for name, tool in tools.items():
        asks = "yes" if tool.approval is not None and tool.approval.mode == "confirm" else ""
        made.add_row(name, asks, Text(one_line(tool.description, 200)))
    return made


def jobs_view(jobs: Sequence[JobInfo], schedules: Sequence[Scheduled]) -> RenderableType:
    """The jobs and the schedules of one conversation."""
    if not jobs and not schedules:
        return Text("Nothing works in the background, and nothing is scheduled.")
    made = Listing("id", "what", "status", "about")
    for job in jobs:
        done = f" {job.progress:.0%}" if job.progress is not None and not job.is_over else ""
        about = one_line(job.summary or job.text, 120)
        made.add_row(job.id, one_line(job.name, 24), Text(f"{job.status}{done}", _STYLES.get(job.status, "")), about)
    for one in schedules:
        made.add_row(one.id, str(one.schedule), "scheduled", one_line(one.schedule.say, 120))
    return made


def messages_view(messages: Sequence[Message], count: int) -> list[tuple[str, str]]:
    """The last things that were said: who (`user` or `assistant`), and what."""
    said = [(m.role, clean(m.text)) for m in messages if m.role in ("user", "assistant") and m.text.strip()]
    return said[-count:]


# --- a trace ----------------------------------------------------------------------------------------------------------


def trace_tree(root: TraceNode, *, short: bool = False) -> RenderableType:
    if not root.children:
        return Text("Nothing happened in this conversation yet.")
    tree = Tree(Text.assemble((root.name, "bold"), _facts(root)), guide_style="dim")
    for turn in root.children:
        _add(tree, turn, short=short)
    return Group(tree)


def _add(tree: Tree, node: TraceNode, *, short: bool) -> None:
    branch = tree.add(_label(node))
    if not short:
        for name, text in details(_without_label(node)):
            branch.add(Text.assemble((f"{name}: ", "dim"), one_line(text, OUTPUT_CHARS_MAX)))
    for child in node.children:
        if short and child.kind == "round":
            for call in child.children:
                _add(branch, call, short=True)
        else:
            _add(branch, child, short=short)


def _label(node: TraceNode) -> Text:
    match node.kind:
        case "turn":
            label = Text.assemble((one_line(node.name, 64), "bold cyan"), f" {one_line(node.input, 100)}")
        case "round":
            asked, _, whom = round_text(node).partition(" ") if node.asked else (round_text(node), "", "")
            label = Text.assemble((asked, "dim"), f" {one_line(whom, 120)}" if whom else "")
        case "call":
            label = Text.assemble(
                (one_line(node.name, 64), "bold"), f" {one_line(arguments_text(node.arguments), 160)}"
            )
        case "job":
            label = Text.assemble(("job ", "dim"), (one_line(node.name, 64), "bold"))
        case _:
            label = Text.assemble(
                (f"{one_line(node.name, 64)}: ", "yellow"), one_line(note_text(node), OUTPUT_CHARS_MAX)
            )
    label.append_text(_facts(node))
    if node.kind not in ("round", "note"):
        label.append(f" {node.outcome}", _STYLES.get(node.outcome, "yellow"))
    return label


def _facts(node: TraceNode) -> Text:
    facts = facts_text(node)
    return Text(f" [{facts}]" if facts else "", "dim")


def _without_label(node: TraceNode) -> TraceNode:
    """A node without what its label says, and of a turn without what its last round says."""
    said: dict[str, dict[str, Any]] = {
        "turn": {"output": "", "input": "" if len(node.input) <= 100 else node.input},
        "call": {"arguments": {}},
        "note": {"output": "", "arguments": {}},
    }
    return msgspec.structs.replace(node, thinking="", **said.get(node.kind, {}))
