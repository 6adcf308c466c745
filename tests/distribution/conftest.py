"""An environment as users have it: an empty one, with the wheel and what it needs, and a clean home."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.distribution.model_server import ModelServer

ROOT = Path(__file__).parent.parent.parent
WAIT_S = 300


class Machine(msgspec.Struct, frozen=True):
    """A user's machine: where programs are, its home, and how to run something there."""

    wheel: Path
    sdist: Path
    bin: Path
    home: Path
    variables: dict[str, str] = {}

    @property
    def env(self) -> dict[str, str]:
        path = os.pathsep.join((str(self.bin), "/usr/bin", "/bin"))
        return {"HOME": str(self.home), "PATH": path, "LANG": "C.UTF-8", "TERM": "xterm-256color", **self.variables}

    def run(self, *command: str, cwd: Path | None = None, text: str = "", codes: tuple[int, ...] = (0,)) -> str:
        """Run a command as a user would, and return what it printed."""
        done = subprocess.run(
            command,
            cwd=cwd or self.home,
            env=self.env,
            input=text,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert done.returncode in codes, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """The wheel, which is built from the sdist, in an environment that has nothing else."""
    folder = tmp_path_factory.mktemp("machine")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist"), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, timeout=WAIT_S)
    (wheel,), (sdist,) = (folder / "dist").glob("*.whl"), (folder / "dist").glob("*.tar.gz")
    venv.create(folder / "venv", with_pip=True)
    install = [str(folder / "venv/bin/python"), "-m", "pip", "install", "--quiet", "--no-input", str(wheel)]
    subprocess.run(install, check=True, capture_output=True, timeout=WAIT_S)
    return Machine(wheel, sdist, folder / "venv" / "bin", folder / "home")


@pytest.fixture
def machine(installed: Machine, tmp_path: Path) -> Machine:
    """The same programs, with a home that nobody has used."""
    made = msgspec.structs.replace(installed, home=tmp_path / "home", variables={})
    made.home.mkdir()
    return made


@pytest.fixture
def models() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server
