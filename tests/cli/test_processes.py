"""Many processes on one store: some live long, some come and go, and some are killed with `kill -9`.

`RONDEL_ROUNDS=200` makes a long run of it; a run that fails names its seed, for `RONDEL_SEED`.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from rondel.stores.sqlite.store import CHARGES_WAIT_S
from tests.cli.conftest import Place
from tests.cli.serving import Serving
from tests.helpers import STORED_ENTRIES

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no kill -9")

ROUNDS = int(os.environ.get("RONDEL_ROUNDS", "3"))
WAIT_S = 60.0

CONFIG = """
engine = "echo"
[store]
path = "rondel.db"
[[ledger.limits]]
window = "month"
tokens = {tokens}
mode = "block"
"""

CONTENDER = """
import asyncio, sys
from rondel.errors import StoreConflict
from rondel.events import MessageAdded
from rondel.stores.sqlite import SqliteStore
from rondel.values import user

def say(*words):
    print(*words, flush=True)

async def main(path, name):
    loop = asyncio.get_running_loop()
    async with SqliteStore(path) as store:
        say("ready")
        number = 0
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            for _ in range(int(line)):
                number += 1
                while True:
                    last = len(await store.read("shared"))
                    try:
                        await store.append("shared", last + 1, (MessageAdded(user(f"{name} {number}.")),), at=1.0)
                        break
                    except StoreConflict:
                        say("conflict")
                say("ack", f"{name} {number}.")
            say("rested")

