"""HttpEngine calls one model at one endpoint, and relays callers' requests to it.

Knows no retry, no fallback, and no wire format.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import Any, TypeVar, cast
from urllib.parse import quote, urlsplit

import msgspec

from ... import __version__
from ...contracts.dialect import AddsHeaders, ChecksAttachments, Dialect, StreamMeter, headers_key, passthrough
from ...contracts.endpoint import Endpoint, facts_of
from ...contracts.fitting import fitted
from ...engine import Relayed
from ...errors import EngineDenied, EngineError, EngineGarbled, EngineUnreachable
from ...http import Answer, Client, ConnectTimeout, Head, HttpError, Silence, environment_proxy
from ...prompt import Prompt
from ...text.attached import check_attachments
from ...values import Delta, ModelFacts, PartDelta, PartStarted, Reply, ReplyFinished, ReplyStarted, ToolSpec, deltas_of
from .body import Body
from .encoder import PromptEncoder
from .faults import Faults
from .headers import retry_after_s, sent_on, shown
from .relayed import StreamedAnswer, WholeAnswer

_encode = msgspec.json.Encoder().encode
_TRUE = msgspec.Raw(b"true")
_STREAM, _JSON = "text/event-stream; charset=utf-8", "application/json"

T = TypeVar("T")


class HttpEngine:
    """Calls one model at one endpoint. The client opens with the first prompt, and closes with `aclose` or the loop."""

    def __init__(self, endpoint: Endpoint, dialect: Dialect, model: str, facts: ModelFacts | None = None) -> None:
        self._endpoint, self._dialect, self._model = endpoint, dialect, model
        self.name = f"{endpoint.provider}:{model}"
        self._facts = facts if facts is not None else facts_of(endpoint.provider, model)
        self._faults = Faults(endpoint, model)
        self._url = endpoint.url(dialect.path)
        parts = urlsplit(self._url)
        self._target = _target(parts.path, parts.query)
        self._encoder = PromptEncoder(dialect)
        self._passthrough = passthrough(dialect)
        self._checks = dialect if isinstance(dialect, ChecksAttachments) else None
        self._adds_headers = dialect if isinstance(dialect, AddsHeaders) else None
        self._own_headers = self._headers()
        self._headers_key = headers_key(dialect.name)
        self._own_head: Head | None = None
        self._endpoint_headers = {name.lower(): value for name, value in endpoint.headers.items()}
        self._model_field = msgspec.Raw(msgspec.json.encode(model))
        self._more_fields = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in endpoint.options.items()}
        key = endpoint.key
        self._has_good_key = bool(key or not endpoint.needs_key) and key.isascii() and key.isprintable()
        self._lease: AsyncGenerator[Client] | None = None
        self._client: Client | None = None

    def __repr__(self) -> str:
        return f"HttpEngine({self._endpoint!r}, {self._dialect.name!r}, {self._model!r})"

    @property
    def facts(self) -> ModelFacts:
        return self._facts

    @property
    def dialect(self) -> str:
        return self._dialect.name

    async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        self._check_key()
        sent = self._written(prompt)
        answer = await self._post(self._target, sent, self._headers_of(prompt, sent))
        body = Body(answer, self._faults)
        try:
            if answer.status >= 300:
                raise await self._refusal(answer, body)
            first = await _beginning(answer, body)
            if first and not _is_stream(first):
                for delta in deltas_of(await self._whole(first, body, prompt.tools)):
                    yield delta
                return
            reader, pending = self._dialect.reply_reader(prompt.tools), 0
            lines, redact = _Lines(), self._faults.redactor.data
            while chunk := first or await body.read():
                first = b""
                data = lines.feed(chunk)  # whole lines, so that no secret is split between two chunks
                deltas = self._understood(reader.feed, redact(data)) if data else []
                if not deltas:
                    pending = body.bounded(pending + len(chunk))
                    continue
                pending = 0
                if type(deltas[0]) is ReplyStarted:  # the model's name is stored, so it must contain no secret
                    named = self._faults.redactor.text
                    deltas[0] = ReplyStarted(named(deltas[0].model), named(deltas[0].id), deltas[0].usage)
                if not body.token_seen and any(isinstance(delta, PartStarted | PartDelta) for delta in deltas):
                    body.expect_tokens()
                for delta in _joined(deltas) if len(deltas) > 2 else deltas:
                    yield delta
                if reader.failure is not None:
                    break
                if type(deltas[-1]) is ReplyFinished:
                    body.let_go()
                    return
            for delta in self._understood(lambda data: [*reader.feed(data), *reader.finish()], redact(lines.rest)):
                yield delta
            if reader.failure is not None:
                raise self._faults.owned(reader.failure)
        finally:
            body.close()

    async def relay(self, fields: Mapping[str, msgspec.Raw], headers: Mapping[str, str], *, path: str = "") -> Relayed:
        self._check_key()
        if self._passthrough is None:
            raise TypeError(f"the dialect {self.dialect!r} cannot be relayed")
        sent = dict(fields)
        meter = self._passthrough.meter(sent)
        sent["model"] = self._model_field
        is_own = not path or path.partition("?")[0] == self._dialect.path
        if is_own and self._more_fields:
            sent |= self._more_fields
            sent = {name: value for name, value in sent.items() if self._endpoint.options.get(name, ...) is not None}
        target = self._target_of(path) if path else self._target
        answer = await self._post(target, _encode(sent), sent_on(self._own_headers, self._endpoint_headers, headers))
        body = Body(answer, self._faults)
        try:
            if answer.status >= 300:
                raise await self._refusal(answer, body)
            first = await _beginning(answer, body)
            if is_own and fields.get("stream") == _TRUE:
                return await self._relay_stream(answer, body, meter, first)
            data = await self._json(first or await body.read(), body, read_next=is_own)
            if is_own:
                self._understood(meter.whole, data)
            body.close()
            return WholeAnswer(data, meter, self._shown(answer, _JSON), self._faults, answer.status)
        except BaseException:
            body.close()
            raise

    async def post(self, path: str, body: bytes, content_type: str, *, bytes_max: int) -> bytes:
        """Send a body to another path than the dialect's, and return the answer: a JSON object that is not an error."""
        self._check_key()
        answer = await self._post(self._target_of(path), body, {**self._own_headers, "content-type": content_type})
        received = Body(answer, self._faults)
        try:
            if answer.status >= 300:
                raise await self._refusal(answer, received)
            data = await self._json(await _beginning(answer, received), received, bytes_max=bytes_max)
        finally:
            received.close()
        return self._faults.redactor.data(data)

    async def aclose(self) -> None:
        """Close the client and its connections. Asking again opens a new one."""
        lease, self._lease, self._client = self._lease, None, None
        if lease is not None:
            await lease.aclose()

    # --- the client ---------------------------------------------------------------------------------------------------

    async def _open(self) -> Client:
        """Open a client for the running event loop. A loop that ends closes its open async generators, so an engine
        that is used in one `asyncio.run` after another leaks nothing, even without `aclose`."""
        self._lease = _leased(self._url, self._endpoint.connect_s, self._proxy_of_environment())
        self._client = await anext(self._lease)
        return self._client

    def _proxy_of_environment(self) -> str:
        """Return the proxy that the environment sets for this endpoint; none for loopback."""
        proxy = "" if self._endpoint.is_loopback else environment_proxy(self._url)
        if proxy and not proxy.startswith(("http://", "https://")):
            kind = proxy.partition(":")[0]
            raise self._faults.error(
                EngineUnreachable, "proxy", f"the proxy in the environment is {kind!r}; only HTTP proxies can be used"
            )
        return proxy

    async def _post(self, target: str, sent: bytes, headers: Mapping[str, str]) -> Answer:
        """Send a request and return the answer once its headers are there."""
        client = self._client
        if client is None or not client.is_here:
            client = await self._open()
        endpoint = self._endpoint
        # Raised after the except clauses, so that our error has no context, which could hold a secret.
        try:
            head = self._head(headers)
            return await client.ask("POST", target, head, sent, wait_s=endpoint.first_token_s, idle_s=endpoint.idle_s)
        except ConnectTimeout:
            failure = self._faults.timeout("connect", "did not accept a connection")
        except Silence:
            failure = self._faults.timeout("first_token", "did not begin to answer")
        except HttpError as error:
            failure = self._faults.connection(error)
        raise failure

    def _head(self, headers: Mapping[str, str]) -> Head:
        """Return encoded headers; our own are encoded once."""
        if headers is not self._own_headers:
            return Head(headers)
        if self._own_head is None:
            self._own_head = Head(headers)
        return self._own_head

    # --- what goes out ------------------------------------------------------------------------------------------------

    def _check_key(self) -> None:
        if self._has_good_key:
            return
        endpoint = self._endpoint
        if endpoint.needs_key and not endpoint.key:
            variables = " or ".join(endpoint.key_variables)
            raise self._faults.error(
                EngineDenied, "no_key", f"there is no key for {endpoint.provider}; set {variables}"
            )
        if not (endpoint.key.isascii() and endpoint.key.isprintable()):
            whose = " or ".join(endpoint.key_variables) or endpoint.provider
            raise self._faults.error(
                EngineDenied, "bad_key", f"the key of {whose} contains an invalid character; copy it again"
            )

    def _headers(self) -> dict[str, str]:
        """Return the dialect's headers and the endpoint's, which win. A local server may have no key."""
        key = self._endpoint.key
        given = {name: value for name, value in self._dialect.headers.items() if key or "{key}" not in value}
        own = {name.lower(): value for name, value in self._endpoint.headers.items()}
        return {
            "content-type": "application/json",
            "accept": "text/event-stream, application/json",
            "accept-encoding": "identity",  # a compressing proxy would hold events back
            "user-agent": f"rondel/{__version__}",
            **{name: value.replace("{key}", key) for name, value in given.items()},
            **own,
        }

    def _headers_of(self, prompt: Prompt, sent: bytes) -> Mapping[str, str]:
        headers: Mapping[str, str] = self._own_headers
        if callers := prompt.opaque.get(self._headers_key):
            headers = sent_on(headers, self._endpoint_headers, callers)
        return headers if self._adds_headers is None else self._adds_headers.headers_for(sent, headers)

    def _target_of(self, path: str) -> str:
        """Return path and query for a path other than the dialect's, or for the dialect's with a query."""
        bare, _, query = path.partition("?")
        parts = urlsplit(self._url)
        if bare.startswith(self._dialect.path):
            where = parts.path + bare.removeprefix(self._dialect.path)
        else:
            where = urlsplit(self._endpoint.url(bare)).path
        return _target(where, "&".join(filter(None, (parts.query, query))))

    def _written(self, prompt: Prompt) -> bytes:
        if self._checks is not None:
            check_attachments(prompt.newest_first(), self._checks.carries, self.name)
        fitting = fitted(prompt, self._facts, self._dialect.name)
        return self._encoder.encode(fitting, model=self._model, more=self._endpoint.options)

    # --- what comes back ----------------------------------------------------------------------------------------------

    def _understood(self, read: Callable[[bytes], T], data: bytes) -> T:
        """Let the dialect read some bytes. Any error is caused by the answer, and is raised as such."""
        try:
            return read(data)
        except EngineError as error:
            raise self._faults.owned(error) from None
        except (msgspec.MsgspecError, ValueError, TypeError, LookupError, AttributeError) as error:
            raise self._faults.of_answer(error, self.dialect) from error

    def _shown(self, response: Answer, content_type: str) -> dict[str, str]:
        return shown(response.headers, content_type, self._faults.redactor)

    async def _relay_stream(
        self, response: Answer, body: Body, meter: StreamMeter, first: bytes
    ) -> StreamedAnswer | WholeAnswer:
        headers = self._shown(response, _STREAM)
        if first and not _is_stream(first):  # the server does not stream: turn its answer into a stream
            reply = await self._whole(first, body)
            body.close()
            writer = self._dialect.reply_writer(model=reply.model or self._model, id=reply.id)
            events = b"".join(writer.feed(delta) for delta in deltas_of(reply))
            meter.feed(events)
            return WholeAnswer(events, meter, headers, self._faults, response.status)
        answer = StreamedAnswer(body, meter, headers, self._faults, self.dialect, response.status)
        await answer.begin(first)
        return answer

    async def _whole(self, first: bytes, body: Body, tools: tuple[ToolSpec, ...] = ()) -> Reply:
        """Return the reply of a server that does not stream."""
        data = self._faults.redactor.data(await self._json(first, body))
        fields = cast("dict[str, Any]", msgspec.json.decode(data))
        reply = self._understood(lambda _: self._dialect.reply_reader(tools).read_whole(fields), data)
        if not (reply.message.parts or reply.id or reply.model):  # some other JSON, such as a status or a greeting
            raise self._faults.garbled(f"the answer is JSON, but not {self.dialect}")
        named = self._faults.redactor.text
        return msgspec.structs.replace(reply, model=named(reply.model), id=named(reply.id))

    async def _json(self, first: bytes, body: Body, *, read_next: bool = False, bytes_max: int | None = None) -> bytes:
        """Return a body that is one JSON object and not an error. With `read_next`, the caller parses it itself, so it
        is only parsed here if it may be an error."""
        if first.lstrip().startswith(b"<"):
            where = self._faults.where
            raise self._faults.no_model(
                "html", f"{where} answered with a web page (HTML) instead of a reply; check its base URL"
            )
        if first and _is_stream(first):
            raise self._faults.garbled(f"{self._faults.where} sent a stream although none was requested")
        data = await body.read_all(first, bytes_max)
        if not data.strip():
            raise self._faults.garbled(f"{self._faults.where} gave an empty answer; ask again")
        if read_next and b'"error"' not in data:
            return data
        try:
            error = _ERROR.decode(data).error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            failure = self._faults.garbled(f"the answer is not {self.dialect}: {problem}")
        else:
            if not error:
                return data
            failure = self._error_inside(error, data)
        raise failure

    def _error_inside(self, told: object, data: bytes) -> EngineError:
        """Return the error in an answer with a status of success: by the status that it names, else by its text."""
        if status := _status_inside(told):
            return self._read_error(status, data)
        try:
            self._dialect.reply_reader().read_whole(msgspec.json.decode(data))
        except EngineGarbled:
            return self._read_error(500, data)
        except EngineError as error:
            error.body = b"" if isinstance(error, EngineDenied) else data
            return self._faults.owned(error)
        return self._read_error(500, data)

    def _read_error(self, status: int, data: bytes) -> EngineError:
        reader = self._dialect.reply_reader()
        error = reader.read_error(status, data, provider=self._endpoint.provider, model=self._model)
        error.status = status
        if not isinstance(error, EngineDenied):
            error.body = _object_or_nothing(data)
        elif self._endpoint.key_variables:
            error.args = (f"{error} (it was read from {' or '.join(self._endpoint.key_variables)})",)
        return self._faults.owned(error)

    async def _refusal(self, response: Answer, body: Body) -> EngineError:
        """Return the error for a status other than success."""
        if response.status < 400:
            target = response.headers.get("location", "")
            error = self._faults.no_model(
                "redirect", f"{self._faults.where} sends to {target!r}; put that into its base URL"
            )
            error.retryable = False
            return error
        error = self._read_error(response.status, await body.read_some())
        if (wait_s := retry_after_s(response.headers)) is not None:
            error.retry_after_s = wait_s
        return error


