"""Builds a prompt step by step: what an agent's author wrote, then each plugin's edit, then the messages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal

from ..machine.turn import Turn
from ..prompt import Prompt
from ..values import Message, Value


class PreviewStep(Value, frozen=True):
    """`prompt` is the tree after this step, `messages` the flattened tree; `progress` goes from 0 to 1."""

    step: Literal["plugin", "finalize", "flatten", "complete"]
    progress: float
    prompt: Prompt
    messages: tuple[Message, ...]
    plugin: str = ""
    source: str = ""  # the entry, if the agent has several of one plugin


async def assemble(turn: Turn) -> AsyncIterator[PreviewStep]:
    """Yield a step for each plugin that edits prompts, then `finalize`, `flatten` and `complete`."""
    prompt = turn.prompt()
    plugins = turn.plugins.editors
    total = len(plugins) + 2
    for number, (plugin, edit) in enumerate(plugins, 1):
        prompt = await edit(turn, prompt)
        yield PreviewStep("plugin", number / total, prompt, prompt.messages, plugin.name, plugin.entry)
    yield PreviewStep("finalize", (total - 1) / total, prompt, prompt.messages)
    yield PreviewStep("flatten", 1.0, prompt, prompt.messages)
    yield PreviewStep("complete", 1.0, prompt, prompt.messages)
