"""Where gateways of this user are running: `rondel serve` records its address, so clients find it on any port."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import msgspec

from ..errors import ConfigError
from ..files.private import private_folder, state_folder, write_private
from ..files.regular import read_regular
from ..project.settings import Config
from ._client import is_gateway, local_address

FOLDER = "gateways"
BYTES_MAX = 10_000
READ_MAX = 100


class RunningGateway(msgspec.Struct, frozen=True):
    pid: int
    project: str
    host: str
    port: int


@contextlib.contextmanager
def remembered(config: Config, host: str, port: int) -> Generator[None]:
    """Let clients find the gateway at this address while the block runs."""
    path = state_folder() / FOLDER / f"{os.getpid()}.json"
    running = RunningGateway(os.getpid(), str(config.project), host, port)
    with contextlib.suppress(OSError):  # it works without; clients then look at the configured port
        private_folder(path.parent)
        write_private(path, msgspec.json.encode(running).decode())
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


def gateway_address(config: Config) -> tuple[str, int]:
    """Return where clients find the gateway: the one that this project runs now, or else the configured address.

    Without a project, it is also the only one that runs anywhere.
    """
    configured = local_address(config.gateway)
    running = [one for one in _running() if (one.host, one.port) != configured]
    own = [one for one in running if one.project == str(config.project)]
    for one in own or (running if not config.path and len(running) == 1 else []):
        host, port = local_address(msgspec.structs.replace(config.gateway, host=one.host, port=one.port))
        if not is_gateway(*configured) and is_gateway(host, port):
            return host, port
    return configured


def _running() -> Iterator[RunningGateway]:
    """Yield the gateways whose processes are alive, newest first."""
    with contextlib.suppress(OSError):
        for path in sorted((state_folder() / FOLDER).glob("*.json"), key=_age, reverse=True)[:READ_MAX]:
            try:
                one = msgspec.json.decode(read_regular(path, BYTES_MAX), type=RunningGateway)
            except (ConfigError, msgspec.MsgspecError):
                continue
            if _is_alive(one.pid):
                yield one


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _is_alive(pid: int) -> bool:
    if os.name == "nt":
        return True  # asking would end the process there; the gateway's answer decides
    try:
        os.kill(pid, 0)
    except (OSError, OverflowError):
        return False
    return True
