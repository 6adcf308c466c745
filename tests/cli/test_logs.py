"""The gateway's log and `rondel logs`: what is in it and what never is, how big it gets, and which files are opened."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import stat
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import pytest

from rondel.cli import logs
from rondel.cli.logs import POLL_S, new_lines
from rondel.errors import RondelError
from rondel.gateway.relay.record import Record
from rondel.gateway.server.log import FLUSH_S, RequestLog, line_of, log_names, open_log
from rondel.testing import VirtualClock
from rondel.text.redaction import Redactor
from rondel.values import Usage
from tests.cli.conftest import Place
from tests.cli.model_server import ModelServer
from tests.cli.serving import Serving

DONE = Record(
    "r1", 1_000_000_000.0, "anthropic", "claude-x", "team", session="s1", streams=True, rule="think", engine="work:big",
    model="big-1", attempts=2, rounds=1, status=200, outcome="done", first_token_s=0.25, seconds=1.25,
    usage=Usage(tokens_in=1200, tokens_out=50, tokens_cached=900), cost_nanousd=4_200_000,
)  # fmt: skip


def _folder(place: Place) -> Path:
    return place.folder / "state" / "rondel" / "logs"


def _written(folder: Path, *records: Record, secrets: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    async def main() -> None:
        async with RequestLog(folder, VirtualClock()) as log:
            log.redactor = Redactor(secrets)
            for record in records:
                log.ended(record)

    asyncio.run(main())
    return [json.loads(line) for line in (folder / "gateway.jsonl").read_text().splitlines()]


def _said(folder: Path, count: int, **bounds: int) -> None:
    """Write so many lines, one file access for each."""

    async def main() -> None:
        for number in range(count):
            async with RequestLog(folder, VirtualClock(1_000_000_000.0 + number), **bounds) as log:
                log.say("said", f"line {number} {'x' * 80}")

    asyncio.run(main())


# --- what is written --------------------------------------------------------------------------------------------------


def test_a_line_has_what_is_known_of_a_request(tmp_path: Path):
    """O03: request, model, rule, attempts, usage."""
    assert _written(tmp_path, DONE) == [
        {
            "at": "2001-09-09T01:46:40Z", "event": "request", "id": "r1", "status": 200, "outcome": "done",
            "key": "team", "asked": "claude-x", "engine": "work:big", "model": "big-1", "rule": "think", "attempts": 2,
            "rounds": 1, "dialect": "anthropic", "streams": True, "tokens_in": 1200, "tokens_out": 50,
            "tokens_cached": 900, "cost_nanousd": 4_200_000, "first_token_s": 0.25, "tokens_per_s": 50.0,
            "seconds": 1.25, "session": "s1",
        }
    ]  # fmt: skip


def test_whatever_is_known_has_a_place_of_its_own_in_the_line():
    """O03: no two fields of a record are mixed up on their way into the log."""
    texts = (
        "id",
        "dialect",
        "asked",
        "key",
        "session",
        "project",
        "rule",
        "why",
        "engine",
        "model",
        "outcome",
        "error",
    )
    record = Record("", 1_000_000_000.0)
    for name in texts:
        setattr(record, name, f"the {name}")
    record.attempts, record.rounds, record.status, record.cost_nanousd = 2, 3, 201, 4
    record.streams, record.agents, record.warnings = True, ("an agent",), ("a warning",)
    record.first_token_s, record.seconds = 0.123456, 2.123456
    record.usage = Usage(tokens_in=5, tokens_out=600, tokens_cached=7, tokens_reasoning=8)
    line = msgspec.structs.asdict(line_of(record, str.upper))
    theirs = ("asked", "engine", "model", "why", "session", "project", "error")
    for name in texts:
        assert line[name] == (f"THE {name.upper()}" if name in theirs else f"the {name}")
    assert [line[name] for name in ("attempts", "rounds", "status", "cost_nanousd")] == [2, 3, 201, 4]
    assert (line["streams"], line["relayed"], line["agents"]) == (True, False, ("an agent",))
    assert (line["warnings"], line["event"], line["said"]) == (("A WARNING",), "request", "")
    assert (line["first_token_s"], line["tokens_per_s"], line["seconds"]) == (0.1235, 300.0, 2.1235)
    assert [line[f"tokens_{kind}"] for kind in ("in", "out", "cached", "reasoning")] == [5, 600, 7, 8]
    assert line["at"].timestamp() == record.at


def test_requests_that_are_under_way_are_not_written_yet(tmp_path: Path):
    under_way = msgspec.structs.replace(DONE, id="r2", outcome="open")
    assert [line["id"] for line in _written(tmp_path, under_way, DONE)] == ["r1"]


def test_texts_of_others_are_cut_and_hold_no_secret(tmp_path: Path):
    failed = msgspec.structs.replace(
        DONE,
        asked="m" * 5000,
        error="refused: Authorization: Bearer abc.def-ghi, sk-ant-0123456789, and hunter22, long" + "x" * 900,
        warnings=("the key hunter22 is old",),
    )
    (line,) = _written(tmp_path, failed, secrets=("hunter22",))
    assert len(line["asked"]) == len(line["error"]) == 300
    assert line["warnings"] == ["the key *** is old"]
    for secret in ("abc.def-ghi", "sk-ant-0123456789", "hunter22"):
        assert secret not in json.dumps(line)


def test_the_log_of_a_gateway_has_no_content_and_no_secret(place: Place, server: ModelServer):
    place.write(
        "rondel.toml",
        f'engine = "test"\n[engines.test]\nbase_url = "{server.url}"\ndialect = "anthropic"\nmodel = "model"\n'
        'key = "upstream-key-1"\nretry = {attempts = 1}\n[gateway.keys]\nteam = {key = "team-key-1"}\n',
    ).chmod(0o600)
    server.says("The answer is PURPLE.")
    server.fails(500)
    with Serving(place, "serve", "--port", "0") as serving:
        assert serving.ask("The question is ORANGE.", key="team-key-1", session="s-7").end() == 200
        assert serving.ask("The question is ORANGE.", key="team-key-1", stream=False).end() == 500
        serving.signal(signal.SIGTERM)
        assert serving.wait_end() == 0
    text = (_folder(place) / "gateway.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["event"] for line in lines] == ["started", "request", "request", "stopped"]
    done, failed = lines[1], lines[2]
    assert (done["outcome"], done["status"], done["key"], done["engine"]) == ("done", 200, "team", "test:model")
    assert (done["session"], done["rule"], done["attempts"], done["relayed"]) == ("s-7", "default", 1, True)
    assert (failed["outcome"], failed["status"]) == ("failed", 500)
    assert failed["error"].startswith("test had an internal error (status 500)")
    for word in ("PURPLE", "ORANGE", "upstream-key", "team-key"):
        assert word not in text
    mode = (_folder(place) / "gateway.jsonl").stat().st_mode
    assert (stat.S_IMODE(mode), stat.S_IMODE(_folder(place).stat().st_mode)) == (0o600, 0o700)


# --- how it is written ------------------------------------------------------------------------------------------------


async def test_lines_wait_a_moment_and_are_written_together(tmp_path: Path):
    clock = VirtualClock()
    async with RequestLog(tmp_path, clock) as log:
        log.say("said", "one")
        log.say("said", "two")
        while not clock.sleepers:
            await asyncio.sleep(0)
        assert log_names(tmp_path) == []
        clock.advance(FLUSH_S)
        async with asyncio.timeout(20):
            while not log_names(tmp_path) or len((tmp_path / "gateway.jsonl").read_bytes().splitlines()) < 2:
                await asyncio.sleep(0)


async def test_lines_for_which_no_thread_is_free_are_written_at_the_end(tmp_path: Path):
    clock, released, threads = VirtualClock(), threading.Event(), ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(threads)
    threads.submit(released.wait)
    try:
        async with RequestLog(tmp_path, clock) as log:
            log.say("said", "one")
            while not clock.sleepers:
                await asyncio.sleep(0)
            clock.advance(FLUSH_S)
            for _ in range(10):  # until it waits for a thread
                await asyncio.sleep(0)
        assert len((tmp_path / "gateway.jsonl").read_bytes().splitlines()) == 1
    finally:
        released.set()


def test_a_file_that_is_full_is_put_aside_and_the_oldest_are_removed(tmp_path: Path):
    _said(tmp_path, 40, bytes_max=500, files_max=3)
    names = log_names(tmp_path)
    assert len(names) == 3
    assert all(re.fullmatch(r"gateway(-20010909-\d{6}-\d{3})?", name) for name in names)
    assert all((tmp_path / f"{name}.jsonl").stat().st_size <= 500 for name in names)
    kept = "".join((tmp_path / f"{name}.jsonl").read_text() for name in (*names[1:], names[0]))
    numbers = [int(number) for number in re.findall(r"line (\d+)", kept)]
    assert numbers == list(range(numbers[0], 40))


async def test_two_programs_write_into_one_file(tmp_path: Path):
    async with RequestLog(tmp_path, VirtualClock()) as first, RequestLog(tmp_path, VirtualClock()) as second:
        for number in range(50):
            (first if number % 2 else second).say("said", f"line {number}")
    lines = [json.loads(line) for line in (tmp_path / "gateway.jsonl").read_text().splitlines()]
    assert {line["said"] for line in lines} == {f"line {number}" for number in range(50)}


async def test_a_disk_that_takes_nothing_costs_lines_and_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    outside = tmp_path / "outside"
    outside.write_text("mine")
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "gateway.jsonl").symlink_to(outside)
    clock = VirtualClock()
    async with RequestLog(folder, clock) as log:
        log.say("said", "one")
        while not clock.sleepers:
            await asyncio.sleep(0)
        clock.advance(FLUSH_S)
        async with asyncio.timeout(20):
            while not caplog.records:
                await asyncio.sleep(0)
        log.say("said", "two")
    assert outside.read_text() == "mine"
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        f"the log in {folder} cannot be written"
    ]


# --- which files are opened -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "../secret",
        "/etc/hostname",
        "..",
        ".",
        "a/b",
        "a\\b",
        "sub/../../secret",
        "gateway\x00",
        "~",
        "",
        ".hidden",
        "a\n",
    ],
)
def test_a_name_is_never_a_path(tmp_path: Path, name: str):
    """C08: only inside the log directory."""
    folder = tmp_path / "logs"
    folder.mkdir()
    (tmp_path / "secret.jsonl").write_text('{"event": "secret"}\n')
    (folder / ".hidden.jsonl").write_text("")
    with pytest.raises(RondelError, match="is not the name of a log"):
        open_log(folder, name)


def test_links_folders_and_pipes_are_not_opened(tmp_path: Path):
    """C08: a link in the log directory does not lead out of it."""
    folder = tmp_path / "logs"
    folder.mkdir()
    (tmp_path / "secret.jsonl").write_text('{"event": "secret"}\n')
    (folder / "link.jsonl").symlink_to(tmp_path / "secret.jsonl")
    (folder / "folder.jsonl").mkdir()
    os.mkfifo(folder / "pipe.jsonl")
    assert log_names(folder) == []
    for name in ("link", "folder", "pipe", "link.jsonl"):
        with pytest.raises(RondelError):
            open_log(folder, name)


def test_the_command_opens_nothing_outside(place: Place):
    """C08: the same, as a person types it."""
    folder = _folder(place)
    _said(folder, 1)
    (folder / "link.jsonl").symlink_to(place.write("secret.jsonl", "secret"))
    for name in ("../../../project/secret", "link", str(place.project / "secret.jsonl")):
        done = place.rondel("logs", name)
        assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
        assert "; available: gateway\n" in done.err
    done = place.rondel("logs", "gatway")
    assert done.err == "rondel: there is no log 'gatway'; did you mean 'gateway'?\n"


# --- what is shown ----------------------------------------------------------------------------------------------------


def test_the_newest_lines_are_shown_and_nothing_in_them_commands_the_terminal(place: Place):
    assert place.rondel("logs").err == "There are no logs yet; `rondel serve` and `rondel code` write them.\n"
    evil = msgspec.structs.replace(DONE, asked="\x1b]0;evil\x07m", outcome="failed", status=502, error="no\x1b[2J\nway")
    _written(_folder(place), DONE, evil)
    with (_folder(place) / "gateway.jsonl").open("a") as file:
        file.write("\x1b[31mnot ours\n")
    shown = place.rondel("logs").out.splitlines()
    assert shown[0] == (
        "01:46:40 200 team claude-x → work:big (think) in 1,200 out 50 cached 900 $0.0042 first 0.25 s 50 tok/s 1.25 s"
    )
    assert shown[1].startswith("01:46:40 502 team m → work:big (think)")
    assert shown[1].endswith("– no way")
    assert shown[2] == "not ours"
    assert place.rondel("logs", "--limit", "1").out == "not ours\n"
    assert [json.loads(line)["id"] for line in place.rondel("logs", "gateway", "--json").out.splitlines()] == [
        "r1",
        "r1",
    ]


async def test_following_goes_on_in_the_next_file(tmp_path: Path):
    clock = VirtualClock()
    shown: list[str] = []

    async def read() -> None:
        async for line in new_lines(tmp_path, "gateway", clock):
            shown.append(json.loads(line)["said"].split(" x")[0])

    async def settle(count: int) -> None:
        """Let it look again until it has shown so much; it looks only when the clock moves."""
        async with asyncio.timeout(20):
            while len(shown) < count:
                while not clock.sleepers:
                    await asyncio.sleep(0)
                clock.advance(POLL_S)

    async with asyncio.TaskGroup() as group:
        reading = group.create_task(read())
        for count in range(1, 8):
            async with RequestLog(tmp_path, VirtualClock(), bytes_max=300, files_max=9) as log:
                log.say("said", f"line {count} {'x' * 80}")
            await settle(count)
        reading.cancel()
    assert shown == [f"line {number}" for number in range(1, 8)]
    assert len(log_names(tmp_path)) > 2


@pytest.mark.parametrize("moment", range(1, 31))
async def test_following_misses_no_line_whenever_the_file_is_rotated(tmp_path: Path, moment: int):
    """The moments are the lines of code that look for new lines."""
    clock, shown, passed = VirtualClock(), list[str](), 0
    newest = tmp_path / "gateway.jsonl"
    newest.write_text("first\n")

    def rotate(frame: FrameType, event: str, _: object) -> Any:
        nonlocal passed
        if frame.f_code.co_filename != logs.__file__:
            return None
        passed += event == "line"
        if passed == moment and event == "line":
            with newest.open("a") as file:
                file.write("last of the old file\n")
            newest.rename(tmp_path / "gateway-20260101-000000-000.jsonl")
            newest.write_text("first of the new file\n")
        return rotate

    async def read() -> None:
        async for line in logs.new_lines(tmp_path, "gateway", clock):
            shown.append(line.decode())

    async with asyncio.TaskGroup() as group:
        reading = group.create_task(read())
        while not clock.sleepers:
            await asyncio.sleep(0)
        sys.settrace(rotate)
        try:
            while passed < 200:
                await asyncio.sleep(0)
                clock.advance(POLL_S)
        finally:
            sys.settrace(None)
        reading.cancel()
    assert shown == ["first", "last of the old file", "first of the new file"]


def test_follow_shows_requests_of_a_gateway_as_they_come(place: Place, server: ModelServer):
    place.uses(server)
    with Serving(place, "serve", "--port", "0") as serving, Serving(place, "logs", "--follow") as following:
        following.wait_said("started: http://127.0.0.1:")
        server.says("Hello.")
        serving.ask("Hi.").rest()
        following.wait_said(r"200 claude-x → test:model \(default\)")
        following.signal(signal.SIGINT)
        assert following.wait_end() == 130
        assert "Traceback" not in following.text
