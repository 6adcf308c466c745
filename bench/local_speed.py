"""How fast an embedded model answers beside llama.cpp itself: the same file, threads, context and messages.

`python -m bench.local_speed [MODEL] [THREADS]` asks the bare runtime (`xllamacpp.Server`, with its own defaults) and
Rondel's engine in turn, each in a process of its own, and compares CPU time for the prompt and for the output: on a
shared machine, wall time says more about the neighbours. One thread, unless told otherwise: several wait for each other
busily, so that what a neighbour takes from one of them would count as work of the others. Exits with 1 if Rondel needs
more than 5 % more for either.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from bench.measure import Ratio, cheapest_quarter
from rondel.engines.local import LocalEngine
from rondel.engines.local.llama import import_runtime
from rondel.engines.local.weights import DEFAULT, find, path_of
from rondel.prompt import Prompt
from rondel.values import Options, PartDelta, ReplyFinished, user

LIMIT = 1.05
ROUNDS = 12
CONTEXT_TOKENS = 4096
TOKENS_OUT = 48
THREADS = 1


class Measured(NamedTuple):
    """CPU seconds for a token of the prompt and of the output."""

    prompt: float
    output: float


def text_of(number: int) -> str:
    """A text of about 200 tokens that no round shares with another, so nothing is cached."""
    return f"{number} " + " ".join(f"{number + n} comes before {number + n + 1}." for n in range(20)) + " Tell a story."


def bare(path: str, threads: int) -> Any:
    """Return a function that asks llama.cpp's server and gives what that took."""
    runtime = import_runtime()
    params = runtime.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel, params.verbosity = path, CONTEXT_TOKENS, 1, -1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    server = runtime.Server(params)

    def ask(number: int) -> Measured:
        body = {
            "messages": [{"role": "user", "content": text_of(number)}],
            "max_tokens": TOKENS_OUT,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        seen, usage = list[float](), dict[str, Any]()

        def take(chunk: bytes) -> bool:
            decoded = json.loads(chunk)
            usage.update(decoded.get("usage") or {})
            if any(choice["delta"].get("content") for choice in decoded["choices"]):
                seen.append(time.process_time())
            return False

        start = time.process_time()
        server.handle_chat_completions(json.dumps(body).encode(), take)
        return _measured(start, seen, usage["prompt_tokens"], usage["completion_tokens"])

    return ask


def ours(path: str, threads: int) -> Any:
    """Return a function that asks Rondel's engine and gives what that took."""
    engine = LocalEngine(path, context_tokens=CONTEXT_TOKENS, threads=threads)
    runner = asyncio.Runner()

    async def answer(number: int) -> Measured:
        prompt = Prompt.of(user(text_of(number)), options=Options(temperature=0.0, tokens_max=TOKENS_OUT))
        seen, start = list[float](), time.process_time()
        async for delta in engine.stream(prompt):
            if isinstance(delta, PartDelta):
                seen.append(time.process_time())
            elif isinstance(delta, ReplyFinished):
                usage = delta.usage
        return _measured(start, seen, usage.tokens_in, usage.tokens_out)

    return lambda number: runner.run(answer(number))


def _measured(start: float, seen: list[float], tokens_in: int, tokens_out: int) -> Measured:
    return Measured((seen[0] - start) / tokens_in, (seen[-1] - seen[0]) / (tokens_out - 1))


def serve(kind: str, path: str, threads: str) -> None:
    """In a process of its own: answer each line, a number, with what it took."""
    ask = {"bare": bare, "ours": ours}[kind](path, int(threads))
    ask(1)
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(ask(int(line))), flush=True)


class Side:
    def __init__(self, kind: str, path: str, threads: int) -> None:
        command = [sys.executable, "-m", "bench.local_speed", "--serve", kind, path, str(threads)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise RuntimeError("the measured process ended")
        return line

    def ask(self, number: int) -> Measured:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{number}\n")
        self._process.stdin.flush()
        return Measured(*json.loads(self._line()))

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def run(path: str = "", threads: int = THREADS) -> list[Ratio]:
    path = path or str(path_of(DEFAULT))
    if not Path(path).exists():
        print(f"nothing to measure: {path!r} is not there; `rondel model pull` fetches it")
        return []
    sides = [Side(kind, path, threads) for kind in ("ours", "bare")]
    try:
        rounds = [[side.ask(1000 * number) for side in sides] for number in range(1, ROUNDS + 1)]
    finally:
        for side in sides:
            side.close()
    ratios = list[Ratio]()
    for index, what in enumerate(("prompt", "output")):
        mine, theirs = (cheapest_quarter([pair[side][index] for pair in rounds]) for side in (0, 1))
        shown = (f"{1 / each:.1f} tokens/CPU-s" for each in (mine, theirs))
        ratios.append(Ratio(f"{Path(path).name}, {what}", mine / theirs, LIMIT, *shown))
    return ratios


def main() -> int:
    if sys.argv[1:2] == ["--serve"]:
        serve(*sys.argv[2:5])
        return 0
    name = sys.argv[1] if sys.argv[1:] else DEFAULT.name
    path = name if name.endswith(".gguf") else str(path_of(find(name)))
    ratios = run(os.path.abspath(path), int(sys.argv[2]) if sys.argv[2:] else THREADS)
    print(*ratios, sep="\n")
    return 0 if ratios and all(ratio.holds for ratio in ratios) else 1


if __name__ == "__main__":
    sys.exit(main())
