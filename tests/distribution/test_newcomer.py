"""The first hour of a newcomer, with a clean home and only what the README says.

Set-up, a first answer, a question by pipe, a tool with approval, a second model, a project, a trace, and the gateway
with an SDK. The models are rules behind a server on loopback, so the answers are known.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import anthropic
import openai
import pexpect
import pytest

from tests.distribution.conftest import Machine
from tests.distribution.model_server import ModelServer

pytestmark = pytest.mark.slow
WAIT_S = 60

SETTINGS = """
engine = "first"

[engines.first]
base_url = "{url}"
model = "small"

[engines.second]
base_url = "{url}"
model = "big"
"""


def settle_in(machine: Machine, models: ModelServer) -> None:
    """What `rondel doctor` names and docs/engines.md shows: the user's own file with two engines."""
    file = machine.home / ".config" / "rondel" / "rondel.toml"
    file.parent.mkdir(parents=True)
    file.write_text(SETTINGS.format(url=models.url))


def test_without_an_engine_the_first_command_says_what_to_do(machine: Machine):
    """The environment has no embedded model and no key; whether a server runs is not for a test to say."""
    shown = machine.run("rondel", "doctor", codes=(0, 1))
    assert "pip install '.[local]'" in shown


def test_the_first_hour(machine: Machine, models: ModelServer):
    settle_in(machine, models)
    assert re.search(r"answers +first: set in ", machine.run("rondel", "doctor")), "the set-up is complete"

    # A first answer, a question by pipe, a second model.
    assert "small read: Is anybody there?" in machine.run("rondel", "Is anybody there?")
    piped = machine.run("rondel", "Summarise this.", text="the notes of today")
    assert "Summarise this." in piped
    assert "the notes of today" in piped
    assert "big read: Hello" in machine.run("rondel", "Hello", "--engine", "second")

    # A tool that asks first, in the chat: it runs when the person agrees, and only then.
    approve_in_chat(machine)

    # A trace of what happened.
    trace = machine.run("rondel", "trace", "last")
    assert "small read: Error: denied by user" in trace
    assert "small read: exit code 0 from the shell" in trace
    assert "asked second:big" in trace
    assert "big read: and you?" in trace

    # A project: an agent, a tool of its own.
    made = machine.run("rondel", "init", "trip")
    assert "created  trip/agents/helper.md" in made
    folder = machine.home / "trip"
    with (folder / "rondel.toml").open("a") as file:
        file.write(SETTINGS.format(url=models.url).replace('engine = "first"\n', ""))
    tool = tool_of(folder)
    answered = machine.run("rondel", "run", "helper", f"Use {tool}", "--engine", "first", cwd=folder)
    assert "small read: " in answered
    assert tool in machine.run("rondel", "trace", "last", cwd=folder)
    machine.run("rondel", "lint", cwd=folder)


def tool_of(folder: Path) -> str:
    found = re.search(r"^def (\w+)", (folder / "tools.py").read_text(), re.M)
    assert found
    return found[1]


def approve_in_chat(machine: Machine) -> None:
    chat = pexpect.spawn(
        str(machine.bin / "rondel"),
        cwd=str(machine.home),
        env=machine.env,
        encoding="utf-8",
        dimensions=(40, 120),
        timeout=WAIT_S,
    )
    try:
        chat.expect("first")  # the banner names the engine
        chat.send("please use run_shell\r")
        chat.expect("Allow run_shell to run")
        chat.send("n\r")
        chat.expect("small read: ")  # why there is no result
        chat.send("again with run_shell\r")
        chat.expect("Allow run_shell to run")
        chat.send("y\r")
        chat.expect("small read: ")
        chat.expect("from the shell")
        chat.send("/model second\r")
        chat.expect("second")
        chat.send("and you?\r")
        chat.expect("big read: ")
        chat.send("/quit\r")
        chat.expect(pexpect.EOF)
    finally:
        chat.close(force=True)


def test_the_gateway_serves_an_sdk(machine: Machine, models: ModelServer):
    settle_in(machine, models)
    command = [str(machine.bin / "rondel"), "serve", "--port", "0"]
    gateway = subprocess.Popen(command, cwd=machine.home, env=machine.env, stderr=subprocess.PIPE, text=True)
    try:
        assert gateway.stderr is not None
        address = ""
        while not address:
            line = gateway.stderr.readline()
            assert line, "the gateway ended"
            found = re.search(r"http://127\.0\.0\.1:\d+", line)
            address = found[0] if found else ""
        with openai.OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0) as client:
            asked = client.chat.completions.create(model="second:big", messages=[{"role": "user", "content": "Hello?"}])
            assert asked.choices[0].message.content == "big read: Hello?"
            with client.chat.completions.create(
                model="first:small", messages=[{"role": "user", "content": "And you?"}], stream=True
            ) as stream:
                pieces = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
            assert "".join(pieces) == "small read: And you?"
        with anthropic.Anthropic(base_url=address, api_key="any", max_retries=0) as client:
            message = client.messages.create(
                model="second:big", max_tokens=100, messages=[{"role": "user", "content": "Anybody else?"}]
            )
            assert [block.text for block in message.content if block.type == "text"] == ["big read: Anybody else?"]
    finally:
        gateway.terminate()
        gateway.wait(WAIT_S)
        gateway.stderr.close()  # type: ignore[union-attr]
