"""Finds which agents name which, and where: listeners, tools, aliases, jobs, and directives in texts.

Loading uses it to refuse unknown names, and the linter to find cycles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias

import msgspec

from ...errors import ConfigError
from ...text.document import KeyPath, Where
from ...text.template import Directive, Template, TemplateError, parse, scan
from .drafts import Draft

Relation: TypeAlias = Literal[
    "gets", "offers", "starts", "asks about", "listens to", "hands off to", "calls", "is", "runs", "recruits"
]
_DIRECTIVES: dict[str, Relation] = {"Get": "gets", "Defer": "offers", "Start": "starts", "Inputs": "asks about"}
WORKING: tuple[Relation, ...] = ("gets", "offers", "listens to", "is", "runs")
"""The relations in which one agent works for another: a cycle of them does not end by itself."""


class Link(msgspec.Struct, frozen=True):
    by: Draft
    relation: Relation
    to: str
    where: Callable[[], Where]  # computed only for an error message
    alone: bool = False  # a `.Get` without an input, which passes on its own agent's input

    def error(self, message: str) -> ConfigError:
        return self.where().error(message)


class Links:
    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.directives: list[tuple[Callable[[], Where], Directive]] = []
        self.templates: list[tuple[KeyPath, Template]] = []
        self.errors: list[ConfigError] = []
        for path, text in draft.texts():
            self._read(path, text)

    def _read(self, path: KeyPath, text: str) -> None:
        if "{{" not in text:
            return
        try:
            template = parse(text)
        except TemplateError as error:
            where, column = self.draft.locate(path, text, _offset(text, error.line, error.column))
            self.errors.append(where.error(f"column {column}: {error.plain}"))
            template = scan(text)
        self.templates.append((path, template))
        for directive in template.all:
            self.directives.append((self._where(path, text, directive.start), directive))

    def _where(self, path: KeyPath, text: str, at: int) -> Callable[[], Where]:
        return lambda: self.draft.locate(path, text, at)[0]

    def __iter__(self) -> Iterator[Link]:
        settings, draft = self.draft.settings, self.draft
        named: dict[Relation, tuple[str, tuple[Any, ...]]] = {
            "listens to": ("listeners", settings.listeners),
            "hands off to": ("handoffs", settings.handoffs),
            "calls": ("tools", settings.tools),
            "runs": ("job", settings.job),
            "recruits": ("recruits", settings.recruits),
        }
        if settings.alias:
            yield Link(draft, "is", settings.alias, self._at(("alias",)))
        for relation, (key, names) in named.items():
            for index, name in enumerate(names):
                if name is not None:  # one that was left out for a mistake in it
                    yield Link(draft, relation, name, self._at((key, index)))
        for where, directive in self.directives:
            if (directed := _DIRECTIVES.get(directive.name)) and directive.arguments:
                alone = directive.name == "Get" and len(directive.arguments) == 1
                yield Link(draft, directed, directive.first, where, alone)

    def _at(self, path: KeyPath) -> Callable[[], Where]:
        return lambda: self.draft.checker.document.where((*self.draft.path, *path))


def _offset(text: str, line: int, column: int) -> int:
    lines = text.split("\n")
    return sum(len(before) + 1 for before in lines[: line - 1]) + column - 1
