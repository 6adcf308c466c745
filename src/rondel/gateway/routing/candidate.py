"""An engine that may answer a request, with its name in the configuration. Pure."""

from __future__ import annotations

from typing import NamedTuple

from ...engine import Engine


class Candidate(NamedTuple):
    engine: Engine
    account: str
    """The engine's name in the configuration, and its model: `work:gpt-5`. `engine.name` has the provider's name, which
    two accounts at one provider share."""


def named(name: str, engine: Engine) -> Candidate:
    """Return the candidate for an engine that the configuration calls `work` or `work:gpt-5`."""
    head, _, model = name.partition(":")
    model = engine.name.partition(":")[2] or model
    return Candidate(engine, f"{head}:{model}" if model else head)
