"""Whether a body has one of some texts: a cheap question before a dear one, asked of every request.

Tools come again unchanged with each request of a conversation, and may be most of it. To compare them with what came
before is many times faster than to search them again. Knows no request.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from functools import lru_cache

import msgspec

SEARCHES_MAX = 16
FIELDS_MAX = 16
FIELD_BYTES_MIN, FIELD_BYTES_MAX = 1_000, 250_000
"""What is shorter is searched at once; what is longer is not worth its space."""


class Search:
    """Looks for all of some texts at once: bytes are gone through once, and not for each."""

    def __init__(self, texts: tuple[bytes, ...]) -> None:
        self._search = re.compile(b"|".join(map(re.escape, texts))).search if texts else _nothing
        self._known: OrderedDict[int, tuple[msgspec.Raw, bool]] = OrderedDict()

    def finds(self, data: bytes | memoryview) -> bool:
        return self._search(data) is not None

    def finds_again(self, field: msgspec.Raw) -> bool:
        """The same of a field that is likely to come again. The last one of each size is remembered."""
        data = memoryview(field)
        size = len(data)
        if not FIELD_BYTES_MIN <= size <= FIELD_BYTES_MAX:
            return self.finds(data)
        known = self._known.get(size)
        if known is None or known[0] != field:
            known = self._known[size] = msgspec.Raw(bytes(data)), self.finds(data)
            if len(self._known) > FIELDS_MAX:
                self._known.popitem(last=False)
        return known[1]


def _nothing(_: bytes | memoryview) -> None:
    return None


searching = lru_cache(SEARCHES_MAX)(Search)
"""The search for these texts; there are few that anybody looks for."""
