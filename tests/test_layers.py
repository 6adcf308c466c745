"""The layers of the code are what pyproject.toml says: import-linter checks every import."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
WAIT_S = 60


def _contracts() -> list[dict[str, Any]]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]


def test_every_import_points_down_the_layers():
    script = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
    done = subprocess.run(
        [sys.executable, "-c", script, "--no-cache", "--no-logo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_folder_of_parts_has_a_contract_that_keeps_its_members_apart():
    apart = {module.removesuffix(".*") for c in _contracts() if c["type"] == "independence" for module in c["modules"]}
    apart |= {container for c in _contracts() if c["type"] == "layers" for container in c["containers"]}
    folders = {f"rondel.{path.parent.name}" for path in (ROOT / "src" / "rondel").glob("*/__init__.py")}
    assert folders - apart == set()


def test_every_library_stands_behind_few_files():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    needed = [*project["dependencies"], *(text for extra in extras for text in extra)]
    names = {re.split(r"[\[<>=~! ]", text)[0].lower() for text in needed} - {"msgspec"}  # which is everywhere
    kept = {module for c in _contracts() if c["type"] == "forbidden" for module in c["forbidden_modules"]}
    homes = {
        module: {name.lower().replace("_", "-") for name in found} for module, found in packages_distributions().items()
    }
    bound = {name for module in kept for name in homes.get(module, {module})}
    assert names - bound == set()


def test_the_loop_fits_on_a_screen_or_two():
    lines = (ROOT / "src" / "rondel" / "loop.py").read_text().splitlines()
    assert len(lines) < 150, "the loop holds no policy: put it into a plugin, or wrap the engine or the tool"
