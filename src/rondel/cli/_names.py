"""The names that a shell completes: agents, engines, conversations. Runs nothing of a project that is not trusted."""

from __future__ import annotations

from ..errors import RondelError
from ..project.folder import BUILTIN
from ..surfaces.views import short_id
from ..text.printable import one_line
from ._project import look_at_project, offered_models, with_store
from ._trust import look_at_config

SHOWN_MAX = 50


def agents() -> dict[str, str]:
    project, _ = look_at_project()
    return {**{agent.name: one_line(agent.description, 80) for agent in project.agents}, BUILTIN: "the built-in agent"}


def engines() -> dict[str, str]:
    return offered_models(look_at_config())


def conversations() -> dict[str, str]:
    infos = with_store(lambda store: store.conversations(limit=SHOWN_MAX))
    return {"last": "the newest", **{short_id(info.id): one_line(info.title, 80) for info in infos}}


def default_agent() -> str:
    """Return the agent that answers if none is named, also where the project's files are wrong."""
    try:
        return look_at_project()[0].agent_name("")
    except RondelError:
        return BUILTIN
