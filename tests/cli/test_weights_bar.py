"""Fetching weights while a person watches: it comes, it can be broken off, and it goes on from there."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest

from rondel.cli._weights import pull_with_bar
from rondel.engines.local.weights import DEFAULT, Url, Weights, downloaded_bytes, path_of
from tests.cli.conftest import Place

CONTENT = b"weights " * 500_000


class Source:
    """Gives half of the content, then nothing until it may; after that all that is asked for."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.ranges: list[str] = []
        source = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked = self.headers.get("Range", "")
                source.ranges.append(asked)
                start = int(asked.removeprefix("bytes=").rstrip("-") or 0)
                self.send_response(206 if start else 200)
                self.send_header("Content-Length", str(len(CONTENT) - start))
                self.send_header("Content-Range", f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")
                self.end_headers()
                try:
                    self.wfile.write(CONTENT[start : len(CONTENT) // 2])
                    source.may_go_on.wait(20)
                    self.wfile.write(CONTENT[max(start, len(CONTENT) // 2) :])
                except OSError:
                    pass

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}).start()


@pytest.fixture
def source() -> Iterator[Source]:
    made = Source()
    yield made
    made.may_go_on.set()
    made.server.shutdown()
    made.server.server_close()


def weights_at(source: Source) -> Weights:
    return Weights(
        name="tiny",
        title="Tiny",
        description="nothing",
        file="tiny.gguf",
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        size_bytes=len(CONTENT),
        licence="none",
        addresses=(Url(f"http://127.0.0.1:{source.server.server_port}/tiny.gguf"),),
    )


async def test_a_fetch_that_is_broken_off_ends_at_once_and_keeps_what_has_come(
    place: Place, source: Source, capsys: pytest.CaptureFixture[str]
):
    weights = weights_at(source)
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        fetching = group.create_task(pull_with_bar(weights))
        while not downloaded_bytes(path_of(weights)):  # what was sent may not have been written yet
            await asyncio.sleep(0)
        fetching.cancel()
    assert "Partial download kept; run `rondel model pull tiny` to continue." in capsys.readouterr().err
    assert not path_of(weights).exists()
    assert path_of(weights).with_name("tiny.gguf.part").exists()


async def test_a_fetch_that_is_broken_off_before_anything_came_does_not_say_that_something_is_kept(
    place: Place, capsys: pytest.CaptureFixture[str]
):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        weights = msgspec.structs.replace(
            DEFAULT, addresses=(Url(f"http://127.0.0.1:{silent.getsockname()[1]}/tiny.gguf"),)
        )
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            fetching = group.create_task(pull_with_bar(weights))
            caller, _ = await asyncio.to_thread(silent.accept)
            fetching.cancel()
        caller.close()
    assert f"Nothing was downloaded; run `rondel model pull {DEFAULT.name}` to try again." in capsys.readouterr().err
    listed = await asyncio.to_thread(place.rondel, "model", "list")
    assert "partly" not in listed.out


def test_a_fetch_gives_the_file(place: Place, source: Source):
    source.may_go_on.set()
    assert asyncio.run(pull_with_bar(weights_at(source))) == str(path_of(weights_at(source)))
    assert path_of(weights_at(source)).read_bytes() == CONTENT


def test_a_model_is_offered_and_an_answer_that_is_not_a_choice_is_asked_again(place: Place) -> None:
    with place.terminal("Hello?", columns=80) as terminal:
        terminal.wait_for("Download which one? [1]/2/n")
        assert all(len(line) < 80 for line in terminal.text.splitlines()), "no line is broken in the middle of a word"
        terminal.type("3", until="Type 1, 2 or n.")
        terminal.wait_for("Download which one? [1]/2/n", count=2)
        terminal.type("n", until="no model was downloaded; `rondel model pull` downloads one later")
        assert terminal.wait_end() == 2
    assert not list(place.folder.glob("cache/**/*.gguf*"))


def test_a_better_model_is_offered_once(place: Place) -> None:
    path = Path(place.env["RONDEL_CACHE"], "models", DEFAULT.file)
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(DEFAULT.size_bytes)  # enough to count as downloaded; it cannot be loaded
    with place.terminal("Hello?", columns=80) as terminal:
        terminal.wait_for("A better one is Qwen2.5 Coder 1.5B Instruct (1.1 GB, Apache-2.0):")
        terminal.wait_for("Download it? [y/N]")
        assert all(len(line) < 80 for line in terminal.text.splitlines())
        terminal.type("", until="`rondel model pull qwen2.5-coder-1.5b` downloads it later.")
        assert terminal.wait_end() == 1
    with place.terminal("Hello?", columns=80) as terminal:
        assert terminal.wait_end() == 1
        assert "Download it?" not in terminal.all_text
