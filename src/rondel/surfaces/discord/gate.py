"""Decides whether a message is for the bot, and who answers it with what. Knows ids, no library and no network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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
        """Return a copy with the rule's values."""
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
        self._default = Chosen(agent=settings.agent, conversation=settings.conversation)
        self._whitelist: dict[int, None] = {}
        self._restrict: dict[int, int] = {}  # the server for which each counts; 0 for all
        self.replace_lists(settings.whitelist, {int(id): 0 for id in settings.restrict})
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

    @property
    def restrict_guilds(self) -> dict[int, int]:
        """The server for which each restriction counts; 0 for all."""
        return dict(self._restrict)

    def add_restrict(self, channel: DiscordId, guild: int = 0) -> None:
        """Answer only there, and in the other channels of this list; with `guild`, this counts in that server only."""
        self._restrict.setdefault(int(channel), guild)

    def remove_restrict(self, channel: DiscordId, guild: int = 0) -> None:
        """With `guild`, a restriction for all servers stays."""
        if guild in (0, self._restrict.get(int(channel))):
            self._restrict.pop(int(channel), None)

    def replace_lists(self, whitelist: Iterable[DiscordId], restrict: Mapping[int, int]) -> None:
        self._whitelist, self._restrict = dict.fromkeys(map(int, whitelist)), dict(restrict)

    # --- decisions ----------------------------------------------------------------------------------------------------

    def is_open(self, place: Place) -> bool:
        """Whether every message there is for the bot."""
        return place.is_dm or any(channel in self._whitelist for channel in place.channels)

    def admits(self, place: Place, speaker: Speaker, *, to_bot: bool) -> bool:
        """Whether the bot answers. `to_bot`: the message mentions it or replies to it."""
        if not place.is_dm and not self._is_within_restriction(place):
            return False
        if not (to_bot or self.is_open(place)):
            return False
        if not self.choose(place, speaker).enabled:
            return False
        return not speaker.is_bot or self._admits_bot(place.channel)

    def _is_within_restriction(self, place: Place) -> bool:
        if not self._restrict:
            return True
        applies = any(guild in (0, place.guild) for guild in self._restrict.values())
        return not applies or any(channel in self._restrict for channel in place.channels)

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
        chosen = self._default
        for rule in self._settings.rules:
            if _matches(rule, place, speaker):
                chosen = chosen.under(rule)
        return chosen.under(selected) if selected is not None else chosen


def _matches(rule: DiscordRule, place: Place, speaker: Speaker) -> bool:
    if rule.guild != "" and int(rule.guild) != place.guild:
        return False
    if rule.channel != "" and int(rule.channel) not in place.channels:
        return False
    if rule.role != "" and int(rule.role) not in speaker.roles:
        return False
    return rule.person == "" or int(rule.person) == speaker.id
