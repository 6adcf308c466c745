"""`rondel plugins`: an agent's plugins in order, and which others are installed."""

from __future__ import annotations

import click
from rich.text import Text

from ..app.app import default_plugins
from ..plugin import Plugin
from ..project.folder import builtin_agent, with_plugins
from ..project.lookup import find_plugin, plugin_names
from ..surfaces.terminal.views import render
from ..surfaces.views import hooks_of, plugins_table
from ._options import agent, as_json
from ._output import show, show_json
from ._project import load_project


@click.command()
@agent
@as_json
def plugins(agent: str, as_json: bool) -> None:
    """Show an agent's plugins in order."""
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
    show(Text(f"The plugins of {name}. Prompts and calls pass down this list, replies and results up."))
    show(render(plugins_table(chain)))
    if others:
        show(Text(f"Also installed; an agent can name them: {', '.join(others)}"))


def _described(plugin: Plugin) -> dict[str, object]:
    return {
        "name": plugin.name,
        "required": plugin.required,
        "hooks": hooks_of(plugin),
        "tools": [tool.name for tool in plugin.tools],
    }
