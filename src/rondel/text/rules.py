"""Rules for the arguments of calls: which calls a policy allows or denies.

A rule is one pattern for all arguments, or a mapping of arguments to patterns. In a pattern, only `*` is special. An
allow rule must cover the whole call, a deny rule needs to match only a part: when in doubt, a person is asked. A
pattern that looks like a path is compared with the real path: `..` and symbolic links are resolved first.
"""

from __future__ import annotations

import os.path
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, TypeAlias, cast

import msgspec

from ..errors import RondelError, nearest

Rule: TypeAlias = str | dict[str, str]

ANY = "*"
ANY_FOLDERS = "**"
PATTERN_CHARS_MAX = 1_000
PATH_CHARS_MAX = 4_096
SHELL_OPERATORS = frozenset(";&|<>`$(){}\n\r")
"""With one of these a command can do more than its first words say, so no wildcard of an allow rule covers them."""

_QUOTES = frozenset("'\"\\")
_UP = re.compile(r"(?:^|[^\w.-])(?:\.|%2e){2}(?![\w.-])", re.IGNORECASE)
_LIKE_REGEX = re.compile(r"\\[sSdDwWbB.(\[]|\(\?|\.\*\)|^\^|\$$|^\.[*+]|\)[*+]")


def check_rule(rule: Rule) -> None:
    """Raise RondelError for a rule that makes no sense."""
    patterns = [rule] if isinstance(rule, str) else list(rule.values())
    if not patterns:
        raise RondelError("a rule is empty; name an argument with its pattern, or write '*' for every call")
    for pattern in patterns:
        if not pattern.strip():
            raise RondelError("a pattern is empty; write '*' for anything")
        if len(pattern) > PATTERN_CHARS_MAX:
            raise RondelError(f"the pattern {pattern[:40]!r}… is longer than {PATTERN_CHARS_MAX:,} characters")
        if _LIKE_REGEX.search(pattern):
            plain = "a pattern is plain text in which '*' matches anything"
            raise RondelError(f"the pattern {pattern!r} looks like a regular expression; {plain}")


def check_names(rules: Iterable[Rule], schema: Mapping[str, Any], tool: str) -> None:
    """Raise RondelError for a rule about an argument that the tool does not take: it would never match."""
    if schema.get("additionalProperties", True) is not False and not schema.get("properties"):
        return  # the schema does not list the arguments
    known = tuple(cast("dict[str, Any]", schema.get("properties", {})))
    for rule in rules:
        for name in rule if isinstance(rule, dict) else ():
            if name not in known:
                unknown = f"the argument {name!r}, which {tool!r} does not have"
                raise RondelError(f"a rule names {unknown}{nearest(name, known)}")


def allows(rule: Rule, arguments: Mapping[str, Any], *, shell: bool = False) -> bool:
    """Return whether a rule covers every argument of a call: it must name exactly the arguments that are given."""
    if isinstance(rule, str):
        return rule == ANY or (bool(arguments) and all(_covers(rule, value, shell) for value in arguments.values()))
    return all(name in arguments or pattern == ANY for name, pattern in rule.items()) and all(
        name in rule and _covers(rule[name], value, shell) for name, value in arguments.items()
    )


def denies(rule: Rule, arguments: Mapping[str, Any]) -> bool:
    """Return whether a rule matches, ignoring case: all arguments that it names, or one pattern anywhere."""
    if isinstance(rule, str):
        return rule == ANY or any(_is_found(rule, item) for value in arguments.values() for item in _texts(value))
    return all(
        pattern == ANY or (name in arguments and any(_is_found(pattern, text) for text in _texts(arguments[name])))
        for name, pattern in rule.items()
    )


def _covers(pattern: str, value: Any, shell: bool) -> bool:
    if pattern == ANY:
        return True
    if isinstance(value, (list, dict)):
        return False  # a pattern cannot match inside objects
    text = _text(value)
    if not shell and _is_path(pattern):
        return _leads_into(pattern, text)
    if ANY not in pattern:
        return text == pattern
    if not _matches(pattern.split(ANY), text) or (shell and SHELL_OPERATORS.intersection(text)):
        return False
    if "/" not in pattern:
        return True
    # A path inside a command, an address or a sentence cannot be resolved, so nothing in it may lead elsewhere.
    leads_up = _UP.search(text) is not None and _UP.search(pattern) is None
    return not leads_up and (not shell or _words_match(pattern, text))


def _words_match(pattern: str, text: str) -> bool:
    """Return whether each word of a command matches its pattern: a `*` within a word does not match a second word, such
    as another path. A `*` on its own matches any number of words."""
    if _QUOTES.intersection(text) - _QUOTES.intersection(pattern):
        return False  # only a shell knows where its words end
    return _path_matches([ANY_FOLDERS if word == ANY else word for word in pattern.split()], text.split())


