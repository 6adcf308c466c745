"""Masks text that looks like a secret, for logs. redaction.py removes known secrets. Pure."""

from __future__ import annotations

import re
from functools import cache

from .redaction import HIDDEN, KEY_PREFIX, KEY_WITHOUT_PREFIX

_NAMED = (
    r"(?:access|app|auth|client|id|private|refresh|secret|user)?[_-]?"
    r"(?:api[_-]?key|key|token|secret|passwd|password|passphrase|pwd|authorization|credentials?|cookie|sig(?:nature)?)"
)
_QUOTE = r"""(?:\\?["'])"""


@cache
def _secrets() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Return patterns of what follows `Bearer` or `Authorization`, of a URL's password, of keys by their prefix, and
    of the value of a name such as `api_key`. They are compiled on first use: that takes time and memory."""
    between = rf"(?:{_QUOTE}?\s*[=:]\s*b?{_QUOTE}?|{_QUOTE},\s*b?{_QUOTE})"
    return (
        (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]+"), rf"\1 {HIDDEN}"),
        (re.compile(rf"""(?i)(authorization{_QUOTE}?\s*[=:,]\s*b?{_QUOTE}?\w+\s+)[^\s"']+"""), rf"\1{HIDDEN}"),
        (re.compile(r"""(://[^\s/:@"']*+:)(?:[^\s/@"']++|[^\s"':?#]{1,500})@"""), rf"\1{HIDDEN}@"),
        (re.compile(rf"{KEY_PREFIX}[\w-]{{6,}}|{KEY_WITHOUT_PREFIX}"), HIDDEN),
        (
            re.compile(
                rf"""(?i)((?:\b|[_-]){_NAMED}(?:\ provided)?{between})"""
                rf"""(?!bearer |basic |\w+\ {re.escape(HIDDEN)})[^\s"',;&}}\])]+"""
            ),
            rf"\1{HIDDEN}",
        ),
    )


def mask(text: str) -> str:
    for secret, shown in _secrets():
        text = secret.sub(shown, text)
    return text
