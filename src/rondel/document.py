"""Files that people write, as plain values that know on which line they stand.

A reader (documents/) gives the values and the lines; here variables are expanded, types are checked and every mistake
becomes one sentence with file, line and the nearest right word. The first mistake ends the reading, unless the caller
brings a list for all of them. Knows no key of Rondel's own, no TOML and no YAML.
"""

from __future__ import annotations

import functools
import re
import types
import typing
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, cast

import msgspec

from .errors import ConfigError, nearest
from .values import Value

BYTES_MAX = 1_000_000
"""A file that a person wrote is smaller than this; a bigger one is a mistake, or an attack."""

DEPTH_MAX = 220
"""How deep values may stand in each other: two levels for each of a hundred nodes of a prompt, and some more."""

KeyPath: TypeAlias = tuple[str | int, ...]
"""Where a value stands in its file: `("engines", "fast", "fallback", 0)`."""

K = TypeVar("K", str, int)
S = TypeVar("S", bound=msgspec.Struct)


class Where(Value, frozen=True):
    """A place in a file. Without a path it is in code, and errors name no file."""

    path: str = ""
    line: int | None = None

    def error(self, message: str) -> ConfigError:
        return ConfigError(message, path=self.path, line=self.line)

    def __str__(self) -> str:
        return f"{self.path}:{self.line}" if self.line else self.path


class Document(msgspec.Struct, frozen=True):
    """A file's values, the line of each, and which of them came from variables."""

    path: str
    data: dict[str, Any]
    lines: dict[KeyPath, int] = {}
    variables: dict[KeyPath, tuple[str, ...]] = {}
    """The texts that were made with `${…}`, with the names of the variables that gave something; set by `expand`."""
    broken: frozenset[KeyPath] = frozenset()
    """Where variables could not be expanded; known to whoever collects mistakes."""

    def where(self, path: KeyPath = ()) -> Where:
        """The line of a value, or of the nearest thing around it that has one."""
        while path and path not in self.lines:
            path = path[:-1]
        return Where(self.path, self.lines.get(path))

    def error(self, path: KeyPath, message: str) -> ConfigError:
        return self.where(path).error(message)

    def lines_of(self, path: KeyPath) -> Document:
        """Only where the values below this path stand, seen from there: enough to report on them later, no value."""
        depth, here = len(path), self.where(path).line
        lines = {at[depth:]: line for at, line in self.lines.items() if at[:depth] == path and at != path}
        variables = {at[depth:]: names for at, names in self.variables.items() if at[:depth] == path}
        return Document(self.path, {}, lines | ({(): here} if here else {}), variables)


Mistakes: TypeAlias = list[ConfigError]
"""What is wrong, collected by those who want to know of all of it."""


class SaidAlready(ConfigError):
    """Something cannot be built because of a mistake that has been collected."""

    def __init__(self) -> None:
        super().__init__("a mistake was found before")


@contextmanager
def going_on(mistakes: Mistakes | None) -> Generator[None]:
    """Go on behind this block after a mistake, if there is a list to put it into."""
    try:
        yield
    except ConfigError as mistake:
        if mistakes is None:
            raise
        if not isinstance(mistake, SaidAlready):
            mistakes.append(mistake)


def read_text(path: Path) -> str:
    """A file's text, or one sentence about what is wrong with it."""
    try:
        with path.open("rb") as file:
            data = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or error}", path=str(path)) from None
    if len(data) > BYTES_MAX:
        raise ConfigError(f"is longer than {BYTES_MAX:,} bytes; no file of this kind needs that", path=str(path))
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError("is not UTF-8 text here; save it as UTF-8", path=str(path), line=line) from None


def dotted(path: KeyPath) -> str:
    """A path as people write it: `engines.fast.fallback[0]`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            name = step if re.fullmatch(r"[A-Za-z0-9_-]+", step) else f'"{step}"'
            text += f".{name}" if text else name
    return text


# --- secrets ----------------------------------------------------------------------------------------------------------

_SECRET_NAME = re.compile(
    r"(?:^|[^a-z])(?:api_?)?(?:keys?|token|secrets?|passwords?|passwd|passphrase|authorization|cookie|credentials?)$"
)
_SECRET_TEXT = re.compile(
    r"\b(?:(?:sk|pk|rk|gsk|xai|ghp|gho|hf|xox[abp])[-_]|AIza)[-_A-Za-z0-9]{12,}|\bBearer\s+\S+", re.I
)


def is_secret(name: str) -> bool:
    """Whether a key, a header or a variable of this name holds something that is never shown."""
    return _SECRET_NAME.search(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()) is not None


def looks_secret(text: str) -> bool:
    """Whether a text has the form of a provider's key, whatever it is called."""
    return _SECRET_TEXT.search(text) is not None


