"""Each surface shows every stored event, or leaves it out on purpose: one that is new must be decided for each."""

from __future__ import annotations

import re
import typing

import pytest

from rondel.events import DurableEvent
from rondel.surfaces.discord import fold
from rondel.surfaces.terminal import screen
from tests.docs.pages import text_of

EVENTS = {kind.__name__: str(kind.__struct_config__.tag) for kind in typing.get_args(DurableEvent)}
LEFT_OUT = {
    # Commands answer the person who changes something.
    "terminal": "HistoryGiven InboxTaken AgentChanged EngineChanged SettingChanged Renamed InputsRead FactsLearned",
    "page": "SettingChanged InputsRead FactsLearned",
    # People in a channel see answers, questions, pictures and jobs, and not how the bot works.
    "Discord": "HistoryGiven MessageQueued InboxTaken HandedOff AgentChanged EngineChanged SettingChanged TurnsUndone "
    "Renamed InputsRead FactsLearned Trimmed PluginFailed Warned LimitHit",
}


def shown_by(surface: str) -> set[str]:
    if surface == "page":
        tags = re.findall(r'(?:case|event\.type ===) "(\w+)"', text_of("web/src/fold.ts"))
        return {name for name, tag in EVENTS.items() if tag in tags}
    # What a module imports, it uses: ruff checks that.
    return EVENTS.keys() & vars(screen if surface == "terminal" else fold).keys()


@pytest.mark.parametrize("surface", LEFT_OUT)
def test_every_stored_event_is_shown_or_left_out_on_purpose(surface: str):
    left_out = set(LEFT_OUT[surface].split())
    assert shown_by(surface) == EVENTS.keys() - left_out
