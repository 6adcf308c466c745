"""The tool that searches the web with the service in `[web_search]`."""

from __future__ import annotations

from ..knowledge.web.tool import web_search

__all__ = ["web_search"]
