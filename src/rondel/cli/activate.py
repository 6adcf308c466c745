"""`rondel activate`: shell commands that point programs at the gateway."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time

import click

from ..errors import ConfigError, nearest
from ._client import UNSET, client_variables, is_gateway, key_of, url_of
from ._options import flag, key, string
from ._output import tell
from ._running import gateway_address
from ._trust import load_config

SHELLS = ("bash", "zsh", "fish", "powershell")
_QUOTES = re.compile("['\u2018\u2019\u201a\u201b]")
"""PowerShell ends a single-quoted string at any of these; doubling one escapes it."""


@click.command()
@string("--shell", help=f"{', '.join(SHELLS[:-1])} or {SHELLS[-1]}; by default, your own")
@flag("--unset", help="undo it")
@key
def activate(shell: str, unset: bool, key: str) -> None:
    """Print shell commands that point programs at the gateway."""
    shell = shell or _own_shell()
    if shell not in SHELLS:
        raise ConfigError(f"the shell {shell!r} is not supported{nearest(shell, SHELLS)}")
    if unset:
        lines = [unset_line(shell, name) for name in client_variables("", "", {}) if name.upper() != "NO_PROXY"]
    else:
        lines = _lines(shell, key)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    if sys.stdout.isatty():
        tell(f"Run these commands in the shell with: {how_to(shell)}")


def _lines(shell: str, key: str) -> list[str]:
    config = load_config()
    gateway = config.gateway
    host, port = gateway_address(config)
    if not port:
        raise ConfigError("[gateway] has port 0, which means a new port at each start; set one, such as port = 8484")
    variables = client_variables(url_of(host, port), key_of(gateway, key, time.time()), os.environ)
    if not is_gateway(host, port):
        tell(f"No gateway is running at {url_of(host, port)} yet; `rondel serve` starts it.")
    lines = [set_line(shell, name, value) for name, value in variables.items()]
    return [*lines, *(unset_line(shell, name) for name in UNSET)]


def _own_shell() -> str:
    if os.name == "nt":
        return "powershell"
    name = os.path.basename(os.environ.get("SHELL", ""))
    return {"zsh": "zsh", "fish": "fish", "pwsh": "powershell"}.get(name, "bash")


def how_to(shell: str) -> str:
    if shell == "fish":
        return "rondel activate | source"
    return "rondel activate | Out-String | Invoke-Expression" if shell == "powershell" else 'eval "$(rondel activate)"'


def set_line(shell: str, name: str, value: str) -> str:
    """Return a command that sets a variable. The shell reads the value as text, whatever it contains."""
    if shell == "fish":
        return f"set -gx {name} '{value.replace(chr(92), chr(92) * 2).replace(chr(39), chr(92) + chr(39))}'"
    if shell == "powershell":
        return f"$env:{name} = '{_QUOTES.sub(lambda quote: quote[0] * 2, value)}'"
    return f"export {name}={shlex.quote(value)}"


def unset_line(shell: str, name: str) -> str:
    if shell == "fish":
        return f"set -e {name}"
    if shell == "powershell":
        return f"Remove-Item Env:{name} -ErrorAction SilentlyContinue"
    return f"unset {name}"
