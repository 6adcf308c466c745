"""Which settings can be changed at run time, and how `rondel.toml` is edited for that.

Safe are engines that answer by default, waiting times, traces, and what may be spent. Keys, addresses, hosts, plugins
and code can only be changed by somebody who can write the file.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from ...contracts.ledger import Mode, OnWriteFailure, UnknownPrice
from ...contracts.window import WINDOWS
from ...errors import ConfigError
from ...text.document import dotted
from ...text.toml import with_value
from ..settings import SCENARIOS, Config
from .shown import explain, leaves

SettingKind: TypeAlias = Literal["engine", "number", "switch"] | tuple[str, ...]
"""What a setting may be: the name of an engine, a number, true or false, or one of these."""

_SPENDING: Mapping[str, SettingKind] = {
    "tokens": "number",
    "money": "number",
    "window": WINDOWS,
    "mode": typing.get_args(Mode),
}
CHANGEABLE: Mapping[str, SettingKind] = {
    "engine": "engine",
    **{f"gateway.routes.{scenario}": "engine" for scenario in (*SCENARIOS, "embedding", "image_generation")},
    "gateway.routes.long_context_tokens": "number",
    **{f"gateway.{name}": "number" for name in ("ping_s", "cool_down_s", "drain_s")},
    "gateway.trace": "switch",
    "ledger.on_write_failure": typing.get_args(OnWriteFailure),
    "ledger.unknown_price": typing.get_args(UnknownPrice),
    **{f"ledger.limits[[]*].{name}": kind for name, kind in _SPENDING.items()},
    **{f"gateway.keys.*.budget.{name}": kind for name, kind in _SPENDING.items()},
}
"""The settings that can be changed, by pattern."""


class ChangedMeanwhile(ConfigError):
    """A setting no longer has the value that a person saw when they changed it."""

    status = 409


def kind_of(key: str) -> SettingKind | None:
    """Return which values a setting may have; None if it cannot be changed at run time."""
    return next((kind for pattern, kind in CHANGEABLE.items() if fnmatchcase(key, pattern)), None)


def edited(text: str, config: Config, key: str, value: str | float | None, was: str) -> str:
    """Return the text of the file with another value of a setting; None removes it, so that its default holds.

    `was` is the value that the person saw, as `explain` shows it. Raises ConfigError if the change is not possible.
    """
    shown = {row[0]: row[1] for row in explain(config)}
    kind = kind_of(key)
    if key not in shown or kind is None:
        raise ConfigError(f"{key[:80]!r} cannot be changed at run time; edit rondel.toml instead")
    if shown[key] != was:
        raise ChangedMeanwhile(f"{key!r} has changed to {shown[key]!r} (you saw {was[:80]!r}); reload and try again")
    path = next(path for path, _ in leaves(config) if dotted(path) == key)
    source = config.source(key)
    if source.option:
        raise ConfigError(f"{key!r} comes from {source.option}; restart without this option first")
    if source.variables:
        raise ConfigError(f"{key!r} comes from ${source.variables[0]}; change the variable, and restart")
    _check(key, kind, value)
    try:
        return with_value(text, path, value)
    except ValueError:
        raise ConfigError(f"{key!r} cannot be changed without its neighbours; edit {config.path} instead") from None


def _check(key: str, kind: SettingKind, value: str | float | None) -> None:
    if value is None:
        return
    if kind == "number":
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise ConfigError(f"{key!r} must be a number, not {str(value)[:80]!r}")
    elif kind == "switch":
        if not isinstance(value, bool):
            raise ConfigError(f"{key!r} must be true or false, not {str(value)[:80]!r}")
    elif not isinstance(value, str) or "${" in value:  # a variable could show a secret
        raise ConfigError(f"{key!r} must be a text without variables, not {str(value)[:80]!r}")
    elif isinstance(kind, tuple) and value not in kind:
        raise ConfigError(f"{key!r} must be one of {', '.join(map(repr, kind))}, not {value[:80]!r}")
