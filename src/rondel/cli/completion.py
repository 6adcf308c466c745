"""`rondel completion`: the code that completes commands, options and names in a shell."""

from __future__ import annotations

import os
import sys

import click
from click.shell_completion import get_completion_class

from ..errors import ConfigError, nearest
from ._output import tell

SHELLS = ("bash", "zsh", "fish")
WHERE = {
    "bash": """add to ~/.bashrc: eval "$(rondel completion bash)\"""",
    "zsh": """add to ~/.zshrc, after compinit: eval "$(rondel completion zsh)\"""",
    "fish": "run once: rondel completion fish > ~/.config/fish/completions/rondel.fish",
}


@click.command()
@click.argument("shell", default="", help=f"{', '.join(SHELLS[:-1])} or {SHELLS[-1]}; by default, your own")
def completion(shell: str) -> None:
    """Print the code that completes `rondel` in a shell."""
    name = shell or os.path.basename(os.environ.get("SHELL", "")) or "bash"
    if name not in SHELLS:
        raise ConfigError(f"the shell {name!r} is not supported{nearest(name, SHELLS)}")
    kind = get_completion_class(name)
    root = click.get_current_context().find_root().command
    assert kind is not None
    # `source_vars` and not `source`, which would start bash to learn its version.
    made = kind(root, {}, "rondel", "_RONDEL_COMPLETE")
    sys.stdout.write(made.source_template % made.source_vars() + "\n")
    if sys.stdout.isatty():
        tell(f"To use it, {WHERE[name]}")
