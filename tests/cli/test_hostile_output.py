"""Trust 13: whatever answers, errors, questions, files and names say, a terminal gets only Rondel's own styling."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import re
import struct
import sys
import termios
import threading
import time

import msgspec
import pytest

from rondel.cli.main import main
from rondel.cli.program import program
from rondel.events import FactsLearned, Learned
from rondel.gateway.server.log import RequestLog
from rondel.stores.sqlite import SqliteStore
from rondel.surfaces.terminal.console import SafeConsole, live
from rondel.testing import VirtualClock, call, calls, say
from rondel.text.printable import clean, guard_streams, json_for_terminal
from tests.cli.conftest import Place, command_names
from tests.cli.model_server import ModelServer
from tests.cli.pty_screen import PtyScreen
from tests.cli.test_logs import DONE

HOSTILE = (
    "red\x1b]52;c;ZXZpbA==\x07\x1b]0;title\x07\x1b[?1049h\x1b[8;45mhidden\x9b2J\x90q\x9c\x85\u202eturned\u2066\u200f"
    "\x08\r\x7f\x1bc\x1b[5;45mlast"
)
"""Clipboard, title, another screen, concealed text, C1 controls, turned writing, backspaces and a reset."""
NAME = HOSTILE.replace("/", "")

OURS = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[[0-9]*[ABCDGJK]")
HARMFUL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def assert_only_ours(raw: bytes) -> str:
    """What is left when our own styling is taken away is plain text; that text."""
    text = raw.decode("utf-8", "surrogateescape")
    assert not re.search(r"\x1b\[[0-9;]*(?:;45|\b8;)[0-9;]*m", text), text
    left = OURS.sub("", text).replace("\r\n", "\n").replace("\r", "")
    assert (found := HARMFUL.search(left)) is None, (found, text)
    return left


class Pty:
    """A terminal that this process writes to, and all that was written."""

    raw: bytes = b""

    def __enter__(self) -> Pty:
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._before = sys.stdout, sys.stderr
        self._slaves = [os.fdopen(slave, "w", encoding="utf-8", closefd=False) for _ in range(2)]
        self._slave = slave
        sys.stdout, sys.stderr = self._slaves
        return self

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the other end was closed
            while data := os.read(self._master, 65536):
                self.raw += data

    def __exit__(self, *_: object) -> None:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = self._before
        for stream in self._slaves:
            stream.close()
        os.close(self._slave)
        self._reader.join(10)
        os.close(self._master)


def shown(*arguments: str) -> str:
    with Pty() as terminal:
        main(arguments)
    return assert_only_ours(terminal.raw)


@pytest.fixture
def full(place: Place, server: ModelServer) -> Place:
    """A project in which everything that anybody could write is hostile."""
    place.project = place.folder / NAME
    place.project.mkdir()
    os.chdir(place.project)
    place.env["PWD"] = str(place.project)
    place.uses(server)
    place.write("agents/odd.md", f"---\ndescription: {json.dumps(HOSTILE)}\ntools: [calculate]\n---\n{HOSTILE}\n")
    place.write("documents/odd.md", f"# {HOSTILE}\n\nred {HOSTILE}")
    place.write(f"documents/{NAME[:40]}.md", f"red {HOSTILE}")
    with (place.project / "rondel.toml").open("a", encoding="utf-8") as settings:
        settings.write('\n[knowledge.documents]\nfolders = ["documents"]\nembedder = "none"\n')
    place.write("request.json", json.dumps({"model": HOSTILE, "max_tokens": 5, "messages": []}))
    server.replies(calls(call("calculate", "a", expression=HOSTILE), call(NAME[:60], "b", x=HOSTILE)))
    server.replies(say(HOSTILE, thinking=HOSTILE))
    place.rondel("run", "odd", HOSTILE)
    place.rondel("jobs", "schedule", "odd", HOSTILE, "--every", "1d", "--conversation", "last")
    asyncio.run(_hostile_records(place))
    return place


async def _hostile_records(place: Place) -> None:
    store = SqliteStore(str(place.folder / "data" / "rondel" / "rondel.db"))
    newest = (await store.conversations(limit=1))[0]
    seq = len(await store.read(newest.id)) + 1
    learned = FactsLearned("t", "odd", (Learned("odd.fact", HOSTILE, tags=(HOSTILE,)),))
    await store.append(newest.id, seq, (learned,), at=time.time())
    await store.aclose()
    async with RequestLog(place.folder / "state" / "rondel" / "logs", VirtualClock()) as log:
        log.ended(msgspec.structs.replace(DONE, asked=HOSTILE, error=HOSTILE, session=HOSTILE, engine=HOSTILE))
        log.say(HOSTILE, HOSTILE)


WALK: dict[str, list[list[str]]] = {
    "activate": [["activate", "--shell", "bash"], ["activate", "--key", NAME]],
    "chat": [["chat", NAME], ["chat", "--conversation", NAME]],
    "code": [["code", NAME], ["code", "--key", NAME]],
    "config": [["config"], ["config", "--json"]],
    "conversations list": [["conversations"], ["conversations", "--json"]],
    "discord run": [["discord", "--agent", NAME], ["discord", "run", "--sandbox", "--agent", NAME]],
    "discord invite": [["discord", "invite"]],
    "conversations search": [["conversations", "search", "a"], ["conversations", "search", "a", "--json"]],
    "conversations rename": [["conversations", "rename", "last", "a\x1b[31mred"]],
    "conversations export": [["conversations", "export", "last"], ["conversations", "export", "last", "--json"]],
    "conversations delete": [["conversations", "delete", "\x1b[31mred", "--yes"]],
    "completion": [["completion", "bash"], ["completion", "\x1b[31mred"]],
    "doctor": [["doctor"], ["doctor", "--json"]],
    "facts": [["facts"], ["facts", "--json"], ["facts", NAME]],
    "help": [["help"], ["run", "--help"]],
    "init": [["init", NAME], ["init", "rondel.toml"]],
    "jobs list": [["jobs"], ["jobs", "--json"], ["jobs", "--watch"], ["jobs", "--watch", "--json"]],
    "jobs show": [["jobs", "show", "s"], ["jobs", "show", "s", "--json"], ["jobs", "show", NAME]],
    "jobs cancel": [["jobs", "cancel", NAME]],
    "jobs schedule": [["jobs", "schedule", "odd", HOSTILE, "--every", "1d"], ["jobs", "schedule", NAME, "x"]],
    "jobs run": [["jobs", "run", "--engine", NAME]],
    "imagine": [["imagine", HOSTILE], ["imagine", "x", "--size", HOSTILE], ["imagine", "x", "--model", HOSTILE]],
    "knowledge list": [["knowledge"], ["knowledge", "list", "--json"]],
    "knowledge sync": [["knowledge", "sync", "--dry-run"], ["knowledge", "sync"], ["knowledge", "sync", NAME]],
    "knowledge watch": [["knowledge", "watch", NAME]],
    "knowledge search": [["knowledge", "search", "red"], ["knowledge", "search", HOSTILE, "--json"]],
    "knowledge show": [["knowledge", "show", "documents"], ["knowledge", "show", "documents", NAME]],
    "knowledge remove": [["knowledge", "remove", NAME]],
    "lint": [["lint"], ["lint", "--json"], ["lint", NAME]],
    "logs": [["logs"], ["logs", "--json"], ["logs", NAME]],
    "mcp list": [["mcp", "list"], ["mcp", "list", "--json"]],
    "mcp test": [["mcp", "test"], ["mcp", "test", NAME]],
    "mcp tools": [["mcp", "tools", NAME]],
    "mcp call": [["mcp", "call", NAME, "x"], ["mcp", "call", "x", "y", HOSTILE]],
    "mcp login": [["mcp", "login", NAME]],
    "mcp logout": [["mcp", "logout", NAME]],
    "mcp serve": [["mcp", "serve", "--list"], ["mcp", "serve", NAME]],
    "model list": [["model"], ["model", "list", "--json"]],
    "model show": [["model", "show", NAME]],
    "model pull": [["model", "pull", NAME], ["model", "pull", f"./{NAME}.gguf"]],
    "model remove": [["model", "remove", NAME]],
    "model status": [["model", "status"], ["model", "status", "--json"]],
    "model stop": [["model", "stop"]],
    "plugins": [["plugins", "odd"], ["plugins", "odd", "--json"], ["plugins", NAME]],
    "prompt": [["prompt", "odd", HOSTILE], ["prompt", "odd", HOSTILE, "--json"]],
    "resume": [["resume", NAME]],
    "route": [["route", "request.json", "--explain"], ["route", "request.json", "--json"], ["route", NAME]],
    "run": [["run", NAME, "x"], ["run", "odd", "x", "--file", NAME], ["run", "odd", "x", "--engine", NAME]],
    "serve": [["serve", "--host", NAME]],
    "stop": [["stop"], ["stop", NAME]],
    "status": [["status"], ["status", "--json"], ["status", "--key", NAME]],
    "trace": [["trace"], *(["trace", flag] for flag in ("--short", "--json", "--markdown")), ["trace", "--turn", NAME]],
    "trust": [["trust"], ["trust", "--list"], ["trust", NAME], ["trust", "--remove"], ["trust", "--remove", NAME]],
    "usage": [["usage", "--by", "model,agent"], ["usage", "--json"], ["usage", "--csv"], ["usage", "--since", NAME]],
}
"""Every command with all kinds of output: stored content, names on the command line, JSON, errors."""


def test_every_command_is_walked():
    """Trust 13: a new command needs a row here."""
    assert sorted(WALK) == sorted(command_names(program))


def test_no_command_lets_hostile_content_command_the_terminal(full: Place):
    """Trust 13: each command with hostile names, stored content, files and arguments."""
    seen = ""
    for name, ways in WALK.items():
        for arguments in ways:
            try:
                seen += shown(*arguments)
            except AssertionError as error:
                raise AssertionError(f"rondel {name}: {arguments!r}") from error
    assert "redhidden" in seen  # the letters stay: nothing that was said vanishes


def test_answers_errors_and_questions_of_run_are_clean_on_a_terminal(place: Place, server: ModelServer):
    """Trust 13: the answer, the events as JSON, an error of the provider, a question, what tools are called with."""
    place.uses(server)
    server.says(HOSTILE)
    assert "redhidden" in shown("run", "rondel", "hello")
    server.says(HOSTILE)
    assert json.loads(shown("run", "rondel", "hello", "--json").splitlines()[-1])["outcome"] == "done"
    server.fails(400, HOSTILE)
    assert "redhidden" in shown("run", "rondel", "hello")
    server.calls("ask_user", "q", question=HOSTILE, options=[HOSTILE, "b"])
    assert "asks: redhidden" in shown("run", "rondel", "hello")
    server.replies(calls(call("calculate", "a", expression=HOSTILE), call("current_time", "b", timezone=HOSTILE)))
    server.says("done")
    assert "done" in shown("run", "rondel", "hello", "--cost")


def test_json_on_a_terminal_keeps_every_value(place: Place, server: ModelServer):
    """Trust 13: what would command the terminal is escaped, so the JSON says the same."""
    place.uses(server)
    server.says(HOSTILE)
    events = [json.loads(line) for line in shown("run", "rondel", "hello", "--json").splitlines()]
    said = next(event for event in events if event["type"] == "round_finished")
    assert said["message"]["parts"][0]["text"] == HOSTILE
    text = json.dumps(HOSTILE, ensure_ascii=False)
    assert json.loads(json_for_terminal(text)) == HOSTILE
    assert json_for_terminal(text) == clean(json_for_terminal(text))


def test_a_real_process_in_a_real_terminal_is_clean(place: Place, server: ModelServer):
    """Trust 13: the same through the installed program, with its traceback and its log."""
    place.uses(server)
    server.says(HOSTILE)
    server.fails(400, HOSTILE)
    for more in ({}, {"RONDEL_DEBUG": "1"}):
        with place.terminal("run", "rondel", "hello", columns=200, **more) as terminal:
            terminal.wait_end()
            assert "redhidden" in assert_only_ours(terminal.raw)


def test_tracebacks_warnings_and_logs_are_clean(place: Place):
    """Trust 13: what Python itself writes to stderr goes the same way."""
    code = (
        "import logging, sys, warnings; from rondel.cli.main import main; text = sys.argv[1]; main(['help'])\n"
        "warnings.warn(text); logging.error(text); print(text); raise ValueError(text)"
    )
    command = [sys.executable, "-c", code, HOSTILE]
    with PtyScreen(command, cwd=place.project, env=place.env, columns=200, rows=50) as terminal:
        assert terminal.wait_end() == 1
        assert assert_only_ours(terminal.raw).count("redhidden") >= 4


def test_what_is_written_beside_a_picture_that_moves_is_clean():
    """Trust 13: the streams that Live puts in place understand styling; ours stand before them."""
    with Pty() as terminal:
        guard_streams()
        with live(SafeConsole(), HOSTILE) as picture:
            sys.stdout.write(f"{HOSTILE}\n")
            sys.stderr.write(f"{HOSTILE}\n")
            picture.update(HOSTILE, refresh=True)
        sys.stdout.write(HOSTILE)
    assert assert_only_ours(terminal.raw).count("redhidden") >= 4


def test_the_bytes_of_an_answer_stay_as_they_are_where_no_terminal_shows_them(place: Place, server: ModelServer):
    """Trust 13: a pipe or a file gets exactly what the model said."""
    place.uses(server)
    server.says(HOSTILE)
    done = place.spawn("run", "rondel", "hello")
    assert done.out == f"{HOSTILE}\n"


@pytest.mark.parametrize(
    "piece", ["\x90", "\x9d8;;", "\x9f\x98", "\x1b]", "\x1b[", "\x1b[0", "\x9b0", "\x1b ", "\x1b\x90"]
)
def test_cleaning_takes_time_in_proportion_to_the_text(piece: str):
    """Trust 13: 16,000 beginnings of a sequence without an end took 2.4 s, in which a chat stood still."""
    began = time.process_time()
    assert not re.search("[\x1b\x80-\x9f]", clean(piece * 300_000))
    assert time.process_time() - began < 3
