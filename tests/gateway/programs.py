"""Real programs as callers: each in a folder and a home of its own, with the environment that `rondel code` gives."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import NamedTuple

from rondel.cli._client import client_environment

from .served import KEPT
from .speech import Answer, stream

RUN_S = 180  # A program that takes longer waits for something that never comes; a busy machine is slow


class Ended(NamedTuple):
    out: str
    err: str


class Programs:
    """Runs programs that ask a gateway. They are kept from all other hosts by a proxy that nobody listens at."""

    def __init__(self, folder: Path, base_url: str) -> None:
        self.work = folder / "work"
        self.work.mkdir(parents=True)
        nowhere = "http://127.0.0.1:9"
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        own = {"HOME": str(folder), "LANG": "C.UTF-8", "TERM": "dumb", "HTTPS_PROXY": nowhere, "https_proxy": nowhere}
        self.env = client_environment(base_url, "", {**kept, **own})

    def run(self, *command: str | Path, well: bool = True) -> Ended:
        """Run a program to its end, which must be a good one, or must not."""
        done = subprocess.run(
            command, cwd=self.work, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, timeout=RUN_S
        )
        ended = Ended(done.stdout.decode(), done.stderr.decode())
        assert (done.returncode == 0) is well, ended
        return ended


def streams(dialect: str, *answers: Answer) -> list[list[bytes]]:
    """Scripts that stream these answers, each with an id of its own: programs join what has the same one."""
    ids = {"anthropic": b"msg_up", "openai-chat": b"chatcmpl-up", "openai-responses": b"resp_up"}
    return [
        [_renamed(step, ids[dialect], number) for step in stream(dialect, answer)]
        for number, answer in enumerate(answers)
    ]


def _renamed(step: bytes, id: bytes, number: int) -> bytes:
    """Another id of the same length: the size of a chunk stands before it."""
    return step.replace(id, id[:-1] + b"%d" % number)
