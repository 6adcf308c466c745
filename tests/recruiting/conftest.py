"""The projects on disk that the tests of files and commands need."""

from __future__ import annotations

from tests.cli.conftest import place

__all__ = ["place"]
