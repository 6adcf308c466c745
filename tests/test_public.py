"""The public face: which names there are, and that importing them does nothing."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest

import rondel
import rondel.plugins
from rondel import Engine, Plugin, Store, errors
from rondel.contracts.ledger import LedgerStore
from rondel.engine import Closes, Relays
from rondel.errors import nearest
from rondel.events import DurableEvent, Event
from rondel.project.lookup import PLUGINS, TOOLS
from rondel.tool import Tool
from rondel.values import Delta, Part

WAIT_S = 60

_WATCHED = """
import sys, threading

opened, asked = [], []


class Environment(dict):
    def __getitem__(self, key):
        asked.append(key)
        return super().__getitem__(key)

    def get(self, key, default=None):
        asked.append(key)
        return super().get(key, default)


def watch(event, arguments):
    if event == "open" and isinstance(arguments[0], str):
        opened.append(arguments[0])
    if event.startswith(("socket.", "subprocess.", "sqlite3.")):
        opened.append(event)


import msgspec, os  # whatever these read is theirs
os.environ = Environment(os.environ)
sys.addaudithook(watch)
"""

_REPORT = """
ours = [path for path in opened if not path.endswith((".py", ".pyc")) and "__pycache__" not in path]
assert not ours, f"importing rondel opened {ours}"
assert not asked, f"importing rondel read the environment: {asked}"
assert threading.active_count() == 1, threading.enumerate()
"""


def _python(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("package", [rondel, rondel.plugins], ids=["rondel", "rondel.plugins"])
def test_type_checkers_see_the_same_names(package: ModuleType):
    stub = ast.parse(Path(str(package.__file__)).with_suffix(".pyi").read_text())
    imported = [name for node in stub.body if isinstance(node, ast.ImportFrom) for name in node.names]
    assert all(name.name == name.asname for name in imported)
    assert sorted(name.name for name in imported) == list(package.__all__)
    for node in stub.body:
        if isinstance(node, ast.ImportFrom):
            home = import_module(f".{node.module}", package.__name__)
            for name in node.names:
                assert getattr(package, name.name) is getattr(home, name.name)


def test_every_part_that_files_can_name_can_be_imported():
    own = {path for path in PLUGINS.values() if path.startswith("rondel.plugins.")}
    assert {path.partition(":")[2] for path in own} == set(rondel.plugins.__all__)
    assert set(PLUGINS.values()) - own == {"rondel.mcp.plugin:McpServers"}
    assert {path.partition(":")[2] for path in TOOLS.values()} <= set(rondel.__all__)


def test_every_event_error_and_value_is_public():
    """What programs match on, catch or are given can be imported from `rondel`."""
    events = {kind.__name__ for kind in (*get_args(Event), *get_args(DurableEvent), *get_args(Delta))}
    raised = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
    parts = {kind.__name__ for kind in get_args(Part)}
    assert events | raised | parts <= set(rondel.__all__)


CONTRACTS = (Engine, Closes, Relays, Plugin, Store, LedgerStore)


def test_everything_public_has_a_docstring():
    """Also every public method and property; where it implements a contract, the contract has it."""
    names = (*rondel.__all__, *(f"plugins.{name}" for name in rondel.plugins.__all__))
    missing: list[str] = []
    for name in names:
        found: Any = attrgetter(name)(rondel)
        if isinstance(found, Tool):
            missing += () if found.description else (name,)
        elif isinstance(found, type) or inspect.isroutine(found):
            missing += () if found.__doc__ else (name,)
            missing += [f"{name}.{method}" for method in _undocumented(found)]
    assert not missing, "say what these do for their callers"


def _undocumented(kind: Any) -> Iterator[str]:
    for name, value in vars(kind).items() if isinstance(kind, type) else ():
        function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if name.startswith("_") or not inspect.isroutine(function) or inspect.getdoc(getattr(kind, name)):
            continue
        if kind in CONTRACTS or not any(hasattr(contract, name) for contract in CONTRACTS):
            yield name


def test_every_public_name_can_be_imported_and_is_listed():
    for name in rondel.__all__:
        assert getattr(rondel, name) is not None
        assert name in dir(rondel)


def test_a_name_that_is_not_there_is_an_attribute_error():
    assert not hasattr(rondel, "Agnet")


def test_importing_rondel_reads_no_file_and_no_environment_and_starts_nothing():
    _python(f"{_WATCHED}\nimport rondel\n{_REPORT}")


def test_a_prefix_that_all_names_share_does_not_make_them_near():
    assert nearest("/nonsense", ("/tokens", "/help")) == "; available: /help, /tokens"
    assert nearest("/token", ("/tokens", "/help")) == "; did you mean '/tokens'?"
