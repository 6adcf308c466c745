"""Turns web search on for an agent: the provider's own if the engine has one, else the service in `[web_search]`.

plugins: [web_search]
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from ..engine import dialect_of
from ..knowledge.web.tool import web_search
from ..machine.turn import Turn
from ..plugin import Plugin
from ..prompt import Prompt
from ..values import ToolSpec

if TYPE_CHECKING:
    from ..app.app import App

NAME = "web_search"
OWN: dict[str, dict[str, Any]] = {
    "anthropic": {"type": "web_search_20250305", "name": NAME},
    "openai-responses": {"type": NAME},
}
"""The tool with which each dialect asks a provider to search by itself. Its citations are the dialect's own."""


class WebSearchPlugin(Plugin):
    """Offers a search of the web. Off by default: an agent has it if its plugins name it.

    Args:
        own: whether the provider's own search is used where the engine has one
    """

    name = "web_search"

    def __init__(self, *, own: bool = True) -> None:
        self._own = own

    @contextlib.asynccontextmanager
    async def lifespan(self, app: App) -> AsyncGenerator[None]:
        self.tools = (web_search,) if app.web_search is not None else ()
        yield

    async def on_prompt(self, turn: Turn, prompt: Prompt) -> Prompt:
        engine = turn.engine
        dialect = dialect_of(engine)
        if self._own and engine.facts.web_search and dialect in OWN:
            others = tuple(tool for tool in prompt.tools if tool.name != NAME)
            return prompt.replace(tools=(*others, ToolSpec(NAME, opaque={dialect: OWN[dialect]})))
        if not self.tools:
            told = f"{engine.name} has no web search of its own, and [web_search] names no provider"
            await turn.warn(self.entry or self.name, told)
        return prompt
