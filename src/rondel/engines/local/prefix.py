"""The constant beginning of a prompt (instructions, tools, examples) as the model's state on disk: a model that is
loaded again reads it in milliseconds, where it would take seconds to process. What people say is never in it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from glob import escape
from pathlib import Path
from typing import Any

import msgspec

from ...contracts.dialect import Json
from ...files.private import private_folder
from .frames import version
from .llama import ModelSettings
from .weights import cache_folder

FILES_MAX = 4  # some 30 MB each; the least recently used one is removed first

SlotAction = Callable[[str, str], bool]
"""Makes the runtime `save` its state to a file of the folder, or `restore` it. False if it failed."""


def folder() -> Path:
    return cache_folder().parent / "prompts"


def prepare(server: Any, act: SlotAction, settings: ModelSettings, body: Json, take: Callable[[bytes], bool]) -> None:
    """Bring a newly loaded model to the state after the constant messages of a request. `take` gets the runtime's
    output meanwhile; true stops it."""
    if not (number := body.get("constant_messages", 0)):
        return
    messages = body["messages"][:number]
    asked: Json = {"messages": messages, "chat_template_kwargs": body["chat_template_kwargs"]}
    path = folder() / _name(settings, asked)
    if path.exists() and act("restore", path.name):
        with suppress(OSError):
            os.utime(path)
        return
    asked |= {"max_tokens": 1, "cache_prompt": True, "stream": True, "return_progress": True}
    stopped = False

    def watch(chunk: bytes) -> bool:
        nonlocal stopped
        stopped = stopped or take(b"")
        return stopped

    server.handle_chat_completions(msgspec.json.encode(asked), watch)
    with suppress(OSError):
        private_folder(path.parent)
        if not stopped and act("save", path.name):
            path.chmod(0o600)
            _forget_oldest()


def _name(settings: ModelSettings, asked: Json) -> str:
    """Return the name of a state, which fits only the same file, context, runtime and messages."""
    stat = Path(settings.path).stat()
    known = [settings.path, stat.st_size, stat.st_mtime_ns, settings.context_tokens, version(), asked]
    return f"{Path(settings.path).stem}-{hashlib.sha256(msgspec.json.encode(known)).hexdigest()[:32]}.state"


def states_of(model: Path) -> list[Path]:
    """Return the files that belong to a model's file."""
    return list(folder().glob(f"{escape(model.stem)}-*.state"))


def _forget_oldest() -> None:
    found = sorted(folder().glob("*.state"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in found[FILES_MAX:]:
        path.unlink(missing_ok=True)
