"""`rondel completion`: the code that completes commands, options and names in a shell."""

from __future__ import annotations

import os
import sys

import click
from click.shell_completion import BashComplete, ShellComplete, get_completion_class, split_arg_string

from ..errors import ConfigError, nearest
from ._output import tell

SHELLS = ("bash", "zsh", "fish")
WHERE = {
    "bash": """add to ~/.bashrc: eval "$(rondel completion bash)\"""",
    "zsh": """add to ~/.zshrc, after compinit: eval "$(rondel completion zsh)\"""",
    "fish": "run once: rondel completion fish > ~/.config/fish/completions/rondel.fish",
}

BASH = """\
%(complete_func)s() {
    local IFS=$'\\n' line="${COMP_LINE:0:COMP_POINT}" found type value before=""
    local word="${line##*[[:space:]]}"
    [[ $word == *:* && $COMP_WORDBREAKS == *:* ]] && before="${word%%:*}:"
    for found in $(env COMP_WORDS="$line" %(complete_var)s=bash_complete "$1"); do
        IFS=',' read -r type value <<< "$found"
        if [[ $type == dir ]]; then
            COMPREPLY=()
            compopt -o dirnames
        elif [[ $type == file ]]; then
            COMPREPLY=()
            compopt -o default
        elif [[ $type == plain ]]; then
            COMPREPLY+=("${value#"$before"}")
        fi
    done
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class Bash(BashComplete):
    """Completes the line and not bash's own words: bash breaks `local:smollm2` at its colon, and replaces only what
    follows it."""

    source_template = BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_WORDS"]
        words = split_arg_string(line)[1:]
        is_begun = bool(words) and not line[-1].isspace()
        return (words[:-1], words[-1]) if is_begun else (words, "")


def completer(shell: str) -> type[ShellComplete] | None:
    """Return what completes in a shell: for bash our own, else click's."""
    return Bash if shell == "bash" else get_completion_class(shell)


@click.command()
@click.argument("shell", default="", help=f"{', '.join(SHELLS[:-1])} or {SHELLS[-1]}; by default, your own")
def completion(shell: str) -> None:
    """Print the code that completes `rondel` in a shell."""
    name = shell or os.path.basename(os.environ.get("SHELL", "")) or "bash"
    if name not in SHELLS:
        raise ConfigError(f"the shell {name!r} is not supported{nearest(name, SHELLS)}")
    kind = completer(name)
    root = click.get_current_context().find_root().command
    assert kind is not None
    # `source_vars` and not `source`, which would start bash to learn its version.
    made = kind(root, {}, "rondel", "_RONDEL_COMPLETE")
    sys.stdout.write(made.source_template % made.source_vars() + "\n")
    if sys.stdout.isatty():
        tell(f"To use it, {WHERE[name]}")
