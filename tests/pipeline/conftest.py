"""The projects and documents on disk that the tests of files and commands need."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import place

__all__ = ["place"]


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    (folder / "money").mkdir(parents=True)
    (folder / "money" / "refunds.md").write_text(
        "# Refunds\n\nMoney comes back within 14 days.\n\n## Gift cards\n\nThey are never paid back.\n"
    )
    (folder / "shipping.txt").write_text("Parcels leave the house every morning.\n\nThey take three days.")
    return folder
