"""Charges that could not be written: kept in memory, up to a bound, until writing works again.

A full disk must not hide what was spent. The first failure is logged as an error, later ones are only counted, and
charges that are lost in the end are reported with their number and tokens. Knows no SQL and no thread.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from itertools import islice
from pathlib import Path

from ...contracts.ledger import Unwritten
from .requests import Charged

# A logger of its own: the command line shows what it says.
logger = logging.getLogger("rondel.store.charges")

KEPT_MAX = 10_000
RETRY_S = 1.0
CHUNK = 256  # requests that one transaction tries to write


class Backlog:
    def __init__(self, path: Path) -> None:
        self._path = path
        self.requests: deque[Charged] = deque()
        self._retry_at = 0.0
        self.state = Unwritten()  # What waits and what was lost. It is frozen and replaced, so any thread may read it.

    @property
    def is_due(self) -> bool:
        return bool(self.requests) and time.monotonic() >= self._retry_at

    def add(self, request: Charged, fault: Exception) -> None:
        """Keep a request, or count it as lost if too many are kept."""
        if not self.requests:
            logger.error("%s: charges are kept in memory until they can be written: %s", self._path, fault)
        self._retry_at = time.monotonic() + RETRY_S
        request.deferred, request.error = True, None
        if len(self.requests) >= KEPT_MAX:
            self.lose(request, fault)
        else:
            self.requests.append(request)
            self._count(request, 1, str(fault))

    def first(self) -> list[Charged]:
        return list(islice(self.requests, CHUNK))

    def written(self, count: int) -> None:
        for _ in range(count):
            request = self.requests.popleft()
            request.deferred = False
            self._count(request, -1, self.state.reason)
        if not self.requests:
            logger.warning("%s: the charges that were kept in memory have been written", self._path)

    def failed(self, fault: Exception) -> None:
        self._retry_at = time.monotonic() + RETRY_S
        self._count(None, 0, str(fault))

    def drop_first(self, fault: Exception) -> None:
        request = self.requests.popleft()
        self._count(request, -1, self.state.reason)
        self.lose(request, fault)

    def lose(self, request: Charged, fault: Exception) -> None:
        charges, tokens, state = *_spent_by(request), self.state
        if charges and not state.lost_charges:
            logger.error("%s: charges that cannot be written are lost from now on: %s", self._path, fault)
        self.state = Unwritten(
            state.charges, state.tokens, state.lost_charges + charges, state.lost_tokens + tokens, str(fault)
        )

    def give_up(self) -> None:
        """Report the lost charges, because the program ends."""
        state = self.state
        charges, tokens = state.charges + state.lost_charges, state.tokens + state.lost_tokens
        if charges:
            logger.error(
                "%s: %s charges (%s tokens) were lost, because they could not be written: %s",
                self._path,
                f"{charges:,}",
                f"{tokens:,}",
                state.reason,
            )

    def _count(self, request: Charged | None, sign: int, reason: str) -> None:
        charges, tokens = (0, 0) if request is None else _spent_by(request)
        state = self.state
        charges, tokens = state.charges + sign * charges, state.tokens + sign * tokens
        waits = bool(self.requests) or state.lost_charges
        self.state = Unwritten(charges, tokens, state.lost_charges, state.lost_tokens, reason if waits else "")


def _spent_by(request: Charged) -> tuple[int, int]:
    return (0, 0) if request.charge is None else (1, request.charge.tokens)
