"""Mentions as a model reads and writes them: `<@42>` becomes `@Ann`, and `@Ann` becomes `<@42>` again. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

_INCOMING = re.compile(r"<(@!?|@&|#)(\d{15,20})>|<a?:(\w{1,32}):\d{15,20}>")
_CODE = re.compile(r"(`++)(?:.|\n)*?\1|`{3,}+(?:.|\n)*\Z")
_NEVER = frozenset(("everyone", "here"))
NAME_CHARS_MAX = 80


def tidy_name(name: str) -> str:
    """Return a name on one line: it comes from a stranger and is put before their words."""
    if not name.isprintable():
        name = "".join(char if char.isprintable() else " " for char in name)
    return " ".join(name.split())[:NAME_CHARS_MAX] or "somebody"


class Names:
    """The people who can be mentioned: each by display name if no other has it, else by user name."""

    def __init__(self, people: Iterable[tuple[int, str, str]] = ()) -> None:
        """`people` are ids, display names and user names."""
        self._labels: dict[int, str] = {}
        self._ids: dict[str, int] = {}
        known: list[tuple[int, str, str, str]] = []
        shown: dict[str, set[int]] = {}
        for id, display, user in people:
            display, user = tidy_name(display), tidy_name(user)
            folded = display.casefold()
            known.append((id, display, folded, user))
            shown.setdefault(folded, set()).add(id)
            self._ids.setdefault(user.casefold(), id)
        for id, display, folded, user in known:
            is_own = len(shown[folded]) == 1 and self._ids.get(folded, id) == id
            self._labels[id] = display if is_own else user
            if is_own:
                self._ids[folded] = id
        for name in _NEVER:
            self._ids.pop(name, None)

    def label(self, id: int, otherwise: str = "") -> str:
        return self._labels.get(id) or tidy_name(otherwise)

    def restore(self, text: str) -> str:
        """Turn `@name` of a known person into a mention. E-mail addresses, unknown names and code stay as they are."""
        if not self._ids or "@" not in text:
            return text
        names = sorted(self._ids, key=len, reverse=True)
        outgoing = re.compile(rf"(?<![\w.+\-@/<])@({'|'.join(map(re.escape, names))})(?!\w)", re.IGNORECASE)
        pieces: list[str] = []
        at = 0
        for code in _CODE.finditer(text):
            pieces += [outgoing.sub(self._mention, text[at : code.start()]), code[0]]
            at = code.end()
        return "".join((*pieces, outgoing.sub(self._mention, text[at:])))

    def _mention(self, found: re.Match[str]) -> str:
        id = self._ids.get(found[1].casefold())
        return found[0] if id is None else f"<@{id}>"


def readable(text: str, name_of: Callable[[str, int], str]) -> str:
    """Replace the ids in a message by names. `name_of` gets `user`, `role` or `channel` and an id; an empty name leaves
    the mention as it is."""

    def replace(found: re.Match[str]) -> str:
        if found[3]:
            return f":{found[3]}:"
        kind = {"#": "channel", "@&": "role"}.get(found[1], "user")
        name = name_of(kind, int(found[2]))
        return f"{'#' if kind == 'channel' else '@'}{tidy_name(name)}" if name else found[0]

    return _INCOMING.sub(replace, text)
