"""Finds, checks and fills in directives in texts, in one pass. Not a language: no conditions, variables or pipes.

    Dear {{ .Input "name" "guest" }}, {{ .Get "weather" (.AskUser "Which city?") }} {{ .Get "tips" .Input }}

A directive is exactly: braces, a known name after a dot, and arguments: texts in double quotes (with `\\"`, `\\\\`,
`\\n` and `\\t` in them), or other directives, in parentheses if they have arguments. What another template language
would do is an error in an author's text. Everything else stays unchanged, including a directive after a backslash.
Inserted text is never expanded again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

import msgspec

from ..errors import RondelError, nearest
from ..values import Text, ToolCall, Value

ARGUMENTS: Mapping[str, tuple[int, int | None, str]] = {
    "Get": (1, 2, "an agent and, if you like, its input"),
    "AskUser": (1, 1, "a question"),
    "Options": (3, None, "a question and two or more options"),
    "Defer": (1, 1, "an agent"),
    "Input": (0, 2, "nothing, or an input and, if you like, a default"),
    "Inputs": (0, 1, "nothing, or an agent"),
    "Fact": (1, 2, 'a fact as "agent.fact" and, if you like, a default'),
    "Start": (1, 1, "an agent"),
}  # for each directive the minimum and maximum number of arguments, and what they are

WORKING = frozenset(("Get", "AskUser", "Options", "Start"))
"""Directives that need a call; the others are filled in from what is known."""
NAMING = frozenset(("Get", "Defer", "Start", "Inputs"))  # directives whose first argument is an agent

MARK = "directive"
"""The key in a call's `opaque` that marks a directive, with its origin (an author's `words`, an agent's `output`, or a
`function`) and the directive. No dialect has this name, so a model cannot send it."""

Key: TypeAlias = tuple[Any, ...]  # a directive's name and arguments: texts, and the keys of directives

DEPTH_MAX = 8  # directives inside directives

_TEXT = r'"(?:[^"\\\n]|\\["\\nt])*+"'
_NAMES = "|".join(sorted(ARGUMENTS, key=len, reverse=True))
_OPEN = re.compile(
    r"(\\?)\{\{(-?)\s*+(?:\.([A-Za-z]++)|(if|else|end|range|with|define|template|block|break|continue)\b|(\$)"
    rf"|([A-Za-z]\w*+)(?=[^{{}}]*?[\s(]\.(?:{_NAMES})\b))"
)
"""Text that may be a directive: the dot and the name; or a keyword, a variable or a function of another language."""
_NAME = re.compile(r"\.([A-Za-z]++)")
_BLANK = re.compile(r"\s*+")
_ARGUMENT = re.compile(_TEXT)
_ESCAPE = re.compile(r'\\(["\\nt])')
_ESCAPED = {'"': '"', "\\": "\\", "n": "\n", "t": "\t"}
_BEGUN = re.compile(
    rf"\{{(?:\{{\s*+(?:\.(?:[A-Za-z]++(?:\s++|{_TEXT}|[()]|\.[A-Za-z]*+)*+(?:\"(?:[^\"\\\n]|\\[\"\\nt])*+\\?)?\}}?)?)?)?"
)  # matches every beginning of a directive, and little else

_KEEP = "; a backslash before the braces keeps them as text"
_INSTEAD = {
    "conditions": 'give a default, {{ .Input "name" "default" }}, or let a function or another agent decide',
    "loops": "let a function write the list and insert it with .Get",
    "definitions": "make it an agent and insert it with .Get",
    "variables": "write the directive where its value is needed: equal ones are carried out once",
    "pipes": 'recruit an agent for it: {{ .Get "text.upper" .Input }}',
    "functions": 'recruit an agent for it: {{ .Get "text.upper" .Input }}',
    "trim marks": "write {{ and }} without a dash",
}
_KEYWORDS = {
    **dict.fromkeys(("if", "else", "end", "with"), "conditions"),
    **dict.fromkeys(("range", "break", "continue"), "loops"),
    **dict.fromkeys(("define", "template", "block"), "definitions"),
}


class TemplateError(RondelError):
    """A directive is cut off or has wrong arguments. `line` and `column` count from 1 within the text."""

    def __init__(self, message: str, *, line: int, column: int) -> None:
        self.line, self.column = line, column
        self.plain = message
        super().__init__(f"line {line}, column {column}: {message}")


class Directive(Value, frozen=True):
    """`start` and `end` are its range in the text; `line` and `column` count from 1. An argument may be another
    directive, except where a name is expected: which agents and inputs a text uses can be read from it."""

    name: str
    arguments: tuple[str | Directive, ...]
    start: int
    end: int
    line: int = 1
    column: int = 1

    @property
    def key(self) -> Key:
        """The same for equal directives, which are carried out once."""
        return (self.name, *(given if isinstance(given, str) else given.key for given in self.arguments))

    @property
    def first(self) -> str:
        """The first argument if it is a text, such as the name of an agent; else an empty text."""
        return self.arguments[0] if self.arguments and isinstance(self.arguments[0], str) else ""

    @property
    def agent(self) -> str:
        if self.name in NAMING:
            return self.first
        return self.first.partition(".")[0] if self.name == "Fact" else ""

    @property
    def inner(self) -> tuple[Directive, ...]:
        return tuple(given for given in self.arguments if isinstance(given, Directive))

    def walk(self) -> Iterator[Directive]:
        """Yield the directives in its arguments, innermost first, then itself."""
        for given in self.inner:
            yield from given.walk()
        yield self

    @property
    def works(self) -> bool:
        return self.name in WORKING


class Suspect(Value, frozen=True):
    """Looks like a directive but is not one, so it stays as it is: a typo, or another program's template."""

    word: str
    line: int
    column: int
    hint: str = ""  # `; did you mean 'Get'?`


