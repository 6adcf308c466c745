"""A to-do list: the model writes it with a tool and sees it in every round.

The newest list in the transcript counts. It comes at the end of the prompt, so a change leaves the cached prefix alone.
"""

from __future__ import annotations

from ..errors import ToolError
from ..machine.prefix_cache import PrefixCache
from ..machine.turn import Turn
from ..plugin import Plugin
from ..prompt import Node, Prompt
from ..tool import tool
from ..values import Message, ToolCall, ToolResult, Value

CHARS_MAX = 10_000


@tool(name="write_todo", idempotent=True)
async def write_todo(text: str) -> str:
    """Write down what is to be done, and keep it up to date: the whole list, each time. You see it in every round.

    Args:
        text: one line for each step: "- [ ] step" for an open one, "- [x] step" for a done one; empty when nothing is
            left to do
    """
    if len(text) > CHARS_MAX:
        raise ToolError(f"the list has {len(text):,} characters; write at most {CHARS_MAX:,}")
    return "(the list is kept)"


class _List(Value, frozen=True):
    """The list so far, and the lists of calls without a result, by the call's id."""

    text: str = ""
    written: dict[str, str] = {}


class Todo(Plugin):
    """Gives the model a to-do list, which it sees at the end of every prompt."""

    name = "todo"
    tools = (write_todo,)

    def __init__(self) -> None:
        self._lists = PrefixCache(_List(), _follow)

    async def on_prompt(self, turn: Turn, prompt: Prompt) -> Prompt:
        # From the transcript, because the message with the list may have been trimmed from the prompt.
        text = self._lists.of(tuple(turn.transcript.messages), turn.transcript.size).text
        if not text.strip():
            return prompt
        told = f"<current_todo_list>\n{text.strip()}\n</current_todo_list>"
        node = Node(self.name, text=told, role="system", source=("plugins", self.entry or self.name))
        return prompt.replace(nodes=(*prompt.nodes, node))


def _follow(known: _List, messages: tuple[Message, ...]) -> _List:
    text, written = known.text, dict(known.written)
    for message in messages:
        if message.role not in ("assistant", "tool"):
            continue
        for part in message.parts:
            if type(part) is ToolCall and part.name == write_todo.name:
                written[part.id] = str(part.arguments.get("text", ""))
            elif type(part) is ToolResult and part.call_id in written:
                new = written.pop(part.call_id)
                text = text if part.is_error else new
    return _List(text, written)
