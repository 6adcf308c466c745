"""Checks `[discord]`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from ...errors import ConfigError, nearest
from ...text.document import Document, KeyPath
from ..settings import DISCORD_COMMANDS, DiscordId, DiscordSettings

PATH: KeyPath = ("discord",)
LISTS = ("whitelist", "restrict", "approvers")


def discord_mistakes(document: Document, settings: DiscordSettings) -> Iterator[ConfigError]:
    for key in LISTS:
        for index, id in enumerate(cast("tuple[DiscordId | None, ...]", getattr(settings, key))):
            if id is not None and not is_id(id):
                yield document.error((*PATH, key, index), _not_an_id(id))
    for index, rule in enumerate(settings.rules):
        for key in ("guild", "channel", "role", "person"):
            if (id := getattr(rule, key)) != "" and not is_id(id):
                yield document.error((*PATH, "rules", index, key), _not_an_id(id))
        if rule.mode and rule.mode not in settings.modes:
            hint = nearest(rule.mode, list(settings.modes))
            yield document.error((*PATH, "rules", index, "mode"), f"no mode is named {rule.mode!r}{hint}")
    for index, name in enumerate(cast("tuple[str | None, ...]", settings.slash)):
        if name is not None and name not in DISCORD_COMMANDS:
            message = f"'/ai' has no subcommand {name!r}{nearest(name, DISCORD_COMMANDS)}"
            yield document.error((*PATH, "slash", index), message)


def is_id(id: DiscordId) -> bool:
    return str(id).isdigit() and len(str(id)) <= 20


def _not_an_id(id: DiscordId) -> str:
    return f"{id!r} is not an id of Discord; turn on developer mode, right-click and choose 'Copy ID'"
