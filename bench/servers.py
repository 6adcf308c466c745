"""Which HTTP server costs the least? `python -m bench.servers` prints CPU per request.

Each server runs the same small application in a process of its own: it reads the body and answers with one piece, or
streams 30 events one by one. aiohttp's own server speaks no ASGI and is there to compare. A server that is not
installed is skipped with a line that says so. Knows nothing of Rondel but its server.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

from bench.load import ask_all, connect, python, request

EVENT = b'data: {"choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}\n\n'
EVENTS = 30
PAUSE_S = 0.002
WHOLE = b'{"text":"' + b"word " * 40 + b'"}'
SERVERS = {
    "our own, uvloop, httptools": ("rondel", "uvloop", "httptools"),
    "uvicorn, uvloop, httptools": ("uvicorn", "uvloop", "httptools"),
    "uvicorn, asyncio, h11": ("uvicorn", "h11"),
    "granian": ("granian",),
    "hypercorn": ("hypercorn",),
    "aiohttp.web (no ASGI)": ("aiohttp",),
}
LOADS = (
    ("whole", "/whole", 800, 8),
    ("streamed, one by one", "/stream", 200, 20),
    ("whole, 78 KB sent", "/large", 400, 8),
)
ROUNDS = 5


# --- the application --------------------------------------------------------------------------------------------------


async def application(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    more = True
    while more:
        more = (await receive()).get("more_body", False)
    streams = scope["path"] == "/stream"
    kind = b"text/event-stream" if streams else b"application/json"
    headers = [(b"content-type", kind)]
    if not streams:
        headers.append((b"content-length", b"%d" % len(WHOLE)))
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    if streams:
        for _ in range(EVENTS):
            await asyncio.sleep(PAUSE_S)
            await send({"type": "http.response.body", "body": EVENT, "more_body": True})
    await send({"type": "http.response.body", "body": b"" if streams else WHOLE})


def run_ours() -> None:
    import socket

    import uvloop

    from rondel.http.server import Server

    async def main() -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        listening.setblocking(False)
        print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
        await Server(application, listening).run()

    uvloop.run(main())


def run_uvicorn(*, fast: bool) -> None:
    import uvicorn

    config = uvicorn.Config(
        application,
        port=0,
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,
        ws="none",
        loop="uvloop" if fast else "asyncio",
        http="httptools" if fast else "h11",
    )
    listening = config.bind_socket()
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    uvicorn.Server(config).run(sockets=[listening])


def run_granian() -> None:
    import socket

    from granian.constants import Interfaces
    from granian.server.embed import Server

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    print(f"http://127.0.0.1:{port}", flush=True)

    import uvloop

    server = Server(application, address="127.0.0.1", port=port, interface=Interfaces.ASGINL, log_enabled=False)
    uvloop.run(server.serve())


def run_hypercorn() -> None:
    import socket

    import uvloop

    serve: Any = importlib.import_module("hypercorn.asyncio").serve
    listening = socket.create_server(("127.0.0.1", 0))
    config: Any = importlib.import_module("hypercorn.config").Config()
    config.bind = [f"fd://{listening.detach()}"]
    config.include_date_header = config.include_server_header = False
    where = socket.socket(fileno=int(config.bind[0].removeprefix("fd://")))
    print(f"http://127.0.0.1:{where.getsockname()[1]}", flush=True)
    where.detach()
    uvloop.run(serve(application, config))


def run_aiohttp() -> None:
    import uvloop
    from aiohttp import web

    async def answer(asked: web.Request) -> web.StreamResponse:
        await asked.read()
        if asked.path != "/stream":
            return web.Response(body=WHOLE, content_type="application/json")
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(asked)
        for _ in range(EVENTS):
            await asyncio.sleep(PAUSE_S)
            await response.write(EVENT)
        await response.write_eof()
        return response

    async def main() -> None:
        app = web.Application()
        app.router.add_post("/{any}", answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        print(site.name.replace(":0", f":{runner.addresses[0][1]}"), flush=True)
        await asyncio.Event().wait()

    uvloop.run(main())


RUNNERS: dict[str, Callable[[], None]] = {
    "our own, uvloop, httptools": run_ours,
    "uvicorn, uvloop, httptools": lambda: run_uvicorn(fast=True),
    "uvicorn, asyncio, h11": lambda: run_uvicorn(fast=False),
    "granian": run_granian,
    "hypercorn": run_hypercorn,
    "aiohttp.web (no ASGI)": run_aiohttp,
}


# --- the measurement --------------------------------------------------------------------------------------------------


async def measure(name: str) -> tuple[list[float], float]:
    """The CPU of a request of each load, in the best of some rounds, and the memory at the end."""
    with python("-m", "bench.servers", name) as process:
        spent: list[float] = []
        for _, path, requests, at_once in LOADS:
            data = request(path, {"text": "word " * (16_000 if path == "/large" else 80)})
            callers = await _connected(process.port, at_once)
            rounds: list[float] = []
            for _ in range(ROUNDS):
                before = process.cpu_s
                await ask_all(callers, data, requests)
                rounds.append((process.cpu_s - before) / requests)
            spent.append(min(rounds))
            for caller in callers:
                caller.leave()
        return spent, process.memory_bytes / 1e6


async def _connected(port: int, count: int) -> Any:
    """Callers of a server that may have said its address before it listens."""
    for _ in range(100):
        try:
            return await connect(port, count)
        except OSError:
            await asyncio.sleep(0.05)
    return await connect(port, count)


async def main() -> None:
    print(f"{'CPU per request':28}", *(f"{title:>22}" for title, *_ in LOADS), f"{'memory':>10}")
    for name, needs in SERVERS.items():
        if missing := [module for module in needs if importlib.util.find_spec(module) is None]:
            print(f"{name:28} {', '.join(missing)} is not installed, skipped")
            continue
        spent, memory = await measure(name)
        print(f"{name:28}", *(f"{seconds * 1e6:>19,.0f} µs" for seconds in spent), f"{memory:>7.1f} MB", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        RUNNERS[sys.argv[1]]()
    else:
        import uvloop

        uvloop.run(main())
