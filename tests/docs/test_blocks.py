"""Every block of code in every page runs."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, blocks_of, name_of
from tests.docs.runner import VARIABLES, Page, forget_modules

KEPT = ("PATH", "LANG", "LC_ALL", "SYSTEMROOT", "VIRTUAL_ENV")


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    for name in set(os.environ) - set(KEPT):
        monkeypatch.delenv(name)
    home, folder = tmp_path / "home", tmp_path / "project"
    folder.mkdir()
    variables = {"HOME": home, "RONDEL_CACHE": home / "cache", "RONDEL_ENGINE": "echo", "TZ": "UTC", **VARIABLES}
    for name, value in variables.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.chdir(folder)
    log = logging.getLogger("rondel")
    handlers, propagate = list(log.handlers), log.propagate
    forget_modules(tmp_path.parent)
    yield Page(folder, monkeypatch)
    forget_modules(tmp_path.parent)
    log.handlers[:], log.propagate = handlers, propagate


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_every_block_of_the_page_runs(path: Path, page: Page):
    blocks = list(blocks_of(path))
    page.write_files(blocks)
    for block in blocks:
        try:
            page.run(block)
        except Exception as error:
            error.add_note(f"in the block at {block.where}")
            raise
