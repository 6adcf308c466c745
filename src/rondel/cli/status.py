"""`rondel status`: the running gateway: open requests and engines that are down."""

from __future__ import annotations

import time

import click
import msgspec
from rich.text import Text

from ..errors import RondelError
from ..surfaces.terminal.listing import Listing
from ..text.printable import one_line
from ._client import is_gateway, key_of, status_of, url_of
from ._options import as_json, key
from ._output import show, show_json
from ._running import gateway_address
from ._trust import load_config

CHARS_MAX = 200


@click.command()
@key
@as_json
def status(key: str, as_json: bool) -> None:
    """Show the running gateway's open requests and failed engines."""
    config = load_config(only_reads=True)
    gateway = config.gateway
    host, port = gateway_address(config)
    if gateway.keys and not any(one.key for one in gateway.keys.values()) and is_gateway(host, port):
        raise RondelError(
            f"the gateway at {url_of(host, port)} is running; what it does is shown with a key: set the variable of one"
        )
    found = status_of(host, port, key_of(gateway, key, time.time()))
    if found is None:
        raise RondelError(f"no gateway is running at {url_of(host, port)}; `rondel serve` starts one")
    if as_json:
        show_json(msgspec.to_builtins(found))
        return
    requests = "1 open request" if found.requests == 1 else f"{found.requests} open requests"
    show(Text(f"The gateway at {url_of(host, port)} runs Rondel {one_line(found.version, 40)}: {requests}."))
    if not found.engines:
        show(Text("No engine is down."))
        return
    engines = Listing("engine", "failures", "reason", "next try", growing=0)
    for engine in found.engines:
        in_s = f"in {engine.retry_in_s:.0f} s" if engine.retry_in_s else "next request"
        engines.add_row(
            Text(one_line(engine.engine, CHARS_MAX)), str(engine.failures), Text(one_line(engine.why, 40)), in_s
        )
    show(engines)
