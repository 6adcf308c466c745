"""Tells which addresses are on the public Internet, by IANA's registries of special-purpose addresses. Pure.

Those of the standard library differ between versions, and its "global" includes ways into private networks.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

_KINDS_4: tuple[tuple[str, str], ...] = (
    ("168.63.129.16/32", "a metadata address"),  # a cloud's own, in the middle of the public ones
    ("169.254.169.254/32", "a metadata address"),
    ("100.100.100.200/32", "a metadata address"),
    ("192.0.0.192/32", "a metadata address"),
    ("0.0.0.0/8", "an unspecified address"),
    ("10.0.0.0/8", "a private address"),
    ("100.64.0.0/10", "a carrier's inner address"),
    ("127.0.0.0/8", "a loopback address"),
    ("169.254.0.0/16", "a link-local address"),
    ("172.16.0.0/12", "a private address"),
    ("192.0.0.0/24", "a reserved address"),
    ("192.0.2.0/24", "an address for documentation"),
    ("192.88.99.0/24", "a reserved address"),
    ("192.168.0.0/16", "a private address"),
    ("198.18.0.0/15", "a private address"),
    ("198.51.100.0/24", "an address for documentation"),
    ("203.0.113.0/24", "an address for documentation"),
    ("224.0.0.0/4", "a multicast address"),
    ("240.0.0.0/4", "a reserved address"),
)
_KINDS_6: tuple[tuple[str, str], ...] = (
    ("::/128", "an unspecified address"),
    ("::1/128", "a loopback address"),
    ("::ffff:0:0/96", "an IPv4-mapped address"),
    ("fd00:ec2::254/128", "a metadata address"),
    ("fc00::/7", "a private address"),
    ("fe80::/10", "a link-local address"),
    ("fec0::/10", "a private address"),
    ("ff00::/8", "a multicast address"),
    ("2001::/23", "a reserved address"),
    ("2001:db8::/32", "an address for documentation"),
    ("2002::/16", "an address that hides another one"),
    ("3fff::/20", "an address for documentation"),
)
_SPECIAL_4 = tuple((IPv4Network(network), kind) for network, kind in _KINDS_4)
_SPECIAL_6 = tuple((IPv6Network(network), kind) for network, kind in _KINDS_6)
_UNICAST = IPv6Network("2000::/3")
_TRANSLATED = IPv6Network("64:ff9b::/96")  # NAT64: the last 32 bits are the IPv4 address that is meant


def as_address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def why_not_public(address: IPv4Address | IPv6Address) -> str:
    """Return the kind of an address that must not be fetched from; empty for a public one."""
    if isinstance(address, IPv4Address):
        return next((kind for network, kind in _SPECIAL_4 if address in network), "")
    if address.scope_id is not None:
        return "a link-local address"
    if address in _TRANSLATED:
        return why_not_public(IPv4Address(int(address) & 0xFFFFFFFF))
    kind = next((kind for network, kind in _SPECIAL_6 if address in network), "")
    return kind or ("" if address in _UNICAST else "a reserved address")
