"""An agent that needs no model runs where there is none."""

from __future__ import annotations

import pytest

from rondel import Agent
from rondel.agent import Fact
from rondel.project.folder import asks_a_model

MODEL = Agent("model", "You are brief.")


@pytest.mark.parametrize(
    ("agent", "asks"),
    [
        (Agent("a", template='Hello. {{ .Get "b" }} {{ .Get "time.now" }} {{ .AskUser "Well?" }}'), False),
        (Agent("a", template='{{ .Get "model" }}'), True),
        (Agent("a", alias="model"), True),
        (Agent("a", alias="b"), False),
        (Agent("a", function=lambda: "x"), False),
        (Agent("a", function=lambda: "x", expands_output=True, recruits=["model"]), True),
        (Agent("a", template="x", inputs={"one": {}, "two": {}}), True),
        (Agent("a", template="x", facts={"name": Fact()}), True),
        (Agent("a", template='{{ .Get "a" }}'), False),
        (MODEL, True),
    ],
)
def test_a_model_is_looked_for_only_where_one_may_be_asked(agent: Agent, asks: bool):
    agents = [agent, Agent("b", template="B"), *([MODEL] if agent is not MODEL else [])]
    assert asks_a_model(agent.name, agents) is asks
