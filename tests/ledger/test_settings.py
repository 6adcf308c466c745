"""Rules in rondel.toml: what they may say, and the line of every mistake."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from rondel.contracts.ledger import Rule
from rondel.errors import ConfigError
from rondel.project.config import load, make_ledger, rules_of
from rondel.project.settings import LedgerSettings
from rondel.stores.memory import MemoryStore
from tests.docs.pages import codes_in, rows_after

GOOD = """
[[ledger.limits]]
scope = {model = "gpt-6.1-terra", role = "*"}
tokens = 50_000
window = "week"
mode = "block"
message = "Enough for this week."

[[ledger.limits]]
money = 5

[gateway.keys.desk]
key = "${KEY}"
budget = {money = 2.5, tokens = 100}
"""


def rules_in(folder: Path, text: str) -> list[Rule]:
    (folder / "rondel.toml").write_text(text)
    return rules_of(load(folder, {"HOME": str(folder), "KEY": "k" * 40}))


def test_limits_of_a_file_and_budgets_of_keys_are_rules(tmp_path: Path):
    assert rules_in(tmp_path, GOOD) == [
        Rule({"model": "gpt-6.1-terra", "role": "*"}, "week", 50_000, None, "block", "Enough for this week."),
        Rule(money=5.0),
        Rule({"key": "desk"}, "month", 100, 2.5, "block"),
    ]
    assert rules_in(tmp_path, "") == []


@pytest.mark.parametrize(
    ("text", "line", "sentence"),
    [
        ("[[ledger.limits]]\ntokens = 5\n[ledger.limits.scope]\nmodle = 'x'", 4, "no 'modle'; did you mean 'model'?"),
        ("[[ledger.limits]]\ntokens = 5\nwindow = 'dya'", 3, "not 'dya'; did you mean 'day'?"),
        ("[[ledger.limits]]\ntokens = 5\nmode = 'blokc'", 3, "not 'blokc'; did you mean 'block'?"),
        ("[[ledger.limits]]\ntokns = 5", 2, "'ledger.limits[0].tokns' is not known; did you mean 'tokens'?"),
        ("[[ledger.limits]]\ntokens = -5", 2, "a limit's tokens is -5; it must be 0 or more"),
        ("[[ledger.limits]]\nmoney = nan", 2, "a limit's money is nan; it must be 0 or more"),
        ("[[ledger.limits]]\nscope = {}", 1, "a limit needs `tokens`"),
        ("[[ledger.limits]]\ntokens = 'many'", 2, "must be a whole number"),
        ("[ledger]\nlimit = []", 2, "'ledger.limit' is not known; did you mean 'limits'?"),
        ("[ledger]\nlimits = 5", 2, "'ledger.limits' must be a list"),
        ("ledger = 5", 1, "'ledger' must be a table"),
    ],
)
def test_a_mistake_is_one_sentence_with_its_line(tmp_path: Path, text: str, line: int, sentence: str):
    with pytest.raises(ConfigError) as caught:
        rules_in(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'rondel.toml'}:{line}: ")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_key_of_a_limit_is_in_the_documentation():
    documented = [key for row in rows_after("docs/configuration.md", "## Ledger") for key in codes_in(row[0])]
    assert documented == [field.name for field in msgspec.structs.fields(Rule)]


def test_every_key_of_the_ledger_is_in_the_documentation():
    documented = [codes_in(row[0])[0] for row in rows_after("docs/configuration.md", "### Ledger settings")]
    assert documented == [name for name in LedgerSettings.__struct_fields__ if name != "limits"]


def test_the_keys_of_the_ledger_are_checked(tmp_path: Path):
    """Trust 24: a word that is not a choice is refused with its line."""
    (tmp_path / "rondel.toml").write_text('[ledger]\non_write_failure = "blok"\n')
    with pytest.raises(
        ConfigError, match=r"rondel.toml:2: .*must be one of 'allow', 'block', not 'blok'; did you mean"
    ):
        load(tmp_path, {"HOME": str(tmp_path)})
    (tmp_path / "rondel.toml").write_text('[ledger]\non_write_failure = "block"\n')
    config = load(tmp_path, {"HOME": str(tmp_path)})
    assert make_ledger(MemoryStore().ledger_store, config).on_write_failure == "block"
