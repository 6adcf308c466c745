"""Settings that agent files have, too: limits, options and lists of plugins."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import msgspec

from ...errors import nearest
from ...limits import Limits
from ...text.document import Checker, KeyPath, Where, collecting, dotted
from ...tool import NAME
from ...values import Options
from ..lookup import PLUGINS, plugin_names
from ..settings import PluginSettings


def limits_of(checker: Checker, table: Any, path: KeyPath, base: Limits | None = None) -> Limits:
    given = checker.fields(Limits, table, path)
    for key, value in given.items():
        if not (math.isfinite(value) and value >= 0):
            at = (*path, key)
            checker.report(checker.document.error(at, f"{dotted(at)!r} is {value!r}; a limit is 0 or more"))
    return msgspec.structs.replace(base or Limits(), **given)


def options_of(checker: Checker, table: Any, path: KeyPath, base: Options | None = None) -> Options:
    given = checker.fields(Options, table, path, leave_out=("output",))
    return msgspec.structs.replace(base or Options(), **given)


def plugin_entries(
    checker: Checker, items: Iterable[str | dict[str, Any] | None], path: KeyPath
) -> tuple[PluginSettings, ...]:
    """Return the entries of a list of plugins. Several entries of one plugin need different ids."""
    entries: list[PluginSettings] = []
    lines: dict[str, Where] = {}
    counts: dict[str, int] = {}
    for index, item in enumerate(items):
        if item is None:
            continue
        with collecting(checker.mistakes):
            settings = _plugin_entry(checker, item, (*path, index))
            count = counts[settings.name] = counts.get(settings.name, 0) + 1
            if not settings.entry and count > 1:
                settings = msgspec.structs.replace(settings, entry=f"{settings.name}-{count}")
            id, where = settings.entry or settings.name, settings.lines.where()
            entries.append(settings)
            if lines.setdefault(id, where) is not where:
                raise where.error(f"two plugins have the id {id!r}: on line {lines[id].line} and here; rename one")
    return tuple(entries)


def _plugin_entry(checker: Checker, item: str | dict[str, Any], path: KeyPath) -> PluginSettings:
    """Parse `"trim"`, `{name = "trim", share = 0.5}` or `{trim: {share: 0.5}}`. `id` and `enabled` beside the name
    belong to the entry."""
    document = checker.document
    name, parameters, own = str(item), dict[str, Any](), dict[str, Any]()
    if not isinstance(item, str):
        table = dict(item)
        own = _entry_fields(checker, table, path)
        if "name" in table:
            name, parameters = checker.build(str, table.pop("name"), (*path, "name")), table
        elif len(table) == 1:
            name, inner = next(iter(table.items()))
            path = (*path, name)
            parameters = checker.table({} if inner is None else inner, path)
        else:
            raise document.error(path, f"{dotted(path)!r} names no plugin; write its name, or {{name: {{parameters}}}}")
    # Reading what installed packages offer takes 30 ms, so that is looked at last.
    if ":" not in name and name not in PLUGINS and name not in (known := plugin_names()):
        raise document.error(path, f"there is no plugin {name!r}{nearest(name, tuple(known))}")
    return PluginSettings(name, parameters, document.lines_of(path), **own)


def _entry_fields(checker: Checker, table: dict[str, Any], path: KeyPath) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if "id" in table:
        fields["entry"] = id = checker.build(str, table.pop("id"), (*path, "id"))
        if not NAME.fullmatch(id):
            message = f"{id!r} is not a valid plugin id: use 1 to 64 letters, digits, '_' or '-'"
            raise checker.document.error((*path, "id"), message)
    if "enabled" in table:
        fields["enabled"] = checker.build(bool, table.pop("enabled"), (*path, "enabled"))
    return fields
