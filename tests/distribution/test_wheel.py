"""The packages: what they contain, that the wheel works where nothing else is, and that the README's commands do."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import rondel
from tests.distribution.conftest import ROOT, Machine
from tests.docs.pages import blocks_of

pytestmark = pytest.mark.slow
RUNS_ON = ("rondel serve --watch",)  # until somebody ends it; test_newcomer.py starts one


def test_the_sdist_has_what_a_build_needs_and_the_wheel_every_file_of_the_package(installed: Machine):
    """The wheel is built from the sdist."""
    with tarfile.open(installed.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "src/rondel/py.typed"} <= names
    source = ROOT / "src" / "rondel"
    ours = {f"rondel/{p.relative_to(source)}" for p in source.rglob("*") if p.is_file() and p.suffix != ".pyc"}
    with zipfile.ZipFile(installed.wheel) as archive:
        assert ours <= set(archive.namelist())


def test_a_build_that_reaches_no_npm_registry_ends_with_a_sentence(tmp_path: Path):
    """pip showed 40 lines of traceback, and nothing said that the page's packages come from npm."""
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "web", tmp_path / "web", ignore=shutil.ignore_patterns("node_modules"))
    (tmp_path / "src" / "rondel").mkdir(parents=True)
    shutil.copy(ROOT / "src" / "rondel" / "__init__.py", tmp_path / "src" / "rondel")
    nowhere = {"npm_config_registry": "http://127.0.0.1:9/", "npm_config_fetch_retries": "0", "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "build", "--no-isolation", "--wheel", str(tmp_path)]
    done = subprocess.run(command, env=os.environ | nowhere, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
    assert "The page was not built: npm could not fetch its packages" in done.stderr
    assert "set npm_config_registry" in done.stderr
    assert "in initialize" not in done.stderr


def test_the_metadata_is_complete(installed: Machine):
    with zipfile.ZipFile(installed.wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    assert (metadata["Name"], metadata["Version"]) == ("rondel", rondel.__version__)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert str(metadata.get_payload()).startswith("# Rondel")
    classifiers = metadata.get_all("Classifier") or []
    assert "Typing :: Typed" in classifiers
    extras = set(metadata.get_all("Provides-Extra") or [])
    assert {"local", "otel", "knowledge"} <= extras


def test_the_version_is_the_newest_in_the_changelog():
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert newest
    assert newest[1] == rondel.__version__


def test_nothing_but_what_it_needs_is_there_and_that_is_enough(machine: Machine):
    installed = machine.run("python", "-m", "pip", "list", "--format=freeze").lower()
    for other in ("pytest", "hypothesis", "openai", "xllamacpp"):
        assert f"{other}==" not in installed
    machine.run("python", "-m", "pip", "check")
    code = "import rondel, rondel.plugins\nfor name in rondel.__all__: getattr(rondel, name)\n"
    code += "for name in rondel.plugins.__all__: getattr(rondel.plugins, name)\nprint(rondel.__version__)"
    assert machine.run("python", "-W", "error", "-c", code).strip() == rondel.__version__
    assert machine.run("rondel", "--version").split()[-1] == rondel.__version__


def test_the_commands_and_the_program_of_the_readme_work_as_written(machine: Machine):
    machine.variables["RONDEL_ENGINE"] = "echo"
    cwd, ran = machine.home, list[str]()
    for block in blocks_of(ROOT / "README.md"):
        if block.language == "python":
            (cwd / "program.py").write_text(block.text)
            assert machine.run("python", "program.py", cwd=cwd).strip() == "It is 42."
        if block.language not in ("sh", "console"):
            continue
        lines = [
            line.removeprefix("$ ") for line in block.text.splitlines() if block.language == "sh" or line[:2] == "$ "
        ]
        for line in lines:
            words = shlex.split(line, comments=True)
            if words[:1] == ["cd"]:
                cwd = cwd / words[1]
            elif words[:1] == ["echo"]:
                at = words.index("|")
                machine.run(*words[at + 1 :], cwd=cwd, text=" ".join(words[1:at]))
                ran.append(line)
            elif words[:1] == ["rondel"] and shlex.join(words) not in RUNS_ON:
                machine.run(*words, cwd=cwd, text="/quit\n")
                ran.append(shlex.join(words))
            else:
                assert words[0] in ("make", "pip", "pipx", "uv", "export", "rondel"), line
    assert len(ran) >= 3


def test_a_users_program_passes_pyright_in_strict_mode(machine: Machine, tmp_path: Path):
    """Against the installed package: `py.typed` and the stubs are part of the wheel."""
    shutil.copy(ROOT / "tests/distribution/user_program.py", tmp_path / "program.py")
    settings = {"typeCheckingMode": "strict", "pythonVersion": "3.11", "include": ["program.py"]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "-p", str(tmp_path), "--pythonpath", str(machine.bin / "python")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout
