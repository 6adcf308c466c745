"""Directives in texts: found, checked and filled in, in one pass. Not a language: no expressions, no nesting.

    Dear {{ .Input "name" "guest" }}, {{ .Get "weather" }} {{ .AskUser "Do you take an umbrella?" }}

A directive is written exactly: braces, a known name behind a dot, and texts in double quotes (with `\\"`, `\\\\`, `\\n`
and `\\t` in them). Everything else between braces stays as it was written, and so does a directive behind a backslash.
What is filled in is never looked at again. Pure: knows no agent and no turn; what a directive means is engines/expand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from .errors import RondelError, nearest
from .values import Text, ToolCall, Value

ARGUMENTS: Mapping[str, tuple[int, int | None, str]] = {
    "Get": (1, 2, "an agent and, if you like, its input"),
    "AskUser": (1, 1, "a question"),
    "Options": (3, None, "a question and two or more options"),
    "Defer": (1, 1, "an agent"),
    "Input": (0, 2, "nothing, or an input and, if you like, a default"),
    "Inputs": (0, 1, "nothing, or an agent"),
    "Fact": (1, 2, 'a fact as "agent.fact" and, if you like, a default'),
    "Start": (1, 1, "an agent"),
}
"""Of each directive: how many arguments at least and at most, and which."""

WORKING = frozenset(("Get", "AskUser", "Options", "Start"))
"""Directives that somebody has to work for; the others are filled in from what is known."""
NAMING = frozenset(("Get", "Defer", "Start", "Inputs"))
"""Directives whose first argument is an agent."""

MARK = "directive"
"""Where a call's `opaque` says that it is a directive: whose (of an author's `words`, of an agent's `output`, or the
`function` that is an agent) and which. No dialect has this name, so nothing that a model sends bears it."""

_TEXT = r'"(?:[^"\\\n]|\\["\\nt])*+"'
_NAMES = "|".join(sorted(ARGUMENTS, key=len, reverse=True))
_OPEN = re.compile(r"(\\?)\{\{\s*+\.([A-Za-z]++)")
_DIRECTIVE = re.compile(rf"\{{\{{\s*+\.({_NAMES})((?:\s++{_TEXT})*+)\s*+\}}\}}")
_ARGUMENT = re.compile(_TEXT)
_ESCAPE = re.compile(r'\\(["\\nt])')
_ESCAPED = {'"': '"', "\\": "\\", "n": "\n", "t": "\t"}
_BEGUN = re.compile(
    rf"\{{(?:\{{\s*+(?:\.(?:[A-Za-z]++(?:\s++{_TEXT})*+(?:\s*+(?:\"(?:[^\"\\\n]|\\[\"\\nt])*+\\?)?|\s*+\}}?))?)?)?"
)
"""What every beginning of a directive looks like, and little else."""


class TemplateError(RondelError):
    """A directive is cut off or has the wrong arguments. `line` and `column` count from 1, in the text itself."""

    def __init__(self, message: str, *, line: int, column: int) -> None:
        self.line, self.column = line, column
        self.plain = message
        super().__init__(f"line {line}, column {column}: {message}")


class Directive(Value, frozen=True):
    """`start` and `end` are its place in the text; `line` and `column` count from 1."""

    name: str
    arguments: tuple[str, ...]
    start: int
    end: int
    line: int = 1
    column: int = 1

    @property
    def key(self) -> tuple[str, ...]:
        """The same for directives that say the same: they are carried out once."""
        return (self.name, *self.arguments)

    @property
    def agent(self) -> str:
        """The agent that it names, if any."""
        if self.name in NAMING and self.arguments:
            return self.arguments[0]
        return self.arguments[0].partition(".")[0] if self.name == "Fact" else ""

    @property
    def works(self) -> bool:
        return self.name in WORKING


class Suspect(Value, frozen=True):
    """Looks like a directive and is none, so it stays as it is written: a typo, or another program's template."""

    word: str
    line: int
    column: int
    hint: str = ""
    """`; did you mean 'Get'?`"""


class Template(Value, frozen=True):
    """A text with its directives in order. `escapes` are the places of the backslashes that keep one from being one."""

    text: str
    directives: tuple[Directive, ...] = ()
    escapes: tuple[int, ...] = ()
    suspects: tuple[Suspect, ...] = ()

    @property
    def is_plain(self) -> bool:
        return not self.directives and not self.escapes

    def fill(self, values: Mapping[tuple[str, ...], str]) -> str:
        """The text with each directive replaced by its value (`Directive.key`); one without stays as it is written."""
        pieces: list[str] = []
        at = 0
        for start, end, value in self._edits(values):
            pieces += (self.text[at:start], value)
            at = end
        pieces.append(self.text[at:])
        return "".join(pieces)

    def _edits(self, values: Mapping[tuple[str, ...], str]) -> list[tuple[int, int, str]]:
        edits = [(place, place + 1, "") for place in self.escapes]
        for directive in self.directives:
            value = values.get(directive.key)
            edits.append(
                (directive.start, directive.end, self.text[directive.start : directive.end] if value is None else value)
            )
        return sorted(edits) if self.escapes else edits


def parse(text: str) -> Template:
    """The directives of a text that an author wrote. Raises a TemplateError at the first that is wrong."""
    return _scan(text, strict=True)


def scan(text: str) -> Template:
    """The directives of a text that nobody checked: what is no exact directive stays as it is."""
    return _scan(text, strict=False)


def _scan(text: str, *, strict: bool) -> Template:
    directives: list[Directive] = []
    escapes: list[int] = []
    suspects: list[Suspect] = []
    place = _Place(text)
    at = 0
    while found := _OPEN.search(text, at):
        start, name = found.start() + len(found[1]), found[2]
        whole = _DIRECTIVE.match(text, start)
        if name not in ARGUMENTS:
            suspects.append(Suspect(name, *place.of(start), _hint(name)))
        elif found[1]:
            escapes.append(found.start())
        elif whole is not None and _problem(name, whole[2]) == "":
            directives.append(Directive(name, _arguments(whole[2]), start, whole.end(), *place.of(start)))
        elif strict:
            line, column = place.of(start)
            raise TemplateError(
                _problem(name, whole[2]) if whole else _broken(text, start, name), line=line, column=column
            )
        at = whole.end() if whole else found.end()
    return Template(text, tuple(directives), tuple(escapes), tuple(suspects))


class _Place:
    """Lines and columns of places that come in order: the text is counted through once."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._line, self._begins = text, 0, 1, 0

    def of(self, place: int) -> tuple[int, int]:
        if lines := self._text.count("\n", self._at, place):
            self._line += lines
            self._begins = self._text.rfind("\n", self._at, place) + 1
        self._at = place
        return self._line, place - self._begins + 1


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
    return (
        f"{text[start : end + 2][:60]!r} is no directive: behind .{name} stand texts in double quotes and nothing else"
    )


def _hint(word: str) -> str:
    by_fold = {name.casefold(): name for name in ARGUMENTS}
    if (meant := by_fold.get(word.casefold())) is not None:
        return f"; did you mean {meant!r}?"
    hint = nearest(word, tuple(ARGUMENTS))
    return hint if hint.startswith("; did you mean") else ""


def may_begin(text: str) -> int:
    """Where a directive may have begun that a text breaks off in; its length when there is none.

    What stands before is settled, whatever comes next.
    """
    at = text.find("{")
    while at >= 0:
        if _BEGUN.fullmatch(text, at):
            return at - 1 if at and text[at - 1] == "\\" else at
        at = text.find("{", at + 1)
    return len(text) - 1 if text.endswith("\\") else len(text)


def escape(text: str) -> str:
    """A text that says the same where directives are carried out: for functions that return what others wrote."""
    return _OPEN.sub(lambda m: m[0] if m[2] not in ARGUMENTS or m[1] else f"\\{m[0]}", text)


def said_before(part: object) -> str:
    """Of a text that starts: what an earlier round of the same turn has shown of it already. Of one that is finished
    empty: what was shown of a sentence that goes on in a later round."""
    return part.opaque[MARK].get("said", "") if isinstance(part, Text) and MARK in part.opaque else ""


def is_directive(call: ToolCall) -> bool:
    """Whether a call carries out a directive. A model cannot make such a call."""
    return MARK in call.opaque


def is_authors(call: ToolCall) -> bool:
    """Whether a call carries out what an author wrote, and not what an agent said."""
    return MARK in call.opaque and "output" not in call.opaque[MARK]


def unique(directives: Iterable[Directive]) -> Sequence[Directive]:
    """The first of those that say the same, in order."""
    first: dict[tuple[str, ...], Directive] = {}
    for directive in directives:
        first.setdefault(directive.key, directive)
    return tuple(first.values())
