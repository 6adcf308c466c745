"""Streamable HTTP as a transport of the SDK, with limits, a login if there is one, and the reason when it fails."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping

import anyio
import httpx2
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._stream_protocols import WriteStream
from mcp.shared.message import SessionMessage

from .. import __version__
from ..errors import RondelError
from .login import TokenFile, background_login
from .spec import ServerSpec
from .stdio import MESSAGE_BYTES_MAX, Incoming, Pace

READ_S = 300.0  # how long a server may be silent while it answers


class _TooLarge(httpx2.StreamError):
    pass


class _Limited(httpx2.AsyncByteStream):
    """The body of an answer, up to the size of a message."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > MESSAGE_BYTES_MAX:
                raise _TooLarge(f"its answer is larger than {MESSAGE_BYTES_MAX >> 20} MB and was dropped; ask for less")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


class _LimitedTransport(httpx2.AsyncHTTPTransport):
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.headers["accept-encoding"] = "identity"
        response = await super().handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx2.RemoteProtocolError("it compresses its answers although it was asked not to")
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _Limited(response.stream)
        return response


class HttpTransport:
    """`async with open()` gives the two streams of a session. `reason` has what HTTP said when something failed."""

    def __init__(self, spec: ServerSpec, tokens: TokenFile | None) -> None:
        self._spec, self._tokens = spec, tokens
        self.ended = asyncio.Event()
        self.reason = ""
        self.status = 0  # of the last answer that was an error
        self.needs_login = False
        self.login_failure = 0  # the status with which the login server, a different one, has failed

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncGenerator[tuple[MemoryObjectReceiveStream[Incoming], WriteStream[SessionMessage]]]:
        timeout = httpx2.Timeout(self._spec.connect_s, read=READ_S)
        async with (
            httpx2.AsyncClient(
                headers=_headers(self._spec.headers),
                timeout=timeout,
                transport=_LimitedTransport(),
                auth=await background_login(self._spec, self._tokens, self),
                event_hooks={"response": [self._note]},
            ) as client,
            streamable_http_client(self._spec.url, http_client=client, max_sse_event_size=MESSAGE_BYTES_MAX) as (
                read_stream,
                write_stream,
            ),
        ):
            send, receive = anyio.create_memory_object_stream[Incoming](0)
            async with anyio.create_task_group() as group:
                group.start_soon(self._pump, read_stream, send)
                try:
                    yield receive, write_stream
                finally:
                    group.cancel_scope.cancel()
                    receive.close()

    async def _pump(self, source: AsyncIterator[Incoming], send: anyio.abc.ObjectSendStream[Incoming]) -> None:
        pace = Pace()
        try:
            async for message in source:
                await pace.wait()
                await send.send(message)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            pass
        except RondelError as error:
            self.reason = str(error)
        finally:
            self.ended.set()
            await send.aclose()

    async def _note(self, response: httpx2.Response) -> None:
        if response.status_code < 400:
            return
        if not str(response.url).startswith(self._spec.url):
            self.login_failure = response.status_code if response.status_code >= 500 else self.login_failure
            return
        self.status = response.status_code
        self.reason = f"it answered with HTTP {response.status_code}"
        if response.status_code == 401 and self._tokens is not None:
            self.needs_login = True


def _headers(given: Mapping[str, str]) -> dict[str, str]:
    return {"user-agent": f"rondel/{__version__}", **given}