class Template(Value, frozen=True):
    """A text with its directives in order. `escapes` are the indexes of backslashes that escape a directive."""

    text: str
    directives: tuple[Directive, ...] = ()
    escapes: tuple[int, ...] = ()
    suspects: tuple[Suspect, ...] = ()

    @property
    def all(self) -> tuple[Directive, ...]:
        """The directives and those in their arguments, innermost first."""
        return tuple(one for directive in self.directives for one in directive.walk())

    @property
    def is_plain(self) -> bool:
        return not self.directives and not self.escapes

    def fill(self, values: Mapping[Key, str]) -> str:
        """Return the text with each directive replaced by its value, by `Directive.key`; others stay as they are."""
        pieces: list[str] = []
        at = 0
        for start, end, value in self._edits(values):
            pieces += (self.text[at:start], value)
            at = end
        pieces.append(self.text[at:])
        return "".join(pieces)

    def _edits(self, values: Mapping[Key, str]) -> list[tuple[int, int, str]]:
        edits = [(index, index + 1, "") for index in self.escapes]
        for directive in self.directives:
            value = values.get(directive.key, self.text[directive.start : directive.end])
            edits.append((directive.start, directive.end, value))
        return sorted(edits) if self.escapes else edits


def scan(text: str) -> Template:
    """Parse a text that was not checked: whatever is not exactly a directive stays as it is."""
    return parse(text, strict=False)


def parse(text: str, *, strict: bool = True) -> Template:
    """Parse a text that an author wrote. Raises a TemplateError at the first wrong directive, if `strict`."""
    directives: list[Directive] = []
    escapes: list[int] = []
    suspects: list[Suspect] = []
    index = _LineCounter(text)
    at = 0
    while found := _OPEN.search(text, at):
        start, name = found.start() + len(found[1]), found[3]
        at = found.end()
        if name is None or (found[2] and name in ARGUMENTS):
            if found[1] and strict:
                escapes.append(found.start())
            elif strict:
                line, column = index.of(start)
                raise TemplateError(_unsupported(text, start, _what(found)), line=line, column=column)
        elif name not in ARGUMENTS:
            suspects.append(Suspect(name, *index.of(start), _hint(name)))
        elif found[1]:
            escapes.append(found.start())
        else:
            line, column = index.of(start)
            made = _parse_call(text, found.start(3) - 1, (line, column))
            end = _after_blank(text, made.end) if isinstance(made, Directive) else 0
            if isinstance(made, Directive) and text.startswith("}}", end):
                made = _problem(made) or made
            elif isinstance(made, Directive):
                made = _broken(text, start, name, end)
            if isinstance(made, Directive):
                at = end + 2
                directives.append(msgspec.structs.replace(made, start=start, end=at, line=line, column=column))
            elif strict:
                raise TemplateError(made, line=line, column=column)
    return Template(text, tuple(directives), tuple(escapes), tuple(suspects))


def _parse_call(text: str, at: int, where: tuple[int, int], depth: int = 0) -> Directive | str:
    """Parse a name and its arguments. Return a sentence if they are wrong; the directive ends where they end. `where`
    are the line and the column of the outermost one."""
    found = _NAME.match(text, at)
    if found is None or found[1] not in ARGUMENTS:
        known = ", ".join(f".{name}" for name in ARGUMENTS)
        return f"{text[at : at + 30]!r} is not a directive; an argument is a text in double quotes, or one of {known}"
    if depth > DEPTH_MAX:
        return f"directives are nested more than {DEPTH_MAX} levels deep; recruit an agent that does part of it"
    arguments: list[str | Directive] = []
    end = found.end()
    while (begin := _after_blank(text, end)) > end or text.startswith("(", begin):
        if (quoted := _ARGUMENT.match(text, begin)) is not None:
            arguments.append(_ESCAPE.sub(lambda m: _ESCAPED[m[1]], quoted[0][1:-1]))
            end = quoted.end()
        elif text.startswith("(", begin):
            inner = _parse_call(text, _after_blank(text, begin + 1), where, depth + 1)
            if isinstance(inner, str):
                return inner
            end = _after_blank(text, inner.end)
            if not text.startswith(")", end):
                return f"after {text[begin : inner.end][:60]!r} comes a closing parenthesis"
            end += 1
            arguments.append(inner)
        elif (bare := _NAME.match(text, begin)) is not None and bare[1] in ARGUMENTS:
            inner = Directive(bare[1], (), begin, bare.end(), *where)
            if problem := _problem(inner):
                return f"{problem}; put it and its arguments in parentheses"
            arguments.append(inner)
            end = bare.end()
        else:
            break
    made = Directive(found[1], tuple(arguments), at, end, *where)
    return (_problem(made) if depth else "") or made