asyncio.run(main(*sys.argv[1:]))
"""


class Child:
    """A process that is spoken to in lines; what it says is read by a thread."""

    def __init__(self, command: list[str], place: Place) -> None:
        self.lines: list[str] = []
        self._said = threading.Condition()
        self.process = subprocess.Popen(
            command,
            cwd=place.project,
            env=place.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout:
            for line in self.process.stdout:
                with self._said:
                    self.lines.append(line.strip())
                    self._said.notify_all()
        with self._said:
            self.lines.append("ended")
            self._said.notify_all()

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def wait_for(self, wanted: str, *, count: int = 1) -> None:
        with self._said:
            there = self._said.wait_for(
                lambda: sum(wanted in line for line in self.lines) >= count or self.lines[-1:] == ["ended"], WAIT_S
            )
            assert there, f"{wanted!r} never came: {self.lines}"
            assert sum(wanted in line for line in self.lines) >= count, f"it ended before {wanted!r}: {self.lines}"

    def kill(self) -> None:
        self.process.kill()
        self.end()

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(WAIT_S)
        self._reader.join(WAIT_S)


class Crowd:
    """A gateway, a chat and two processes that append to one conversation; and what each was promised."""

    def __init__(self, place: Place, seed: int) -> None:
        self.place, self.random = place, random.Random(seed)
        self.path = place.project / "rondel.db"
        self.gateway: Serving | None = None
        self.chat: Child | None = None
        self.contenders: dict[str, Child] = {}
        self.answered = self.asked = self.lives = self.conflicts = 0
        self.acknowledged: set[str] = set()
        self.heard: set[str] = set()
        self._stack = ExitStack()

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *_: object) -> None:
        for child in (self.chat, *self.contenders.values()):
            if child is not None:
                child.kill()
        self._stack.close()

    # --- what lives long ------------------------------------------------------------------------------------------

    def start_missing(self) -> None:
        """Start whatever does not run: all of it at first, then what was killed."""
        if self.gateway is None:
            self.gateway = self._stack.enter_context(Serving(self.place, "serve", "--port", "0"))
        if self.chat is None:
            self.chat = Child([sys.executable, "-m", "rondel", "chat"], self.place)
        for name in sorted({"a", "b"} - {name.partition("-")[0] for name in self.contenders}):
            self.lives += 1
            name = f"{name}-{self.lives}"
            self.contenders[name] = Child([sys.executable, "-c", CONTENDER, str(self.path), name], self.place)
        for child in self.contenders.values():
            child.wait_for("ready")
        assert self.gateway.port

    def work(self) -> None:
        """Everybody at once: the contenders go on beside what follows."""
        for child in self.contenders.values():
            child.lines[:] = [line for line in child.lines if line != "rested"]
            child.say(str(self.random.randint(5, 25)))
        for _ in range(self.random.randint(1, 3)):
            self.ask_gateway()
            self.talk()

    def ask_gateway(self) -> None:
        assert self.gateway is not None
        self.asked += 1
        assert self.gateway.ask("one two three").end() == 200
        self.answered += 1

    def talk(self) -> None:
        assert self.chat is not None
        self.lives += 1
        line = f"line {self.lives}."
        self.asked += 1
        self.chat.say(line)
        self.chat.wait_for(line)
        # The words of an answer are shown while the turn still runs; the turn before it was over.
        self.acknowledged |= self.heard
        self.heard = {line}

    def visit(self) -> None:
        """A process that opens the store, looks around or adds something, and closes it."""
        match self.random.choice(("usage", "trace", "jobs", "run", "chat")):
            case "usage":
                done = self.place.spawn("usage", "--json")
            case "trace":
                done = self.place.spawn("trace", "last")
            case "jobs":
                done = self.place.spawn("jobs")
            case command:
                self.lives += 1
                line = f"guest {self.lives}."
                self.asked += 1
                arguments = ["run", "rondel", line] if command == "run" else ["chat"]
                done = self.place.spawn(*arguments, stdin=b"" if command == "run" else f"{line}\n".encode())
                self.acknowledged.add(line)
        assert done.code == 0, done.err

    # --- deaths ---------------------------------------------------------------------------------------------------

    def kill_one(self) -> None:
        victim = self.random.choice(["gateway", "chat", *self.contenders])
        if victim == "gateway":
            assert self.gateway is not None
            self.gateway.signal(signal.SIGKILL)
            self.gateway.wait_end()
            self.gateway = None
        elif victim == "chat":
            assert self.chat is not None
            self.chat.kill()
            self.chat = None
            self.heard = set()
        else:
            child = self.contenders.pop(victim)
            child.kill()
            self.note(child)

    def rest(self) -> None:
        for child in self.contenders.values():
            child.wait_for("rested")
            self.note(child)

    def note(self, child: Child) -> None:
        """What a contender says was written."""
        self.acknowledged |= {line.removeprefix("ack ") for line in child.lines if line.startswith("ack ")}
        self.conflicts += sum(line == "conflict" for line in child.lines)

    # --- what is stored -------------------------------------------------------------------------------------------

    def check(self) -> None:
        with closing(sqlite3.connect(self.path, timeout=WAIT_S)) as connection:
            columns = "conversation, json_extract(value, '$.seq'), value"
            bodies = connection.execute(f"select {columns} from {STORED_ENTRIES} order by 1, 2").fetchall()
            assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
        places = [seq for conversation, seq, _ in bodies if conversation == "shared"]
        assert places == list(range(1, len(places) + 1)), "the places of one conversation have gaps"
        stored = "\n".join(body for *_, body in bodies)
        found = re.findall(r"(?:[ab]-\d+|line|guest) \d+\.", stored)
        assert self.acknowledged - set(found) == set(), "acknowledged, and not stored"
        shared = re.findall(r"[ab]-\d+ \d+\.", stored)
        assert len(shared) == len(set(shared)) == len(places), "written twice, or over another one"

    def check_books(self) -> None:
        """The sums are what the charges come to, and no call that was answered is missing."""
        usage = json.loads(self.place.spawn("usage", "--json").out)["totals"]["lifetime"]
        with closing(sqlite3.connect(self.path)) as connection:
            recount = connection.execute("select count(*), sum(tokens_in), sum(tokens_out) from charges").fetchone()
        assert (usage["calls"], usage["tokens_in"], usage["tokens_out"]) == recount
        assert self.answered <= usage["calls"] <= self.asked


@contextmanager
def crowd(place: Place) -> Iterator[Crowd]:
    seed = int(os.environ.get("RONDEL_SEED", "0")) or random.randrange(1, 1 << 32)
    place.write("rondel.toml", CONFIG.format(tokens=10**12))
    try:
        with Crowd(place, seed) as made:
            yield made
    except BaseException as error:
        error.add_note(f"RONDEL_SEED={seed}")
        raise


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_however_processes_come_go_and_die(place: Place) -> None:
    """Trust 1: a gateway, a chat and two that contend for one conversation, with commands beside them and `kill -9`."""
    with crowd(place) as them:
        for _ in range(ROUNDS):
            them.start_missing()
            them.work()
            them.visit()
            if them.random.random() < 0.5:
                them.rest()  # else it is killed, or looked at, in the middle of its appends
            them.kill_one()
            them.visit()
            them.rest()
            them.check()
        assert len(them.acknowledged) >= ROUNDS * 5
    them.check_books()


def test_a_running_gateway_goes_on_charging_beside_a_usage_command(place: Place) -> None:
    """Trust 1: what a gateway answers is charged, whoever looks at the ledger meanwhile."""
    place.write("rondel.toml", CONFIG.format(tokens=10**12))
    path: Path = place.project / "rondel.db"
    with Serving(place, "serve", "--port", "0") as gateway:
        for calls in (1, 2, 3):
            assert gateway.ask("one two three").end() == 200
            time.sleep(2 * CHARGES_WAIT_S)  # charges are written together
            usage = json.loads(place.spawn("usage", "--json").out)["totals"]["lifetime"]
            assert usage["calls"] == calls
        gateway.signal(signal.SIGKILL)
        gateway.wait_end()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("select count(*) from charges").fetchone() == (3,)


@pytest.mark.slow
def test_two_gateways_share_one_limit_whatever_commands_run_beside_them(place: Place) -> None:
    """Trust 1: a limit of 1,000 tokens is one limit, for two gateways with `rondel usage` and `rondel jobs` beside."""
    place.write("rondel.toml", CONFIG.format(tokens=1_000))
    words = " ".join(["word"] * 100)
    with Serving(place, "serve", "--port", "0") as one, Serving(place, "serve", "--port", "0") as other:
        statuses = [gateway.ask(words).end() for gateway in (one, other)]
        assert place.spawn("usage").code == place.spawn("jobs").code == 0
        for _ in range(10):
            statuses += [gateway.ask(words).end() for gateway in (one, other)]
        assert set(statuses) == {200, 429}
        usage = json.loads(place.spawn("usage", "--json").out)["totals"]["lifetime"]
    assert usage["calls"] == statuses.count(200)
    # As long as anything is left a call is let through, so the last one may go beyond the limit.
    last = (usage["tokens_in"] + usage["tokens_out"]) // usage["calls"]
    assert usage["tokens_in"] + usage["tokens_out"] - last <= 1_000


def test_a_gateway_whose_store_is_deleted_says_so(place: Place) -> None:
    """Trust 1: with a limit that blocks nothing more is admitted; the log and the caller are told why."""
    place.write("rondel.toml", CONFIG.format(tokens=10**12))
    with Serving(place, "serve", "--port", "0") as gateway:
        assert gateway.ask("one").end() == 200
        for file in place.project.glob("rondel.db*"):
            file.unlink()
        answer = gateway.ask("two")
        assert answer.status >= 500
        assert "was deleted, moved or replaced" in answer.rest() + gateway.text
