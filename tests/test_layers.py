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
PARTS = ("cli", "dialects", "engines", "gateway", "libraries", "plugins", "stores", "surfaces", "tools")


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


def test_members_of_a_folder_of_parts_do_not_know_each_other():
    apart = {module.removesuffix(".*") for c in _contracts() if c["type"] == "independence" for module in c["modules"]}
    apart |= {container for c in _contracts() if c["type"] == "layers" for container in c["containers"]}
    assert {f"rondel.{folder}" for folder in PARTS} - apart == set()


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
