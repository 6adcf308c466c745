"""The engine that asks a model over HTTP: an endpoint, a dialect, and one pooled client.

It opens, times, bounds and closes the request; what the bytes mean is the dialect's. The HTTP client is aiohttp, the
fastest on streams (`python -m bench.http_clients`); it is imported with the first prompt, because its import takes
longer than everything else at start-up. Knows no retry, no fallback, and no wire format.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from .. import __version__
from ..deadline import Deadlines
from ..dialect import Dialect
from ..encoder import PromptEncoder
from ..endpoint import Endpoint, facts_of
from ..errors import EngineDenied, EngineError, EngineGarbled, EngineTimeout, EngineUnreachable
from ..prompt import Prompt
from ..values import Delta, ModelFacts, PartDelta, PartStarted, Reply, ReplyFinished, deltas_of

if TYPE_CHECKING:
    import aiohttp

EVENT_BYTES_MAX = 32 * 1024 * 1024
"""How much may arrive without completing a delta; an answer that is not a stream may be as long."""
ERROR_BYTES_MAX = 64 * 1024
LINGER_S = 0.5
"""How long a server may take to end its answer after the reply is complete; then its connection is not used again."""
KEEPALIVE_S = 45.0

T = TypeVar("T")


class HttpEngine:
    """Asks one model at one endpoint. Its client opens with the first prompt and closes with `aclose`, or the loop."""

    def __init__(self, endpoint: Endpoint, dialect: Dialect, model: str, facts: ModelFacts | None = None) -> None:
        self._endpoint, self._dialect, self._model = endpoint, dialect, model
        self._facts = facts if facts is not None else facts_of(endpoint.provider, model)
        self._faults = _Faults(endpoint, model)
        self._url = endpoint.url(dialect.path)
        self._encoder = PromptEncoder(dialect)
        self._deadlines = Deadlines()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lease: AsyncGenerator[aiohttp.ClientSession, None] | None = None
        self._session: aiohttp.ClientSession | None = None
        self._proxy: str | None = None

    def __repr__(self) -> str:
        return f"HttpEngine({self._endpoint!r}, {self._dialect.name!r}, {self._model!r})"

    @property
    def name(self) -> str:
        return f"{self._endpoint.provider}:{self._model}"

    @property
    def facts(self) -> ModelFacts:
        return self._facts

    async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        self._check_key()
        sent = self._written(prompt)
        session = await self._open()
        started = asyncio.get_running_loop().time()
        response = await self._post(session, sent, started)
        body = _Body(response, self._endpoint, self._faults, started)
        try:
            if response.status >= 300:
                raise await self._refusal(response, body)
            # What the body begins with decides, unless the server says that it streams: labels are often wrong.
            first = b"" if response.content_type == "text/event-stream" else await body.read()
            if first and not first.lstrip().startswith((b"data", b"event", b"id", b"retry", b":")):
                for delta in deltas_of(await self._whole(first, body)):
                    yield delta
                return
            reader, pending = self._dialect.reply_reader(), 0
            while chunk := first or await body.read():
                first = b""
                deltas = self._understood(reader.feed, chunk)
                if not deltas:
                    pending = self._bounded(pending + len(chunk))
                    continue
                pending = 0
                if not body.token_seen and any(isinstance(delta, PartStarted | PartDelta) for delta in deltas):
                    body.expect_tokens()
                for delta in deltas:
                    yield delta
                if type(deltas[-1]) is ReplyFinished:
                    await body.linger()
                    return
            for delta in self._understood(lambda _: reader.finish(), b""):
                yield delta
        finally:
            body.close()

    async def aclose(self) -> None:
        """Close the client and its connections. Asking again opens a new one."""
        lease, self._lease, self._session = self._lease, None, None
        self._deadlines.close()
        if lease is not None:
            await lease.aclose()

    # --- the client ---------------------------------------------------------------------------------------------------

    async def _open(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is None or self._loop is not loop:
            self._proxy = self._proxy_of_environment()
            # A loop that ends closes the asynchronous generators that are still open in it: an engine that is used from
            # one `asyncio.run` after another leaves nothing behind, even if nobody calls `aclose`.
            self._loop, self._lease, self._deadlines = loop, _client(self._endpoint.connect_s), Deadlines()
            self._session = await anext(self._lease)
        return self._session

    def _proxy_of_environment(self) -> str | None:
        """The proxy that the environment names for this endpoint. Loopback is never asked for through one."""
        from urllib.request import getproxies, proxy_bypass

        if self._endpoint.is_loopback or proxy_bypass(self._endpoint.host):
            return None
        proxy = getproxies().get(self._url.partition(":")[0])
        if proxy and not proxy.startswith(("http://", "https://")):
            kind = proxy.partition(":")[0]
            raise self._faults.error(
                EngineUnreachable, "proxy", f"the proxy in the environment is {kind!r}; only HTTP proxies can be used"
            )
        return proxy

    async def _post(self, session: aiohttp.ClientSession, sent: bytes, started: float) -> aiohttp.ClientResponse:
        import aiohttp

        # Raised after the except clauses, because aiohttp's own errors may hold the request's headers and with them the
        # key: ours must not refer to them, not even as their context.
        try:
            with self._deadlines.until(started + self._endpoint.first_token_s):
                return await session.post(
                    self._url, data=sent, headers=self._headers(), proxy=self._proxy, allow_redirects=False
                )
        except aiohttp.ConnectionTimeoutError:
            failure = self._faults.timeout("connect", "did not accept a connection")
        except TimeoutError:
            failure = self._faults.timeout("first_token", "did not begin to answer")
        except (aiohttp.ClientError, OSError) as error:
            failure = self._faults.connection(error)
        raise failure

    # --- what goes out ------------------------------------------------------------------------------------------------

    def _check_key(self) -> None:
        endpoint = self._endpoint
        if endpoint.needs_key and not endpoint.key:
            variables = " or ".join(endpoint.key_variables)
            raise self._faults.error(
                EngineDenied, "no_key", f"there is no key for {endpoint.provider}; set {variables}"
            )
        if not (endpoint.key.isascii() and endpoint.key.isprintable()):
            whose = " or ".join(endpoint.key_variables) or endpoint.provider
            raise self._faults.error(
                EngineDenied, "bad_key", f"the key of {whose} has a character that no key has; copy it again"
            )

    def _headers(self) -> dict[str, str]:
        """The dialect's headers and the endpoint's, which win. Without a key, nothing that would carry one is sent."""
        key = self._endpoint.key
        carried = {name.lower(): value for name, value in self._dialect.headers(key).items()}
        if not key:
            carried.pop("authorization", None)
            carried.pop("x-api-key", None)
        own = {name.lower(): value for name, value in self._endpoint.headers.items()}
        return {
            "content-type": "application/json",
            "accept": "text/event-stream, application/json",
            "accept-encoding": "identity",  # a compressor in the way holds events back
            "user-agent": f"rondel/{__version__}",
            **carried,
            **own,
        }

    def _written(self, prompt: Prompt) -> bytes:
        return self._encoder.encode(prompt, model=self._model, more=self._endpoint.options)

    # --- what comes back ----------------------------------------------------------------------------------------------

    def _understood(self, read: Callable[[bytes], T], data: bytes) -> T:
        """What the dialect makes of some bytes. Whatever it stumbles over is in the answer, and the error says so."""
        try:
            return read(data)
        except EngineError as error:
            raise self._faults.owned(error) from None
        except (msgspec.MsgspecError, ValueError, TypeError, LookupError, AttributeError) as error:
            raise self._faults.error(
                EngineGarbled, "garbled", f"the answer is not {self._dialect.name}: {type(error).__name__}: {error}"
            ) from error

    def _bounded(self, pending: int) -> int:
        if pending > EVENT_BYTES_MAX:
            raise self._faults.too_long()
        return pending

    async def _whole(self, first: bytes, body: _Body) -> Reply:
        """The reply of a server that does not stream."""
        if first.lstrip().startswith(b"<"):
            raise self._faults.error(
                EngineGarbled,
                "html",
                f"{self._faults.where} answered with a web page (HTML) instead of a reply; check its base URL",
            )
        data = await body.read_all(first)
        answer = self._understood(msgspec.json.decode, data)
        if not isinstance(answer, dict):
            raise self._faults.error(EngineGarbled, "garbled", f"the answer is JSON, but not {self._dialect.name}")
        fields = cast("dict[str, Any]", answer)
        if fields.get("error"):
            raise self._read_error(_status_inside(fields["error"]), data)
        reply = self._understood(lambda _: self._dialect.read_reply(fields), data)
        if not (reply.message.parts or reply.id or reply.model):  # some other JSON: a status, a greeting
            raise self._faults.error(EngineGarbled, "garbled", f"the answer is JSON, but not {self._dialect.name}")
        return reply

    def _read_error(self, status: int, data: bytes) -> EngineError:
        error = self._dialect.read_error(status, data, provider=self._endpoint.provider, model=self._model)
        if isinstance(error, EngineDenied) and self._endpoint.key_variables:
            error.args = (f"{error} (it was read from {' or '.join(self._endpoint.key_variables)})",)
        return self._faults.owned(error)

    async def _refusal(self, response: aiohttp.ClientResponse, body: _Body) -> EngineError:
        """The error that a status other than success means."""
        if response.status < 400:
            target = response.headers.get("Location", "")
            error = self._faults.error(
                EngineGarbled, "redirect", f"{self._faults.where} sends to {target!r}; put that into its base URL"
            )
            error.retryable = False
            return error
        error = self._read_error(response.status, await body.read_some())
        if (wait_s := retry_after_s(response.headers)) is not None:
            error.retry_after_s = wait_s
        return error


async def _client(connect_s: float) -> AsyncGenerator[aiohttp.ClientSession, None]:
    import aiohttp

    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S, ttl_dns_cache=60),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, connect=connect_s),
    )
    try:
        yield session
    finally:
        await session.close()


class _Silence(Exception):
    """A read has waited too long."""


class _Body:
    """The bytes of an answer as they arrive.

    One timer serves the whole answer: when it goes off it looks since when a read has been waiting, and sets itself
    anew for when that read would be due. So a chunk costs two assignments, and a slow consumer is no silent server.
    """

    def __init__(self, response: aiohttp.ClientResponse, endpoint: Endpoint, faults: _Faults, started: float) -> None:
        self._response, self._content, self._faults = response, response.content, faults
        self._first_due, self._idle_s = started + endpoint.first_token_s, endpoint.idle_s
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._waiting_since: float | None = None
        self._bytes_seen = False
        self.token_seen = False

    async def read(self) -> bytes:
        """What has arrived, as soon as anything has; nothing at the end."""
        self._waiting_since = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_at(self._due(self._waiting_since), self._tick)
        try:
            chunk = await self._content.readany()
        except _Silence:
            failure = (
                self._faults.timeout("idle", "fell silent in the middle of its answer")
                if self.token_seen
                else self._faults.timeout("first_token", "began to answer, but no token came")
            )
        except Exception as error:
            failure = self._faults.connection(error)
        else:
            self._bytes_seen = True
            return chunk
        finally:
            self._waiting_since = None
        raise failure

    def expect_tokens(self) -> None:
        """From now on a wait is for the next token, not for the first; it may be due earlier than the timer is set."""
        self.token_seen = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def read_all(self, first: bytes) -> bytes:
        pieces, size = [first], len(first)
        while chunk := await self.read():
            pieces.append(chunk)
            size += len(chunk)
            if size > EVENT_BYTES_MAX:
                raise self._faults.too_long()
        return b"".join(pieces)

    async def read_some(self) -> bytes:
        """As much of an error's body as comes; the status is told even when the body breaks off."""
        self.expect_tokens()
        data = b""
        try:
            while len(data) < ERROR_BYTES_MAX and (chunk := await self.read()):
                data += chunk
        except EngineError:
            pass
        return data[:ERROR_BYTES_MAX]

    async def linger(self) -> None:
        """Let the server end its answer, so that the connection can be used again. The reply is complete already:
        nothing that goes wrong now matters."""
        if self._content.at_eof():
            return
        try:
            async with asyncio.timeout(LINGER_S):
                while await self._content.readany():
                    pass
        except Exception:
            return

    def close(self) -> None:
        """Close the connection at once; one whose answer has ended is in the pool again and stays open."""
        if self._timer is not None:
            self._timer.cancel()
        self._response.close()

    def _due(self, since: float) -> float:
        if self.token_seen:
            return since + self._idle_s
        # Bytes without a token (a ping, a comment) show that the server works: it may take as long as between tokens.
        return max(self._first_due, since + self._idle_s) if self._bytes_seen else self._first_due

    def _tick(self) -> None:
        self._timer = None
        if self._waiting_since is None:
            return  # nobody waits; the next read sets the timer
        due = self._due(self._waiting_since)
        if self._loop.time() >= due:
            self._content.set_exception(_Silence())
        else:
            self._timer = self._loop.call_at(due, self._tick)


