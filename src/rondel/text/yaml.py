"""Reads YAML, and Markdown with a YAML front matter, with the line of every value.

PyYAML parses; the values are built here from its node tree: plain values only (YAML 1.2's core schema: `no` is text,
`true` is a boolean), keys are text, a duplicate key is an error, and the expansion of aliases is limited.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import yaml

from ..errors import ConfigError
from .document import DEPTH_MAX, Document, KeyPath, Mistakes, collecting, read_text

VALUES_MAX = 100_000
"""How many values a file may have with its aliases expanded: a few lines of aliases could make billions."""

COLON = "mapping values are not allowed here"  # what PyYAML says of `description: fine: really`

_TAG = "tag:yaml.org,2002:"
_FRONT_MATTER = re.compile(r"---[ \t]*\n(.*?\n|)(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.S)
_HALVES = re.compile(r"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")


class _Loader(yaml.SafeLoader):
    """YAML 1.2's core schema. In 1.1, `no`, `on` and `12:30` are not texts."""


_loader: Any = _Loader
_loader.yaml_implicit_resolvers = {}


for _name, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
):
    _loader.add_implicit_resolver(f"{_TAG}{_name}", re.compile(rf"(?:{_pattern})\Z"), _first)


def read_yaml_documents(path: Path, mistakes: Mistakes | None = None) -> list[Document]:
    """Return the documents of a file that `---` separates. Lines count from the beginning of the file. With a list for
    `mistakes`, the first of two equal keys counts."""
    return _read_all(read_text(path), path, mistakes)


def read_json(path: Path, mistakes: Mistakes | None = None) -> Document:
    # JSON is YAML, except for tabs between values and for escaped surrogate pairs.

    def joined(found: re.Match[str]) -> str:
        high, low = int(found[2], 16) - 0xD800, int(found[3], 16) - 0xDC00
        return found[1] + chr(0x10000 + (high << 10) + low)

    return _read(_HALVES.sub(joined, read_text(path).replace("\t", " ")), path, mistakes)


def read_markdown(path: Path, body: str, mistakes: Mistakes | None = None) -> Document | None:
    """Return a Markdown file's front matter, with the text below it under the key `body`; None without front matter."""
    text = read_text(path)
    if (found := _FRONT_MATTER.match(text)) is None:
        if re.match(r"---[ \t]*\n", text):
            raise ConfigError("has front matter that does not end; add a line '---' after it", path=str(path), line=1)
        return None
    # The blank line replaces the first `---`, so that the line numbers are right.
    document = _read("\n" + found[1], path, mistakes)
    if body in document.data:
        raise document.error((body,), f"{body!r} is given twice: here, and as the text below the front matter")
    rest = text[found.end() :]
    if not rest.strip():
        return document
    blank = len(rest) - len(rest.lstrip())
    line = text.count("\n", 0, found.end() + blank) + 1
    return Document(document.path, {**document.data, body: rest.strip()}, {**document.lines, (body,): line})


def _read(text: str, path: Path, mistakes: Mistakes | None) -> Document:
    first, *others = _read_all(text, path, mistakes) or [Document(str(path), {})]
    if others:
        line = min(others[0].lines.values(), default=None)
        raise ConfigError("has a second document after '---'; put it into another file", path=str(path), line=line)
    return first


def _read_all(text: str, path: Path, mistakes: Mistakes | None) -> list[Document]:
    try:
        roots = cast("list[yaml.Node | None]", list(cast(Any, yaml).compose_all(text, Loader=_Loader)))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = " ".join(part for part in (error.context, error.problem) if part)
        hint = "; put a text with a colon in quotes" if error.problem == COLON else ""
        raise ConfigError(
            f"this is not valid YAML: {said}{hint}", path=str(path), line=mark.line + 1 if mark else None
        ) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, int(error.position)) + 1
        raise ConfigError(f"this is not valid YAML: {error.reason}", path=str(path), line=line) from None
    except RecursionError:
        raise ConfigError("is nested too deeply to be read", path=str(path)) from None
    return [_document(root, path, mistakes) for root in roots if not _is_empty(root)]


def _is_empty(root: yaml.Node | None) -> bool:
    return root is None or (isinstance(root, yaml.ScalarNode) and root.tag == f"{_TAG}null")


def _document(root: yaml.Node | None, path: Path, mistakes: Mistakes | None) -> Document:
    builder = _Builder(path, mistakes)
    assert root is not None
    if not isinstance(root, yaml.MappingNode):
        raise builder.error(root, "must be a table of keys and values")
    return Document(str(path), builder.value(root, ()), builder.lines)


class _Builder:
    """Builds plain values from a tree of nodes, in which an alias is the same node object as its anchor."""

    def __init__(self, path: Path, mistakes: Mistakes | None) -> None:
        self._path, self._mistakes, self._count, self.lines = path, mistakes, 0, dict[KeyPath, int]()
        self._around = set[int]()

    def error(self, node: yaml.Node, message: str) -> ConfigError:
        return ConfigError(message, path=str(self._path), line=_line(node))

    def value(self, node: yaml.Node, path: KeyPath) -> Any:
        self._count += 1
        if self._count > VALUES_MAX:
            raise self.error(node, f"has more than {VALUES_MAX:,} values with its aliases expanded; use fewer")
        if len(path) > DEPTH_MAX:
            raise self.error(node, f"is nested more than {DEPTH_MAX} levels deep; make it flatter")
        self.lines.setdefault(path, _line(node))
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if id(node) in self._around:
            raise self.error(node, "contains itself through its anchor; write it out")
        self._around.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
                return self._table(node, path)
            if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
                return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
            raise self._wrong_tag(node)
        finally:
            self._around.discard(id(node))

    def _table(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        table: dict[str, Any] = {}
        for key_node, item in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise self.error(key_node, "a key must be a text")
            key, line = str(key_node.value), _line(key_node)
            if key == "<<":
                raise self.error(key_node, "'<<' merges tables, which is not supported; write the keys out")
            if key in table:
                with collecting(self._mistakes):
                    raise self.error(key_node, f"{key!r} is given twice: on line {self.lines[(*path, key)]} and here")
                continue
            self.lines[(*path, key)] = line
            table[key] = self.value(item, (*path, key))
        return table

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        kind, text = node.tag.removeprefix(_TAG), str(node.value)
        if (read := _SCALARS.get(kind)) is None:
            raise self._wrong_tag(node)
        try:
            return read(text)
        except ValueError:
            raise self.error(node, f"{text[:60]!r} is not a valid {kind}") from None

    def _wrong_tag(self, node: yaml.Node) -> ConfigError:
        return self.error(node, f"the tag {node.tag.replace(_TAG, '!!')!r} is not for this file; write a plain value")


_SCALARS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "null": lambda text: None,
    "bool": lambda text: text.lower() == "true",
    "int": lambda text: int(text, 0) if text[:2] in ("0o", "0x") else int(text),
    "float": lambda text: float(re.sub(r"\.(?=inf|nan)", "", text.lower())),
}


def _line(node: yaml.Node) -> int:
    return node.start_mark.line + 1
