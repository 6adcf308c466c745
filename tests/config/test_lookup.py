"""Names find the plugins and tools that they stand for."""

from __future__ import annotations

import pkgutil
import sys
from pathlib import Path

import pytest

import rondel.plugins
import rondel.tools
from rondel.app.app import default_plugins
from rondel.plugin import Plugin
from rondel.project.lookup import PLUGINS, TOOLS, find_plugin, find_tool, plugin_class, plugin_names

from .files import sentence, write


@pytest.mark.parametrize("name", PLUGINS)
def test_every_built_in_plugin_is_found_by_its_own_name(name: str) -> None:
    assert plugin_class(name).name == name


@pytest.mark.parametrize("name", TOOLS)
def test_every_built_in_tool_is_found_by_its_own_name(name: str) -> None:
    assert find_tool(name).name == name


def test_no_built_in_part_is_missing_from_the_tables() -> None:
    for table, package in ((PLUGINS, rondel.plugins), (TOOLS, rondel.tools)):
        parts = {part.name for part in pkgutil.iter_modules(package.__path__) if not part.name.startswith("_")}
        own = (path.partition(":")[0] for path in table.values() if path.startswith(f"{package.__name__}."))
        assert parts == {path.rpartition(".")[2] for path in own}
    assert {plugin.name for plugin in default_plugins()} <= set(PLUGINS)


def test_an_installed_plugin_is_found_by_its_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "shouting-1.0.dist-info"
    write(info / "METADATA", "Metadata-Version: 2.1\nName: shouting\nVersion: 1.0\n")
    points = "[rondel.plugins]\nshout = shouting_of_test:Shout\nlost = shouting_of_test_lost:X\n"
    write(info / "entry_points.txt", points)
    write(tmp_path / "shouting_of_test.py", "import rondel.plugin\nclass Shout(rondel.plugin.Plugin): pass\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    assert isinstance(find_plugin("shout"), Plugin)
    assert "shout" in plugin_names()
    assert "did you mean 'shout'" in sentence(lambda: find_plugin("shot"))
    said = sentence(lambda: find_plugin("lost"))
    assert said.startswith(
        "the installed plugin 'lost' (shouting_of_test_lost:X) cannot be imported: there is no module"
    )
    monkeypatch.delitem(sys.modules, "shouting_of_test")


def test_a_plugin_that_refuses_its_parameters_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
    import rondel.plugin
    class Picky(rondel.plugin.Plugin):
        def __init__(self, n: int = 0) -> None:
            raise ValueError("n is too small")
    """
    write(tmp_path / "picky_of_test.py", code)
    said = sentence(lambda: find_plugin("picky_of_test:Picky", {"n": 1}, project=str(tmp_path)))
    assert said == "the plugin 'picky_of_test:Picky' could not be made: n is too small"
    monkeypatch.delitem(sys.modules, "picky_of_test")


def test_a_parameter_that_no_file_can_hold_is_for_code() -> None:
    assert "can only be given in code" in sentence(lambda: find_plugin("trim", {"estimate": "x"}))