def _is_found(pattern: str, text: str) -> bool:
    folded = _folded(text)
    written = {pattern, os.path.expanduser(pattern)} if pattern.startswith("~") else {pattern}
    if any(_holds(_folded(one).split(ANY), folded) for one in written):
        return True
    return _is_path(pattern) and _may_lead_into(pattern, text)


def _holds(pieces: Sequence[str], text: str) -> bool:
    at = 0
    for piece in pieces:
        if (found := text.find(piece, at)) < 0:
            return False
        at = found + len(piece)
    return True


def _folded(text: str) -> str:
    return text.casefold() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _texts(value: Any) -> Iterator[str]:
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            table = cast("dict[str, Any]", item)
            pending += [*table, *table.values()]
        elif isinstance(item, list):
            pending += cast("list[Any]", item)
        else:
            yield _text(item)


def _matches(pieces: Sequence[str], text: str) -> bool:
    """Return whether the text is these pieces in order with anything in between. The leftmost match is always best."""
    if len(pieces) == 1:
        return text == pieces[0]
    first, *middle, last = pieces
    at, end = len(first), len(text) - len(last)
    if at > end or not text.startswith(first) or not text.endswith(last):
        return False
    for piece in middle:
        if (found := text.find(piece, at, end)) < 0:
            return False
        at = found + len(piece)
    return True


# --- paths ------------------------------------------------------------------------------------------------------------


def _is_path(pattern: str) -> bool:
    # With a blank it may be a command or a sentence, so only the beginning counts.
    if "://" in pattern or not ("/" in pattern or pattern.startswith("~")):
        return False
    return pattern.startswith(("/", "~/", "./", "../")) or re.search(r"\s", pattern) is None


def _leads_into(pattern: str, value: str) -> bool:
    """Return whether a path matches in every reading: with `..` removed as text, and with `..` followed on disk."""
    if len(value) > PATH_CHARS_MAX or "\0" in value:
        return False
    if value.startswith("~") or "$" in value or "://" in value:
        return False  # tools differ on these
    patterns = _parts(pattern, resolve=True)
    paths = {os.path.realpath(value), os.path.realpath(os.path.normpath(value))}
    return all(_path_matches(patterns, PurePath(path).parts) for path in paths)


def _may_lead_into(pattern: str, value: str) -> bool:
    """Return whether a path matches, or is below a match, in any reading."""
    value = os.path.normpath(value) if len(value) > PATH_CHARS_MAX else value
    if "\0" in value or len(value) > PATH_CHARS_MAX:
        return False  # no system can open this path
    paths: set[str] = set()
    for written in {value, os.path.expanduser(value)}:
        paths |= {os.path.abspath(written), os.path.realpath(written), os.path.realpath(os.path.normpath(written))}
    patterns = [[*_parts(pattern, resolve=resolve), ANY_FOLDERS] for resolve in (True, False)]
    return any(_path_matches(parts, PurePath(path).parts, fold=True) for parts in patterns for path in paths)


def _parts(pattern: str, *, resolve: bool) -> list[str]:
    """Return the parts of a pattern from the root, with the folders before the first `*` resolved if wanted."""
    if pattern.startswith(ANY_FOLDERS):
        pattern = f"/{pattern}"
    parts = list(PurePath(os.path.abspath(os.path.expanduser(pattern))).parts)
    fixed = next((index for index, part in enumerate(parts) if ANY in part), len(parts))
    if resolve and fixed:
        return [*PurePath(os.path.realpath(os.path.join(*parts[:fixed]))).parts, *parts[fixed:]]
    return parts


def _path_matches(pattern: Sequence[str], path: Sequence[str], *, fold: bool = False) -> bool:
    """Match a path: `**` is any number of folders, `*` anything within one name."""
    if fold:
        pattern, path = [_folded(part) for part in pattern], [_folded(part) for part in path]
    groups: list[list[list[str]]] = [[]]
    for part in pattern:
        if part == ANY_FOLDERS:
            groups.append([])
        else:
            groups[-1].append(part.split(ANY))
    if len(groups) == 1:
        return len(path) == len(groups[0]) and _matches_at(groups[0], path, 0)
    first, *middle, last = groups
    at, end = len(first), len(path) - len(last)
    if at > end or not _matches_at(first, path, 0) or not _matches_at(last, path, end):
        return False
    for group in middle:
        while at + len(group) <= end and not _matches_at(group, path, at):
            at += 1
        if (at := at + len(group)) > end:
            return False
    return True


def _matches_at(group: Sequence[Sequence[str]], path: Sequence[str], at: int) -> bool:
    return all(_matches(pieces, path[at + index]) for index, pieces in enumerate(group))
