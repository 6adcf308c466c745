"""Which HTTP client costs the least on streamed answers? `python -m bench.http_clients` prints CPU per request.

Each client reads SSE answers of 100 small events from a loopback server in another process: one after the other, 100 at
once, and 100 at once with a pause before each event, as models make them. Then it is tried on what an engine depends
on: chunks at once, closing, cancelling, time-outs, proxies. Every client runs in a process of its own, so its CPU is
its own (all threads counted) and so is its import. A client that is not installed is skipped with a line that says so.
Of Rondel it knows nothing but its client.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol
from urllib.parse import urlsplit

EVENTS = 100
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}\n\n'
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
BODY = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "hello " * 100}]}).encode()
HEADERS = {"content-type": "application/json", "authorization": "Bearer none"}
CLIENTS = ("rondel", "aiohttp", "pyreqwest", "httpx2")
LOADS = (
    ("sequential", "/burst", 200, 1),
    ("100 at once", "/burst", 400, 100),
    ("100 at once, paced", "/paced", 200, 100),
)
ROUNDS = 3
TURN_S = 5.0


# --- the server ------------------------------------------------------------------------------------------------------


class Server:
    """Plays SSE by path. `/held` sends one event and waits for the client to leave; `/held-count` tells how many are
    still there."""

    def __init__(self) -> None:
        self.held = 0

    async def serve(self) -> None:
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, backlog=512)
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next((int(h[15:]) for h in head.lower().split(b"\r\n") if h.startswith(b"content-length:")), 0)
                await reader.readexactly(length)
                await self._answer(head.split()[1].decode(), reader, writer)
        writer.close()

    async def _answer(self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        chunk = b"%x\r\n%b\r\n" % (len(EVENT), EVENT)
        if target.endswith("/held-count"):
            body = str(self.held).encode()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
            return
        if target.endswith("/silent"):
            await reader.read()
            return
        if target.endswith("/held"):
            self.held += 1
            try:
                writer.write(HEAD + chunk)
                await reader.read()
            finally:
                self.held -= 1
            return
        writer.write(HEAD)
        for _ in range(EVENTS):
            writer.write(chunk)
            await asyncio.sleep(0.002 if target.endswith("/paced") else 0)
        writer.write(b"0\r\n\r\n")
        await writer.drain()


# --- the clients -----------------------------------------------------------------------------------------------------


class Client(Protocol):
    """One way to post and to read the answer's chunks as they arrive."""

    def chunks(self, url: str) -> contextlib.AbstractAsyncContextManager[AsyncIterator[Any]]: ...

    async def close(self) -> None: ...


class Rondel:
    """Ours asks one server: another one is another client."""

    def __init__(self, *, connect_s: float = 10, read_s: float = 60) -> None:
        from rondel.http import Client, Head

        self._make: Callable[[str], Any] = lambda url: Client(
            url, connect_s=connect_s, proxy=os.environ.get("HTTP_PROXY", "")
        )
        self._clients: dict[str, Any] = {}
        self._read_s, self._head = read_s, Head(HEADERS)

    @contextlib.asynccontextmanager
    async def chunks(self, url: str) -> AsyncIterator[AsyncIterator[Any]]:
        parts = urlsplit(url)
        if (client := self._clients.get(parts.netloc)) is None:
            client = self._clients[parts.netloc] = self._make(url)
        answer = await client.ask("POST", parts.path, self._head, BODY, wait_s=self._read_s, idle_s=self._read_s)
        answer.expect_more()
        try:
            yield self._read(answer)
        finally:
            answer.close()

    async def _read(self, answer: Any) -> AsyncIterator[Any]:
        while chunk := await answer.read():
            yield chunk

    async def close(self) -> None:
        for client in self._clients.values():
            client.close()


