"""Modes: named presets of agent, model, instructions and options that people choose for a channel.

A mode is an agent: the one that it is based on, with what the preset changes.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...app.app import App
from ...errors import RondelError, nearest
from ...project.settings import DiscordSettings, ModeSettings
from ...text.document import Checker, Document
from ...values import Options
from .gate import Chosen

NAMESPACE = "discord.modes"

_UNSET = Options()


class Modes:
    def __init__(self, app: App, settings: DiscordSettings) -> None:
        self._app = app
        self._modes: dict[str, ModeSettings] = dict(settings.modes)
        self._default = settings.agent
        self._made: dict[tuple[str, str], str] = {}
        self._count = 0

    @property
    def all(self) -> dict[str, ModeSettings]:
        return dict(self._modes)

    async def load(self) -> None:
        """Read the modes that were saved at run time. Those of the configuration win."""
        store = self._app.store
        for name in await store.keys(NAMESPACE):
            if name not in self._modes and (found := await store.get(NAMESPACE, name)):
                self._modes[name] = msgspec.json.decode(found, type=ModeSettings)

    async def save(self, name: str, mode: ModeSettings) -> None:
        """Keep a mode; it survives a restart."""
        mode = Checker(Document("", {})).build(ModeSettings, msgspec.json.decode(msgspec.json.encode(mode)))
        if mode.agent:
            self._app.registry.resolve(mode.agent)
        self._modes[name] = mode
        self._made = {key: made for key, made in self._made.items() if key[0] != name}
        await self._app.store.put(NAMESPACE, name, msgspec.json.encode(mode))

    async def remove(self, name: str) -> bool:
        self._modes.pop(name, None)
        return await self._app.store.remove(NAMESPACE, name)

    def check(self, name: str) -> None:
        if name not in self._modes:
            raise RondelError(f"there is no mode {name!r}{nearest(name, list(self._modes))}")

    def agent_of(self, chosen: Chosen) -> str:
        """Return the agent that answers: the chosen one, or the one that its mode makes of it."""
        registry = self._app.registry
        mode = self._modes.get(chosen.mode)
        if mode is None:
            return registry.agent(chosen.agent).name
        base = registry.agent(chosen.agent or mode.agent)
        if (made := self._made.get((chosen.mode, base.name))) is not None:
            return made
        changes: dict[str, Any] = {}
        if mode.instructions:
            changes["prompt"] = mode.instructions
        if mode.model:
            changes["engine"] = mode.model
        if mode.options != _UNSET:
            changes["options"] = _merged(base.options, mode.options)
        self._count += 1
        suffix = "" if self._count == 1 or not registry.knows_agent(f"{base.name}-{chosen.mode}") else f"-{self._count}"
        made = f"{base.name}-{chosen.mode}{suffix}"
        registry.add_agent(msgspec.structs.replace(base, name=made, schedules=(), **changes))
        self._made[chosen.mode, base.name] = made
        return made

    def agent_again(self, name: str) -> str:
        """Return the agent of an answer that began before a restart, or the default one if it no longer exists. Agents
        of modes are made again."""
        registry = self._app.registry
        if registry.knows_agent(name):
            return name
        for mode in self._modes:
            base = name.removesuffix(f"-{mode}")
            if base != name and registry.knows_agent(base):
                return self.agent_of(Chosen(agent=base, mode=mode))
        return registry.agent(self._default).name


def _merged(base: Options, over: Options) -> Options:
    """Return the agent's options with those that a mode sets."""
    given = {name: getattr(over, name) for name in Options.__struct_fields__}
    return msgspec.structs.replace(base, **{k: v for k, v in given.items() if v != getattr(_UNSET, k)})
