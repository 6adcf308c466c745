"""Opens connections: resolves a name, tries its addresses in turn, asks a proxy for a tunnel, starts TLS."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import socket
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from urllib.parse import unquote, urlsplit

from .connection import Connection
from .errors import Broken, NoAddress, NotHttp, ProxyFailed, Refused, TlsFailed

if TYPE_CHECKING:
    import ssl

ADDRESS_S = 1.0  # how long to wait for an address while there is another one to try
_PORTS = {"http": 80, "https": 443}

Make: TypeAlias = Callable[[], Connection]


class Origin(NamedTuple):
    """Scheme, host and port of a server."""

    scheme: str
    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> Origin:
        """Raises NoAddress for a text that is not an HTTP URL."""
        try:
            parts = urlsplit(url)
            host = parts.hostname or ""
            host = host if host.isascii() else host.encode("idna").decode()
            origin = cls(parts.scheme, host, parts.port or _PORTS[parts.scheme])
        except (ValueError, LookupError):  # a UnicodeError is a ValueError
            raise NoAddress("the address cannot be parsed") from None
        if not host:
            raise NoAddress("the address has no host")
        return origin

    @property
    def is_secure(self) -> bool:
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """The value of the Host header, without a default port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if _PORTS.get(self.scheme) == self.port else f"{host}:{self.port}"


class Proxy(NamedTuple):
    origin: Origin
    authorization: str = ""

    def __repr__(self) -> str:
        return f"Proxy({self.origin!r})"

    @classmethod
    def of(cls, url: str) -> Proxy:
        parts = urlsplit(url)
        if parts.username is None:
            return cls(Origin.of(url))
        person = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        return cls(Origin.of(url), "Basic " + base64.b64encode(person.encode()).decode())


def environment_proxy(url: str) -> str:
    """Return the proxy that the environment names for this URL, if any. Loopback is never reached through one."""
    origin = Origin.of(url)
    with contextlib.suppress(ValueError):
        if origin.host == "localhost" or ip_address(origin.host).is_loopback:
            return ""
    from urllib.request import getproxies, proxy_bypass  # slow to import, and seldom needed

    return "" if proxy_bypass(origin.host) else getproxies().get(origin.scheme, "")


_trusted: ssl.SSLContext | None = None


async def trusted() -> ssl.SSLContext:
    """Return the certificates that this machine trusts. Reading them is slow: it is done once, in a thread."""
    global _trusted
    if _trusted is None:
        import ssl

        _trusted = await asyncio.to_thread(ssl.create_default_context)
    return _trusted


async def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host; an IP address is its own."""
    with contextlib.suppress(ValueError):
        return [str(ip_address(host))]
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise NoAddress(f"{host!r} has no address") from error
    return list(dict.fromkeys(str(info[4][0]) for info in found))


async def dial(
    make: Make,
    origin: Origin,
    addresses: Sequence[str],
    *,
    proxy: Proxy | None = None,
    tls: ssl.SSLContext | None = None,
) -> Connection:
    """Return a connection to a server, directly or through a proxy. `addresses` are those of the host to connect to."""
    if proxy is None:
        return await _open(make, origin, addresses, tls)
    try:
        connection = await _open(make, proxy.origin, addresses, tls)
    except (Refused, TlsFailed) as error:
        raise ProxyFailed(f"cannot connect to the proxy: {error}") from None
    return await _tunnelled(make, connection, origin, proxy, tls) if origin.is_secure else connection


async def _open(make: Make, origin: Origin, addresses: Sequence[str], tls: ssl.SSLContext | None) -> Connection:
    sock = await _connected(addresses, origin.port)
    loop = asyncio.get_running_loop()
    try:
        if not origin.is_secure:
            return (await loop.create_connection(make, sock=sock))[1]
        tls = tls or await trusted()
        return (await loop.create_connection(make, sock=sock, ssl=tls, server_hostname=origin.host))[1]
    except OSError as error:  # including errors of TLS
        sock.close()
        if origin.is_secure:
            raise TlsFailed(_why(error)) from None
        raise Refused(_why(error)) from None
    except BaseException:
        sock.close()
        raise


async def _connected(addresses: Sequence[str], port: int) -> socket.socket:
    """Return a socket to the first address that accepts a connection."""
    loop = asyncio.get_running_loop()
    failure: Exception = Refused("there is no address to connect to")
    for number, address in enumerate(addresses, 1):
        sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            async with asyncio.timeout(ADDRESS_S if number < len(addresses) else None):
                await loop.sock_connect(sock, (address, port))
            return sock
        except (OSError, TimeoutError) as error:
            sock.close()
            failure = Refused(os.strerror(error.errno) if error.errno else _why(error))
        except BaseException:
            sock.close()
            raise
    raise failure


async def _tunnelled(
    make: Make, connection: Connection, origin: Origin, proxy: Proxy, tls: ssl.SSLContext | None
) -> Connection:
    """Return a TLS connection to the server through the proxy's tunnel."""
    transport = await _tunnel(connection, origin, proxy)
    inner = make()
    try:
        secure = await asyncio.get_running_loop().start_tls(
            transport, inner, tls or await trusted(), server_hostname=origin.host
        )
        if secure is None:
            raise ProxyFailed("the proxy closed the tunnel")
        inner.connection_made(secure)
        return inner
    except OSError as error:
        transport.abort()
        raise TlsFailed(_why(error)) from None
    except BaseException:
        transport.abort()
        raise


async def _tunnel(connection: Connection, origin: Origin, proxy: Proxy) -> asyncio.Transport:
    """Ask a proxy for a tunnel, and return the transport that it runs over."""
    where = f"[{origin.host}]:{origin.port}" if ":" in origin.host else f"{origin.host}:{origin.port}"
    head = f"CONNECT {where} HTTP/1.1\r\nhost: {where}\r\n"
    if proxy.authorization:
        head += f"proxy-authorization: {proxy.authorization}\r\n"
    connection.tunnels = True
    try:
        answer = connection.ask(f"{head}\r\n".encode("latin-1"), b"")
        await answer.wait_for_head()
        if not 200 <= answer.status < 300:
            raise ProxyFailed(f"the proxy answered {answer.status}")
        return connection.hand_over()
    except (Broken, NotHttp) as error:
        raise ProxyFailed(f"the proxy opened no tunnel: {error}") from None
    finally:
        connection.abort()  # unless it was handed over


def _why(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
