"""Parses untrusted web addresses in exactly one way. Pure.

Parsers differ on odd addresses: one may check one host while another connects to a different one. Here the host that is
checked, connected to and sent is one field, and an address with anything odd before its path is refused.
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
    host: str  # in lower case, in ASCII, an IPv6 address without its brackets
    port: int
    path: str  # with the query

    @classmethod
    def of(cls, text: str) -> Url:
        """Parse an address, or raise a ValueError with the reason."""
        if _CONTROL.search(text):
            raise ValueError(_UNREADABLE)
        try:
            parts = urlsplit(text)
        except ValueError:
            raise ValueError(_UNREADABLE) from None
        if parts.scheme not in _PORTS or not parts.netloc:
            raise ValueError("only http and https addresses are fetched")
        if "@" in parts.netloc:
            raise ValueError("its address contains a user name; leave it out")
        host, port = _host_and_port(parts.netloc)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return cls(parts.scheme, host, port or _PORTS[parts.scheme], _sendable(path))

    @property
    def origin(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def joined(self, location: str) -> str:
        """Return the target of a redirect. Headers are decoded as latin-1, but addresses in them are nearly always
        UTF-8."""
        with suppress(ValueError):
            location = location.encode("latin-1").decode()
        try:
            return urljoin(self.origin + self.path, location)
        except ValueError:
            return location  # `of` refuses it


def _host_and_port(netloc: str) -> tuple[str, int]:
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
    # Only characters that a request cannot contain are quoted; the rest stays, because the address may be signed.
    try:
        return _UNSENDABLE.sub(lambda odd: quote(odd[0]), path)
    except UnicodeEncodeError:
        raise ValueError(_UNREADABLE) from None
