"""Decides whether a message is for the bot, and who answers it with what. Knows ids, no library and no network."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ...project.settings import DiscordId, DiscordRule, DiscordSettings, Scoping
from ...values import Value


class Place(Value, frozen=True):
    """Where a message was written. A thread has its parent's id, too; without a guild it is a direct message."""

    guild: int = 0
    channel: int = 0
    parent: int = 0
    is_thread: bool = False

    @property
    def is_dm(self) -> bool:
        return not self.guild

    @property
    def channels(self) -> tuple[int, ...]:
        return (self.channel, self.parent) if self.parent else (self.channel,)


class Speaker(Value, frozen=True):
    id: int
    roles: tuple[int, ...] = ()
    is_bot: bool = False


class Chosen(Value, frozen=True):
    """What applies at a place to a speaker."""

    enabled: bool = True
    agent: str = ""
    model: str = ""
    mode: str = ""
    conversation: Scoping = "auto"

    def under(self, rule: DiscordRule | Chosen) -> Chosen:
        """Return this with what the rule sets."""
        given: dict[str, object] = {
            name: value for name in ("agent", "model", "mode") if (value := getattr(rule, name))
        }
        for name in ("enabled", "conversation"):
            if isinstance(rule, DiscordRule) and getattr(rule, name) is not None:
                given[name] = getattr(rule, name)
        if "agent" in given or "model" in given:
            given.setdefault("mode", "")
        return msgspec.structs.replace(self, **given)


class Gate:
    """The lists and rules. The lists can be changed at any time; what `whitelist` and `restrict` return are copies."""

    def __init__(self, settings: DiscordSettings) -> None:
        self._settings = settings
        self._whitelist = _ids(settings.whitelist)
        self._restrict = _ids(settings.restrict)
        self._bot_turns: dict[int, int] = {}

    # --- the lists ----------------------------------------------------------------------------------------------------

    @property
    def whitelist(self) -> list[int]:
        return list(self._whitelist)

    @property
    def restrict(self) -> list[int]:
        return list(self._restrict)

    def add_whitelist(self, channel: DiscordId) -> None:
        self._whitelist[int(channel)] = None

    def remove_whitelist(self, channel: DiscordId) -> None:
        self._whitelist.pop(int(channel), None)

    def add_restrict(self, channel: DiscordId) -> None:
        self._restrict[int(channel)] = None

    def remove_restrict(self, channel: DiscordId) -> None:
        self._restrict.pop(int(channel), None)

    def replace_lists(self, whitelist: Iterable[DiscordId], restrict: Iterable[DiscordId]) -> None:
        self._whitelist, self._restrict = _ids(whitelist), _ids(restrict)

    # --- decisions ----------------------------------------------------------------------------------------------------

    def is_open(self, place: Place) -> bool:
        """Whether every message there is for the bot."""
        return place.is_dm or any(channel in self._whitelist for channel in place.channels)

    def admits(self, place: Place, speaker: Speaker, *, to_bot: bool) -> bool:
        """Whether the bot answers. `to_bot`: the message mentions it or replies to it."""
        restricted = bool(self._restrict) and not any(channel in self._restrict for channel in place.channels)
        if not place.is_dm and restricted:
            return False
        if not (to_bot or self.is_open(place)):
            return False
        if not self.choose(place, speaker).enabled:
            return False
        return not speaker.is_bot or self._admits_bot(place.channel)

    def heard(self, place: Place, speaker: Speaker) -> None:
        """A person's message, to the bot or not, lets bots speak again."""
        if not speaker.is_bot:
            self._bot_turns.pop(place.channel, None)

    def _admits_bot(self, channel: int) -> bool:
        if not self._settings.answer_bots:
            return False
        turns = self._bot_turns.get(channel, 0)
        if turns >= self._settings.bot_turns_max:
            return False
        self._bot_turns[channel] = turns + 1
        return True

    def choose(self, place: Place, speaker: Speaker, selected: Chosen | None = None) -> Chosen:
        """Return what applies: the settings, then the matching rules in order, then what people selected here."""
        chosen = Chosen(agent=self._settings.agent, conversation=self._settings.conversation)
        for rule in self._settings.rules:
            if _matches(rule, place, speaker):
                chosen = chosen.under(rule)
        return chosen.under(selected) if selected is not None else chosen


def _ids(ids: Iterable[DiscordId]) -> dict[int, None]:
    return dict.fromkeys(map(int, ids))


def _matches(rule: DiscordRule, place: Place, speaker: Speaker) -> bool:
    if rule.guild != "" and int(rule.guild) != place.guild:
        return False
    if rule.channel != "" and int(rule.channel) not in place.channels:
        return False
    if rule.role != "" and int(rule.role) not in speaker.roles:
        return False
    return rule.person == "" or int(rule.person) == speaker.id
