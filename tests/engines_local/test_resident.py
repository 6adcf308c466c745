"""The background process that keeps a model loaded: one for a user, gone when it is idle, and never in the way."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from rondel.engines.local import LocalEngine, background, frames
from rondel.engines.local.background import Background, Unavailable
from rondel.engines.local.frames import FrameKind, Status
from rondel.engines.local.llama import ModelSettings
from rondel.errors import EngineError
from rondel.prompt import Prompt
from rondel.values import Notice, Options, ReplyBuilder, user

from .test_local import weights_path

__all__ = ["weights_path"]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no sockets with a path")

NOTHING = ModelSettings("/nowhere.gguf", 512, 1)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("RONDEL_CACHE", str(tmp_path))
    yield tmp_path / "run"
    asyncio.run(background.stop())


async def until(condition: object, timeout_s: float = 30.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # type: ignore[operator]
            await asyncio.sleep(0.01)


@asynccontextmanager
async def kept(keep_s: float = 60.0) -> AsyncGenerator[Status]:
    """The background process, started and kept by this test."""
    client = Background(NOTHING, keep_s)
    await client._keep()  # pyright: ignore[reportPrivateUsage]
    try:
        found = await background.status()
        assert found is not None
        yield found
    finally:
        client.close()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_it_starts_with_its_first_client_and_only_its_user_can_open_it(folder: Path) -> None:
    assert await background.status() is None
    async with kept() as found:
        assert (found.model, found.requests) == ("", 0)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / "model.sock").stat().st_mode) == 0o600
    assert await background.stop()
    await until(lambda: not is_alive(found.pid))
    assert await background.status() is None
    assert not (folder / "model.sock").exists()


@pytest.mark.slow
async def test_it_ends_when_its_last_client_has_been_gone_for_a_while() -> None:
    async with kept(keep_s=0.2) as found:
        pass
    await until(lambda: not is_alive(found.pid))


async def test_two_starters_get_one_process() -> None:
    clients = [Background(NOTHING, 60.0) for _ in range(4)]
    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(client._keep())  # pyright: ignore[reportPrivateUsage]
    found = await background.status()
    assert found is not None
    assert len(processes(background.folder())) == 1
    for client in clients:
        client.close()


def processes(folder: Path) -> list[str]:
    """The background processes of a folder that hold its lock."""
    inode = (folder / "model.lock").stat().st_ino
    return [line for line in Path("/proc/locks").read_text().splitlines() if line.split()[5].endswith(f":{inode}")]


async def test_one_that_was_killed_leaves_nothing_that_blocks(folder: Path) -> None:
    async with kept() as first:
        os.kill(first.pid, signal.SIGKILL)
        await until(lambda: not is_alive(first.pid))
    assert (folder / "model.sock").exists()
    async with kept() as second:
        assert second.pid != first.pid


@pytest.mark.slow
async def test_versions_that_differ_do_not_talk(monkeypatch: pytest.MonkeyPatch) -> None:
    async with kept() as old:
        pass
    monkeypatch.setattr(background, "version", lambda: "rondel 99")
    monkeypatch.setattr(frames, "version", lambda: "rondel 99")
    reader, writer = await background._say(  # pyright: ignore[reportPrivateUsage]
        frames.Hello("rondel 99", "keep", 60.0)
    )
    kind, _ = await frames.read_frame(reader)
    writer.close()
    assert kind is FrameKind.OTHER_VERSION
    await until(lambda: not is_alive(old.pid))  # idle, so it makes room


async def test_what_is_not_a_client_is_ignored(folder: Path) -> None:
    async with kept() as found:
        for sent in (b"GET / HTTP/1.1\r\n\r\n", b"\x01\xff\xff\xff\xff", b"\x01\x02\x00\x00\x00{]", b""):
            reader, writer = await asyncio.open_unix_connection(str(folder / "model.sock"))
            writer.write(sent)
            writer.write_eof()
            assert await reader.read() == b""
            writer.close()
        again = await background.status()
        assert again is not None
        assert again.pid == found.pid


async def test_a_folder_that_others_can_read_is_not_used(folder: Path) -> None:
    folder.mkdir(mode=0o755)
    with pytest.raises(Unavailable, match="is not private"):
        await Background(NOTHING, 60.0).ask({}, None)


async def test_where_none_can_be_started_the_model_is_loaded_here(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder.mkdir(mode=0o755)
    engine = LocalEngine("/nowhere/x.gguf", keep_s=60.0)
    with pytest.raises(EngineError, match="cannot be read"):
        await answer(engine)
    assert "the model is loaded in this process, not in the background" in caplog.text


async def test_an_error_of_the_model_is_the_same_as_here() -> None:
    engine = LocalEngine("/nowhere/x.gguf", keep_s=60.0)
    with pytest.raises(EngineError, match=r"the model's file '/nowhere/x.gguf' cannot be read"):
        await answer(engine)
    await engine.aclose()


async def answer(engine: LocalEngine, said: str = "Hi") -> tuple[str, list[str]]:
    builder, notices = ReplyBuilder(), list[str]()
    async for delta in engine.stream(Prompt.of(user(said), options=Options(temperature=0, tokens_max=8, seed=1))):
        if isinstance(delta, Notice):
            notices.append(delta.text)
        builder.add(delta)
    return builder.reply().text, notices


@pytest.mark.slow
@pytest.mark.weights
async def test_a_second_command_finds_the_model_loaded(weights_path: Path) -> None:
    here = LocalEngine(weights_path, context_tokens=512)
    expected, _ = await answer(here)
    await here.aclose()
    first = LocalEngine(weights_path, context_tokens=512, keep_s=60.0)
    assert await answer(first) == (expected, ["loading local:smollm2-135m"])
    await first.aclose()
    second = LocalEngine(weights_path, context_tokens=512, keep_s=60.0)
    assert await answer(second) == (expected, [])
    found = await background.status()
    assert found is not None
    assert found.model == str(weights_path)
    other = LocalEngine(weights_path, context_tokens=640, keep_s=60.0)
    assert (await answer(other))[1] == ["loading local:smollm2-135m"]  # one model at a time
    await second.aclose()
    await other.aclose()


@pytest.mark.slow
@pytest.mark.weights
async def test_a_process_that_dies_is_started_again_and_a_client_that_leaves_stops_the_model(
    weights_path: Path,
) -> None:
    engine = LocalEngine(weights_path, context_tokens=2048, keep_s=60.0)
    expected, _ = await answer(engine)
    found = await background.status()
    assert found is not None
    os.kill(found.pid, signal.SIGKILL)
    await until(lambda: not is_alive(found.pid))
    assert (await answer(engine))[0] == expected
    long = Prompt.of(user("Count to a thousand."), options=Options(tokens_max=1800))
    stream = engine.stream(long)
    async for delta in stream:
        if not isinstance(delta, Notice):
            break
    await stream.aclose()  # type: ignore[attr-defined]
    started = time.monotonic()
    assert (await answer(engine))[0] == expected
    assert time.monotonic() - started < 15  # the rest of the long answer would take longer
    await engine.aclose()


def test_a_hello_that_lacks_something_is_an_error() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"version": "1", "do": "dance"}', type=frames.Hello)
