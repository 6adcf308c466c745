"""`rondel knowledge sync` downloads an embedding model only after a person has agreed."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rondel.cli.main import main
from rondel.contracts.embedder import Embedded
from rondel.engines.local.minilm import LocalEmbedder
from rondel.engines.local.weights import Url, Weights, path_of
from rondel.testing import WordEmbedder

CONTENT = b"an embedding model " * 1_000


class Downloaded(LocalEmbedder):
    """An embedder whose weights are really downloaded, and which compares words."""

    async def embed(self, texts: Sequence[str]) -> Embedded:
        if self.missing is not None:
            return await super().embed(texts)
        assert path_of(self.weights).read_bytes() == CONTENT
        return await WordEmbedder(self.dimensions, name=self.name).embed(texts)


class Site:
    """A server that has the weights, and counts who asks for them."""

    def __init__(self) -> None:
        self.requests = 0
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.requests += 1
                self.send_response(200)
                self.send_header("Content-Length", str(len(CONTENT)))
                self.end_headers()
                self.wfile.write(CONTENT)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()
        address = Url(f"http://127.0.0.1:{self.server.server_port}/tiny.onnx")
        digest = hashlib.sha256(CONTENT).hexdigest()
        self.weights = Weights("tiny", "Tiny", "nothing", "tiny.onnx", digest, len(CONTENT), "none", (address,))

    @property
    def question(self) -> str:
        return f"Download Tiny ({self.weights.size}, none)? [Y/n]"

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


class Person:
    """Someone at a terminal, who types ahead."""

    def __init__(self, typed: str) -> None:
        self._ours, theirs = os.openpty()
        self.stdin = os.fdopen(theirs, "r", encoding="utf-8")
        self.stderr = os.fdopen(os.dup(theirs), "w", encoding="utf-8")
        os.write(self._ours, typed.encode())

    def seen(self) -> str:
        """What is on the screen, after the command has ended."""
        self.stderr.close()
        self.stdin.close()
        pieces: list[bytes] = []
        try:
            while piece := os.read(self._ours, 65_536):
                pieces.append(piece)
        except OSError:  # the other end is closed
            pass
        os.close(self._ours)
        return b"".join(pieces).decode()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A project of two bases that use one embedder, whose weights are not downloaded."""
    made = Site()
    for base in ("docs", "notes"):
        (tmp_path / base).mkdir()
        (tmp_path / base / "a.md").write_text(f"Money back, say the {base}.")
    tables = [f'[knowledge.{base}]\nfolders = ["{base}"]\nembedder = "local"\n' for base in ("docs", "notes")]
    (tmp_path / "rondel.toml").write_text("".join(tables))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RONDEL_TRUST", str(tmp_path))
    monkeypatch.setenv("RONDEL_STORE", str(tmp_path / "store.db"))
    monkeypatch.setenv("RONDEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("rondel.project.knowledge.make_embedder", lambda *_, **__: Downloaded(made.weights))
    yield made
    made.close()


def synced_by(person: Person, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    with monkeypatch.context() as terminal:
        terminal.setattr(sys, "stdin", person.stdin)
        terminal.setattr(sys, "stderr", person.stderr)
        code = main(["knowledge", "sync"])
    return code, person.seen()


@pytest.mark.parametrize("typed", ["\n", "YES\n"])
def test_with_a_yes_the_model_is_downloaded_and_used(
    site: Site, typed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, seen = synced_by(Person(typed), monkeypatch)
    assert (code, seen.count(site.question), site.requests) == (0, 1, 1)
    assert "words only" not in seen
    capsys.readouterr()
    assert main(["knowledge", "list", "--json"]) == 0
    assert capsys.readouterr().out.count('"vectors": 1') == 2


def test_with_a_no_nothing_is_downloaded_and_words_are_searched(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The question is asked once for both bases."""
    code, seen = synced_by(Person("n\n"), monkeypatch)
    assert (code, seen.count(site.question), site.requests) == (0, 1, 0)
    for base in ("docs", "notes"):
        assert f"{base} is searched by words only; for meaning, run `rondel model pull tiny`" in " ".join(seen.split())
    assert not path_of(site.weights).exists()
    assert main(["knowledge", "search", "money"]) == 0
    assert "docs/a.md" in capsys.readouterr().out
    assert site.requests == 0


def test_without_a_terminal_nobody_is_asked_and_nothing_is_downloaded(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["knowledge", "sync"]) == 0
    said = capsys.readouterr().err
    assert "Download" not in said
    assert "docs is searched by words only" in said
    assert site.requests == 0
    assert main(["knowledge", "sync", "--dry-run"]) == 0
    assert site.requests == 0


def test_a_terminal_that_closes_is_no_consent(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    code, seen = synced_by(Person("\x04"), monkeypatch)
    assert code != 0
    assert "the input ended before the question was answered" in " ".join(seen.split())
    assert site.requests == 0
