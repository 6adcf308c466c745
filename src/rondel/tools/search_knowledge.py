"""The tool that searches the app's knowledge bases."""

from __future__ import annotations

from ..knowledge.tool import knowledge_tool

search_knowledge = knowledge_tool()
