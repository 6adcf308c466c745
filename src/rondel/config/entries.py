"""The parts of a file that agents' files have too: limits, options and lists of plugins."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import msgspec

from ..document import Checker, KeyPath, Where, dotted, going_on
from ..errors import nearest
from ..limits import Limits
from ..lookup import plugin_names
from ..settings import PluginSettings
from ..tool import NAME
from ..values import Options


def limits_of(checker: Checker, table: Any, path: KeyPath, base: Limits | None = None) -> Limits:
    """The limits that a table sets, on top of others."""
    given = checker.fields(Limits, table, path)
    for key, value in given.items():
        if not (math.isfinite(value) and value >= 0):
            at = (*path, key)
            with going_on(checker.mistakes):
                raise checker.document.error(at, f"{dotted(at)!r} is {value!r}; a limit is 0 or more")
    return msgspec.structs.replace(base or Limits(), **given)


def options_of(checker: Checker, table: Any, path: KeyPath, base: Options | None = None) -> Options:
    """The options that a table sets, on top of others."""
    given = checker.fields(Options, table, path, leave_out=("output",))
    return msgspec.structs.replace(base or Options(), **given)


def plugin_entries(
    checker: Checker, items: Iterable[str | dict[str, Any] | None], path: KeyPath
) -> tuple[PluginSettings, ...]:
    """The entries of a list of plugins. Of several of one plugin, each after the first has an id of its own."""
    entries: list[PluginSettings] = []
    places: dict[str, Where] = {}
    counts: dict[str, int] = {}
    for index, item in enumerate(items):
        if item is None:
            continue
        with going_on(checker.mistakes):
            settings = _plugin_entry(checker, item, (*path, index))
            count = counts[settings.name] = counts.get(settings.name, 0) + 1
            if not settings.entry and count > 1:
                settings = msgspec.structs.replace(settings, entry=f"{settings.name}-{count}")
            id, where = settings.entry or settings.name, settings.lines.where()
            entries.append(settings)
            if places.setdefault(id, where) is not where:
                raise where.error(f"two plugins have the id {id!r}: on line {places[id].line} and here; rename one")
    return tuple(entries)


def _plugin_entry(checker: Checker, item: str | dict[str, Any], path: KeyPath) -> PluginSettings:
    """`"trim"`, `{name = "trim", share = 0.5}` or `{trim: {share: 0.5}}`. An `id` and `enabled` beside the name are for
    the entry itself."""
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
    if ":" not in name and name not in (known := plugin_names()):
        raise document.error(path, f"there is no plugin {name!r}{nearest(name, tuple(known))}")
    return PluginSettings(name, parameters, document.lines_of(path), **own)


def _entry_fields(checker: Checker, table: dict[str, Any], path: KeyPath) -> dict[str, Any]:
    """What a table says of the entry itself, taken out of it."""
    fields: dict[str, Any] = {}
    if "id" in table:
        fields["entry"] = id = checker.build(str, table.pop("id"), (*path, "id"))
        if not NAME.fullmatch(id):
            message = f"{id!r} is no id for a plugin: use 1 to 64 letters, digits, '_' or '-'"
            raise checker.document.error((*path, "id"), message)
    if "enabled" in table:
        fields["enabled"] = checker.build(bool, table.pop("enabled"), (*path, "enabled"))
    return fields
