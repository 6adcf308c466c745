"""A model by its address: a URL, a file, or a repository on the Hugging Face hub.

`https://host/model.gguf`, `./model.gguf`, `hf:owner/repo/model.gguf`, `hf:owner/repo:Q4_K_M`, and the same with
`hf.co/` or `https://huggingface.co/` instead of `hf:`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import msgspec

from ....errors import ConfigError
from ....values import Value
from .catalog import CATALOG, Url, Weights
from .download import LOOPBACK, fetch, hub
from .partial import AddressFailed

LISTING_BYTES_MAX = 5_000_000
DEFAULT_QUANT = "Q4_K_M"
_HUB_REFERENCE = re.compile(r"(?:hf:|(?:https?://)?(?:www\.)?(?:hf\.co|huggingface\.co)/)(?P<rest>.+)")
_REST = re.compile(
    r"(?P<owner>[\w.-]+)/(?P<repo>[\w.-]+?)(?:@(?P<revision>[\w.-]+))?"
    r"(?:/(?:(?:blob|resolve)/(?P<branch>[\w.-]+)/)?(?P<file>[\w./-]+\.gguf)|:(?P<quant>[\w.-]+))?/?(?:\?.*)?"
)
_FILE = re.compile(r"[A-Za-z0-9][\w.-]{0,200}\.gguf")
_PART_OF_SEVERAL = re.compile(r"-\d{5}-of-\d{5}\.gguf$")
HOW = "write https://host/model.gguf, hf:owner/repo/model.gguf, hf:owner/repo:Q4_K_M, or the path of a .gguf file"


def is_reference(text: str) -> bool:
    """Return whether this is an address, not the name of a model."""
    return "/" in text or os.sep in text or ":" in text or text.endswith(".gguf")


async def resolve(text: str, name: str = "") -> Weights:
    """Return what a reference names, as weights. Only a repository without a file is looked up on the hub."""
    if found := _HUB_REFERENCE.fullmatch(text):
        weights = await _on_the_hub(found["rest"])
    elif "://" in text:
        weights = _at_address(text)
    else:
        weights = _in_a_file(text)
    if name:
        return msgspec.structs.replace(weights, name=_checked_name(name), file=f"{name}.gguf")
    known = next((one for one in CATALOG if one.file == weights.file), None)
    if known is None:
        return weights
    # A copy of a known model: the catalog's hash decides whether it is one.
    return (
        known
        if weights.addresses[0] in known.addresses
        else msgspec.structs.replace(known, addresses=weights.addresses)
    )


def _checked_name(name: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,99}", name):
        raise ConfigError(f"{name!r} is not a name for a model: use lower case letters, digits, '.', '_' and '-'")
    if any(name == weights.name for weights in CATALOG):
        raise ConfigError(f"{name!r} is the name of a known model; choose another one")
    return name


def _at_address(url: str) -> Weights:
    parts = urlsplit(url)
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        raise ConfigError(f"{url!r} is not encrypted, so anyone on the way could change the model; use https")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{url!r} is not the address of a model; {HOW}")
    return _weights(unquote(parts.path.rpartition("/")[2]), url)


def _in_a_file(text: str) -> Weights:
    path = Path(text).expanduser().absolute()
    if not path.is_file():
        raise ConfigError(f"there is no file {str(path)!r}; {HOW}")
    return _weights(path.name, path.as_uri(), path.stat().st_size)


def _weights(file: str, url: str, size_bytes: int = 0, sha256: str = "") -> Weights:
    if not _FILE.fullmatch(file):
        raise ConfigError(f"{file!r} is not the name of a model's file: it must end in .gguf; {HOW}")
    if _PART_OF_SEVERAL.search(file):
        raise ConfigError(f"{file!r} is one part of several; choose a model that is one file")
    name = file.removesuffix(".gguf").lower()
    return Weights(name, "", "", file, sha256, size_bytes, "", (Url(url),), is_own=True)


# --- the hub ----------------------------------------------------------------------------------------------------------


class _Stored(Value, frozen=True):
    oid: str = ""


class _Listed(Value, frozen=True):
    path: str = ""
    size: int = 0
    lfs: _Stored = _Stored()


async def _on_the_hub(rest: str) -> Weights:
    found = _REST.fullmatch(rest)
    if found is None:
        raise ConfigError(f"{rest!r} is not a model on the hub; {HOW}")
    repository = f"{found['owner']}/{found['repo']}"
    revision = found["branch"] or found["revision"] or "main"
    if found["file"]:
        file = found["file"]
        return _weights(file.rpartition("/")[2], f"{hub()}/{repository}/resolve/{revision}/{quote(file)}")
    listed = await _choose(repository, revision, found["quant"] or "")
    url = f"{hub()}/{repository}/resolve/{revision}/{quote(listed.path)}"
    sha256 = listed.lfs.oid if re.fullmatch(r"[0-9a-f]{64}", listed.lfs.oid) else ""
    return _weights(listed.path.rpartition("/")[2], url, listed.size, sha256)


async def _choose(repository: str, revision: str, quant: str) -> _Listed:
    """Return the repository's file of this quantization; without one, the usual or only file."""
    url = f"{hub()}/api/models/{repository}/tree/{revision}"
    try:
        files = msgspec.json.decode(await fetch(url, LISTING_BYTES_MAX), type=list[_Listed])
    except AddressFailed as failed:
        raise ConfigError(f"the hub does not list {repository!r}: {failed}") from failed
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"the hub's list of {repository!r} cannot be read: {error}") from error
    models = [f for f in files if f.path.endswith(".gguf") and not f.path.startswith("mmproj")]
    wanted = (quant or DEFAULT_QUANT).lower()
    fitting = [file for file in models if wanted in file.path.lower()]
    if not fitting and not quant and len(models) == 1:
        fitting = models
    if len(fitting) != 1:
        names = ", ".join(file.path for file in models[:20]) or "none"
        number, wanted = len(fitting) or "no", quant or DEFAULT_QUANT
        raise ConfigError(f"{repository!r} has {number} files for {wanted!r}; name one of its files: {names}")
    return fitting[0]
