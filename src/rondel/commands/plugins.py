"""`rondel plugins`: the plugins of an agent in the order in which they are called, and which others there are."""

from __future__ import annotations

from rich.text import Text

from ..app import default_plugins
from ..lookup import find_plugin, plugin_names
from ..plugin import Plugin
from ..surfaces.terminal.views import hooks_of, plugins_table
from ._output import show, show_json
from ._project import builtin_agent, load_project, with_plugins


def plugins(agent: str, *, as_json: bool) -> None:
    from ..testing import Echo

    project = load_project()
    name = project.agent_name(agent)
    chosen = with_plugins([project.find(name) or builtin_agent(Echo())], project.config)[0]
    chain = default_plugins(*(find_plugin(p) if isinstance(p, str) else p for p in chosen.plugins))
    on = {plugin.name for plugin in chain}
    others = [other for other in plugin_names() if other not in on]
    if as_json:
        show_json({"agent": name, "plugins": [_described(plugin) for plugin in chain], "available": others})
        return
    show(Text(f"The plugins of {name}: prompts and calls go down this list, replies and results come up."))
    show(plugins_table(chain))
    if others:
        show(Text(f"Installed, and on when an agent names them: {', '.join(others)}"))


def _described(plugin: Plugin) -> dict[str, object]:
    return {
        "name": plugin.name,
        "required": plugin.required,
        "hooks": hooks_of(plugin),
        "tools": [tool.name for tool in plugin.tools],
    }
