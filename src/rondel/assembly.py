"""How a prompt comes about, step by step: what an agent's author wrote, then each plugin's edit, then the messages.

For people who look: the loop makes the same prompt without the steps. Knows no surface.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal

from .prompt import Prompt
from .turn import Turn
from .values import Message, Value


class Step(Value, frozen=True):
    """`prompt` is the tree after this step, `messages` is it flattened; `progress` goes from 0 to 1."""

    step: Literal["plugin", "finalize", "flatten", "complete"]
    progress: float
    prompt: Prompt
    messages: tuple[Message, ...]
    plugin: str = ""
    source: str = ""
    """Which of several entries of one plugin."""


async def assemble(turn: Turn) -> AsyncIterator[Step]:
    """A step for each plugin that edits prompts, then finalize, flatten, complete."""
    prompt = turn.prompt()
    plugins = turn.plugins.editors
    total = len(plugins) + 2
    for number, (plugin, edit) in enumerate(plugins, 1):
        prompt = await edit(turn, prompt)
        yield Step("plugin", number / total, prompt, prompt.messages, plugin.name, plugin.entry)
    yield Step("finalize", (total - 1) / total, prompt, prompt.messages)
    yield Step("flatten", 1.0, prompt, prompt.messages)
    yield Step("complete", 1.0, prompt, prompt.messages)