def hides(path: KeyPath, value: object, variables: Sequence[str] = ()) -> bool:
    """Whether the value at this path must not be shown."""
    return (
        any(isinstance(step, str) and (step == "headers" or is_secret(step)) for step in path)
        or any(is_secret(variable) for variable in variables)
        or (isinstance(value, str) and looks_secret(value))
    )


# --- variables --------------------------------------------------------------------------------------------------------

_REFERENCE = re.compile(r"\$(\$\{)|\$\{([^}]*)(\}?)")
_FORM = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-((?:(?!\$\{).)*))?", re.S)


def expand(
    document: Document, env: Mapping[str, str], *, strict: bool = True, mistakes: Mistakes | None = None
) -> Document:
    """The same document with `${VAR}` and `${VAR:-default}` replaced in every text, once: what comes in is data.

    `$${` stands for `${` itself. A default is taken when the variable is unset or empty. Anything else between `${` and
    `}` is an error when `strict`, and stays as it is otherwise (prompts may well speak of shell or JavaScript).
    """
    variables: dict[KeyPath, tuple[str, ...]] = {}
    broken: set[KeyPath] = set()

    def text(value: str, path: KeyPath) -> str:
        used: list[str] = []

        def one(found: re.Match[str]) -> str:
            if found[1]:
                return "${"
            form = _FORM.fullmatch(found[2]) if found[3] else None
            if form is None:
                if not strict:
                    return found[0]
                raise document.error(
                    path, f"{found[0]!r} is no variable: write ${{NAME}} or ${{NAME:-default}}, or $${{ for ${{ itself"
                )
            return _value_of(form[1], form[2], used)

        def _value_of(name: str, default: str | None, used: list[str]) -> str:
            given = env.get(name)
            if default is not None and not given:
                return default
            if given is None:
                raise document.error(path, _unset(name, env))
            used.append(name)
            return given

        if "${" not in value:
            return value
        with going_on(mistakes):
            expanded = _REFERENCE.sub(one, value)
            variables[path] = tuple(used)
            return expanded
        broken.add(path)
        return value

    data = cast("dict[str, Any]", _map_texts(document.data, text))
    return Document(document.path, data, document.lines, variables, frozenset(broken))


def _unset(name: str, env: Mapping[str, str]) -> str:
    hint = nearest(name, tuple(env))
    hint = hint if "did you mean" in hint else ""
    return f"the variable {name} is not set; set it, or give it a default: ${{{name}:-…}}{hint}"


def _map_texts(value: Any, edit: Callable[[str, KeyPath], str], path: KeyPath = ()) -> Any:
    if isinstance(value, str):
        return edit(value, path)
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        return {key: _map_texts(item, edit, (*path, key)) for key, item in table.items()}
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return [_map_texts(item, edit, (*path, index)) for index, item in enumerate(items)]
    return value


# --- types ------------------------------------------------------------------------------------------------------------


