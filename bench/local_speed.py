"""How fast an embedded model answers beside llama.cpp itself: the same file, threads, context and messages.

`python -m bench.local_speed [MODEL ...]` asks the bare runtime (`xllamacpp.Server`, with its own defaults) and Rondel's
engine in turn, each in a process of its own, and compares their CPU time, for the prompt and for the output: on a
shared machine, wall time says more about the neighbours. Even the CPU time of the bare runtime drifts by 30 % within
minutes there, so each answer is compared with the one beside it, and the median of these ratios counts. One thread:
several wait for each other busily, so that what a neighbour takes from one of them would count as work of the others.
Each model is measured for two minutes, or five rounds if those take longer. Exits with 1 if Rondel needs more than 5 %
more for either.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bench.measure import Ratio
from rondel.engines.local import LocalEngine
from rondel.engines.local.llama import import_runtime
from rondel.engines.local.weights import DEFAULT, RECOMMENDED, find, is_present, path_of
from rondel.prompt import Prompt
from rondel.values import Options, PartDelta, ReplyFinished, user

LIMIT = 1.05
ROUNDS_MIN, ROUNDS_MAX, BUDGET_S = 5, 25, 120.0
CONTEXT_TOKENS = 4096
TOKENS_OUT = 32
THREADS = 1


class Measured(NamedTuple):
    """CPU seconds for a token of the prompt and of the output."""

    prompt: float
    output: float


def text_of(number: int) -> str:
    """A text of about 150 tokens that no round shares with another, so nothing is cached."""
    return f"{number} " + " ".join(f"{number + n} comes before {number + n + 1}." for n in range(10)) + " Tell a story."


def bare(path: str) -> Any:
    """Return a function that asks llama.cpp's server and gives what that took."""
    runtime = import_runtime()
    params = runtime.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel, params.verbosity = path, CONTEXT_TOKENS, 1, -1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = THREADS
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


def ours(path: str) -> Any:
    """Return a function that asks Rondel's engine and gives what that took."""
    engine = LocalEngine(path, context_tokens=CONTEXT_TOKENS, threads=THREADS)
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


def serve(kind: str, path: str) -> None:
    """In a process of its own: answer each line, a number, with what it took."""
    ask = {"bare": bare, "ours": ours}[kind](path)
    ask(1)
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(ask(int(line))), flush=True)


class Side:
    def __init__(self, kind: str, path: str) -> None:
        command = [sys.executable, "-m", "bench.local_speed", "--serve", kind, path]
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


def run(*names: str) -> Iterator[Ratio]:
    for weights in map(find, names or (DEFAULT.name, RECOMMENDED.name)):
        if is_present(weights):
            yield from compared(path_of(weights))
        else:
            print(f"not measured: `rondel model pull {weights.name}` fetches it")


def compared(path: Path) -> Iterator[Ratio]:
    sides = [Side(kind, str(path)) for kind in ("ours", "bare")]
    rounds, until = list[list[Measured]](), time.monotonic() + BUDGET_S
    try:
        while len(rounds) < ROUNDS_MIN or (len(rounds) < ROUNDS_MAX and time.monotonic() < until):
            # Who is asked first changes: what drifts hits both alike.
            number, first = 1000 * (len(rounds) + 1), len(rounds) % 2
            answers = {index: sides[index].ask(number) for index in (first, 1 - first)}
            rounds.append([answers[0], answers[1]])
    finally:
        for side in sides:
            side.close()
    for index, what in enumerate(("prompt", "output")):
        ratio = statistics.median(mine[index] / theirs[index] for mine, theirs in rounds)
        each = (statistics.median(pair[side][index] for pair in rounds) for side in (0, 1))
        shown = (f"{1 / seconds:.1f} tokens/CPU-s" for seconds in each)
        yield Ratio(f"{path.name}, {what}, median of {len(rounds)} pairs", ratio, LIMIT, *shown)


def main() -> int:
    if sys.argv[1:2] == ["--serve"]:
        serve(*sys.argv[2:4])
        return 0
    ratios = list[Ratio]()
    for ratio in run(*sys.argv[1:]):
        print(ratio, flush=True)
        ratios.append(ratio)
    return 0 if ratios and all(ratio.holds for ratio in ratios) else 1


if __name__ == "__main__":
    sys.exit(main())
