"""Fetches images and pages over HTTP, only from the public Internet.

Anyone may choose an address, so a name is resolved once, all its addresses must be public, and the connection goes to
one of them, so that no second lookup can give another result. The same applies to every redirect.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Collection
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import TYPE_CHECKING, TypeAlias

from .. import __version__
from ..files.media import IMAGE_KINDS, image_type
from ..values import Media
from . import FetchError, not_fetched
from .address import as_address, why_not_public
from .url import Url

if TYPE_CHECKING:
    from ..http import Answer


BYTES_MAX = 10_000_000
SECONDS_MAX = 15.0
REDIRECTS_MAX = 3
_REDIRECTS = (301, 302, 303, 307, 308)

Resolve: TypeAlias = Callable[[str, int], Awaitable[list[str]]]  # returns the IP addresses of a host


class HttpFetcher:
    """Fetches from public addresses only. `allowed` are private networks that may be fetched from, too; `resolve` looks
    up names, by default with the system's resolver."""

    _what, _accept = "image", "image/png, image/jpeg, image/gif, image/webp"

    def __init__(
        self,
        *,
        allowed: Collection[str] = (),
        resolve: Resolve | None = None,
        bytes_max: int = BYTES_MAX,
        seconds_max: float = SECONDS_MAX,
    ) -> None:
        self._allowed: tuple[IPv4Network | IPv6Network, ...] = tuple(map(ip_network, allowed))
        self._resolve = resolve or _resolve
        self._bytes_max, self._seconds_max = bytes_max, seconds_max

    async def image(self, url: str) -> Media:
        """Fetch an image. Raises FetchError with a sentence if it is refused."""
        data = await self._bytes(url)
        if not (mime := image_type(data)):
            raise self._error(url, f"it is not an image that models can see ({IMAGE_KINDS})")
        return Media("image", mime, data)

    async def _bytes(self, url: str) -> bytes:
        try:
            async with asyncio.timeout(self._seconds_max):
                return await self._follow(url)
        except TimeoutError:
            raise self._error(url, f"it took longer than {self._seconds_max:g} seconds") from None

    async def _follow(self, url: str) -> bytes:
        target = self._parsed(url, url)
        for _ in range(REDIRECTS_MAX + 1):
            got = await self._get(target, url)
            if isinstance(got, bytes):
                return got
            target = self._parsed(got, url)
        raise self._error(url, f"it redirects more than {REDIRECTS_MAX} times")

    def _parsed(self, text: str, url: str) -> Url:
        try:
            return Url.of(text)
        except ValueError as error:
            raise self._error(url, str(error)) from None

    async def _get(self, target: Url, url: str) -> bytes | str:
        """Return the bytes, or the address of a redirect."""
        from ..http import Client, Head, HttpError

        addresses = await self._checked(target, url)
        fixed = {"accept-encoding": "identity", "connection": "close", "user-agent": f"rondel/{__version__}"}
        head = Head({"accept": self._accept, **fixed})
        client = Client(target.origin, addresses=addresses, connect_s=self._seconds_max)
        try:
            return await self._read(await client.ask("GET", target.path, head), target, url)
        except HttpError as error:
            raise self._error(url, f"its server could not be read: {error}") from None
        finally:
            client.close()

    async def _read(self, answer: Answer, target: Url, url: str) -> bytes | str:
        if answer.status in _REDIRECTS:
            return target.joined(answer.headers.get("location", ""))
        if answer.status != 200:
            raise self._error(url, f"its server answered {answer.status}")
        data = bytearray()
        while chunk := await answer.read():
            data += chunk
            if len(data) > self._bytes_max:
                raise self._error(url, f"it is larger than {self._bytes_max:,} bytes")
        return bytes(data)

    # --- which addresses may be connected to --------------------------------------------------------------------------

    async def _checked(self, target: Url, url: str) -> list[str]:
        """Return the addresses of a host. One that is not public is enough to refuse the host."""
        host, port = target.host, target.port
        if as_address(host) is not None:
            found = [host]
        else:
            try:
                found = await self._resolve(host, port)
            except (OSError, UnicodeError):
                found = []
        if not found:
            raise self._error(url, f"there is no host {host[:200]!r}")
        for text in found:
            if why := self._refused(text):
                raise self._error(url, f"{host[:200]!r} is {why}, and only public addresses are allowed")
        return found

    def _refused(self, text: str) -> str:
        if (address := as_address(text)) is None:
            return "not an address"
        if any(address in network for network in self._allowed if network.version == address.version):
            return ""
        return why_not_public(address)

    def _error(self, url: str, why: str) -> FetchError:
        return not_fetched(url, why, self._what)


class PageFetcher(HttpFetcher):
    _what, _accept = "page", "text/html, text/plain, application/xhtml+xml, */*;q=0.5"

    async def page(self, url: str) -> bytes:
        return await self._bytes(url)


async def _resolve(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return list(dict.fromkeys(str(info[4][0]) for info in found))
