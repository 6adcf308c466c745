"""Downloads weights: asks first, shows a progress bar, and keeps the partial download when it is interrupted."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing
from pathlib import Path

from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from ..engine import Engine
from ..engines.local.weights import (
    DEFAULT,
    RECOMMENDED,
    Weights,
    downloaded_bytes,
    is_present,
    path_of,
    pull,
    read_record,
)
from ..errors import ConfigError
from ..files.private import private_folder, state_folder, write_private
from ..project.engines import NeedsWeights, Picked, best_present
from ..surfaces.terminal.console import progress_bar
from ._output import agrees, ask, can_ask, console, path_hint, tell


async def pull_with_bar(weights: Weights) -> str:
    """Download the weights and return their path. Cancelling it keeps the partial download."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    title = weights.title or weights.name
    if not sys.stderr.isatty():
        tell(f"Downloading {title}{f' ({weights.size})' if weights.size else ''} ...")
    try:
        with progress_bar(console(sys.stderr), *columns, disable=not sys.stderr.isatty()) as bar:
            task = bar.add_task(title, total=weights.size_bytes or None)
            async with aclosing(pull(weights)) as steps:
                async for done, total, what in steps:
                    bar.update(task, completed=done, total=total or None, description=f"{title}: {what}")
    except asyncio.CancelledError:
        command = f"run `rondel model pull {weights.name}` to"
        kept = downloaded_bytes(path_of(weights))
        tell(f"Partial download kept; {command} continue." if kept else f"Nothing was downloaded; {command} try again.")
        for line in path_hint():
            tell(line)
        raise
    return str(path_of(weights))


def licence_of(weights: Weights) -> str:
    """Return the licence that the file states, else the catalog's."""
    record = read_record(weights.file)
    return (record.licence if record is not None else "") or weights.licence


async def get_weights(engine: Engine | str | None, picked: Picked | None) -> bool:
    """Download what the engine needs, or a better model, if the user agrees. Return whether something was downloaded.

    Raises ConfigError if the engine has no weights and the user did not agree, or cannot be asked.
    """
    if picked is not None and picked.engine is engine and picked.name.startswith("local:"):
        return await _choose(picked)
    if not isinstance(engine, NeedsWeights) or not (problem := engine.problem):
        return False
    if not await download_if_agreed(engine.weights):
        raise ConfigError(problem)
    return True


async def download_if_agreed(weights: Weights) -> bool:
    """Download a model, unless it is there, if the user agrees. Return whether it is there now."""
    if is_present(weights):
        return True
    if not agrees(f"Download {weights.title} ({weights.size}, {weights.licence})?", default=True):
        return False
    await pull_with_bar(weights)
    return True


async def _choose(picked: Picked) -> bool:
    """Offer the recommended model if there is no better one. A "no" is remembered."""
    best = best_present()
    if best is not None and best.name != DEFAULT.name:
        return False
    if best is not None:
        declined = state_folder() / "declined-model"
        if is_declined(declined) or not can_ask():
            return False
        tell(f"{DEFAULT.title} {DEFAULT.description}.")
        tell(f"A better one is {_about(RECOMMENDED, '')}.")
        if agrees("Download it?"):
            await pull_with_bar(RECOMMENDED)
            return True
        decline(declined)
        tell(f"`rondel model pull {RECOMMENDED.name}` downloads it later.")
        return False
    if not can_ask():
        raise ConfigError(
            f"{picked.why}, and no model is downloaded; `rondel model pull {RECOMMENDED.name}` downloads one "
            f"({RECOMMENDED.size}), `rondel model pull {DEFAULT.name}` a tiny one ({DEFAULT.size}) to see that it works"
        )
    tell(f"{picked.why[0].upper()}{picked.why[1:]}. A model can run on this computer:")
    for number, weights in enumerate((RECOMMENDED, DEFAULT), 1):
        tell(f"  {number}  {_about(weights, '     ')}")
    choices = {"1": RECOMMENDED, "": RECOMMENDED, "y": RECOMMENDED, "yes": RECOMMENDED, "2": DEFAULT}
    while (answer := ask("Download which one? [1]/2/n")) not in choices:
        if answer in ("n", "no"):
            raise ConfigError(
                "no model was downloaded; `rondel model pull` downloads one later, or set ANTHROPIC_API_KEY or "
                "OPENAI_API_KEY, or start Ollama"
            )
        tell("Type 1, 2 or n.")
    await pull_with_bar(choices[answer])
    return True


def _about(weights: Weights, indent: str) -> str:
    """Return two lines, so that both fit into a window of 80 columns."""
    return f"{weights.title} ({weights.size}, {weights.licence}):\n{indent}{weights.description}"


def is_declined(path: Path) -> bool:
    return path.exists() or is_present(RECOMMENDED)


def decline(path: Path) -> None:
    private_folder(path.parent)
    write_private(path, f"{RECOMMENDED.name}\n")
