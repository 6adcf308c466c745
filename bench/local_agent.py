"""How well an embedded model answers everyday questions, with the built-in agent and with tools of users.

`python -m bench.local_agent [MODEL] [--kind KIND] [--at-least N]`; MODEL is a name of `rondel model list` or a file.
It prints each answer, the score of each kind, and the wall time and CPU time of a question. It exits with 1 if fewer
than N answers are right. The model must be there: nothing is downloaded.

A question is right if the answer contains what it must, and the tools that it needs, and no others, were called.
`run_shell` only runs commands that read: this program approves them itself.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import shlex
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from bench.local_questions import QUESTIONS, Question
from rondel.agent import Agent
from rondel.app.app import App
from rondel.engines.local import LocalEngine
from rondel.engines.local.examples import example_turns
from rondel.engines.local.weights import ToolFormat, find, path_of
from rondel.errors import ToolError
from rondel.events import Outcome, RoundFinished, TurnFinished
from rondel.limits import Limits
from rondel.project.folder import builtin_agent
from rondel.tool import CallContext, Tool, tool
from rondel.tools.calculate import calculate
from rondel.tools.shell import run_shell
from rondel.values import Options, ToolCall

TURN_S = 240.0
READING = [
    "ls",
    "cat",
    "wc",
    "head",
    "tail",
    "grep",
    "find",
    "stat",
    "du",
    "pwd",
    "whoami",
    "date",
    "echo",
    "sort",
    "file",
    "test",
    "sed",
    "awk",
    "cut",
    "tr",
    "basename",
]


# --- tools of a user --------------------------------------------------------------------------------------------------


@tool
def weather(city: str) -> str:
    """Tell the weather in a city.

    Args:
        city: the name of the city
    """
    known = {"lisbon": "23 degrees and sunny", "oslo": "4 degrees and rainy"}
    return f"{city}: {known.get(city.lower(), 'unknown')}"


@tool
def order_status(order_id: str) -> str:
    """Look up the status of an order."""
    return f"Order {order_id}: shipped on Monday"


@tool
def add_item(item: str, amount: int = 1) -> str:
    """Add something to the shopping list."""
    return f"{amount} x {item} is on the list"


@tool
def set_light(room: str, on: bool) -> str:
    """Switch the light of a room on or off."""
    return f"The light in the {room} is {'on' if on else 'off'}"


@tool
def send_mail(to: str, subject: str, text: str) -> str:
    """Send an e-mail."""
    return f"Sent to {to}"


@tool
def convert(amount: float, source: Literal["EUR", "USD", "GBP"], target: Literal["EUR", "USD", "GBP"]) -> str:
    """Convert an amount of money to another currency."""
    dollars = {"EUR": 1.08, "USD": 1.0, "GBP": 1.27}
    return f"{amount * dollars[source] / dollars[target]:.2f} {target}"


HOME = Agent(
    "home",
    "You are the assistant of a household. Answer briefly.",
    tools=(weather, order_status, add_item, set_light, send_mail, convert),
)


@tool
def find_book(title: str) -> str:
    """Tell on which shelf a book stands."""
    return f"{title}: shelf {({'dune': 12, 'emma': 30}).get(title.lower(), 'unknown')}"


@tool
def reserve(title: str, person: str) -> str:
    """Reserve a book for a person."""
    return f"{title} is reserved for {person}"


@tool
def opening_hours(day: str) -> str:
    """Tell when the library is open on a day."""
    return f"{day}: {({'saturday': '10 to 13', 'sunday': 'closed'}).get(day.lower(), '9 to 17')}"


LIBRARY = Agent("library", "You work in a small library. Answer briefly.", tools=(find_book, reserve, opening_hours))


async def _read_only(arguments: dict[str, Any], context: CallContext) -> Any:
    command = arguments["command"]
    with contextlib.suppress(ValueError):
        words = [part.split()[0] for part in re.split(r"\|\|?|&&|;", command) if part.split()]
        if (
            words
            and not re.search(r"[>`$]", command)
            and all(word in READING for word in words)
            and shlex.split(command)
        ):
            return await run_shell.run(arguments, context)
    raise ToolError("the user said no to this command")


# --- asking -----------------------------------------------------------------------------------------------------------


class Asked(NamedTuple):
    question: Question
    text: str
    calls: list[ToolCall]
    outcome: Outcome
    wall_s: float
    cpu_s: float

    @property
    def problem(self) -> str:
        """What is wrong with the answer; empty if it is right."""
        if self.outcome is not Outcome.DONE:
            return f"ended as {self.outcome.name}"
        called, wanted = {call.name for call in self.calls}, self.question.tool
        if wanted is not None and wanted and called != set(wanted.split()):
            return f"called {sorted(called) or 'nothing'}, not {wanted}"
        if wanted is None and called:
            return f"called {sorted(called)}"
        made = " ".join(json.dumps(call.arguments, ensure_ascii=False) for call in self.calls)
        for pattern, text in ((self.question.arguments, made), (self.question.wanted, self.text)):
            for each in pattern.split("&&") if pattern else ():
                if not re.search(each, text, re.IGNORECASE | re.DOTALL):
                    return f"{each!r} is not in {'the arguments' if text is made else 'the answer'}"
        return ""


class _Clock:
    """A clock that starts at 14:25 on Tuesday, 3 March 2026."""

    def __init__(self) -> None:
        self._offset = time.mktime((2026, 3, 3, 14, 25, 0, 0, 0, -1)) - time.monotonic()
        self.start = time.monotonic()

    def now(self) -> float:
        return self._offset + self.start  # it stands still: a run takes longer than a minute

    async def sleep_until(self, at: float) -> None:
        await asyncio.sleep(max(0.0, at - self.now()))


async def ask(app: App, question: Question) -> Asked:
    conversation = app.conversation(agent=question.agent)
    calls, outcome, text, wall, cpu = list[ToolCall](), Outcome.FAILED, "", time.monotonic(), time.process_time()
    for said in question.said:
        calls, outcome, text = [], Outcome.FAILED, ""
        wall, cpu = time.monotonic(), time.process_time()
        view = await conversation.send(said)
        try:
            async with asyncio.timeout(TURN_S):
                async for event in view:
                    if isinstance(event, RoundFinished):
                        calls += event.message.calls
                        text = event.message.text or text
                    elif isinstance(event, TurnFinished):
                        outcome = event.outcome
        except TimeoutError:
            await view.stop()
            return Asked(question, text, calls, Outcome.LIMITED, TURN_S, 0.0)
    return Asked(question, text, calls, outcome, time.monotonic() - wall, time.process_time() - cpu)


def _folder(path: Path) -> None:
    (path / "notes.txt").write_text("The piano lesson is on Friday.\nBring the blue book.\n")
    (path / "todo.txt").write_text("call the dentist\nbuy milk\nwrite to Anna\n")
    (path / "data.csv").write_text("name,age\nAnna,31\nBen,28\nCleo,45\n")
    (path / "report.md").write_text("# Report\nTotal: 1234\n\n"[:22])
    (path / "pictures").mkdir()
    (path / "pictures" / "cat.png").write_bytes(b"\x89PNG")


def _check_apart(tools: tuple[Tool, ...]) -> None:
    shown = {message.text for message in example_turns([each.spec for each in tools], Options())}
    if known := shown & {said for question in QUESTIONS for said in question.said}:
        sys.exit(f"these questions are examples, so they measure nothing: {sorted(known)}")


async def run(path: Path, kinds: list[str], context_tokens: int, tool_format: ToolFormat | None) -> list[Asked]:
    engine = LocalEngine(path, context_tokens=context_tokens, tool_format=tool_format)
    shell = msgspec.structs.replace(run_shell, run=_read_only, approval=None)
    built_in = builtin_agent(engine)
    if built_in.tools:
        built_in = msgspec.structs.replace(built_in, tools=(calculate, shell))
    _check_apart((calculate, shell))
    limits = Limits(rounds=8)
    agents = [
        msgspec.structs.replace(agent, limits=limits, options=Options(seed=7)) for agent in (built_in, HOME, LIBRARY)
    ]
    done = list[Asked]()
    async with App(*agents, engine=engine, clock=_Clock()) as app:
        warmed = set[str]()
        for question in sorted(QUESTIONS, key=lambda question: ("rondel", "home", "library").index(question.agent)):
            if kinds and not {question.kind, question.agent} & set(kinds):
                continue
            if question.agent not in warmed:  # the first question also loads the model and reads the examples
                warmed.add(question.agent)
                await (await app.conversation(agent=question.agent).send("Hey.")).result()
            asked = await ask(app, question)
            done.append(asked)
            calls = ", ".join(f"{call.name}({json.dumps(call.arguments)})" for call in asked.calls)
            mark = "ok   " if not asked.problem else "WRONG"
            said = " => ".join(question.said)
            print(f"{mark} {asked.wall_s:5.1f} s  {said} -> {calls} {asked.text[:160]!r} {asked.problem}", flush=True)
    return done


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="?", default="qwen2.5-coder-1.5b")
    parser.add_argument(
        "--kind", action="append", default=[], help="a kind of question, or an agent (rondel, home, library)"
    )
    parser.add_argument("--at-least", type=int, default=0)
    parser.add_argument("--context-tokens", type=int, default=4096)
    parser.add_argument("--tool-format", choices=("native", "examples"))
    options = parser.parse_args()
    path = Path(options.model) if options.model.endswith(".gguf") else path_of(find(options.model))
    path = path.absolute()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        _folder(Path(folder))
        done = asyncio.run(run(path, options.kind, options.context_tokens, options.tool_format))
    every, right = (
        Counter(each.question.kind for each in done),
        Counter(each.question.kind for each in done if not each.problem),
    )
    print()
    for kind, number in every.items():
        print(f"{kind:10}  {right[kind]:2} of {number}")
    score, wall_s = right.total(), statistics.median(each.wall_s for each in done)
    cpu_s = statistics.median(each.cpu_s for each in done)
    print(f"{path.name}: {score} of {every.total()} right")
    print(f"median for a question: {wall_s:.1f} s of wall time, {cpu_s:.1f} s of CPU (load {os.getloadavg()[0]:.1f})")
    return 0 if score >= options.at_least else 1


if __name__ == "__main__":
    sys.exit(main())