def _after_blank(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at


class _LineCounter:
    """Returns lines and columns of ascending indexes; counts the text only once."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._line, self._begins = text, 0, 1, 0

    def of(self, index: int) -> tuple[int, int]:
        if lines := self._text.count("\n", self._at, index):
            self._line += lines
            self._begins = self._text.rfind("\n", self._at, index) + 1
        self._at = index
        return self._line, index - self._begins + 1


def _problem(directive: Directive) -> str:
    name, arguments = directive.name, directive.arguments
    count = len(arguments)
    least, most, which = ARGUMENTS[name]
    if arguments and not directive.first.strip():
        if isinstance(arguments[0], str):
            return f"{{{{ .{name} }}}} takes {which}; the first argument is blank"
        if name not in ("AskUser", "Options"):
            return f"{{{{ .{name} }}}} takes {which}; write its first argument as a text in double quotes"
    if least <= count and (most is None or count <= most):
        return ""
    return f"{{{{ .{name} }}}} takes {which}; it has {count or 'no'} argument{'' if count == 1 else 's'}"


def _broken(text: str, start: int, name: str, at: int) -> str:
    end = text.find("}}", start)
    following = text.find("{{", start + 2)
    if end < 0 or 0 <= following < end:
        return f"{{{{ .{name} is cut off; end it with }}}}"
    wrong = {"|": "pipes", "$": "variables", "-": "trim marks"}.get(text[at : at + 1])
    if wrong is not None:
        return _unsupported(text, start, wrong)
    said = "only texts in double quotes and directives in parentheses may follow .{}"
    return f"{text[start : end + 2][:60]!r} is not a directive: {said.format(name)}"


def _what(found: re.Match[str]) -> str:
    if found[4]:
        return _KEYWORDS[found[4]]
    return "variables" if found[5] else "functions" if found[6] else "trim marks"


def _unsupported(text: str, start: int, what: str) -> str:
    end = text.find("}}", start)
    shown = text[start : end + 2 if end >= 0 else start + 30][:60]
    return f"{shown!r}: {what} are not supported; {_INSTEAD[what]}{_KEEP}"


def _hint(word: str) -> str:
    by_fold = {name.casefold(): name for name in ARGUMENTS}
    if (meant := by_fold.get(word.casefold())) is not None:
        return f"; did you mean {meant!r}?"
    hint = nearest(word, tuple(ARGUMENTS))
    return hint if hint.startswith("; did you mean") else ""


def may_begin(text: str) -> int:
    """Return where an unfinished directive may start at the end of a text, or the text's length. Everything before it
    is final, whatever comes next."""
    at = text.find("{")
    while at >= 0:
        if _BEGUN.fullmatch(text, at):
            return at - 1 if at and text[at - 1] == "\\" else at
        at = text.find("{", at + 1)
    return len(text) - 1 if text.endswith("\\") else len(text)


def escape(text: str) -> str:
    """Escape directives in a text, for functions whose results are expanded."""
    return _OPEN.sub(lambda m: m[0] if m[2] or m[3] not in ARGUMENTS or m[1] else f"\\{m[0]}", text)


def said_before(part: object) -> str:
    """Return what an earlier round of the turn has already shown of a text that starts, or what was shown of a sentence
    that a later round continues."""
    return part.opaque[MARK].get("said", "") if isinstance(part, Text) and MARK in part.opaque else ""


def is_directive(call: ToolCall) -> bool:
    return MARK in call.opaque


def is_authors(call: ToolCall) -> bool:
    return MARK in call.opaque and "output" not in call.opaque[MARK]


def unique(directives: Iterable[Directive]) -> Sequence[Directive]:
    first: dict[Key, Directive] = {}
    for directive in directives:
        first.setdefault(directive.key, directive)
    return tuple(first.values())


def key_of(stored: Sequence[Any]) -> Key:
    """Return a key that was stored as JSON."""
    return tuple(key_of(cast("list[Any]", one)) if isinstance(one, (list, tuple)) else one for one in stored)
