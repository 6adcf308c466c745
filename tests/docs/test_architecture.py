"""ARCHITECTURE.md is true: its loop, plan, layers, hooks and files match the code. So do the tests of the
invariants and the files that other pages name."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache

from rondel.plugin import HOOKS
from tests.docs.pages import ROOT, blocks_of, codes_in, rows_after, text_of

PAGE = "ARCHITECTURE.md"


def _texts() -> list[str]:
    return [block.text for block in blocks_of(ROOT / PAGE) if block.language == "text"]


def test_the_loop_that_is_shown_is_the_loop():
    assert _texts()[0] in text_of("src/rondel/machine/loop.py")


def test_the_plan_names_every_folder_and_every_module_at_the_root():
    source = ROOT / "src" / "rondel"
    folders = {f"{path.parent.name}/" for path in source.glob("*/__init__.py")}
    modules = {path.name for path in source.glob("*.py") if not path.name.startswith("__")}
    named = re.findall(r"^  (\S+)", _texts()[1], re.M)
    assert sorted(named) == sorted(folders | modules)


def test_the_files_on_the_way_of_a_message_are_there():
    _, _, rest = text_of(PAGE).partition("\n## How a message travels\n")
    for name in re.findall(r"`([\w/]+(?:\.py|/))`", rest.partition("\n## ")[0]):
        assert (ROOT / "src" / "rondel" / name).exists(), name


def test_the_layers_that_are_shown_are_those_that_are_checked():
    contracts = tomllib.loads(text_of("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract.get("containers") == ["rondel"])
    assert _texts()[2].splitlines() == layers


def test_the_hooks_that_are_named_are_the_hooks():
    sentence = re.search(r"have seven hooks: (.*?)\.", text_of(PAGE), re.S)
    assert sentence
    assert codes_in(sentence[1]) == list(HOOKS)


def test_every_invariant_names_tests_that_exist():
    sections = re.findall(r"^## .*$", text_of("docs/invariants.md"), re.M)
    assert sum(_check_proofs("docs/invariants.md", section) for section in sections) > 80


def test_every_promise_of_the_security_page_names_tests_that_exist():
    sections = ("Data", "Spending", "Who may do what", "Discord", "Secrets", "Text that others wrote", "Exhaustion")
    for section in sections:
        assert _check_proofs("docs/security.md", f"## {section}") > 2, section


def _check_proofs(page: str, section: str) -> int:
    rows = rows_after(page, section)
    for _, proof in rows:
        assert codes_in(proof), proof
        for named in codes_in(proof):
            file, _, test = named.partition("::")
            assert test in _functions_in(file), named
    return len(rows)


@cache
def _functions_in(file: str) -> set[str]:
    body = ast.parse(text_of(file)).body
    return {node.name for node in body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}


def test_files_that_any_page_names_are_there():
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
    for page in pages:
        for name in re.findall(r"`((?:src|tests|bench|docs|examples)/[\w./-]+)`", page.read_text(encoding="utf-8")):
            assert (ROOT / name).exists(), f"{page.name} names {name}"


def test_every_change_that_is_listed_names_files_that_are_there():
    rows = rows_after("CONTRIBUTING.md", "## Where do I make this change?")
    assert len(rows) >= 15
    for change, where, _ in rows:
        assert [name for name in codes_in(where) if name.startswith("src/rondel/") and (ROOT / name).exists()], change
