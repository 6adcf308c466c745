"""Files become plain values, and every value knows its line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rondel.text.document import Document, expand, hides, is_secret
from rondel.text.toml import read_toml
from rondel.text.yaml import read_json, read_markdown, read_yaml_documents

from .files import sentence, write


def read_yaml(path: Path) -> Document:
    (document,) = read_yaml_documents(path)
    return document


def paths_of(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, item in items for found in ((*path, key), *paths_of(item, (*path, key)))]


TOML = '''
# a comment = with "quotes" and [brackets]
title = "a # in a text"   # and a comment

[a]
b.c = 1
b."d.e" = [
    1,   # one
    { x = "]", y = [2, 3] },
    """
    [not.a.table]
    """,
]
'lit.eral' = \'\'\'
key = "inside"\'\'\'

[[servers]]
name = "first"
[servers.limits]
n = 1
[[servers.ports]]
number = 80
[[servers]]
name = "second"
at = 1979-05-27 07:32:00
[[servers.ports]]
number = 81
quoted = "a \\" b"
[deep . "er". x]
y = """four""""
z = true
'''


def test_every_value_of_a_toml_file_has_the_line_that_it_stands_on(tmp_path: Path) -> None:
    document = read_toml(write(tmp_path / "x.toml", TOML))
    text = (tmp_path / "x.toml").read_text().splitlines()
    assert set(paths_of(document.data)) <= set(document.lines)
    expected = {
        ("title",): "title =",
        ("a",): "[a]",
        ("a", "b", "c"): "b.c =",
        ("a", "b", "d.e"): 'b."d.e"',
        ("a", "b", "d.e", 0): "    1,",
        ("a", "b", "d.e", 1, "y", 1): "    { x",
        ("a", "b", "d.e", 2): '    """',
        ("a", "lit.eral"): "'lit.eral'",
        ("servers", 0, "name"): 'name = "first"',
        ("servers", 0, "limits", "n"): "n = 1",
        ("servers", 0, "ports", 0, "number"): "number = 80",
        ("servers", 1, "at"): "at =",
        ("servers", 1, "ports", 0, "number"): "number = 81",
        ("deep", "er", "x", "z"): "z = true",
    }
    for path, begins in expected.items():
        assert text[document.lines[path] - 1].startswith(begins), path


@given(
    st.recursive(
        st.one_of(st.integers(-9, 9), st.booleans(), st.text(max_size=6)),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
        max_leaves=8,
    ).flatmap(lambda value: st.dictionaries(st.text(max_size=4), st.just(value), min_size=1, max_size=3))
)
def test_any_toml_has_a_line_for_each_of_its_keys(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    def written(value: Any) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(f"{quoted(k)} = {written(v)}" for k, v in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ",\n".join(map(written, value)) + "]"
        return quoted(value) if isinstance(value, str) else json.dumps(value)

    def quoted(text: str) -> str:
        return '"' + "".join(f"\\U{ord(c):08X}" if not 32 <= ord(c) < 127 or c in '"\\' else c for c in text) + '"'

    path = tmp_path_factory.mktemp("any") / "x.toml"
    path.write_text("\n".join(f"{quoted(key)} = {written(value)}" for key, value in data.items()))
    document = read_toml(path)
    assert document.data == data
    assert set(document.lines) == set(paths_of(data))
    assert list(document.lines[(key,)] for key in data) == sorted(document.lines[(key,)] for key in data)


def test_broken_toml_says_the_line_and_what_is_wrong(tmp_path: Path) -> None:
    path = write(tmp_path / "x.toml", 'a = 1\nb "two"\n')
    assert (
        sentence(lambda: read_toml(path))
        == "x.toml:2: this is not valid TOML: expected '=' after a key in a key/value pair"
    )
    path = write(tmp_path / "x.toml", "a = 1\nb = [1, 2\n")
    assert sentence(lambda: read_toml(path)) == "x.toml:2: this is not valid TOML: unclosed array"
    path = write(tmp_path / "x.toml", f"a = {'1' * 5000}")
    assert sentence(lambda: read_toml(path)).startswith("x.toml: this is not valid TOML: exceeds the limit")


def test_a_file_that_is_not_text_or_far_too_big_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(b"a = 1\nb = '\xff'\n")
    assert sentence(lambda: read_toml(path)) == "x.toml:2: is not UTF-8 on this line; save the file as UTF-8"
    path.write_bytes(b"# " + b"x" * 10_000_000)
    assert "is longer than 1,000,000 bytes" in sentence(lambda: read_toml(path))
    path.write_bytes(b"a = " + b"[" * 100_000)
    assert sentence(lambda: read_toml(path)).startswith("x.toml")
    path.write_text("\n\na = " + "[" * 240 + "]" * 240)
    assert sentence(lambda: read_toml(path)) == "x.toml:3: is nested more than 220 levels deep; make it flatter"
    assert "is a folder, not a regular file" in sentence(lambda: read_toml(tmp_path))


def test_a_byte_order_mark_and_windows_line_ends_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(b"\xef\xbb\xbfa = 1\r\nb = 2\r\n")
    assert read_toml(path).lines == {("a",): 1, ("b",): 2}


def test_yaml_values_are_what_they_look_like(tmp_path: Path) -> None:
    path = write(
        tmp_path / "x.yaml",
        """
        no: no
        on: 12:30
        n: 0x10
        f: 1e3
        i: .inf
        e:
        t: True
        d: 2024-01-01
        q: "1"
        1: one
        """,
    )
    assert read_yaml(path).data == {
        "no": "no",
        "on": "12:30",
        "n": 16,
        "f": 1000.0,
        "i": float("inf"),
        "e": None,
        "t": True,
        "d": "2024-01-01",
        "q": "1",
        "1": "one",
    }


def test_yaml_lines_count_from_one_through_lists_and_aliases(tmp_path: Path) -> None:
    path = write(tmp_path / "x.yaml", "a: &here\n  b: 1\nc:\n  - *here\n  - {d: 2}\n")
    document = read_yaml(path)
    assert document.data == {"a": {"b": 1}, "c": [{"b": 1}, {"d": 2}]}
    assert document.lines[("a", "b")] == 2
    assert document.lines[("c", 1, "d")] == 5


def test_a_yaml_key_given_twice_names_both_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "x.yaml", "a:\n  b: 1\n  c: 2\n  b: 3\n")
    assert sentence(lambda: read_yaml(path)) == "x.yaml:4: 'b' is given twice: on line 2 and here"


def test_aliases_that_multiply_are_refused(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    path = write(tmp_path / "x.yaml", "\n".join(lines))
    assert "more than 100,000 values with its aliases expanded" in sentence(lambda: read_yaml(path))
    path = write(tmp_path / "x.yaml", "a: &a [*a]")
    assert sentence(lambda: read_yaml(path)) == "x.yaml:1: contains itself through its anchor; write it out"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: !!python/object/apply:os.system [x]", "x.yaml:1: the tag '!!python/object/apply:os.system' is not for"),
        ("a: 1\nb: !secret x", "x.yaml:2: the tag '!secret' is not for this file"),
        ("a: !!int x", "x.yaml:1: 'x' is not a valid int"),
        ("<<: {a: 1}", "x.yaml:1: '<<' merges tables"),
        ("? [a]\n: 1", "x.yaml:1: a key must be a text"),
        ("- a", "x.yaml:1: must be a table of keys and values"),
        ("a: 1\nb: [1", "x.yaml:2: this is not valid YAML: while parsing a flow sequence"),
        ("a: 1\nb: \x07", "x.yaml:2: this is not valid YAML: special characters"),
        ("- " * 20_000, "x.yaml: is nested too deeply"),
    ],
)
def test_yaml_that_is_broken_or_more_than_plain_values_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = write(tmp_path / "x.yaml", text)
    assert sentence(lambda: read_yaml(path)).startswith(said)