class _Lines:
    """Splits chunks into whole lines."""

    def __init__(self) -> None:
        self._held: list[bytes] = []

    def feed(self, chunk: bytes) -> bytes:
        """Return the lines that a chunk completes."""
        end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
        if end == len(chunk) and not self._held:
            return chunk
        if not end:
            self._held.append(chunk)
            return b""
        data = b"".join((*self._held, chunk[:end]))
        self._held = [chunk[end:]] if end < len(chunk) else []
        return data

    @property
    def rest(self) -> bytes:
        return b"".join(self._held)


class _MaybeError(msgspec.Struct):
    error: Any = None


_ERROR = msgspec.json.Decoder(_MaybeError)


async def _beginning(response: Answer, body: Body) -> bytes:
    """Return the first bytes of an answer, which show whether it streams. A content type is often wrong, except when it
    says that the answer streams."""
    label = response.headers.get("content-type", "")
    return b"" if label.lower().startswith("text/event-stream") else await body.read()


def _is_stream(first: bytes) -> bool:
    return first.lstrip().startswith((b"data", b"event", b"id", b"retry", b":"))


def _joined(deltas: list[Delta]) -> list[Delta]:
    """Join pieces of text that arrived together: each delta passes many steps, and fast servers send many."""
    joined: list[Delta] = []
    texts: list[str] = []
    index = -1
    for delta in deltas:
        if type(delta) is PartDelta and delta.index == index:
            texts.append(delta.text)
            continue
        if len(texts) > 1:
            joined[-1] = PartDelta(index, "".join(texts))
        index = -1
        if type(delta) is PartDelta:
            index, texts = delta.index, [delta.text]
        else:
            texts = []
        joined.append(delta)
    if len(texts) > 1:
        joined[-1] = PartDelta(index, "".join(texts))
    return joined


def _object_or_nothing(data: bytes) -> bytes:
    try:
        _ERROR.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return b""
    return data


async def _leased(url: str, connect_s: float, proxy: str) -> AsyncGenerator[Client]:
    client = Client(url, connect_s=connect_s, proxy=proxy)
    try:
        yield client
    finally:
        client.close()


def _target(path: str, query: str) -> str:
    return quote(f"{path or '/'}?{query}" if query else path or "/", safe="/?&=:;,@!$'()*+%~[]")


def _status_inside(failure: Any) -> int:
    """Return the status that an error names although its answer has a status of success; 0 if none."""
    code: object = cast("dict[str, object]", failure).get("code") if isinstance(failure, dict) else None
    return code if isinstance(code, int) and 400 <= code < 600 else 0
