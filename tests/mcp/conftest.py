from __future__ import annotations

import pytest

from rondel.mcp import meaning, plugin


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take long to start a server; no test depends on how long."""
    monkeypatch.setattr(plugin, "WAIT_S", 60.0)
    monkeypatch.setattr(meaning, "WAIT_S", 60.0)