class _Faults:
    """Says what went wrong, for whom, and never with the key in it."""

    def __init__(self, endpoint: Endpoint, model: str) -> None:
        self._endpoint, self._model = endpoint, model
        self.where = f"{endpoint.provider} at {endpoint.address}"

    def error(self, kind: Callable[..., EngineError], code: str, message: str) -> EngineError:
        return self.owned(kind(message, code=code))

    def owned(self, error: EngineError) -> EngineError:
        """The error with its provider, model and a code, and without the key should the server have repeated it."""
        error.provider = error.provider or self._endpoint.provider
        error.model = error.model or self._model
        error.code = error.code or type(error).__name__
        if (key := self._endpoint.key) and key in str(error):
            error.args = (str(error).replace(key, "[key]"),)
        return error

    def too_long(self) -> EngineError:
        size = EVENT_BYTES_MAX >> 20
        return self.error(
            EngineGarbled, "too_long", f"{self.where} sent more than {size} MiB without one whole event; it was cut off"
        )

    def timeout(self, which: str, what: str) -> EngineError:
        setting = f"{which}_s"
        seconds: float = getattr(self._endpoint, setting)
        return self.error(
            EngineTimeout, f"timeout_{which}", f"{self.where} {what} within {seconds:g} s (the endpoint's {setting})"
        )

    def connection(self, error: Exception) -> EngineError:
        """Why there is no connection, or no longer."""
        import aiohttp

        where = self.where
        if isinstance(error, aiohttp.ClientHttpProxyError | aiohttp.ClientProxyConnectionError):
            code, text = "proxy", f"the proxy in the environment did not connect to {where}; check HTTPS_PROXY"
        elif isinstance(error, aiohttp.ClientResponseError):
            return self.error(EngineGarbled, "not_http", f"{where} did not answer in HTTP; check its base URL")
        elif isinstance(error, aiohttp.ClientConnectorDNSError):
            code, text = "dns", f"{where} has no address; check its base URL and the network"
        elif isinstance(error, aiohttp.ClientSSLError):
            code, text = "tls", f"there is no trusted connection to {where}: {error}"
        elif isinstance(error, OSError) and error.errno == errno.ECONNREFUSED:
            code, text = "refused", f"nothing listens for {where}; is the server running?"
        elif isinstance(error, aiohttp.ClientPayloadError | aiohttp.ServerDisconnectedError):
            code, text = "broken", f"{where} closed the connection before its answer had ended"
        else:
            code, text = "broken", f"the connection to {where} broke: {error or type(error).__name__}"
        return self.error(EngineUnreachable, code, text)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """How long a server asks to wait: milliseconds, seconds, or a date, by the server's own clock where it shows it."""
    if (wait_s := _number(headers.get("Retry-After-Ms"))) is not None:
        return max(0.0, wait_s / 1000)
    if (wait_s := _number(headers.get("Retry-After"))) is not None:
        return max(0.0, wait_s)
    if (until_s := _moment(headers.get("Retry-After"))) is not None:
        now_s = _moment(headers.get("Date"))
        return max(0.0, until_s - (now_s if now_s is not None else time.time()))
    return None


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if number == number and abs(number) != float("inf") else None


def _moment(text: str | None) -> float | None:
    try:
        moment = parsedate_to_datetime(text or "")
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _status_inside(failure: Any) -> int:
    """The status that an error says it has when its answer's own status is success; a server's fault by default."""
    code: object = cast("dict[str, object]", failure).get("code") if isinstance(failure, dict) else None
    return code if isinstance(code, int) and 400 <= code < 600 else 500
