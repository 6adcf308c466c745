"""Processes that append and spend on one store, and are killed, stopped and continued at random.

`python -m tests.ledger.crowd DATABASE SAID SECONDS SEED`: what each process was promised is added to the file SAID as
it happens, one line each. The processes are forked from one that has imported everything, so many can die in a second.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from pathlib import Path

from rondel.charge import Scope
from rondel.contracts.ledger import Rule
from rondel.errors import TokenLimitError
from rondel.events import MessageAdded
from rondel.ledger.ledger import Ledger
from rondel.stores.sqlite import SqliteStore
from rondel.stores.sqlite import ledger as sums
from rondel.values import Usage, user

IN, OUT = 100, 50  # what each call is expected to spend; it spends no more
TOKENS_MAX = 4_000
RULES = [
    Rule({"key": "*"}, "lifetime", tokens=TOKENS_MAX, mode="block"),
    Rule({"key": "*", "person": "*"}, "lifetime", tokens=TOKENS_MAX * 3 // 4, mode="block"),
]
PROCESSES = 4


class Worker:
    def __init__(self, path: Path, said: int, name: str) -> None:
        self._said, self._name = said, name
        self._random = random.Random(name)
        self._store = SqliteStore(path)
        self._ledger = Ledger(self._store.ledger_store, rules=RULES)

    def say(self, *words: object) -> None:
        os.write(self._said, f"{' '.join(map(str, words))}\n".encode())

    async def work(self) -> None:
        """Work until killed; some workers end by themselves."""
        life_s = self._random.random() if self._random.random() < 0.3 else 3_600
        async with self._store:
            try:
                async with asyncio.timeout(life_s), asyncio.TaskGroup() as group:
                    group.create_task(self._talk())
                    group.create_task(self._look())
                    for _ in range(self._random.choice((1, 4, 30))):
                        group.create_task(self._call())
            except TimeoutError:
                pass

    async def _talk(self) -> None:
        seq = 0
        while True:
            size = self._random.choice((*[20] * 20, 100_000, 3_000_000))
            wait = self._random.random() < 0.7
            await self._store.append(self._name, seq + 1, (MessageAdded(user("x" * size)),), at=1.0, wait=wait)
            seq += 1
            if wait:
                self.say("appended", self._name, seq)
            await asyncio.sleep(self._random.random() * 0.01)

    async def _call(self) -> None:
        while True:
            # A new key each second, the same in all processes: each reaches its limit.
            key, person = f"key-{time.monotonic():.0f}", f"person-{self._random.randrange(2)}"
            scope = Scope("chat", "X", key=key, person=person)
            try:
                reservation = await self._ledger.reserve(scope, tokens=lambda: (IN, OUT))
            except TokenLimitError:
                self.say("refused")
                await asyncio.sleep(0.01)
                continue
            assert reservation.reserved is not None
            id = reservation.reserved.charge.id
            self.say("reserved", id)
            await asyncio.sleep(self._random.choice((0, 0.01)))
            if self._random.random() < 0.1:
                self.say("voids", id)
                self._ledger.void(reservation)
            else:
                spent = Usage(IN, self._random.randrange(OUT + 1))
                self._ledger.settle(reservation, spent, model=self._random.choice(("", "", "other")))
                await self._ledger.limit_state(scope)
                self.say("settled", id, spent.tokens_in + spent.tokens_out)
            if self._random.random() < 0.1:
                id = f"{self._name}-{self._random.random()}"
                await self._ledger.record(Scope("image", "painter"), Usage(7, 0), id=id)
                self.say("recorded", id)

    async def _look(self) -> None:
        while True:
            await self._ledger.summary(by=self._random.choice(("model", "key", "key,model")))
            await asyncio.sleep(self._random.random() * 0.1)


def fork(path: Path, said: int, name: str) -> int:
    child = os.fork()
    if child:
        return child
    try:
        asyncio.run(Worker(path, said, name).work())
        os._exit(0)
    except BaseException as error:
        os.write(said, f"failed {error!r}\n".encode())
        os._exit(1)


def main(path: Path, said: int, seconds: float, seed: str) -> None:
    sums.ROLL_UP_EVERY = 16  # much more often than in use
    chance, names, living = random.Random(seed), 0, set[int]()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        while len(living) < PROCESSES:
            names += 1
            living.add(fork(path, said, f"{seed}-{names}"))
        time.sleep(chance.random() * 0.2)
        living -= {child for child in living if os.waitpid(child, os.WNOHANG)[0]}
        for child in chance.sample(sorted(living), min(1, len(living))):
            if chance.random() < 0.3:
                os.kill(child, signal.SIGSTOP)
                time.sleep(chance.random() * 0.3)
                os.kill(child, signal.SIGCONT)
            else:
                _kill(child)
                living.remove(child)
    for child in living:
        _kill(child)


def _kill(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


if __name__ == "__main__":
    _, database, promises, lasts_s, number = sys.argv
    main(Path(database), os.open(promises, os.O_WRONLY | os.O_CREAT | os.O_APPEND), float(lasts_s), number)
