"""A notebook, with a real kernel: its cells run inside an event loop."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import start_new_kernel

import rondel

pytestmark = pytest.mark.slow
WAIT_S = 60.0

AGENT = """
import rondel
from rondel.testing import Scripted, call

@rondel.tool
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

def helper(*steps):
    return rondel.Agent("helper", engine=Scripted(*steps), tools=[add])
"""
STREAM = """
async with rondel.App(helper("One two three.")) as app:
    conversation = app.conversation("trip")
    async for text in conversation.stream_text("Count."):
        print(text, end="")
"""


class Kernel:
    """A kernel that runs cells one after the other, as a notebook does."""

    def __init__(self, folder: Path) -> None:
        # The package that is tested, wherever it comes from.
        env = {**os.environ, "HOME": str(folder), "PYTHONPATH": str(Path(rondel.__file__).parent.parent)}
        self._manager, self._client = start_new_kernel(startup_timeout=WAIT_S, cwd=str(folder), env=env)

    def run(self, code: str, interrupt_at: str = "") -> str:
        """Return what a cell prints and what its last line gives, or the error that it ends with. With `interrupt_at`,
        it is interrupted when it prints this."""
        shown = list[str]()

        def see(message: dict[str, Any]) -> None:
            content = message["content"]
            if message["msg_type"] == "stream":
                shown.append(content["text"])
                if interrupt_at and interrupt_at in content["text"]:
                    self._manager.interrupt_kernel()
            elif message["msg_type"] == "execute_result":
                shown.append(content["data"]["text/plain"])
            elif message["msg_type"] == "error":
                shown.append(f"{content['ename']}: {content['evalue']}")

        self._client.execute_interactive(code, timeout=WAIT_S, output_hook=see)
        return "".join(shown)

    def close(self) -> None:
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    made = Kernel(tmp_path_factory.mktemp("notebook"))
    try:
        assert made.run(AGENT) == ""
        yield made
    finally:
        made.close()


def test_run_says_what_to_write_in_a_notebook(kernel: Kernel):
    said = kernel.run('rondel.run(helper("Hello."), "Hi.")')
    assert said.startswith("RondelError: rondel.run cannot wait here")
    assert said.endswith("write `await rondel.ask(...)` instead")


def test_what_it_says_works_in_a_cell_also_with_tools_and_again(kernel: Kernel):
    asked = 'print(await rondel.ask(helper(call("add", a=2, b=40), "It is 42."), "What is 2 + 40?"))'
    assert kernel.run(asked) == "It is 42.\n"
    assert kernel.run(asked) == "It is 42.\n", "nothing of the first cell is in the way of the second"


def test_a_notebook_shows_an_answer_while_it_streams_and_remembers_in_a_file(kernel: Kernel):
    assert kernel.run(STREAM) == "One two three."
    remembering = 'rondel.ask(helper("Noted."), "Hi.", store="talks.db", conversation="trip")'
    assert kernel.run(f"(await {remembering}).output") == "'Noted.'"
    assert kernel.run("import os; os.path.exists('talks.db')") == "True"


def test_a_turn_that_fails_in_a_cell_is_an_error_and_the_next_cell_works(kernel: Kernel):
    failed = kernel.run('await rondel.ask(helper(rondel.EngineDenied("wrong key")), "Hi.")')
    assert failed == "TurnFailed: wrong key"
    assert kernel.run('(await rondel.ask(helper("Hello."), "Hi.")).output') == "'Hello.'"


def test_a_cell_that_is_interrupted_stops_its_turn_and_the_next_cell_works(kernel: Kernel):
    pausing = 'from rondel.testing import Pause\nprint("begun")\nawait rondel.ask(helper(Pause("Half")), "Hi.")'
    said = kernel.run(pausing, interrupt_at="begun")
    assert said.startswith("begun\n")
    assert "KeyboardInterrupt" in said or "CancelledError" in said
    assert kernel.run('(await rondel.ask(helper("Hello."), "Hi.")).output') == "'Hello.'"
