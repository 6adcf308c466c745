"""Gives an agent the tool `search_knowledge`; in the gateway, injects it for any model.

plugins: [{knowledge: {bases: [handbook]}}]
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING

from ..errors import RondelError, nearest
from ..knowledge.tool import knowledge_tool
from ..plugin import Plugin

if TYPE_CHECKING:
    from ..app.app import App


class KnowledgePlugin(Plugin):
    """Offers a search of the named knowledge bases, or of all of them.

    Args:
        bases: the names of the knowledge bases that may be searched
    """

    name = "knowledge"

    def __init__(self, *, bases: Sequence[str] = ()) -> None:
        self._bases = tuple(bases)

    @contextlib.asynccontextmanager
    async def lifespan(self, app: App) -> AsyncGenerator[None]:
        known = app.knowledge.names
        for name in self._bases:
            if name not in known:
                hint = nearest(name, known) if known else "; create a folder documents/, or add [knowledge.<name>]"
                raise RondelError(f"the plugin 'knowledge': there is no knowledge base {name!r}{hint}")
        self.tools = (knowledge_tool(self._bases),) if known else ()
        yield
