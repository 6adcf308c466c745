"""Models by an address, a file or a reference to the hub: what they are, how they come, and how they are checked."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path

import pytest

from rondel.engines.local import weights as w
from rondel.engines.local.weights.gguf import read_metadata
from rondel.engines.local.weights.reference import resolve
from rondel.errors import ConfigError, EngineError

from .gguf import gguf
from .test_weights import Host, cache, host, pull

__all__ = ["cache", "host"]

FILE = gguf(
    general__architecture="llama",
    general__name="My Model",
    general__license="apache-2.0",
    llama__context_length=2048,
    tokenizer__ggml__tokens=["a", "b"] * 1000,
    tokenizer__chat_template="{% if tools %}x{% endif %}",
)


def named(text: str, name: str = "") -> w.Weights:
    return asyncio.run(resolve(text, name))


def refusal(text: str, name: str = "") -> str:
    with pytest.raises(ConfigError) as caught:
        named(text, name)
    return str(caught.value)


@pytest.fixture
def hub(host: Host, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setenv("HF_ENDPOINT", host.url(""))
    return host


# --- what a reference names -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "hf:me/my-repo/my-model.gguf",
        "hf.co/me/my-repo/my-model.gguf",
        "huggingface.co/me/my-repo/blob/main/my-model.gguf",
        "https://huggingface.co/me/my-repo/resolve/main/my-model.gguf?download=true",
    ],
)
def test_the_usual_forms_name_the_same_file(text: str) -> None:
    weights = named(text)
    assert weights.addresses == (w.Url("https://huggingface.co/me/my-repo/resolve/main/my-model.gguf"),)
    assert (weights.name, weights.file) == ("my-model", "my-model.gguf")


def test_a_revision_and_a_folder_are_kept() -> None:
    (address,) = named("hf:me/repo@abc123/sub/model.gguf").addresses
    assert address == w.Url("https://huggingface.co/me/repo/resolve/abc123/sub/model.gguf")


def test_a_copy_of_a_known_model_is_checked_by_the_known_hash() -> None:
    known = w.RECOMMENDED
    assert named("hf:Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf") == known
    mirrored = named(f"https://example.com/{known.file}")
    assert (mirrored.name, mirrored.sha256) == (known.name, known.sha256)
    assert mirrored.addresses == (w.Url(f"https://example.com/{known.file}"),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("http://example.com/a.gguf", "is not encrypted, so anyone on the way could change the model; use https"),
        ("ftp://example.com/a.gguf", "is not the address of a model"),
        ("https://example.com/a.bin", "'a.bin' is not the name of a model's file: it must end in .gguf"),
        ("https://example.com/%2e%2e%2fa.gguf", "is not the name of a model's file"),
        ("hf:me/repo/a-00001-of-00003.gguf", "is one part of several; choose a model that is one file"),
        ("hf:me", "'me' is not a model on the hub; write https://"),
        ("./nowhere.gguf", "there is no file"),
    ],
)
def test_a_wrong_reference_is_one_sentence(text: str, said: str) -> None:
    assert said in refusal(text)


@pytest.mark.parametrize("name", ["../x", "A b", "smollm2-135m"])
def test_a_name_of_ones_own_is_checked(name: str) -> None:
    assert "name" in refusal("hf:me/repo/a.gguf", name)


# --- how it comes -----------------------------------------------------------------------------------------------------


def test_a_model_by_address_is_recorded_with_its_hash_and_licence(host: Host) -> None:
    host.files["/my-model.gguf"] = FILE
    path = pull(named(host.url("/my-model.gguf")))
    assert path.read_bytes() == FILE
    found = w.find("my-model")
    assert (found.title, found.licence, found.size_bytes) == ("My Model", "apache-2.0", len(FILE))
    assert found.sha256 == hashlib.sha256(FILE).hexdigest()
    assert found.card.small
    assert w.is_present(found)
    assert found in w.every_model()


def test_a_local_file_is_copied_and_recorded(tmp_path: Path) -> None:
    (tmp_path / "Mine.gguf").write_bytes(FILE)
    assert pull(named(str(tmp_path / "Mine.gguf"))).read_bytes() == FILE
    assert w.find("mine").licence == "apache-2.0"
    pull(named(str(tmp_path / "Mine.gguf"), "other"))
    assert w.find("other").file == "other.gguf"


def test_what_is_not_a_model_is_refused_and_not_kept(host: Host, cache: Path) -> None:
    host.files["/page.gguf"] = b"<html>please log in</html>"
    with pytest.raises(EngineError, match="is not a GGUF file"):
        pull(named(host.url("/page.gguf")))
    assert not (cache / "page.gguf").exists()
    assert not w.is_present(named(host.url("/page.gguf")))


def test_an_interrupted_download_continues_if_the_content_is_the_same(host: Host, cache: Path) -> None:
    big = FILE + bytes(2_000_000)
    host.files["/m.gguf"], host.headers["/m.gguf"] = big, {"ETag": '"v1"'}
    stop_after(host, "/m.gguf", 1_000_000)
    host.asked.clear()
    assert pull(named(host.url("/m.gguf"))).read_bytes() == big
    assert host.asked[0][1].startswith("bytes=")
    assert not list(cache.glob("*.part*"))


def test_an_interrupted_download_starts_again_if_the_content_has_changed(host: Host) -> None:
    big, changed = FILE + bytes(2_000_000), FILE + b"x" * 2_000_000
    host.files["/m.gguf"], host.headers["/m.gguf"] = big, {"ETag": '"v1"'}
    stop_after(host, "/m.gguf", 1_000_000)
    host.files["/m.gguf"], host.headers["/m.gguf"] = changed, {"ETag": '"v2"'}
    assert pull(named(host.url("/m.gguf"))).read_bytes() == changed


def stop_after(host: Host, path: str, size_bytes: int) -> None:
    def stop(done: int, total: int, what: str) -> None:
        if done >= size_bytes:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull(named(host.url(path)), stop)


def test_the_recorded_hash_is_checked_when_it_is_downloaded_again(host: Host, cache: Path) -> None:
    host.files["/m.gguf"] = FILE
    pull(named(host.url("/m.gguf"))).unlink()
    host.files["/m.gguf"] = FILE + b"other"
    with pytest.raises(EngineError, match="instead of"):
        pull(w.find("m"))
    host.files["/m.gguf"] = FILE
    assert pull(named(host.url("/m.gguf"))).read_bytes() == FILE


def test_a_changed_file_is_not_loaded(host: Host, cache: Path) -> None:
    host.files["/m.gguf"] = FILE
    path = pull(named(host.url("/m.gguf")))
    w.check_unchanged(path)
    path.touch()
    w.check_unchanged(path)  # touched, but the same
    path.write_bytes(FILE[:-1] + b"!")
    with pytest.raises(EngineError, match="the file of the model 'm' has changed since it was downloaded"):
        w.check_unchanged(path)


def test_another_model_of_the_same_name_replaces_nothing(host: Host) -> None:
    host.files |= {"/a/m.gguf": FILE, "/b/m.gguf": FILE + b"b"}
    path = pull(named(host.url("/a/m.gguf")))
    with pytest.raises(
        EngineError, match=r"would replace the model 'm', which came from .*; give it another name with --name"
    ):
        pull(named(host.url("/b/m.gguf")))
    assert path.read_bytes() == FILE


# --- the hub ----------------------------------------------------------------------------------------------------------


def test_a_repository_and_a_quantization_name_a_file_with_its_hash(hub: Host) -> None:
    sha256 = hashlib.sha256(FILE).hexdigest()
    listed = [
        {"path": "README.md", "size": 1},
        {"path": "My-Q4_K_M.gguf", "size": len(FILE), "lfs": {"oid": sha256}},
        {"path": "My-Q8_0.gguf", "size": 2 * len(FILE), "lfs": {"oid": "no hash"}},
    ]
    hub.files["/api/models/me/my/tree/main"] = json.dumps(listed).encode()
    usual = named("hf:me/my")
    assert (usual.file, usual.sha256, usual.size_bytes) == ("My-Q4_K_M.gguf", sha256, len(FILE))
    assert named("hf.co/me/my:q8_0").file == "My-Q8_0.gguf"
    assert "has no files for 'Q2_K'; name one of its files: My-Q4_K_M.gguf, My-Q8_0.gguf" in refusal("hf:me/my:Q2_K")
    assert "the hub does not list 'me/other': it answered 404" in refusal("hf:me/other")
    hub.files["/me/my/resolve/main/My-Q4_K_M.gguf"] = FILE
    assert pull(usual).read_bytes() == FILE
    assert w.find("my-q4_k_m").sha256 == sha256


def test_the_hash_that_the_hub_names_is_checked(hub: Host) -> None:
    hub.redirects["/me/my/resolve/main/m.gguf"] = hub.url("/storage")
    hub.headers["/me/my/resolve/main/m.gguf"] = {"X-Linked-Etag": f'"{hashlib.sha256(b"other").hexdigest()}"'}
    hub.files["/storage"] = FILE
    with pytest.raises(EngineError, match="it sent other content"):
        pull(named("hf:me/my/m.gguf"))


def test_the_token_goes_to_the_hub_and_nowhere_else(hub: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.redirects["/me/my/resolve/main/m.gguf"] = f"http://localhost:{hub.server_port}/storage"
    hub.files["/storage"] = FILE
    pull(named("hf:me/my/m.gguf"))
    assert hub.tokens == ["Bearer hf_secret", ""]


# --- what a file says -------------------------------------------------------------------------------------------------


def test_a_file_says_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(FILE)
    found = read_metadata(tmp_path / "m.gguf")
    assert (found.name, found.licence) == ("My Model", "apache-2.0")
    assert (found.architecture, found.context_tokens, found.has_tools) == ("llama", 2048, True)


@pytest.mark.parametrize("cut", [0, 3, 10, 30, 100, len(FILE) - 20])
def test_a_damaged_file_is_one_sentence(tmp_path: Path, cut: int) -> None:
    (tmp_path / "m.gguf").write_bytes(FILE[:cut])
    with pytest.raises(EngineError, match="is not a GGUF file, or is damaged"):
        read_metadata(tmp_path / "m.gguf")


def test_lengths_that_lie_take_no_memory(tmp_path: Path) -> None:
    lying = FILE[:24] + (2**60).to_bytes(8, "little") + FILE[32:]
    (tmp_path / "m.gguf").write_bytes(lying)
    with pytest.raises(EngineError, match="damaged"):
        read_metadata(tmp_path / "m.gguf")
