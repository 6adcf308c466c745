"""Masks what looks like a secret in a text for a log. redaction.py removes secrets that are known. Pure."""

from __future__ import annotations

import re

from .redaction import HIDDEN, KEY_PREFIX, KEY_WITHOUT_PREFIX

_NAMED = r"(?:api[_-]?key|key|token|secret|passwd|password|pwd|authorization)"
_SECRETS = (
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]+"), rf"\1 {HIDDEN}"),
    (re.compile(r"(://[^\s/:@]*+:)[^\s/@]++@"), rf"\1{HIDDEN}@"),
    (re.compile(rf"{KEY_PREFIX}[\w-]{{6,}}|{KEY_WITHOUT_PREFIX}"), HIDDEN),
    (
        re.compile(rf"""(?i)((?:\b|[_-]){_NAMED}["']?\s*[=:]\s*["']?)(?!bearer |basic )[^\s"',;&}}\])]+"""),
        rf"\1{HIDDEN}",
    ),
)  # keys by their prefix, what follows `Bearer`, a URL's password, and the value of a name such as `api_key`


def mask(text: str) -> str:
    for secret, shown in _SECRETS:
        text = secret.sub(shown, text)
    return text
