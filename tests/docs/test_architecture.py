"""ARCHITECTURE.md is true: its loop, its layers, its hooks, its files and its invariants' tests are the code's."""

from __future__ import annotations

import ast
import re
import tomllib

from rondel.plugin import HOOKS
from tests.docs.pages import ROOT, blocks_of, codes_in, rows_after, text_of

PAGE = "ARCHITECTURE.md"


def _texts() -> list[str]:
    return [block.text for block in blocks_of(ROOT / PAGE) if block.language == "text"]


def test_the_loop_that_is_shown_is_the_loop():
    assert _texts()[0] in text_of("src/rondel/loop.py")


def test_the_layers_that_are_shown_are_those_that_are_checked():
    contracts = tomllib.loads(text_of("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract.get("containers") == ["rondel"])
    assert _texts()[1].splitlines() == layers


def test_the_hooks_that_are_named_are_the_hooks():
    sentence = re.search(r"^Seven hooks: (.*?)\.$", text_of(PAGE), re.M | re.S)
    assert sentence
    assert codes_in(sentence[1]) == list(HOOKS)


def test_every_invariant_names_tests_that_exist():
    rows = rows_after(PAGE, "## Invariants")
    assert rows
    for _, proof in rows:
        assert codes_in(proof), proof
        for named in codes_in(proof):
            file, _, test = named.partition("::")
            tree = ast.parse(text_of(file))
            assert test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, named


def test_every_room_that_is_named_is_there():
    for row in rows_after(PAGE, "## Rooms that a first look may not expect"):
        for name in codes_in(row[0]):
            assert (ROOT / "src" / "rondel" / name).exists(), name


def test_files_that_any_page_names_are_there():
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
    for page in pages:
        for name in re.findall(r"`((?:src|tests|bench|docs|examples)/[\w./-]+)`", page.read_text(encoding="utf-8")):
            assert (ROOT / name).exists(), f"{page.name} names {name}"