class Checker:
    """Builds typed values from a document's plain ones. Structs refuse unknown keys; every error has its line.

    With a list for `mistakes`, each is put there and what is wrong is left out of what is built; in a list None takes
    its place, so that the others keep theirs.
    """

    def __init__(self, document: Document, mistakes: Mistakes | None = None) -> None:
        self.document, self.mistakes = document, mistakes

    def build(self, kind: Any, value: Any, path: KeyPath = ()) -> Any:
        """The value as this type: structs, mappings, lists and unions are walked, the rest is msgspec's."""
        if _is_struct(kind):
            return self.struct(kind, value, path)
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if origin in (typing.Union, types.UnionType):
            return self._union(kind, value, path)
        if origin in (dict, Mapping):
            return self._each(arguments[1], self.table(value, path).items(), path)
        if origin in (tuple, list, Sequence, set, frozenset):
            if not isinstance(value, list):
                raise self._wrong(kind, value, path)
            items = cast("list[Any]", value)
            built = self._each(arguments[0], enumerate(items), path)
            made: Any = tuple if origin is Sequence else origin
            return made(built.get(index) for index in range(len(items)))
        return self._leaf(kind, value, path)

    def _each(self, kind: Any, items: Iterable[tuple[K, Any]], path: KeyPath) -> dict[K, Any]:
        built: dict[K, Any] = {}
        for key, item in items:
            with going_on(self.mistakes):
                built[key] = self.build(kind, item, (*path, key))
        return built

    def struct(self, kind: type[S], value: Any, path: KeyPath = (), *, leave_out: Sequence[str] = ()) -> S:
        """A table as this struct. Fields in `leave_out` are not for files."""
        given = self.fields(kind, value, path, leave_out=leave_out)
        for field in _fields(kind):
            if field.required and field.name not in given:
                if field.name in value:
                    raise SaidAlready
                raise self.document.error(path, f"{_at(path)}{field.name!r} is missing")
        return kind(**given)

    def fields(self, kind: type[S], value: Any, path: KeyPath, *, leave_out: Sequence[str] = ()) -> dict[str, Any]:
        """The fields of a struct that a table gives, checked; the others are left to whoever asks."""
        known = {field.name: field for field in _fields(kind) if field.name not in leave_out}
        given: dict[str, Any] = {}
        for key, item in self.table(value, path).items():
            with going_on(self.mistakes):
                if key not in known:
                    raise self.document.error(
                        (*path, key), f"{dotted((*path, key))!r} is not known{nearest(key, tuple(known))}"
                    )
                given[key] = self.build(known[key].type, item, (*path, key))
        return given

    def table(self, value: Any, path: KeyPath) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self._wrong(dict, value, path)
        return cast("dict[str, Any]", value)

    def _union(self, kind: Any, value: Any, path: KeyPath) -> Any:
        """The member of a union that the value has the form of; msgspec chooses among texts, numbers and truths."""
        branches = typing.get_args(kind)
        shape = dict if isinstance(value, dict) else list if isinstance(value, list) else None
        fitting = [branch for branch in branches if _shape(branch) is shape]
        if shape is not None and (len(fitting) == 1 or (fitting and all(map(_is_struct, fitting)))):
            return self.build(fitting[0], value, path)  # of several structs, files mean the first
        if not fitting:
            raise self._wrong(kind, value, path)
        return self._leaf(typing.Union[tuple(fitting)], value, path, wanted=kind)  # noqa: UP007

    def _leaf(self, kind: Any, value: Any, path: KeyPath, wanted: Any = None) -> Any:
        if path in self.document.broken:
            raise SaidAlready
        try:
            # A variable is always text: what came from one may stand for a number or a truth.
            return msgspec.convert(value, kind, strict=path not in self.document.variables)
        except msgspec.ValidationError:
            raise self._wrong(wanted or kind, value, path) from None
        except TypeError:  # a type that msgspec knows no text for
            raise self._wrong(object, value, path) from None

    def _wrong(self, kind: Any, value: Any, path: KeyPath) -> ConfigError:
        wanted = " or ".join(dict.fromkeys(word for branch in _branches(kind) if (word := _in_words(branch))))
        if not wanted:
            return self.document.error(path, f"{dotted(path)!r} can only be given in code")
        variables = self.document.variables.get(path, ())
        shown = "what it is" if hides(path, value, variables) else _cut(value)
        choices = [choice for branch in _branches(kind) for choice in _choices(branch)]
        hint = nearest(value, tuple(choices)) if choices and isinstance(value, str) else ""
        return self.document.error(
            path,
            f"{dotted(path) or 'the file'!r} must be {wanted}, not {shown}{hint if 'did you mean' in hint else ''}",
        )


@functools.cache
def _fields(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Finding out what a struct's annotations mean takes longer than all else, and a prompt may have many nodes."""
    return msgspec.structs.fields(kind)


def _at(path: KeyPath) -> str:
    return f"in {dotted(path)!r}, " if path else ""


def _cut(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _shape(kind: Any) -> type | None:
    origin = typing.get_origin(kind) or kind
    if origin in (dict, Mapping) or _is_struct(origin):
        return dict
    return list if origin in (tuple, list, Sequence, set, frozenset) else None


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _branches(kind: Any) -> Iterator[Any]:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        yield from (branch for branch in typing.get_args(kind) if branch is not types.NoneType)
    else:
        yield kind


def _choices(kind: Any) -> tuple[str, ...]:
    return typing.get_args(kind) if typing.get_origin(kind) is Literal else ()


_WORDS: dict[Any, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "a table of keys and values",
    list: "a list",
}


def _in_words(kind: Any) -> str:
    """What a value of this type is called; nothing for a type that no file can hold."""
    if choices := _choices(kind):
        return "one of " + ", ".join(map(repr, choices))
    return _WORDS.get(kind) or _WORDS.get(_shape(kind), "")