class Pyreqwest:
    def __init__(self, *, connect_s: float = 10, read_s: float = 60) -> None:
        from datetime import timedelta

        from pyreqwest.client import ClientBuilder

        builder = ClientBuilder().connect_timeout(timedelta(seconds=connect_s))
        self.client = builder.read_timeout(timedelta(seconds=read_s)).build()

    @contextlib.asynccontextmanager
    async def chunks(self, url: str) -> AsyncIterator[AsyncIterator[Any]]:
        async with (
            self.client.post(url)
            .headers(HEADERS)
            .body_bytes(BODY)
            .streamed_read_buffer_limit(0)
            .build_streamed() as response
        ):
            yield self._read(response.body_reader)

    async def _read(self, reader: Any) -> AsyncIterator[Any]:
        while (chunk := await reader.read_chunk()) is not None:
            yield chunk

    async def close(self) -> None:
        await self.client.close()


class Aiohttp:
    def __init__(self, *, connect_s: float = 10, read_s: float = 60) -> None:
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=None, connect=connect_s, sock_connect=connect_s, sock_read=read_s)
        self.session = aiohttp.ClientSession(
            trust_env="HTTP_PROXY" in os.environ,
            timeout=timeout,
            connector=aiohttp.TCPConnector(limit=0),
            headers=HEADERS,
        )

    @contextlib.asynccontextmanager
    async def chunks(self, url: str) -> AsyncIterator[AsyncIterator[Any]]:
        async with self.session.post(url, data=BODY) as response:
            yield response.content.iter_any()

    async def close(self) -> None:
        await self.session.close()


class Httpx2:
    def __init__(self, *, connect_s: float = 10, read_s: float = 60) -> None:
        import httpx2

        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
        self.client = httpx2.AsyncClient(
            timeout=httpx2.Timeout(read_s, connect=connect_s), limits=limits, headers=HEADERS
        )

    @contextlib.asynccontextmanager
    async def chunks(self, url: str) -> AsyncIterator[AsyncIterator[Any]]:
        async with self.client.stream("POST", url, content=BODY) as response:
            yield response.aiter_raw()

    async def close(self) -> None:
        await self.client.aclose()


MAKERS: dict[str, Callable[..., Client]] = {
    "rondel": Rondel,
    "aiohttp": Aiohttp,
    "pyreqwest": Pyreqwest,
    "httpx2": Httpx2,
}


# --- what is measured ------------------------------------------------------------------------------------------------


async def ask(client: Client, url: str) -> None:
    """One request, read to its end; every event must have arrived."""
    size = 0
    async with client.chunks(url) as chunks:
        async for chunk in chunks:
            size += len(chunk)
    assert size == EVENTS * len(EVENT), size


