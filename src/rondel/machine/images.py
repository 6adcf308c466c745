"""The image engines of an app: if one fails, the next one is asked. Every call is charged. Knows no surface."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from ..charge import Scope, Tell
from ..contracts.images import GeneratedImages, ImageEngine, ImageRequest
from ..engine import close
from ..errors import EngineDenied, EngineError, RondelError
from ..values import Media

NOT_CONFIGURED = (
    "no image engine is configured: set `engine` in [images] of rondel.toml, such as openai:gpt-image-1, "
    "or give the app one with App(images=...)"
)

ChargeImages: TypeAlias = Callable[[ImageEngine, "Scope | Callable[[], Scope]", "Tell | None"], ImageEngine]
GivenEngines: TypeAlias = ImageEngine | Sequence[ImageEngine] | Mapping[str, ImageEngine]
_NOTHING = Scope()


class Images:
    """Makes and edits pictures for people, agents and programs. False if no engine is configured."""

    def __init__(self, engines: GivenEngines, charge: ChargeImages, options: Mapping[str, Any] | None = None) -> None:
        """`engines` may map the configured names to the engines. `options`, such as `size`, are used for requests that
        have none."""
        if isinstance(engines, ImageEngine):
            engines = (engines,)
        self._engines = dict(engines) if isinstance(engines, Mapping) else {engine.name: engine for engine in engines}
        self._charge, self._options = charge, dict(options or {})
        self._denied: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._engines or self._denied)

    @property
    def names(self) -> tuple[str, ...]:
        """The engines in the order in which they are asked."""
        return tuple(self._engines)

    async def generate(self, prompt: str, *, person: str = "", size: str = "") -> Media:
        """Return a picture, charged to a person. Raises an EngineError, such as TokenLimitError."""
        return (await self.make(ImageRequest(prompt, size=size), Scope(person=person))).images[0]

    async def edit(self, prompt: str, *pictures: Media, person: str = "", size: str = "") -> Media:
        """Return a picture that was made from others, charged to a person."""
        if not pictures:
            raise RondelError("there is no picture to edit; pass at least one")
        return (await self.make(ImageRequest(prompt, size=size, sources=pictures), Scope(person=person))).images[0]

    async def make(
        self, request: ImageRequest, scope: Scope | Callable[[], Scope] = _NOTHING, tell: Tell | None = None
    ) -> GeneratedImages:
        """Return the pictures of a request. Raises the first engine's error if all engines fail, and RondelError if
        none is configured."""
        if not self._engines:
            if self._denied:
                raise EngineDenied(f"the caller's key may not use {self._denied[0]!r}", code="permission_error")
            raise RondelError(NOT_CONFIGURED)
        options = {**self._options, **request.options}
        size = request.size or str(options.pop("size", ""))
        request = msgspec.structs.replace(request, size=size, options=options)
        failures: list[EngineError] = []
        for name, engine in self._engines.items():
            try:
                return await self._charge(engine, scope, tell).generate(request)
            except EngineError as error:
                if failures:
                    failures[0].add_note(f"then {name} failed too: {error}")
                failures.append(error)
        raise failures[0]

    def allowed(self, allows: Callable[[str], bool]) -> Images:
        """Return these images with only the engines whose names are allowed."""
        images = Images(
            {name: each for name, each in self._engines.items() if allows(name)}, self._charge, self._options
        )
        images._denied = tuple(name for name in self._engines if not allows(name))
        return images

    async def aclose(self) -> None:
        for engine in self._engines.values():
            await close(engine)
