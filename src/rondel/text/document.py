"""Files that people write, as plain values with their lines.

toml.py and yaml.py parse; here variables are expanded and types are checked, and every mistake becomes one sentence
with file, line and the nearest valid word. The first one is raised, unless the caller passes a list to collect them.
"""

from __future__ import annotations

import functools
import re
import types
import typing
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, cast

import msgspec

from ..errors import ConfigError, RondelError, cut, nearest
from ..files.regular import read_regular
from ..values import Value
from .redaction import is_secret, looks_secret

BYTES_MAX = 1_000_000  # a larger file is a mistake or an attack

DEPTH_MAX = 220  # how deep values may be nested: two levels for each of a hundred nodes of a prompt, and some more

KeyPath: TypeAlias = tuple[str | int, ...]  # the path of a value in its file: `("engines", "fast", "fallback", 0)`

# Numbers in a range. A setting needs only the annotation: the checker reports a value outside the range.
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
PositiveCount: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
Amount: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]
PositiveAmount: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]

K = TypeVar("K", str, int)
S = TypeVar("S", bound=msgspec.Struct)


class Where(Value, frozen=True):
    """A line of a file. Without a path it is in code, and errors name no file."""

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
    """The texts with `${…}` and the names of the variables that were set; filled in by `expand`."""
    broken: frozenset[KeyPath] = frozenset()  # where variables could not be expanded, if mistakes are collected

    def where(self, path: KeyPath = ()) -> Where:
        """Return the line of a value, or of the nearest enclosing value that has one."""
        while path and path not in self.lines:
            path = path[:-1]
        return Where(self.path, self.lines.get(path))

    def error(self, path: KeyPath, message: str) -> ConfigError:
        return self.where(path).error(message)

    def lines_of(self, path: KeyPath) -> Document:
        """Return a document with only the lines below this path, relative to it: enough to report errors later."""
        depth, here = len(path), self.where(path).line
        lines = {at[depth:]: line for at, line in self.lines.items() if at[:depth] == path and at != path}
        variables = {at[depth:]: names for at, names in self.variables.items() if at[:depth] == path}
        return Document(self.path, {}, lines | ({(): here} if here else {}), variables)


Mistakes: TypeAlias = list[ConfigError]  # collects all mistakes, instead of raising the first


class AlreadyReported(ConfigError):
    """Something cannot be built because of a mistake that was already collected."""

    def __init__(self) -> None:
        super().__init__("a mistake was found before")


class SecretNotSet(ConfigError):
    """The variable of a secret is not set. Commands that only read can do without it."""


@contextmanager
def collecting(mistakes: Mistakes | None) -> Generator[None]:
    """Collect a mistake in this block, if there is a list for it."""
    try:
        yield
    except ConfigError as mistake:
        if mistakes is None:
            raise
        if not isinstance(mistake, AlreadyReported):
            mistakes.append(mistake)


def read_text(path: Path) -> str:
    data = read_regular(path, BYTES_MAX)
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError("is not UTF-8 on this line; save the file as UTF-8", path=str(path), line=line) from None


