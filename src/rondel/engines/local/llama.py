"""llama.cpp: its module, imported with the first prompt, and a model's file that is loaded into it."""

from __future__ import annotations

import os
import re
import secrets
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import EngineError, install_extra

PROMPT_CACHE_MIB = 128
"""How much the runtime may keep of other conversations' prefixes while it answers one; its own default is 8 GB."""
ROOM = 3  # weights are repacked if this many times the model's file fits into the memory that is available
BATCH_TOKENS = 256  # a prompt is read in batches of this size; between two of them a request can be stopped


class ModelSettings(NamedTuple):
    path: str
    context_tokens: int
    threads: int


def usable_threads() -> int:
    """Return the usable cores; above four only half of them, because a core's second thread does not help."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return usable if usable <= 4 else usable // 2


def import_runtime() -> Any:
    """Import the llama.cpp module. Its threads would spin between requests if this were not set before its import."""
    from importlib import import_module

    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        return import_module("xllamacpp")
    except ImportError as error:
        needs = f"the embedded model needs the extra: {install_extra('local')}"
        raise EngineError(needs, provider="local") from error


def load(
    settings: ModelSettings, states: str = "", prepare: Callable[[Any, Callable[[str, str], bool]], None] | None = None
) -> Any:
    """Return the runtime's server with the model's file in it. Blocks, up to some seconds. `prepare` gets the server,
    and a function that saves its state to a file in the folder `states`, or restores it."""
    import shutil
    from tempfile import mkdtemp

    runtime = import_runtime()
    _require_model_file(Path(settings.path))
    folder = mkdtemp(prefix="rondel-")
    params = _params(runtime, settings, folder)
    params.slot_save_path = f"{states}{os.sep}" if states else ""
    try:
        server = runtime.Server(params)
        if prepare is not None and sys.platform != "win32":
            prepare(server, partial(_slot_action, f"{folder}/s.sock", params.api_keys[0]))
        return server
    except RuntimeError as error:
        why = _why(settings) or str(error)
        hint = "use another file of this model" if "template" in why else "`rondel model pull` fetches it again"
        raise EngineError(f"{settings.path!r} could not be loaded: {why}; {hint}", provider="local") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _params(runtime: Any, settings: ModelSettings, folder: str) -> Any:
    params = runtime.CommonParams()
    params.model.path = settings.path
    params.n_ctx = settings.context_tokens
    params.n_parallel = 1
    params.n_batch = params.n_ubatch = BATCH_TOKENS
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings.threads
    params.cache_ram_mib = PROMPT_CACHE_MIB
    params.no_extra_bufts = not _has_room(Path(settings.path).stat().st_size)
    params.warmup = params.fit_params = False  # the latter reads the file twice, to leave room on a GPU
    params.prefill_assistant = False
    params.verbosity = -1
    # The runtime always listens. Nothing can connect to a socket in a private folder that is removed at once; on
    # systems without these sockets, callers would need the random key.
    if sys.platform != "win32":
        params.hostnames = [f"{folder}/s.sock"]
    params.api_keys = [secrets.token_hex(16)]
    params.ui = params.endpoint_slots = params.endpoint_props = False
    params.n_threads_http = 1
    return params


def _has_room(model_bytes: int) -> bool:
    """Return whether the runtime may repack weights for this processor: it then writes faster, but repacked weights are
    a second copy in memory. If the free memory is unknown, it may."""
    try:
        found = re.search(r"^MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text(), re.M)
    except OSError:
        return True
    return found is None or int(found[1]) * 1024 >= ROOM * model_bytes


def _slot_action(address: str, key: str, action: str, file: str) -> bool:
    """Only the runtime's own HTTP server can do this."""
    import json
    import socket
    from http.client import HTTPConnection, HTTPException

    connection = HTTPConnection("localhost", timeout=30)
    try:
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(address)
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        connection.request("POST", f"/slots/0?action={action}", json.dumps({"filename": file}), headers)
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def _require_model_file(path: Path) -> None:
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        text = f"the model's file {str(path)!r} cannot be read ({error.strerror})"
        raise EngineError(f"{text}; `rondel model pull` fetches it", provider="local") from error
    if magic != b"GGUF":
        text = f"{str(path)!r} is not a GGUF file; remove it and fetch it again with `rondel model pull`"
        raise EngineError(text, provider="local")


def _why(settings: ModelSettings) -> str:
    """Return why the runtime does not load a file: it says so only on stderr, so another process tries it and captures
    that."""
    import subprocess

    code = f"import sys; from {__name__} import load_aloud; load_aloud(sys.argv[1], int(sys.argv[2]))"
    command = [sys.executable, "-c", code, settings.path, str(settings.context_tokens)]
    try:
        tried = subprocess.run(command, capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    lines = [line.strip() for line in tried.stderr.decode(errors="replace").splitlines()]
    return next((line for line in lines if "error" in line.lower() and not line.startswith("RuntimeError")), "")


def load_aloud(path: str, context_tokens: int) -> None:
    """Try to load a model's file, with the runtime's messages on stderr."""
    from tempfile import TemporaryDirectory

    runtime = import_runtime()
    with TemporaryDirectory(prefix="rondel-") as folder:
        params = _params(runtime, ModelSettings(path, context_tokens, 1), folder)
        params.verbosity = 1
        runtime.Server(params)
