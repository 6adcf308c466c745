"""How a connection comes about: a name's addresses, one after the other; a proxy; TLS.

Knows no requests but the one that asks a proxy for a tunnel.
"""

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

ADDRESS_S = 1.0
"""An address that does not answer within so long is passed over while there is another one."""
_PORTS = {"http": 80, "https": 443}

Make: TypeAlias = Callable[[], Connection]


class Place(NamedTuple):
    """Where a server is."""

    scheme: str
    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> Place:
        """Raises HttpError for what is no web address."""
        try:
            parts = urlsplit(url)
            host = parts.hostname or ""
            host = host if host.isascii() else host.encode("idna").decode()
            place = cls(parts.scheme, host, parts.port or _PORTS[parts.scheme])
        except (ValueError, LookupError):  # a UnicodeError is a ValueError
            raise NoAddress("the address cannot be read") from None
        if not host:
            raise NoAddress("the address names no host")
        return place

    @property
    def is_secure(self) -> bool:
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """Host and port as a request names them; a port that goes without saying is not said."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if _PORTS.get(self.scheme) == self.port else f"{host}:{self.port}"


class Proxy(NamedTuple):
    place: Place
    authorization: str = ""

    def __repr__(self) -> str:
        return f"Proxy({self.place!r})"

    @classmethod
    def of(cls, url: str) -> Proxy:
        parts = urlsplit(url)
        if parts.username is None:
            return cls(Place.of(url))
        person = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        return cls(Place.of(url), "Basic " + base64.b64encode(person.encode()).decode())


_trusted: ssl.SSLContext | None = None


async def trusted() -> ssl.SSLContext:
    """The certificates that this machine trusts; they take a while to read, so it is done once, and by a thread."""
    global _trusted
    if _trusted is None:
        import ssl

        _trusted = await asyncio.to_thread(ssl.create_default_context)
    return _trusted


async def resolve(host: str, port: int) -> list[str]:
    """The addresses that a name stands for. One that is an address already stands for itself."""
    with contextlib.suppress(ValueError):
        return [str(ip_address(host))]
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise NoAddress(f"{host!r} has no address") from error
    return list(dict.fromkeys(str(info[4][0]) for info in found))


async def dial(
    make: Make, place: Place, addresses: Sequence[str], *, proxy: Proxy | None = None, tls: ssl.SSLContext | None = None
) -> Connection:
    """A connection to a server, or to it through a proxy. `addresses` are those of whom we connect to."""
    if proxy is None:
        return await _open(make, place, addresses, tls)
    try:
        connection = await _open(make, proxy.place, addresses, tls)
    except (Refused, TlsFailed) as error:
        raise ProxyFailed(f"there is no connection to the proxy: {error}") from None
    return await _tunnelled(make, connection, place, proxy, tls) if place.is_secure else connection


async def _open(make: Make, place: Place, addresses: Sequence[str], tls: ssl.SSLContext | None) -> Connection:
    sock = await _connected(addresses, place.port)
    loop = asyncio.get_running_loop()
    try:
        if not place.is_secure:
            return (await loop.create_connection(make, sock=sock))[1]
        tls = tls or await trusted()
        return (await loop.create_connection(make, sock=sock, ssl=tls, server_hostname=place.host))[1]
    except OSError as error:  # those of TLS among them
        sock.close()
        if place.is_secure:
            raise TlsFailed(_why(error)) from None
        raise Refused(_why(error)) from None
    except BaseException:
        sock.close()
        raise


async def _connected(addresses: Sequence[str], port: int) -> socket.socket:
    """A socket to the first address that lets us in."""
    loop = asyncio.get_running_loop()
    failure: Exception = Refused("there is no address to connect to")
    for place, address in enumerate(addresses, 1):
        sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            async with asyncio.timeout(ADDRESS_S if place < len(addresses) else None):
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
    make: Make, connection: Connection, place: Place, proxy: Proxy, tls: ssl.SSLContext | None
) -> Connection:
    """A connection to the server itself, inside one to the proxy."""
    transport = await _tunnel(connection, place, proxy)
    inner = make()
    try:
        secure = await asyncio.get_running_loop().start_tls(
            transport, inner, tls or await trusted(), server_hostname=place.host
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


async def _tunnel(connection: Connection, place: Place, proxy: Proxy) -> asyncio.Transport:
    """Ask a proxy to pass on what follows."""
    where = f"[{place.host}]:{place.port}" if ":" in place.host else f"{place.host}:{place.port}"
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
        connection.abort()  # where it was not handed over


def _why(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
