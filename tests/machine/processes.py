"""A process of its own with an app on a SQLite file: it reads commands on stdin, and tells on stdout what happened."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

from rondel import App
from rondel.stores.sqlite import SqliteStore
from tests.forked import Forked, pipe

WAIT_S = 30.0

SCRIPT = r"""
import asyncio, json, os, sys
from rondel import Agent, App, Approval, tool
from rondel.errors import RondelError
from rondel.events import MessageQueued, TurnFinished, TurnStarted
from rondel.stores.sqlite import SqliteStore
from rondel.testing import Scripted, call, say

path, gates = sys.argv[1], sys.argv[2]

def tell(**what):
    print(json.dumps(what), flush=True)

@tool(idempotent=True, timeout_s=0)
async def wait(gate: str) -> str:
    "Wait until the test opens a gate."
    tell(working=gate)
    while not os.path.exists(os.path.join(gates, gate)):
        await asyncio.sleep(0.01)
    return f"{gate} is open"

@tool(approval=Approval("confirm"))
async def delete_all() -> str:
    "Delete all."
    return "all gone"

def answer(prompt):
    new = []
    for message in reversed(prompt.messages):
        if message.role == "assistant" and not message.calls:
            break
        new.insert(0, message)
    texts = [message.text for message in new if message.role == "user"]
    if new[-1].role != "tool":
        if texts[-1].startswith("wait"):
            return call("wait", gate=texts[-1].split()[-1])
        if texts[-1] == "delete":
            return call("delete_all")
    return say("heard " + ", ".join(texts))

async def follow(id, view):
    outcome = ""
    async for event in view:
        if isinstance(event, TurnFinished) and event.turn == view.id:
            outcome = event.outcome.value
    result = await view.result(check=False)
    tell(ended=id, outcome=outcome, output=result.output, error=result.error)

async def serve(app, group, order):
    conversation = app.conversation(order.get("in", "c"))
    match order["do"]:
        case "send":
            tell(sending=order["id"])
            view = await conversation.send(order["text"], id=order["id"])
            tell(sent=order["id"])
            group.create_task(follow(order["id"], view))
        case "withdraw":
            view = await conversation.send(order["text"], id=order["id"])
            tell(sent=order["id"])
            tell(stopped=await view.stop())
            group.create_task(follow(order["id"], view))
        case "steer":
            await conversation.steer(order["text"])
            tell(steered=order["text"])
        case "stop":
            tell(stopped=await conversation.stop())
        case "answer":
            question = order.get("question") or (await conversation.questions())[0].id
            view = await conversation.answer(question, order["text"], by="b")
            group.create_task(follow("answer", view))
        case "questions":
            tell(questions=[question.id for question in await conversation.questions()])
        case "resume":
            view = await conversation.resume()
            tell(resumed=view.id if view else "")
            if view:
                group.create_task(follow("resume", view))
        case "texts":
            tell(texts=[message.text for message in (await conversation.transcript()).messages])
        case "kinds":
            tell(kinds=[type(entry.event).__name__ for entry in await conversation.entries()])
        case "at_work":
            tell(at_work=await conversation.is_at_work())
        case "engine":
            app.registry.engine("echo")
            await conversation.use_engine("echo")
            tell(chosen="echo")
        case "drain":
            await app.drain()
            tell(drained=True)

async def main():
    agent = Agent("helper", engine=Scripted(*[answer] * 2000), tools=[wait, delete_all])
    loop = asyncio.get_running_loop()
    async with App(agent, store=SqliteStore(path), recover=sys.argv[3] == "recover") as app:
        async with asyncio.TaskGroup() as group:
            tell(ready=os.getpid())
            while line := await loop.run_in_executor(None, sys.stdin.readline):
                order = json.loads(line)
                try:
                    await serve(app, group, order)
                except RondelError as error:
                    tell(failed=str(error), do=order["do"])
            if sys.argv[3] != "recover":
                os._exit(0)

asyncio.run(main())
"""


class Process:
    """A process that can be told something, waited for, stopped and killed."""

    def __init__(self, path: Path, *, recover: bool = False) -> None:
        arguments = [str(path), str(path.parent), "recover" if recover else "leave"]
        (stdin, self._stdin), (self._stdout, stdout) = pipe(), pipe()
        with stdin, stdout:
            self._process = Forked(
                tuple(arguments), cwd=Path.cwd(), env=os.environ, stdin=stdin, stdout=stdout, stderr=2, script=SCRIPT
            )
        self.told: list[dict[str, Any]] = []
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        self.wait("ready")

    def _read(self) -> None:
        for line in self._stdout:
            self._lines.put(json.loads(line))
        self._lines.put(None)

    def tell(self, do: str, **more: str) -> None:
        self._stdin.write(json.dumps({"do": do, **more}).encode() + b"\n")
        self._stdin.flush()

    def wait(self, key: str, value: Any = None, *, timeout_s: float = WAIT_S) -> dict[str, Any]:
        """The first thing with this key, and this value, that it has told or tells; each is found once."""
        while True:
            for told in self.told:
                if key in told and (value is None or told[key] == value):
                    self.told.remove(told)
                    return told
            line = self._lines.get(timeout=timeout_s)
            if line is None:
                raise AssertionError(f"the process ended before it told {key!r}; it told {self.told}")
            self.told.append(line)

    def work(self, gate: str = "gate", id: str = "m1") -> None:
        """Send a message whose turn works until the test opens a gate."""
        self.tell("send", text=f"wait {gate}", id=id)
        self.wait("working", gate)

    def ask(self, do: str, key: str, **more: str) -> Any:
        self.tell(do, **more)
        return self.wait(key)[key]

    def signal(self, number: int) -> None:
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        """`kill -9`; what it told before that is in `told`."""
        self._process.kill()
        self._process.wait(WAIT_S)
        self._reading.join()
        while not self._lines.empty():
            if (line := self._lines.get()) is not None:
                self.told.append(line)
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        self._stdout.close()

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()


def open_gate(path: Path, name: str) -> None:
    (path.parent / name).touch()


async def until_heard(app: App) -> None:
    """Wait until this app has heard the signals that others have sent to it."""
    store = app.store
    assert isinstance(store, SqliteStore)
    async with asyncio.timeout(WAIT_S):
        while await store.reading(lambda c: c.execute("select count(*) from signals").fetchone()[0]):
            await asyncio.sleep(0.01)
    await store.is_claimed("")  # the writer answers in order: whoever took the signals has them before this returns
