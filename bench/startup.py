"""What it costs to be there: imports, the command line's first breath, an agent. bench/gateway.py starts a gateway."""

from __future__ import annotations

import contextlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import timeit
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.measure import Ratio, shown

RUNS = 15


def cpu_of_processes(*commands: Sequence[str]) -> list[float]:
    """The median CPU of each command, run in turn."""
    times: list[list[float]] = [[] for _ in commands]
    env = {
        **os.environ,
        "RONDEL_TRUST": tempfile.gettempdir(),
        "PYTHONDONTWRITEBYTECODE": "",
    }  # compiled once, as what is installed is
    for _ in range(RUNS):
        for command, seconds in zip(commands, times, strict=True):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command, check=True, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return [statistics.median(seconds) for seconds in times]


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def rondel_with(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "rondel", *arguments]


def chat_cost() -> Ratio:
    """A chat in which nobody says anything, against the libraries that a terminal needs."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "rondel.toml"
        config.write_text('engine = "echo"\n[store]\npath = ":memory:"\n', encoding="utf-8")
        libraries = "import asyncio, prompt_toolkit, rich.console, markdown_it"
        with contextlib.chdir(folder):
            chat, plain = cpu_of_processes(rondel_with("chat"), python(libraries))
    return Ratio(f"rondel chat against python -c '{libraries}'", chat / plain, 2, shown(chat), shown(plain))


def memory_of(code: str) -> float:
    """The memory of a process that has run the code, in megabytes: the median, since it depends on where the kernel
    puts things. Without typing_extensions, which msgspec imports if it is there: Rondel does not need it, but what the
    tests and checks install does."""
    hidden = "import sys; sys.modules['typing_extensions'] = None"
    told = "import os; print(int(open('/proc/self/statm').read().split()[1]) * os.sysconf('SC_PAGE_SIZE'))"
    command = python(f"{hidden}\n{code}\n{told}")
    runs = (subprocess.run(command, check=True, capture_output=True, text=True).stdout for _ in range(5))
    return statistics.median(map(float, runs)) / 1e6


@dataclass(frozen=True)
class Plain:
    """A frozen dataclass with an agent's fields."""

    name: str
    prompt: Any = ""
    engine: Any = None
    tools: Any = ()
    plugins: Any = ()
    limits: Any = None
    options: Any = None
    description: str = ""
    inputs: Any = None
    output: Any = None


def agent_cost() -> Ratio:
    from rondel import Agent, Limits, Options

    limits, options = Limits(), Options()

    def ours() -> object:
        return Agent("helper", prompt="Help.", engine="echo", limits=limits, options=options, description="Helps.")

    def theirs() -> object:
        return Plain("helper", prompt="Help.", engine="echo", limits=limits, options=options, description="Helps.")

    number = 20_000
    a, b = (min(timeit.repeat(make, number=number, repeat=5)) / number for make in (ours, theirs))
    return Ratio("an Agent against a frozen dataclass", a / b, 10, f"{a * 1e9:.0f} ns", f"{b * 1e9:.0f} ns")


def run() -> list[Ratio]:
    nothing, rondel, everything, asyncio = cpu_of_processes(
        python("pass"),
        python("import rondel"),
        python("import rondel; rondel.Agent, rondel.App, rondel.tool, rondel.Plugin"),
        python("import asyncio"),
    )
    base = asyncio - nothing
    version, shown_help, plain = cpu_of_processes(
        rondel_with("--version"), rondel_with("--help"), python("import asyncio")
    )
    memory = memory_of("import rondel; rondel.Agent, rondel.App, rondel.tool, rondel.Plugin") - memory_of("pass")
    app = "import rondel, with Agent, App, tool and Plugin"
    return [
        Ratio(
            "import rondel against import asyncio", (rondel - nothing) / base, 2, shown(rondel - nothing), shown(base)
        ),
        Ratio(
            f"{app} against import asyncio", (everything - nothing) / base, 2, shown(everything - nothing), shown(base)
        ),
        Ratio(f"{app}, memory against 15 MB", memory / 15, 1, f"{memory:.1f} MB", "15 MB"),
        Ratio("rondel --version against python -c 'import asyncio'", version / plain, 2, shown(version), shown(plain)),
        Ratio(
            "rondel --help against python -c 'import asyncio'", shown_help / plain, 2, shown(shown_help), shown(plain)
        ),
        chat_cost(),
        agent_cost(),
    ]
