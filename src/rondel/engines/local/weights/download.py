"""Appends the content at a URL to a partial file, over as many connections as it takes. Knows no hash."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from urllib.parse import urljoin, urlsplit
from urllib.request import url2pathname

from ....calling.threads import in_thread
from ....http import Answer, Client, Head, HttpError, environment_proxy
from .catalog import Url
from .partial import CHUNK_BYTES, AddressFailed, PartialFile, Steps

ANSWER_TIMEOUT_S = 8.0  # without internet, the next address is tried after this time
SILENCE_TIMEOUT_S = 30.0
REDIRECTS_MAX = 5
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def hub() -> str:
    """Return the address of the Hugging Face hub, or of a mirror of it (`HF_ENDPOINT`, as its own tools read it)."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"


async def fetch(url: str, bytes_max: int) -> bytes:
    """Return a small answer. Raises AddressFailed, also if it is longer than `bytes_max`."""
    try:
        async with _open(url, 0, None) as answer:
            if answer.status != 200:
                raise AddressFailed(_refused(url, answer.status))
            body = bytearray()
            while piece := await answer.read():
                body += piece
                if len(body) > bytes_max:
                    raise AddressFailed(f"it sent more than {bytes_max} bytes")
            return bytes(body)
    except HttpError as error:
        raise AddressFailed(str(error), unreachable=True) from error


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
            async with _open(url, start, part) as answer:
                if answer.status == 416 and start:
                    if part.size_bytes is None and answer.headers.get("content-range", "").endswith(f"/{start}"):
                        return  # all of it had arrived
                    part.restart()  # the server has no more bytes than we do, so ours are not its content
                    continue
                if answer.status not in (200, 206):
                    raise AddressFailed(_refused(url, answer.status))
                if answer.status == 200:
                    part.restart()  # the server does not support ranges
                _check_size(answer, part)
                part.remember(_version_of(answer))
                while piece := await answer.read():
                    await part.append(piece)
                    yield
                return
        except HttpError as error:
            if part.size <= start:  # connect again only while that brings bytes
                raise AddressFailed(str(error), unreachable=True) from error


def _check_size(answer: Answer, part: PartialFile) -> None:
    length = answer.headers.get("content-length", "")
    if length.isdigit() and part.size_bytes not in (None, part.size + int(length)):
        raise AddressFailed(f"it offers {part.size + int(length)} bytes instead of {part.size_bytes}")


def _version_of(answer: Answer) -> str:
    """Return what distinguishes this content from a later version at the same address; empty if the server does not
    say."""
    etag = answer.headers.get("etag", "")
    return etag if etag and not etag.startswith("W/") else answer.headers.get("last-modified", "")


def _refused(url: str, status: int) -> str:
    if status in (401, 403) and url.startswith(hub()):
        return f"it answered {status}; accept the model's terms on its page there and set HF_TOKEN"
    return f"it answered {status}"


@asynccontextmanager
async def _open(url: str, start: int, part: PartialFile | None) -> AsyncGenerator[Answer]:
    for _ in range(REDIRECTS_MAX + 1):
        parts = urlsplit(url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        client = Client(url, connect_s=ANSWER_TIMEOUT_S, proxy=environment_proxy(url))
        try:
            head = Head(_headers(url, start, part))
            answer = await client.ask("GET", target, head, wait_s=ANSWER_TIMEOUT_S, idle_s=SILENCE_TIMEOUT_S)
            if part is not None and re.fullmatch(r"[0-9a-f]{64}", linked := _linked(answer)):
                part.promised_sha256 = linked
            if answer.status not in (301, 302, 303, 307, 308):
                answer.begun = True  # from here on only `idle_s` counts
                yield answer
                return
            was_encrypted, url = url.startswith("https:"), urljoin(url, answer.headers.get("location", ""))
            if was_encrypted and not url.startswith("https:"):
                raise AddressFailed("it redirects to an address that is not encrypted")
        finally:
            client.close()
    raise AddressFailed(f"it redirects more than {REDIRECTS_MAX} times")


def _linked(answer: Answer) -> str:
    """Return the SHA-256 of a large file, which the hub names where it redirects to its storage."""
    return answer.headers.get("x-linked-etag", "").strip('"')


def _headers(url: str, start: int, part: PartialFile | None) -> dict[str, str]:
    headers = {"accept-encoding": "identity", "user-agent": "rondel"}
    if start:
        headers["range"] = f"bytes={start}-"
        if part is not None and part.version:
            headers["if-range"] = part.version
    token = os.environ.get("HF_TOKEN", "").strip()
    if token and urlsplit(url).netloc == urlsplit(hub()).netloc:  # never to where the hub redirects
        headers["authorization"] = f"Bearer {token}"
    return headers
