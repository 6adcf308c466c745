"""Small projects on disk, and the sentence that a mistake in them gives."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from rondel.errors import ConfigError


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
    os.chmod(path, mode)
    return path


def sentence(attempt: Callable[[], object]) -> str:
    """What the attempt's ConfigError says, with the file's folder left out: `rondel.toml:3: ...`."""
    with pytest.raises(ConfigError) as caught:
        attempt()
    said = str(caught.value)
    assert "\n" not in said
    return re.sub(r"^\S*/(?=[^/]+?:)", "", said)
