"""Web addresses that anybody may have written, read so that there is one way to understand them.

Programs differ in how they read an odd address, and what one of them checks another one connects to. Here the host that
is checked, connected to and named to the server is one field of one value, and an address with anything odd before its
path is refused. Pure.
"""

from __future__ import annotations

import re
from contextlib import suppress
from ipaddress import IPv6Address
from typing import NamedTuple
from urllib.parse import quote, urljoin, urlsplit

_PORTS = {"http": 80, "https": 443}
_PLACE = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[^\[\]:]+))(?::(?P<port>[0-9]{0,5}))?")
_NAME = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*\.?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_UNSENDABLE = re.compile(r"[^!-~]+")
_UNREADABLE = "its address cannot be read"


class Url(NamedTuple):
    scheme: str
    host: str
    """As names are looked up: in lower case, in ASCII, an IPv6 address without its brackets."""
    port: int
    path: str
    """With the query, as it is sent."""

    @classmethod
    def of(cls, text: str) -> Url:
        """Raises ValueError with the reason, for the end of a sentence."""
        if _CONTROL.search(text):
            raise ValueError(_UNREADABLE)
        try:
            parts = urlsplit(text)
        except ValueError:
            raise ValueError(_UNREADABLE) from None
        if parts.scheme not in _PORTS or not parts.netloc:
            raise ValueError("only http and https addresses are fetched")
        if "@" in parts.netloc:
            raise ValueError("its address holds a user name; leave it out")
        host, port = _place(parts.netloc)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return cls(parts.scheme, host, port or _PORTS[parts.scheme], _sendable(path))

    @property
    def origin(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def joined(self, location: str) -> str:
        """The address that a redirect from here means. Headers come as latin-1; in an address that is UTF-8 nearly
        always."""
        with suppress(ValueError):
            location = location.encode("latin-1").decode()
        try:
            return urljoin(self.origin + self.path, location)
        except ValueError:
            return location  # which is refused for what it is


def _place(netloc: str) -> tuple[str, int]:
    """Host and port; 0 where none is named."""
    found = _PLACE.fullmatch(netloc)
    if found is None or (found["port"] and not 0 < int(found["port"]) < 65536):
        raise ValueError(_UNREADABLE)
    try:
        six, name = found["six"], found["name"]
        host = str(IPv6Address(six)) if six else name.encode("idna").decode().lower()
    except ValueError:
        raise ValueError(_UNREADABLE) from None
    if not six and not _NAME.fullmatch(host):
        raise ValueError(_UNREADABLE)
    return host, int(found["port"] or 0)


def _sendable(path: str) -> str:
    """What cannot stand in a request is written as browsers write it; all else is left, as it may be signed."""
    try:
        return _UNSENDABLE.sub(lambda odd: quote(odd[0]), path)
    except UnicodeEncodeError:
        raise ValueError(_UNREADABLE) from None
