"""Appends the content at a URL to a partial file, over as many connections as it takes. Knows no hash."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from urllib.parse import urljoin, urlsplit
from urllib.request import url2pathname

from ....http import Answer, Client, Head, HttpError, environment_proxy
from ....threads import in_thread
from .catalog import Url
from .partial import CHUNK_BYTES, AddressFailed, PartialFile, Steps

ANSWER_TIMEOUT_S = 8.0  # without internet the next address is tried after this long
SILENCE_TIMEOUT_S = 30.0
REDIRECTS_MAX = 5


async def read_url(address: Url, part: PartialFile) -> Steps:
    async with aclosing(download(address.url, part)) as pieces:
        async for _ in pieces:
            yield part.size, address.label


def download(url: str, part: PartialFile) -> AsyncGenerator[None]:
    return _copy(url, part) if url.startswith("file:") else _download(url, part)


async def _copy(url: str, part: PartialFile) -> AsyncGenerator[None]:
    try:
        file = await in_thread(open, url2pathname(urlsplit(url).path), "rb")
    except OSError as error:
        raise AddressFailed(str(error)) from error
    with file:
        file.seek(part.size)
        while piece := await in_thread(file.read, CHUNK_BYTES):
            await part.append(piece)
            yield


async def _download(url: str, part: PartialFile) -> AsyncGenerator[None]:
    while True:
        start = part.size
        try:
            async with _open(url, start) as answer:
                if answer.status == 416 and start:
                    part.restart()  # the server has no more bytes than we do, so ours are not its content
                    continue
                if answer.status not in (200, 206):
                    raise AddressFailed(f"it answered {answer.status}")
                if answer.status == 200:
                    part.restart()  # the server does not support ranges
                _check_size(answer, part)
                while piece := await answer.read():
                    await part.append(piece)
                    yield
                return
        except HttpError as error:
            if part.size <= start:  # connect again only as long as that brings bytes
                raise AddressFailed(str(error), unreachable=True) from error


def _check_size(answer: Answer, part: PartialFile) -> None:
    length = answer.headers.get("content-length", "")
    if length.isdigit() and part.size_bytes not in (None, part.size + int(length)):
        raise AddressFailed(f"it offers {part.size + int(length)} bytes instead of {part.size_bytes}")


@asynccontextmanager
async def _open(url: str, start: int) -> AsyncGenerator[Answer]:
    headers = {"accept-encoding": "identity", "user-agent": "rondel"}
    if start:
        headers["range"] = f"bytes={start}-"
    for _ in range(REDIRECTS_MAX + 1):
        parts = urlsplit(url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        client = Client(url, connect_s=ANSWER_TIMEOUT_S, proxy=environment_proxy(url))
        try:
            answer = await client.ask("GET", target, Head(headers), wait_s=ANSWER_TIMEOUT_S, idle_s=SILENCE_TIMEOUT_S)
            if answer.status not in (301, 302, 303, 307, 308):
                answer.begun = True  # from here on only `idle_s` counts
                yield answer
                return
            url = urljoin(url, answer.headers.get("location", ""))
        finally:
            client.close()
    raise AddressFailed(f"it redirects more than {REDIRECTS_MAX} times")
