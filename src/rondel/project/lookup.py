"""Resolves names in files: plugins, tools, and attributes of modules.

Built-in parts are a table of import paths, so that nothing is imported before it is named; installed plugins are found
by entry points (the group `rondel.plugins`), a project's own by `module:attribute`.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import traceback
import typing
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from ..agent import Agent
from ..errors import ConfigError, RondelError, nearest
from ..plugin import Plugin
from ..text.document import AlreadyReported, Checker, Document, Mistakes, Where, collecting
from ..tool import Tool, is_function, tool
from .trust import UntrustedFolder

PLUGINS: dict[str, str] = {
    "approval": "rondel.plugins.approval:ApprovalGate",
    "attachments": "rondel.plugins.attachments:Attachments",
    "auto_reply": "rondel.plugins.auto_reply:AutoReply",
    "clock": "rondel.plugins.clock:Clock",
    "duration": "rondel.plugins.duration:Duration",
    "facts": "rondel.plugins.facts:Facts",
    "history": "rondel.plugins.history:History",
    "image": "rondel.plugins.image_agent:ImageAgent",
    "inputs": "rondel.plugins.inputs:Inputs",
    "knowledge": "rondel.plugins.knowledge:KnowledgePlugin",
    "limits": "rondel.plugins.limits:LimitsGuard",
    "log": "rondel.plugins.log:Log",
    "mcp": "rondel.mcp.plugin:McpServers",
    "memory": "rondel.plugins.memory:MemoryAgent",
    "position": "rondel.plugins.position:Position",
    "repair": "rondel.plugins.repair:RepairArguments",
    "reroll": "rondel.plugins.reroll:Reroll",
    "respond": "rondel.plugins.respond:Respond",
    "retrieve": "rondel.plugins.retrieve:Retrieve",
    "skills": "rondel.plugins.skills:Skills",
    "soft_failures": "rondel.plugins.soft_failures:SoftFailures",
    "telemetry": "rondel.plugins.telemetry:Telemetry",
    "text_tools": "rondel.plugins.text_tools:TextTools",
    "todo": "rondel.plugins.todo:Todo",
    "trim": "rondel.plugins.trim:Trim",
    "web_search": "rondel.plugins.web_search:WebSearchPlugin",
}
TOOLS: dict[str, str] = {
    "ask_user": "rondel.tools.ask_user:ask_user",
    "calculate": "rondel.tools.calculate:calculate",
    "cancel_job": "rondel.tools.background:cancel_job",
    "cancel_schedule": "rondel.tools.schedule:cancel_schedule",
    "current_time": "rondel.tools.clock:current_time",
    "finish": "rondel.tools.finish:finish",
    "generate_image": "rondel.tools.generate_image:generate_image",
    "list_jobs": "rondel.tools.background:list_jobs",
    "list_schedules": "rondel.tools.schedule:list_schedules",
    "run_shell": "rondel.tools.shell:run_shell",
    "schedule": "rondel.tools.schedule:schedule",
    "search_knowledge": "rondel.knowledge.tool:search_knowledge",
    "web_search": "rondel.knowledge.web.tool:web_search",
}
ENTRY_POINTS = "rondel.plugins"
NOWHERE = Where()


def find_plugin(
    name: str,
    parameters: Mapping[str, Any] | None = None,
    where: Where = NOWHERE,
    *,
    project: str = "",
    document: Document | None = None,
    mistakes: Mistakes | None = None,
) -> Plugin:
    """Make the plugin of this name (built in, installed, or the project's `module:Class`) with these parameters.

    `document` has the lines of the parameters, so that an error names the right one. With a list for `mistakes`, all
    mistakes are collected before it raises.
    """
    found = plugin_class(name, where, project=project)
    document = document or Document(where.path, {}, {(): where.line} if where.line else {})
    try:
        given = _checked(found, name, dict(parameters or {}), Checker(document, mistakes))
        if "project" in inspect.signature(found).parameters:
            given["project"] = project  # paths are relative to it; a file cannot change it
        return found(**given)
    except ConfigError:
        raise
    except (TypeError, ValueError, RondelError) as error:
        raise where.error(f"the plugin {name!r} could not be made: {error}") from error


def plugin_class(name: str, where: Where = NOWHERE, *, project: str = "") -> type[Plugin]:
    found = _named(name, where, project)
    if not (isinstance(found, type) and issubclass(found, Plugin)):
        raise where.error(f"{name!r} is not a plugin: {found!r} is not a subclass of rondel.Plugin")
    return found


def plugin_names() -> list[str]:
    from importlib.metadata import entry_points

    return sorted({*PLUGINS, *entry_points(group=ENTRY_POINTS).names})


def find_tool(name: str, where: Where = NOWHERE, *, project: str = "", known: tuple[str, ...] = ()) -> Tool:
    """Return a built-in tool, or the project's `module:attribute`. `known` are other valid names."""
    if ":" not in name and name not in TOOLS:
        own = _module_of(name, project)
        hint = f"; write '{own}:{name}' for the one in {own}.py" if own else nearest(name, (*TOOLS, *known))
        raise where.error(f"there is no tool {name!r}{hint}")
    found = import_attribute(TOOLS.get(name, name), where, project="" if name in TOOLS else project)
    if isinstance(found, Tool):
        return found
    if isinstance(found, Agent):
        return found.as_tool()
    if not is_function(found):
        raise where.error(f"{name!r} is not a tool but {_kind(found)}; name a function, a Tool or an Agent")
    try:
        return tool(found)
    except RondelError as error:
        raise where.error(f"{name!r} cannot be a tool: {error}") from error


def _module_of(function: str, project: str) -> str:
    """Return the project's module that defines a function of this name, without importing any; empty if none does."""
    defined = re.compile(rf"^(?:async )?def {re.escape(function)}\b".encode(), re.M)
    paths = sorted(Path(project).glob("*.py")) if project else ()
    return next((path.stem for path in paths if path.is_file() and defined.search(path.read_bytes())), "")


def import_attribute(name: str, where: Where = NOWHERE, *, project: str = "") -> Any:
    """Import `module:attribute`. The project's folder is on the import path only during this import."""
    module_name, _, attribute = name.partition(":")
    _check_trusted(name, project)
    if not all(step.isidentifier() for step in (*module_name.split("."), *attribute.split("."))):
        raise where.error(f"{name!r} is not an import path; write it as module:attribute")
    found: Any = _import(module_name, where, project)
    for step in attribute.split("."):
        if not hasattr(found, step):
            names = tuple(str(other) for other in dir(found) if not other.startswith("_"))
            raise where.error(f"{module_name!r} has no {attribute!r}{_close(step, names)}")
        found = getattr(found, step)
    return found


# --- plugins ----------------------------------------------------------------------------------------------------------


def _named(name: str, where: Where, project: str) -> Any:
    if name in PLUGINS:
        return import_attribute(PLUGINS[name], where)
    if ":" in name:
        return import_attribute(name, where, project=project)
    from importlib.metadata import entry_points

    if point := next(iter(entry_points(group=ENTRY_POINTS, name=name)), None):
        _check_trusted(name, project)
        with _import_errors(where, f"the installed plugin {name!r} ({point.value})"):
            return point.load()
    raise where.error(f"there is no plugin {name!r}{nearest(name, tuple(plugin_names()))}")


def _checked(made: type[Plugin], name: str, parameters: dict[str, Any], checker: Checker) -> dict[str, Any]:
    constructor: Callable[..., None] = made.__init__
    signature = inspect.signature(constructor).parameters.values() if constructor is not object.__init__ else ()
    known = [p for p in list(signature)[1:] if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in signature)
    names = tuple(p.name for p in known)
    try:
        hints = typing.get_type_hints(constructor)
    except NameError:  # a type that is imported only for type checkers, so the constructor must check
        hints = {}
    built: dict[str, Any] = {}
    found_before = len(checker.mistakes or ())
    for key, value in parameters.items():
        with collecting(checker.mistakes):
            if key not in names and not takes_any:
                hint = nearest(key, names) or "; it takes none"
                if key in ("id", "enabled"):
                    hint = "; write it beside the plugin's name: it belongs to the entry"
                raise checker.document.error((key,), f"the plugin {name!r} has no parameter {key!r}{hint}")
            built[key] = checker.build(hints.get(key, Any), value, (key,))
    if len(checker.mistakes or ()) > found_before or len(built) < len(parameters):
        raise AlreadyReported
    for parameter in known:
        if parameter.default is parameter.empty and parameter.name not in built:
            raise checker.document.error((), f"the plugin {name!r} needs the parameter {parameter.name!r}")
    return built


# --- modules ----------------------------------------------------------------------------------------------------------


def _import(name: str, where: Where, project: str) -> ModuleType:
    loaded = sys.modules.get(name.partition(".")[0])
    if project and loaded is not None and _shadows(loaded, project):
        raise where.error(
            f"{name!r} is in the project, but another module of that name is already loaded "
            f"({getattr(loaded, '__file__', None) or 'built in'}); rename yours"
        )
    modules = tuple(path.stem for path in Path(project).glob("*.py")) if project else ()
    missing = f"there is no module {name!r}{nearest(name, modules)}"
    with _importable(project), _import_errors(where, f"the module {name!r}", name, missing):
        return importlib.import_module(name)


def _check_trusted(name: str, project: str) -> None:
    # Importing runs code, so nothing is imported for an untrusted project, not even an installed package.
    if isinstance(project, UntrustedFolder):
        project.wanted[name] = None
        raise project.refusal()


def _shadows(loaded: ModuleType, project: str) -> bool:
    """Return whether the loaded module hides one of the project with the same name."""
    own = [Path(project, f"{loaded.__name__}.py"), Path(project, loaded.__name__, "__init__.py")]
    if not any(path.is_file() for path in own):
        return False
    file = getattr(loaded, "__file__", None)
    return file is None or not Path(file).resolve().is_relative_to(Path(project).resolve())


@contextmanager
def _importable(project: str) -> Generator[None]:
    if not project:
        yield
        return
    importlib.invalidate_caches()
    sys.path.insert(0, project)
    try:
        yield
    finally:
        sys.path.remove(project)


@contextmanager
def _import_errors(where: Where, what: str, name: str = "", missing: str = "") -> Generator[None]:
    """Turn any error of an import into one sentence with its location: `missing` if there is no module of this name."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name == name:
            raise where.error(missing) from error
        raise where.error(f"{what} cannot be imported: there is no module {error.name!r}") from error
    except SyntaxError as error:
        raise where.error(f"{what} cannot be imported: {error.msg} ({error.filename}:{error.lineno})") from error
    except (Exception, SystemExit) as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__}: {error} ({frame.filename}:{frame.lineno})"
        raise where.error(f"{what} cannot be imported: {said}") from error


def _close(word: str, names: tuple[str, ...]) -> str:
    # The nearest name, but not a list of all names of a module.
    hint = nearest(word, names)
    return hint if "did you mean" in hint else ""


def _kind(value: object) -> str:
    name = type(value).__name__
    return f"a class ({value.__name__})" if isinstance(value, type) else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
