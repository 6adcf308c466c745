"""The public face: which names there are, and that importing them does nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import rondel
from rondel.errors import nearest

NAMES = """
    Agent AgentResult Answer App Approval CallContext Command ConfigError Conversation Engine EngineError Event Hold Key
    LimitReached Limits Media Message NoResult Node Options Outcome OutputSchema Plugin Prompt Question QuestionError
    Reply RondelError StoreError Text Tool ToolError Toolbox TurnView ask default_plugins run tool
"""
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


def test_the_public_names_are_these_and_at_most_forty():
    assert rondel.__all__ == NAMES.split(), (
        "a name more or less is a decision: change it here, in the docs and CHANGELOG"
    )
    assert len(rondel.__all__) <= 40


def test_every_public_name_can_be_imported_and_is_listed():
    for name in rondel.__all__:
        assert getattr(rondel, name) is not None
        assert name in dir(rondel)


def test_a_name_that_is_not_there_is_an_attribute_error():
    assert not hasattr(rondel, "Agnet")


def test_importing_rondel_reads_no_file_and_no_environment_and_starts_nothing():
    _python(f"{_WATCHED}\nimport rondel\n{_REPORT}")


def test_a_prefix_that_all_names_share_does_not_make_them_near():
    assert nearest("/nonsense", ("/tokens", "/help")) == "; known are /help, /tokens"
    assert nearest("/token", ("/tokens", "/help")) == "; did you mean '/tokens'?"
