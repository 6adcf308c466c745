"""Reads MCP servers: `[mcp.NAME]` and `mcpServers` in rondel.toml, the project's `.mcp.json`, and agent files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from ...errors import ConfigError, RondelError, nearest
from ...files.regular import read_regular
from ...mcp.spec import ServerSettings, ServerSpec, read_block, spec_of
from ...text.document import Checker, Document, KeyPath, collecting, expand

FILE = ".mcp.json"
FILE_BYTES_MAX = 1_000_000
BLOCK = "mcpServers"


def servers_of(
    checker: Checker, tables: Mapping[str, ServerSettings | None], block: object, path: KeyPath = ()
) -> tuple[dict[str, ServerSpec], list[str]]:
    """Return the servers of a file by name, and warnings. Of two with one name, our own table wins."""
    specs: dict[str, ServerSpec] = {}
    warnings: list[str] = []
    for name, settings in tables.items():
        if settings is None or settings.disabled:
            continue
        at = (*path, "mcp", name)
        with collecting(checker.mistakes):
            try:
                specs[name] = spec_of(name, settings)
            except RondelError as error:
                raise checker.document.error(at, str(error)) from None
    with collecting(checker.mistakes):
        try:
            found, warnings = read_block(block or {})
        except RondelError as error:
            raise checker.document.error((*path, BLOCK), str(error)) from None
        _add(specs, found, warnings)
    where = checker.document.path
    return specs, [f"{where}: {warning}" if where else warning for warning in warnings]


def project_servers(
    checker: Checker, tables: Mapping[str, ServerSettings | None], block: object, folder: Path | None, env: Any
) -> tuple[tuple[ServerSpec, ...], list[str]]:
    """Return the servers of a project: those of rondel.toml, then those of a `.mcp.json` beside it."""
    specs, warnings = servers_of(checker, tables, block)
    file = None if folder is None else folder / FILE
    if file is not None and file.is_file():
        with collecting(checker.mistakes):
            found, noted = _read_file(file, env)
            _add(specs, found, noted)
            warnings += [f"{file}: {warning}" for warning in noted]
    return tuple(specs.values()), warnings


def agent_servers(
    checker: Checker, path: KeyPath, given: Any, block: object, known: tuple[ServerSpec, ...]
) -> tuple[ServerSpec, ...] | None:
    """Return the servers of an agent: `mcp` is a list of the project's servers, or a table of its own, and
    `mcpServers` adds to them. None if the file has neither, so that the agent gets the project's."""
    if given is None and not block:
        return None
    tables: dict[str, ServerSettings | None] = {}
    chosen: list[ServerSpec] = []
    if isinstance(given, (list, tuple)):
        by_name = {spec.name: spec for spec in known}
        for index, name in enumerate(cast("list[str]", given)):
            if name not in by_name:
                message = f"there is no MCP server {name!r}{nearest(str(name), tuple(by_name))}"
                raise checker.document.error((*path, "mcp", index), message)
            chosen.append(by_name[name])
    else:
        tables = checker.build(dict[str, ServerSettings], given or {}, (*path, "mcp"))
    own, _ = servers_of(checker, tables, block, path)
    return (*chosen, *(spec for spec in own.values() if spec not in chosen))


def _add(specs: dict[str, ServerSpec], found: list[ServerSpec], warnings: list[str]) -> None:
    for spec in found:
        if spec.name in specs:
            warnings.append(f"there are two MCP servers named {spec.name!r}; the second one is skipped")
        else:
            specs[spec.name] = spec


def _read_file(file: Path, env: Mapping[str, str] | None) -> tuple[list[ServerSpec], list[str]]:
    try:
        data = msgspec.json.decode(read_regular(file, FILE_BYTES_MAX), type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"is not the JSON of MCP servers: {error}", path=str(file)) from None
    document = expand(Document(str(file), data), env)
    try:
        return read_block(document.data.get(BLOCK, {}))
    except RondelError as error:
        raise ConfigError(str(error), path=str(file)) from None