def test_a_json_file_is_one_document(tmp_path: Path) -> None:
    path = write(tmp_path / "x.json", '{"a": 1}\n---\n{"b": 2}')
    assert sentence(lambda: read_json(path)).startswith("x.json:3: has a second document after '---'")


def test_front_matter_and_the_text_below_keep_their_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "x.md", "---\nname: a\ntags: [b]\n---\n\nThe text.\n\n---\n\nMore.\n")
    document = read_markdown(path, "prompt")
    assert document is not None
    assert document.data == {"name": "a", "tags": ["b"], "prompt": "The text.\n\n---\n\nMore."}
    assert (document.lines[("tags",)], document.lines[("prompt",)]) == (3, 6)


def test_front_matter_that_does_not_end_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "x.md", "---\nname: a\n")
    assert sentence(lambda: read_markdown(path, "prompt")).startswith("x.md:1: has front matter that does not end")


def test_variables_are_expanded_once_and_what_comes_in_is_data() -> None:
    document = Document("x", {"a": "${A} ${B:-b} ${C:-c} $${A} $A", "l": ["${A}"]})
    expanded = expand(document, {"A": "${B}", "C": ""})
    assert expanded.data == {"a": "${B} b c ${A} $A", "l": ["${B}"]}
    assert expanded.variables == {("a",): ("A",), ("l", 0): ("A",)}
    assert document.data["l"] == ["${A}"]


@pytest.mark.parametrize("text", ["${A", "${}", "${A B}", "${A:=x}", "${A:-${B}}", "${1}"])
def test_a_malformed_variable_is_loud_in_settings_and_stays_in_prose(text: str) -> None:
    document = Document("x", {"a": text})
    assert "is not a variable: write ${NAME}" in sentence(lambda: expand(document, {"A": "1"}))
    assert expand(document, {"A": "1"}, strict=False).data["a"].startswith("${")


@pytest.mark.parametrize(
    "name", ["key", "api_key", "apiKey", "X-Api-Key", "DISCORD_TOKEN", "password", "Authorization"]
)
def test_names_of_secrets_are_known(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", ["tokens_max", "first_token_s", "monkey", "keyboard", "model", "context_tokens"])
def test_names_that_only_look_like_secrets_are_not(name: str) -> None:
    assert not is_secret(name)


def test_a_value_is_hidden_by_its_name_its_header_its_variable_or_its_form() -> None:
    assert hides(("engines", "x", "key"), "v")
    assert hides(("engines", "x", "headers", "X-Team"), "v")
    assert hides(("plugins", 0, "where"), "v", ("DISCORD_TOKEN",))
    assert hides(("plugins", 0, "where"), "sk-abcdefghijklmnop")
    assert not hides(("agent",), "skeleton-assistant-of-the-house")
    assert not hides(("engines", "x", "model"), "gpt-6.1-terra", ("MODEL",))
