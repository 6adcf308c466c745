"""The gateway's plugins, by name and in order. They see the requests of other programs and inject tools into them.

Does not know requests or routes: each plugin decides with `applies` whether it takes part in a turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...errors import RondelError
from ...plugin import Plugin
from ...tool import Tool


class Registry:
    """The gateway's plugins, by name and in order."""

    def __init__(self, plugins: Iterable[Plugin] = ()) -> None:
        self._plugins: dict[str, Plugin] = {}
        for plugin in plugins:
            self.register(plugin)

    def register(self, plugin: Plugin) -> Plugin:
        """Add a plugin after the others. Raises if its name or the name of one of its tools is taken."""
        name = plugin.entry or plugin.name
        if name in self._plugins:
            raise RondelError(f"there are two agents named {name!r} behind the gateway; remove one, or give one an id")
        taken = {tool.name: other for other, one in self._plugins.items() for tool in one.tools}
        for tool in plugin.tools:
            if tool.name in taken:
                raise RondelError(
                    f"the agents {taken[tool.name]!r} and {name!r} both inject a tool named {tool.name!r}; remove one"
                )
        self._plugins[name] = plugin
        return plugin

    def get(self, name: str) -> Plugin | None:
        """Return the plugin of this name, or None."""
        return self._plugins.get(name)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the plugins, in order."""
        return tuple(self._plugins)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that they inject."""
        return tuple(tool for plugin in self for tool in plugin.tools)

    def __iter__(self) -> Iterator[Plugin]:
        return iter(self._plugins.values())
