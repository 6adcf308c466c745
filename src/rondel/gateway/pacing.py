"""An answer's deltas, asked for no faster than the caller reads what was made of them.

What was said is sent whenever the next delta must be waited for: what came in one piece goes out in one piece, and a
caller who does not read holds the model back. Knows no dialect.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Generator
from typing import Any

from ..values import Delta
from .outgoing import Outgoing


class Paced:
    """Deltas as they come. Before the first real wait for one, what was said is sent; without one, nothing is."""

    __slots__ = ("_deltas", "_outgoing")

    def __init__(self, deltas: AsyncGenerator[Delta], outgoing: Outgoing) -> None:
        self._deltas, self._outgoing = deltas, outgoing

    def __aiter__(self) -> Paced:
        return self

    def __anext__(self) -> Paced:
        return self

    def __await__(self) -> Generator[Any, Any, Delta]:
        step = self._deltas.__anext__().__await__()
        try:
            wait = next(step)
            try:
                yield from self._outgoing.flush().__await__()
            except BaseException as error:
                _give_up(step)  # the engine must not wait on, and has no part in this error
                raise error
            while True:
                try:
                    sent = yield wait
                except BaseException as error:  # a cancellation, which the engine must hear
                    wait = step.throw(error)
                else:
                    wait = step.send(sent)
        except StopIteration as ready:
            return ready.value

    async def aclose(self) -> None:
        await self._deltas.aclose()


def _give_up(step: Generator[Any, Any, Delta]) -> None:
    with contextlib.suppress(asyncio.CancelledError, StopIteration, StopAsyncIteration):
        step.throw(asyncio.CancelledError())
