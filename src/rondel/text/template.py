"""Finds, checks and fills in directives in texts, in one pass. Not a language: no expressions, no nesting.

    Dear {{ .Input "name" "guest" }}, {{ .Get "weather" }} {{ .AskUser "Do you take an umbrella?" }}

A directive is exactly: braces, a known name after a dot, and texts in double quotes (with `\\"`, `\\\\`, `\\n` and
`\\t` in them). All else stays as it is, also a directive after a backslash. Inserted text is never expanded again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

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

_TEXT = r'"(?:[^"\\\n]|\\["\\nt])*+"'
_NAMES = "|".join(sorted(ARGUMENTS, key=len, reverse=True))
_OPEN = re.compile(r"(\\?)\{\{\s*+\.([A-Za-z]++)")
_DIRECTIVE = re.compile(rf"\{{\{{\s*+\.({_NAMES})((?:\s++{_TEXT})*+)\s*+\}}\}}")
_ARGUMENT = re.compile(_TEXT)
_ESCAPE = re.compile(r'\\(["\\nt])')
_ESCAPED = {'"': '"', "\\": "\\", "n": "\n", "t": "\t"}
_BEGUN = re.compile(
    rf"\{{(?:\{{\s*+(?:\.(?:[A-Za-z]++(?:\s++{_TEXT})*+(?:\s*+(?:\"(?:[^\"\\\n]|\\[\"\\nt])*+\\?)?|\s*+\}}?))?)?)?"
)  # matches every beginning of a directive, and little else


class TemplateError(RondelError):
    """A directive is cut off or has wrong arguments. `line` and `column` count from 1 within the text."""

    def __init__(self, message: str, *, line: int, column: int) -> None:
        self.line, self.column = line, column
        self.plain = message
        super().__init__(f"line {line}, column {column}: {message}")


class Directive(Value, frozen=True):
    """`start` and `end` are its range in the text; `line` and `column` count from 1."""

    name: str
    arguments: tuple[str, ...]
    start: int
    end: int
    line: int = 1
    column: int = 1

    @property
    def key(self) -> tuple[str, ...]:
        """The same for equal directives, which are carried out once."""
        return (self.name, *self.arguments)

    @property
    def agent(self) -> str:
        if self.name in NAMING and self.arguments:
            return self.arguments[0]
        return self.arguments[0].partition(".")[0] if self.name == "Fact" else ""

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
    def is_plain(self) -> bool:
        return not self.directives and not self.escapes

    def fill(self, values: Mapping[tuple[str, ...], str]) -> str:
        """Return the text with each directive replaced by its value, by `Directive.key`; others stay as they are."""
        pieces: list[str] = []
        at = 0
        for start, end, value in self._edits(values):
            pieces += (self.text[at:start], value)
            at = end
        pieces.append(self.text[at:])
        return "".join(pieces)

    def _edits(self, values: Mapping[tuple[str, ...], str]) -> list[tuple[int, int, str]]:
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
        start, name = found.start() + len(found[1]), found[2]
        whole = _DIRECTIVE.match(text, start)
        if name not in ARGUMENTS:
            suspects.append(Suspect(name, *index.of(start), _hint(name)))
        elif found[1]:
            escapes.append(found.start())
        elif whole is not None and _problem(name, whole[2]) == "":
            directives.append(Directive(name, _arguments(whole[2]), start, whole.end(), *index.of(start)))
        elif strict:
            line, column = index.of(start)
            wrong = _problem(name, whole[2]) if whole else _broken(text, start, name)
            raise TemplateError(wrong, line=line, column=column)
        at = whole.end() if whole else found.end()
    return Template(text, tuple(directives), tuple(escapes), tuple(suspects))


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


def _arguments(written: str) -> tuple[str, ...]:
    return tuple(_ESCAPE.sub(lambda m: _ESCAPED[m[1]], text[0][1:-1]) for text in _ARGUMENT.finditer(written))


def _problem(name: str, written: str) -> str:
    arguments = _arguments(written)
    count = len(arguments)
    least, most, which = ARGUMENTS[name]
    if arguments and not arguments[0].strip():
        return f"{{{{ .{name} }}}} takes {which}; the first argument is blank"
    if least <= count and (most is None or count <= most):
        return ""
    return f"{{{{ .{name} }}}} takes {which}; it has {count or 'no'} argument{'' if count == 1 else 's'}"


def _broken(text: str, start: int, name: str) -> str:
    end = text.find("}}", start)
    following = text.find("{{", start + 2)
    if end < 0 or 0 <= following < end:
        return f"{{{{ .{name} is cut off; end it with }}}}"
    return f"{text[start : end + 2][:60]!r} is not a directive: after .{name} come only texts in double quotes"


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
    return _OPEN.sub(lambda m: m[0] if m[2] not in ARGUMENTS or m[1] else f"\\{m[0]}", text)


def said_before(part: object) -> str:
    """Return what an earlier round of the turn has already shown of a text that starts, or what was shown of a sentence
    that a later round continues."""
    return part.opaque[MARK].get("said", "") if isinstance(part, Text) and MARK in part.opaque else ""


def is_directive(call: ToolCall) -> bool:
    return MARK in call.opaque


def is_authors(call: ToolCall) -> bool:
    return MARK in call.opaque and "output" not in call.opaque[MARK]


def unique(directives: Iterable[Directive]) -> Sequence[Directive]:
    first: dict[tuple[str, ...], Directive] = {}
    for directive in directives:
        first.setdefault(directive.key, directive)
    return tuple(first.values())
