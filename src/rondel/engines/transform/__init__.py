"""Transforms: small edits of prompts on their way to an engine, and of replies on their way back, by name.

`Transformed` wraps an engine with some of them: the engine's own first, then the model's; replies pass them in reverse.
If all of them can edit the top level of a body, requests are still relayed unread.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import msgspec

from ...engine import Engine, Relayed, Relays, Wrapper, close, dialect_of
from ...errors import ReplyTooLong, nearest
from ...limits import Limits
from ...machine.tokens import ReplySize
from ...prompt import Prompt
from ...text.document import Checker, Document, KeyPath, Where, dotted
from ...values import Delta
from .base import Editor, Fields, Transform
from .cache import CleanCache
from .calls import EnhanceTool, ToolUse
from .instructions import SystemFirst
from .options import CustomParams, MaxCompletionTokens, MaxToken, Sampling, StreamOptions
from .thinking import ForceReasoning, Reasoning

__all__ = [
    "TRANSFORMS",
    "Editor",
    "Fields",
    "Transform",
    "TransformEntry",
    "Transformed",
    "make_transform",
    "transformed",
]

HIDDEN = Limits().reply_bound
"""How much of a reply transforms may remove or hold back. The charged engine bounds what they pass on."""

Find: TypeAlias = Callable[[str, Where], Any]  # looks up `module:attribute`
TransformEntry: TypeAlias = str | list[Any] | dict[str, Any]
"""`"name"`, `["name", {option = ...}]` or `{name = "name", option = ...}`."""

TRANSFORMS: dict[str, type[Transform]] = {
    kind.name: kind
    for kind in (
        *(MaxToken, MaxCompletionTokens, Sampling, CleanCache, StreamOptions, CustomParams),
        *(Reasoning, ForceReasoning, ToolUse, EnhanceTool, SystemFirst),
    )
}


class Transformed(Wrapper):
    """An engine whose prompts and replies pass through transforms. `dialect` is the name of the engine's dialect."""

    def __init__(self, engine: Engine, transforms: Iterable[Transform], dialect: str = "") -> None:
        super().__init__(engine)
        self._transforms, self._dialect = tuple(transforms), dialect

    def __repr__(self) -> str:
        return f"Transformed({self._engine!r}, {', '.join(self.transforms)})"

    @property
    def transforms(self) -> tuple[str, ...]:
        return tuple(transform.name for transform in self._transforms)

    async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        editors: list[Editor] = []
        for transform in self._transforms:
            if (editor := transform.editor(prompt)) is not None:
                editors.append(editor)
            prompt = transform.on_prompt(prompt, self._dialect)
        editors.reverse()
        deltas = self._engine.stream(prompt)
        hidden = ReplySize(HIDDEN.tokens, HIDDEN.bytes, HIDDEN.tokens)
        try:
            async for delta in deltas:
                shown = _through(editors, delta) if editors else (delta,)
                # The charged engine cannot bound what an editor removes, because it never sees it.
                if not shown and hidden.past(delta):
                    text = f"{self.name} did not stop writing text that its transforms remove"
                    raise ReplyTooLong(HIDDEN.name, text)
                for edited in shown:
                    yield edited
        finally:
            await close(deltas)

    @property
    def dialect(self) -> str:
        """The dialect in which requests are relayed; empty if a transform needs more than the top level of a body."""
        unread = all(transform.edits_fields for transform in self._transforms)
        return dialect_of(self._engine) if unread else ""

    async def relay(self, fields: Mapping[str, msgspec.Raw], headers: Mapping[str, str], *, path: str = "") -> Relayed:
        edited: Fields = dict(fields)
        # An endpoint that only counts tokens rejects most parameters.
        if not path.partition("?")[0].endswith("/count_tokens"):
            for transform in self._transforms:
                transform.on_fields(edited, self._dialect)
        return await cast(Relays, self._engine).relay(edited, headers, path=path)


def transformed(engine: Engine, transforms: Sequence[Transform], dialect: str = "") -> Engine:
    """Return the engine with these transforms around it; the engine itself if there are none."""
    return Transformed(engine, transforms, dialect) if transforms else engine


def _through(editors: Sequence[Editor], delta: Delta) -> Sequence[Delta]:
    deltas: list[Delta] = [delta]
    for editor in editors:
        deltas = [edited for each in deltas for edited in editor(each)]
    return deltas


def make_transform(
    entry: TransformEntry, document: Document | None = None, path: KeyPath = (), *, find: Find | None = None
) -> Transform:
    """Create the transform that an entry names: one of ours, or `module:Class`, which `find` looks up. Raises
    ConfigError with the line."""
    checker = Checker(document or Document("", {}))
    name, options, at = _read_entry(checker, entry, path)
    kind = TRANSFORMS.get(name) or _found(name, checker.document, path, find)
    try:
        if kind.takes_any:
            return kind(**{kind.__struct_fields__[0]: checker.table(options, at)})
        return checker.struct(kind, options, at)
    except ValueError as error:
        raise checker.document.error(at, f"the transform {name!r} cannot be created: {error}") from None


def _read_entry(checker: Checker, entry: TransformEntry, path: KeyPath) -> tuple[str, dict[str, Any], KeyPath]:
    if isinstance(entry, str):
        return entry, {}, path
    if isinstance(entry, dict):
        table = dict(entry)
        if isinstance(name := table.pop("name", None), str):
            return name, table, path
    match entry:
        case [str(name)]:
            return name, {}, path
        case [str(name), options]:
            return name, checker.table(options, (*path, 1)), (*path, 1)
        case _:
            pass
    raise checker.document.error(
        path, f'{dotted(path)!r} names no transform; write "name", ["name", {{option = ...}}] or {{name = "name"}}'
    )


def _found(name: str, document: Document, path: KeyPath, find: Find | None) -> type[Transform]:
    if ":" not in name or find is None:
        raise document.error(path, f"there is no transform {name!r}{nearest(name, tuple(TRANSFORMS))}")
    found = find(name, document.where(path))
    if not (isinstance(found, type) and issubclass(found, Transform)):
        raise document.error(path, f"{name!r} is not a transform: {found!r} is not a subclass of Transform")
    return found
