"""`rondel trust`: trust a project's folder, list the trusted folders, or remove one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from ..errors import ConfigError
from ..project.config import load
from ..project.trust import trust_list
from ._options import flag
from ._output import tell
from ._trust import describe


@click.command()
@click.argument("path", type=click.Path(path_type=Path), default=Path(), help="the project's folder, or one below it")
@flag("--list", "list_them", help="list the trusted folders")
@flag("--remove", help="stop trusting it")
def trust(path: Path, list_them: bool, remove: bool) -> None:
    """Trust a project: its code may run and send your keys."""
    if list_them and remove:
        raise ConfigError("use either --list or --remove")
    if list_them:
        folders = trust_list().folders()
        sys.stdout.write("".join(f"{folder}\n" for folder in folders))
        if not folders:
            tell("No folder is trusted.")
    elif remove:
        _remove(path)
    else:
        _add(path)


def _add(path: Path) -> None:
    if not path.is_dir():
        raise ConfigError(f"there is no folder {str(path)!r}")
    config = load(path, trusts=lambda folder: False)
    if not config.project:
        raise ConfigError(f"there is no rondel.toml in {str(path)!r} or above it, so there is nothing to trust")
    if config.is_trusted:
        tell(f"{config.project} is your own configuration, which is always trusted.")
        return
    for line in describe(config):
        tell(f"  {line}")
    tell(f"Trusted from now on: {trust_list().add(Path(config.project))}")


def _remove(path: Path) -> None:
    trusted = trust_list()
    for folder in (path, *Path(os.path.abspath(path)).parents):
        if trusted.remove(folder):
            tell(f"No longer trusted: {os.path.realpath(folder)}")
            return
    raise ConfigError(
        f"neither {os.path.realpath(path)!r} nor a folder above it is in the list; `rondel trust --list` shows it"
    )