async def cpu_ms(client: Client, url: str, *, requests: int, at_once: int) -> float:
    """Milliseconds of this process's CPU (all threads) per request, in the best of some rounds."""

    async def worker() -> None:
        for _ in range(requests // at_once):
            await ask(client, url)

    async with asyncio.TaskGroup() as warm_up:
        for _ in range(at_once):
            warm_up.create_task(ask(client, url))
    spent: list[float] = []
    for _ in range(ROUNDS):
        before = time.process_time()
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(worker())
        spent.append((time.process_time() - before) / requests * 1000)
    return min(spent)


async def held_falls_to(client: Client, base: str, wanted: int) -> bool:
    """Whether the server sees that the clients of `/held` are gone, within a second."""
    for _ in range(100):
        async with client.chunks(base + "/held-count") as chunks:
            if int(b"".join([bytes(chunk) async for chunk in chunks])) == wanted:
                return True
        await asyncio.sleep(0.01)
    return False


async def reads_at_once(client: Client, base: str) -> bool:
    """The first event is read while the server has sent no second one."""
    async with asyncio.timeout(TURN_S), client.chunks(base + "/held") as chunks:
        return bool(await anext(chunks))


async def closing_closes(client: Client, base: str) -> bool:
    async with client.chunks(base + "/held") as chunks:
        await anext(chunks)
    return await held_falls_to(client, base, 0)


async def cancelling_closes(client: Client, base: str) -> bool:
    """A task that is cancelled while it waits for a chunk ends as cancelled, and the connection is closed."""
    first = asyncio.Event()

    async def read() -> None:
        async with client.chunks(base + "/held") as chunks:
            async for _ in chunks:
                first.set()

    async with asyncio.timeout(TURN_S), asyncio.TaskGroup() as group:
        task = group.create_task(read())
        await first.wait()
        await asyncio.sleep(0)
        task.cancel()
    return task.cancelled() and await held_falls_to(client, base, 0)


async def times_out(make: Callable[..., Client], url: str) -> str:
    client = make(connect_s=0.2, read_s=0.2)
    try:
        async with asyncio.timeout(TURN_S), client.chunks(url) as chunks:
            async for _ in chunks:
                pass
    except TimeoutError as error:
        return type(error).__name__ if type(error) is not TimeoutError else "no"
    except Exception as error:
        return type(error).__name__
    finally:
        await client.close()
    return "no"


@contextlib.contextmanager
def full_port() -> Any:
    """A port whose queue of connections is full: to connect to it takes for ever."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(listener.getsockname())
        yield listener.getsockname()[1]


async def honours_proxy(make: Callable[..., Client], base: str) -> bool:
    """A name that does not exist is reached through HTTP_PROXY."""
    os.environ["HTTP_PROXY"] = os.environ["http_proxy"] = base
    client = make()
    try:
        async with asyncio.timeout(TURN_S):
            await ask(client, "http://no-such-host.invalid/burst")
        return True
    except Exception:
        return False
    finally:
        await client.close()
        del os.environ["HTTP_PROXY"], os.environ["http_proxy"]


async def measure(name: str, base: str) -> dict[str, Any]:
    make, started = MAKERS[name], time.process_time()
    client = make()
    results: dict[str, Any] = {"import and build, ms": round((time.process_time() - started) * 1000)}
    for title, path, requests, at_once in LOADS:
        results[title] = await cpu_ms(client, base + path, requests=requests, at_once=at_once)
    results["reads a chunk at once"] = await reads_at_once(client, base)
    results["closing closes"] = await closing_closes(client, base)
    results["cancelling closes"] = await cancelling_closes(client, base)
    await client.close()
    with full_port() as port:
        results["connect time-out"] = await times_out(make, f"http://127.0.0.1:{port}/")
    results["read time-out"] = await times_out(make, base + "/held")
    results["HTTP_PROXY honoured"] = await honours_proxy(make, base)
    return results


# --- the report ------------------------------------------------------------------------------------------------------


def run(name: str, base: str) -> dict[str, Any] | None:
    """Measure one client in its own process; none when it is not installed."""
    command = [sys.executable, "-m", "bench.http_clients", "client", name, base]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if "ModuleNotFoundError" in done.stderr:
        print(f"{name}: not installed, skipped")
        return None
    if not done.stdout:
        raise SystemExit(f"{name} failed:\n{done.stderr}")
    return json.loads(done.stdout) | {"exits cleanly": done.returncode == 0}


def report(results: dict[str, dict[str, Any]]) -> None:
    titles = [title for title, *_ in LOADS]
    for title in titles:
        best = min(result[title] for result in results.values())
        print(f"\n{title}: CPU per request of {EVENTS} events")
        for name, result in results.items():
            print(f"  {name:10} {result[title]:7.2f} ms  {result[title] / best:5.2f} x")
    print()
    for name, result in results.items():
        print(name, *(f"  {title}: {value}" for title, value in result.items() if title not in titles), sep="\n")


def main(*arguments: str) -> None:
    # The clients differ in how they read proxies; the measurement itself must go straight to loopback.
    for variable in [v for v in os.environ if v.lower().endswith("_proxy")]:
        del os.environ[variable]
    if arguments[:1] == ("server",):
        asyncio.run(Server().serve())
    elif arguments[:1] == ("client",):
        print(json.dumps(asyncio.run(measure(*arguments[1:]))), flush=True)
    else:
        command = [sys.executable, "-m", "bench.http_clients", "server"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            base = f"http://127.0.0.1:{server.stdout.readline().strip()}"
            try:
                if results := {name: result for name in CLIENTS if (result := run(name, base)) is not None}:
                    report(results)
            finally:
                server.kill()


if __name__ == "__main__":
    main(*sys.argv[1:])
