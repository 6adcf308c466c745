"""Source code: a section for each function and class. Python is parsed; other languages are split at unindented lines
that begin a definition."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator

from ...contracts.knowledge import Document, Section
from ._decode import decoded

_DEFINITION = re.compile(
    r"(?:(?:export|default|public|private|protected|internal|static|final|abstract|async|pub(?:\([^)]*\))?|unsafe"
    r"|extern|open|sealed|data|inline|constexpr|virtual)\s+)*"
    r"(?:function|func|fn|def|class|struct|interface|trait|impl|enum|module|namespace|object|type|sub|create\s+\w+)\s+"
    r"(?:\([^)]*\)\s*)?([\w.:$]+)",
    re.I,
)
_C_FUNCTION = re.compile(r"[A-Za-z_][\w\s*&:<>,~]*?\b([A-Za-z_]\w*)\s*\([^;]*$")
PARSED_CHARS_MAX = 2_000_000  # Python's own parser needs 200 bytes for each character
_LONG_LINES = 60  # a longer class is split into its methods


def read(data: bytes, name: str) -> Document:
    text = decoded(data)
    if name.endswith((".py", ".pyi")) and len(text) <= PARSED_CHARS_MAX:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about escapes and the like in other people's code
                tree = ast.parse(text)
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            pass
        else:
            return Document("", tuple(_sections(text, list(_starts(tree.body, ())))))
    return Document("", tuple(_sections(text, list(_defined(text)))))


def _starts(body: list[ast.stmt], above: tuple[str, ...]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the line at which each definition begins, its decorators included, and its names."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            line = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            names = (*above, node.name)
            yield line, names
            if isinstance(node, ast.ClassDef) and (node.end_lineno or 0) - node.lineno > _LONG_LINES:
                yield from _starts(node.body, names)
        elif above == () and isinstance(node, (ast.Expr, ast.Assign, ast.AnnAssign, ast.If, ast.For, ast.Try)):
            yield node.lineno, ()


def _defined(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line[:1].isspace() or not line.strip():
            continue
        if found := _DEFINITION.match(line) or _C_FUNCTION.match(line):
            yield number, (found[1],)


def _sections(text: str, starts: list[tuple[int, tuple[str, ...]]]) -> Iterator[Section]:
    lines = text.split("\n")
    bounds: list[tuple[int, tuple[str, ...]]] = [(1, ())]
    for line, names in starts:
        if names or bounds[-1][1]:  # neighbours outside of definitions stay together
            bounds.append((line, names))
    for index, (line, names) in enumerate(bounds):
        end = bounds[index + 1][0] if index + 1 < len(bounds) else len(lines) + 1
        body = "\n".join(lines[line - 1 : end - 1])
        if body.strip():
            yield Section(body, names, line=line)
