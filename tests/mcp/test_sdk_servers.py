"""The SDK's own servers, over stdio and HTTP, in both eras of the protocol."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rondel import App
from rondel.events import Outcome
from rondel.mcp.spec import ServerSpec
from rondel.stores.sqlite import SqliteStore
from rondel.testing import call, say
from rondel.values import Media, ToolResult

from .helpers import HERE, agent_with, answer, links_of, model_of, outcome, results, sdk, tell, until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the servers of these tests are POSIX programs")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The SDK's server over streamable HTTP, on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, str(HERE / "everything.py"), "http", str(port)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        for _ in range(1_000):
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert server.poll() is None
                import time

                time.sleep(0.02)
        yield f"http://127.0.0.1:{port}/mcp"
        server.terminate()


@pytest.mark.slow
async def test_over_stdio_with_images_progress_prompts_and_resources_in_the_newest_era(tmp_path: Path) -> None:
    """T15: connect by command. An elicitation of the newest protocol survives a restart of both sides."""
    store = tmp_path / "rondel.db"
    steps = [call("mcp-sdk-picture"), call("mcp-sdk-slow", seconds=0.0), call("mcp-sdk-greet")]
    agent = agent_with(sdk(), steps=steps)
    async with App(agent, store=SqliteStore(str(store))) as app:
        assert outcome(await tell(app)) is Outcome.WAITING
        (link,) = links_of(agent)
        assert link.status.protocol == "2026-07-28"
        assert [prompt.name for prompt in link.offer.prompts] == ["review"]
        ((role, parts),) = await link.prompt("review", {"code": "x = 1"})
        assert (role, parts[0].text) == ("user", "Please review this code: x = 1")
        assert "It rained today." in (await link.read("notes://today"))[0].text
        await answer(app, "Ada")
    steps = [call("mcp-sdk-write_poem", topic="rain"), say("Drip, drop."), say("done")]
    again = agent_with(sdk(), steps=steps)
    async with App(again, store=SqliteStore(str(store))) as app:
        question = await answer(app, "36")
        assert "Age" in question.text
        assert results(again)[-1] == "Hello Ada, 36"
        assert "A poem about rain" in (await answer(app, "yes")).text
    assert results(again)[-1].endswith("wrote: Drip, drop.")
    images = [
        part
        for message in model_of(again).prompts[-1].messages
        for result in message.parts
        if isinstance(result, ToolResult)
        for part in result.parts
        if isinstance(part, Media)
    ]
    assert [image.mime for image in images] == ["image/png"]


async def test_over_http_and_list_changes(address: str) -> None:
    """T15: connect by URL. A tool that the server adds while it runs can be called."""
    spec = ServerSpec("web", url=address, approval="auto")
    agent = agent_with(spec, steps=[call("mcp-web-add", a=20, b=22), call("mcp-web-grow"), say("ok")])
    async with App(agent) as app:
        await tell(app)
        assert results(agent) == ["42", "grown"]
        await until(lambda: links_of(agent)[0].tool("grown") is not None)
        model_of(agent).add(call("mcp-web-grown"), say("ok"))
        await tell(app, "again")
    assert results(agent)[-1] == "I am new"


async def test_an_http_server_that_is_not_there_is_a_sentence() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    agent = agent_with(ServerSpec("web", url=f"http://127.0.0.1:{port}/mcp", retries=0), steps=[say("ok")])
    async with App(agent) as app:
        await tell(app)
        assert links_of(agent)[0].status.reason == "it cannot be reached"


@pytest.mark.slow
async def test_a_server_that_comes_back_is_connected_again(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    spec = ServerSpec("web", url=f"http://127.0.0.1:{port}/mcp", approval="auto")
    agent = agent_with(spec, steps=[say("without")])
    async with App(agent) as app:
        await tell(app)
        assert links_of(agent)[0].status.state == "down"
        command = [sys.executable, str(HERE / "everything.py"), "http", str(port)]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
            await until(lambda: links_of(agent)[0].is_ready, 60)
            model_of(agent).add(call("mcp-web-add", a=1, b=1), say("ok"))
            await tell(app, "again")
            assert results(agent) == ["2"]
            server.kill()  # its own shutdown would wait for our open stream
            server.wait()
            model_of(agent).add(call("mcp-web-add", a=1, b=1), say("ok"))
            await tell(app, "and now")
            assert "not available" in results(agent)[-1] or "failed during the call" in results(agent)[-1]


@pytest.mark.slow
async def test_the_npm_server_everything(tmp_path: Path) -> None:
    """The reference server of another SDK, where Node is there."""
    npx = shutil.which("npx")
    if npx is None:
        pytest.skip("there is no npx here")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rondel-tests-npm"
    package = "@modelcontextprotocol/server-everything"
    fetched = await asyncio.to_thread(
        subprocess.run,
        ["npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", str(cache), package],
        capture_output=True,
        timeout=110,
    )
    if fetched.returncode:
        pytest.skip(f"npm could not fetch {package}")
    program = cache / "node_modules" / ".bin" / "mcp-server-everything"
    spec = ServerSpec("every", command=str(program), approval="auto")
    agent = agent_with(
        spec, steps=[call("mcp-every-echo", message="hi"), call("mcp-every-get-sum", a=2, b=3), say("ok")]
    )
    async with App(agent) as app:
        await tell(app)
        assert links_of(agent)[0].status.state == "ready"
    assert results(agent)[0] == "Echo: hi"
    assert "5" in results(agent)[1]