def dotted(path: KeyPath) -> str:
    """Return a path as people write it: `engines.fast.fallback[0]`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            name = step if re.fullmatch(r"[A-Za-z0-9_-]+", step) else f'"{step}"'
            text += f".{name}" if text else name
    return text


def telling(path: KeyPath) -> KeyPath:
    """Return the steps of a path that can say that its value is a secret."""
    # Of a caller's key only the key itself is secret, not its name: that is in `gateway.keys.<name>`, and in the scope
    # of a limit.
    if path[:2] == ("gateway", "keys"):
        return path[3:]
    return () if path[:2] == ("ledger", "limits") else path


def hides(path: KeyPath, value: object, variables: Sequence[str] = ()) -> bool:
    return (
        any(isinstance(step, str) and (step == "headers" or is_secret(step)) for step in telling(path))
        or any(is_secret(variable) for variable in variables)
        or (isinstance(value, str) and looks_secret(value))
    )


# --- variables --------------------------------------------------------------------------------------------------------

_REFERENCE = re.compile(r"\$(\$\{)|\$\{([^}]*)(\}?)")
_FORM = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-((?:(?!\$\{).)*))?", re.S)

_BARE = re.compile(r"(?:[A-Za-z]+ )?(\$([A-Za-z_][A-Za-z0-9_]*))")
_BARE_ALONE = re.compile(r"(\$([A-Z][A-Z0-9_]*))")
_BARE_IN_ADDRESS = re.compile(r"(?:^|(?<=[/:@=]))(\$([A-Za-z_][A-Za-z0-9_]*))(?=$|[/:@?&])")


def _bare(value: str, path: KeyPath, *, strict: bool) -> re.Match[str] | None:
    """Find a `$NAME` that a shell would replace but that would be sent to a server here: a whole key or header (after
    its scheme), a part of an address or of the store's path, or any text that is only a `$NAME` in capitals. In agent
    files only the parameters of plugins are checked."""
    named = [step for step in path if isinstance(step, str)]
    if not strict:
        named = named[named.index("plugins") :] if "plugins" in named else []
    if named == ["store", "path"] or named[-1:] in (["base_url"], ["endpoint"]):
        return _BARE_IN_ADDRESS.search(value)
    if any(step == "headers" or is_secret(step) for step in named):
        return _BARE.fullmatch(value)
    return _BARE_ALONE.fullmatch(value) if named else None


def expand(
    document: Document, env: Mapping[str, str] | None, *, strict: bool = True, mistakes: Mistakes | None = None
) -> Document:
    """Return the document with `${VAR}` and `${VAR:-default}` replaced in every text, once: values are not expanded
    again. Without an environment every text stays as it is, and only the names of its variables are noted.

    `$${` means `${` itself. A default is used if the variable is unset or empty. Anything else between `${` and `}` is
    an error if `strict`; otherwise it stays as it is, because prompts may contain shell or JavaScript.
    """
    variables: dict[KeyPath, tuple[str, ...]] = {}
    broken: set[KeyPath] = set()
    if env is None:
        _map_texts(document.data, lambda value, path: _noted(value, path, variables))
        return Document(document.path, document.data, document.lines, variables)

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
                    path, f"{found[0]!r} is not a variable: write ${{NAME}}, ${{NAME:-default}}, or $${{ for ${{ itself"
                )
            name, default = form[1], cast("str | None", form[2])
            given = env.get(name)
            if default is not None and not given:
                return default
            if given is None:
                hint = hint if "did you mean" in (hint := nearest(name, tuple(env))) else ""
                # A default would be a secret that the file shows. Without its path, another store would be used.
                if path[:1] != ("store",) and hides(path, value, (name,)):
                    at = document.where(path)
                    raise SecretNotSet(f"the variable {name} is not set; set it{hint}", path=at.path, line=at.line)
                todo = f"set it, or give it a default: ${{{name}:-…}}{hint}"
                raise document.error(path, f"the variable {name} is not set; {todo}")
            used.append(name)
            return given

        bare = _bare(value, path, strict=strict) if "$" in value else None
        if "${" not in value and bare is None:
            return value
        with collecting(mistakes):
            if bare is not None:
                todo = f"write ${{{bare[2]}}} for the variable {bare[2]}"
                raise document.error(path, f"{bare[1]!r} is taken literally; {todo}")
            expanded = _REFERENCE.sub(one, value)
            variables[path] = tuple(used)
            return expanded
        broken.add(path)
        return value

    data = cast("dict[str, Any]", _map_texts(document.data, text))
    return Document(document.path, data, document.lines, variables, frozenset(broken))


def _noted(value: str, path: KeyPath, variables: dict[KeyPath, tuple[str, ...]]) -> str:
    forms = [_FORM.fullmatch(found[2]) for found in _REFERENCE.finditer(value) if not found[1] and found[3]]
    if names := tuple(form[1] for form in forms if form is not None):
        variables[path] = names
    return value


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
    """Builds typed values from a document's plain ones. Structs refuse unknown keys; every error has its line. With a
    list for `mistakes`, mistakes are collected and wrong values are left out; in a list None replaces them, so that the
    other items keep their index."""

    def __init__(self, document: Document, mistakes: Mistakes | None = None) -> None:
        self.document, self.mistakes = document, mistakes

    def report(self, *mistakes: ConfigError) -> None:
        """Collect these mistakes; without a list for them, raise the first."""
        for mistake in mistakes:
            with collecting(self.mistakes):
                raise mistake

    def build(self, kind: Any, value: Any, path: KeyPath = ()) -> Any:
        """Return the value as this type. Structs, mappings, lists and unions are handled here, the rest by msgspec."""
        if _is_struct(kind):
            return self.struct(kind, value, path)
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if origin in (typing.Union, types.UnionType):
            return self._union(kind, value, path)
        if origin in (dict, Mapping):
            return self._each(arguments[1], self.table(value, path).items(), path)
        if origin in (tuple, list, Sequence, set, frozenset):
            if not isinstance(value, list):
                wrong = self._wrong(kind, value, path)
                if isinstance(value, dict) and _shape(arguments[0]) is dict and self.document.path.endswith(".toml"):
                    name = dotted(path)
                    wrong = self.document.error(path, f"{name!r} is a list: write [[{name}]], with two brackets")
                raise wrong
            items = cast("list[Any]", value)
            built = self._each(arguments[0], enumerate(items), path)
            made: Any = tuple if origin is Sequence else origin
            return made(built.get(index) for index in range(len(items)))
        return self._leaf(kind, value, path)

    def _each(self, kind: Any, items: Iterable[tuple[K, Any]], path: KeyPath) -> dict[K, Any]:
        built: dict[K, Any] = {}
        for key, item in items:
            with collecting(self.mistakes):
                built[key] = self.build(kind, item, (*path, key))
        return built

    def struct(self, kind: type[S], value: Any, path: KeyPath = (), *, leave_out: Sequence[str] = ()) -> S:
        """Return a table as this struct. Fields in `leave_out` cannot be set in files."""
        given = self.fields(kind, value, path, leave_out=leave_out)
        for field in _fields(kind):
            if field.required and field.name not in given:
                if field.name in value:
                    raise AlreadyReported
                raise self.document.error(path, f"{_at(path)}{field.name!r} is missing")
        try:
            return kind(**given)
        except ConfigError:
            raise
        except RondelError as error:  # the struct has checks of its own
            raise self.document.error(path, f"{_at(path)}{error}") from None

    def fields(self, kind: type[S], value: Any, path: KeyPath, *, leave_out: Sequence[str] = ()) -> dict[str, Any]:
        """Return the checked fields of a struct that a table sets. The struct's `MEANT` has hints for wrong keys."""
        known = {field.name: field for field in _fields(kind) if field.name not in leave_out}
        given: dict[str, Any] = {}
        for key, item in self.table(value, path).items():
            with collecting(self.mistakes):
                if key not in known:
                    hint = getattr(kind, "MEANT", {}).get(key) or nearest(key, tuple(known))
                    unknown = f"{dotted((*path, key))!r} is not known{hint}"
                    raise self.document.error((*path, key), unknown)
                given[key] = self.build(known[key].type, item, (*path, key))
        return given

    def table(self, value: Any, path: KeyPath) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self._wrong(dict, value, path)
        return cast("dict[str, Any]", value)

    def _union(self, kind: Any, value: Any, path: KeyPath) -> Any:
        """Return the value as the member of a union whose shape it has; msgspec chooses among scalars."""
        branches = typing.get_args(kind)
        shape = dict if isinstance(value, dict) else list if isinstance(value, list) else None
        fitting = [branch for branch in branches if _shape(branch) is shape]
        if shape is not None and (len(fitting) == 1 or (fitting and all(map(_is_struct, fitting)))):
            return self.build(fitting[0], value, path)  # if several structs fit, the first is meant
        if not fitting:
            raise self._wrong(kind, value, path)
        return self._leaf(typing.Union[tuple(fitting)], value, path, wanted=kind)  # noqa: UP007

    def _leaf(self, kind: Any, value: Any, path: KeyPath, wanted: Any = None) -> Any:
        if path in self.document.broken:
            raise AlreadyReported
        try:
            # A variable is always text, which may mean a number or a boolean.
            return msgspec.convert(value, kind, strict=path not in self.document.variables)
        except msgspec.ValidationError:
            raise self._outside(kind, value, path) or self._wrong(wanted or kind, value, path) from None
        except TypeError:  # a type that msgspec cannot convert
            raise self._wrong(object, value, path) from None

    def _outside(self, kind: Any, value: Any, path: KeyPath) -> ConfigError | None:
        """Return a mistake if this is a number outside its range; otherwise None."""
        for branch in _branches(kind):
            if (allowed := _range(branch)) is None:
                continue
            try:
                number = msgspec.convert(value, _unranged(branch), strict=path not in self.document.variables)
            except msgspec.ValidationError:
                continue
            return self.document.error(path, f"{dotted(path)!r} is {number!r}; it must be {allowed}")
        return None

    def _wrong(self, kind: Any, value: Any, path: KeyPath) -> ConfigError:
        wanted = " or ".join(dict.fromkeys(word for branch in _branches(kind) if (word := _in_words(branch))))
        if not wanted:
            return self.document.error(path, f"{dotted(path)!r} can only be given in code")
        variables = self.document.variables.get(path, ())
        shown = "what it is" if hides(path, value, variables) else cut(value)
        choices = [choice for branch in _branches(kind) for choice in _choices(branch)]
        hint = nearest(value, tuple(choices)) if choices and isinstance(value, str) else ""
        hint = hint if "did you mean" in hint else ""
        return self.document.error(path, f"{dotted(path) or 'the file'!r} must be {wanted}, not {shown}{hint}")


@functools.cache
def _fields(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    # Cached: resolving a struct's annotations is slow, and a prompt may have many nodes.
    return msgspec.structs.fields(kind)


def _at(path: KeyPath) -> str:
    return f"in {dotted(path)!r}, " if path else ""


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


def _unranged(kind: Any) -> Any:
    return typing.get_args(kind)[0] if typing.get_origin(kind) is Annotated else kind


def _range(kind: Any) -> str | None:
    """Describe the numbers that a type allows, if its annotation limits them."""
    meta = next((one for one in typing.get_args(kind)[1:] if isinstance(one, msgspec.Meta)), None)
    if meta is None or typing.get_origin(kind) is not Annotated:
        return None
    if meta.ge is not None:
        return f"{meta.ge} or more" if meta.le is None else f"from {meta.ge} to {meta.le}"
    return f"more than {meta.gt}" if meta.le is None else f"more than {meta.gt}, and at most {meta.le}"


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
    """Describe a value of this type; empty for a type that a file cannot contain."""
    if choices := _choices(kind):
        return "one of " + ", ".join(map(repr, choices))
    return _WORDS.get(_unranged(kind)) or _WORDS.get(_shape(kind), "")
