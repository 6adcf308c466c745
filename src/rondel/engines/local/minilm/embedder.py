"""The model's file as an embedder: from texts to vectors. onnxruntime is imported with the first text."""

from __future__ import annotations

import threading
from array import array
from collections.abc import AsyncGenerator, Sequence
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ....calling.threads import in_thread
from ....contracts.embedder import Embedded, Vector
from ....errors import EngineError, install_extra
from ....values import Usage
from ..llama import usable_threads
from ..weights import EMBEDDERS, Progress, Weights, is_present, path_of, pull
from .wordpiece import WordPiece

TOKENS_MAX = 256  # the length that the model was trained for
BATCH = 16  # texts that run through the model together; more would cost memory without being faster


def has_runtime() -> bool:
    return find_spec("onnxruntime") is not None and find_spec("numpy") is not None


class LocalEmbedder:
    """An embedding model in this process. Its weights must be downloaded first: `rondel model pull`, or `rondel
    knowledge sync`, which asks."""

    dimensions = 384

    def __init__(
        self,
        weights: Weights = EMBEDDERS[0],
        *,
        threads: int | None = None,
    ) -> None:
        self.weights = weights
        self._threads = threads or usable_threads()
        self._lock = threading.Lock()  # one run at a time: each uses all threads
        self._session: Any = None

    @cached_property
    def _words(self) -> WordPiece:  # reading the vocabulary takes a while, and many embedders are never used
        return WordPiece()

    @property
    def name(self) -> str:
        return f"local:{self.weights.name}"

    @property
    def missing(self) -> Weights | None:
        """The weights, if they are not downloaded."""
        return None if is_present(self.weights) else self.weights

    def download(self) -> AsyncGenerator[Progress]:
        return pull(self.weights)

    async def embed(self, texts: Sequence[str]) -> Embedded:
        if not has_runtime():
            needs = f"the embedded embedding model needs the extra: {install_extra('knowledge')}"
            raise EngineError(needs, provider="local", model=self.weights.name)
        if not is_present(self.weights):  # nothing is downloaded without consent
            text = f"{self.weights.title} is not downloaded; `rondel model pull {self.weights.name}` fetches it"
            raise EngineError(f"{text} ({self.weights.size})", provider="local", model=self.weights.name)
        vectors: list[Vector | None] = [None] * len(texts)
        tokens = [self._words.tokens(text, TOKENS_MAX) for text in texts]
        # Texts of similar length run together, so that there is little padding.
        order = sorted(range(len(texts)), key=lambda index: len(tokens[index]))
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            for index, vector in zip(batch, await in_thread(self._run, [tokens[i] for i in batch]), strict=True):
                vectors[index] = vector
        made = [vector for vector in vectors if vector is not None]
        return Embedded(made, Usage(tokens_in=sum(map(len, tokens))), self.name)

    async def aclose(self) -> None:
        self._session = None

    def _run(self, batch: list[list[int]]) -> list[Vector]:
        numpy = import_module("numpy")
        with self._lock:
            session = self._loaded()
            longest = max(map(len, batch))
            ids = numpy.zeros((len(batch), longest), dtype=numpy.int64)
            mask = numpy.zeros_like(ids)
            for row, tokens in enumerate(batch):
                ids[row, : len(tokens)] = tokens
                mask[row, : len(tokens)] = 1
            feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": numpy.zeros_like(ids)}
            states = session.run(None, feed)[0]
        weights = mask[..., None].astype(numpy.float32)
        means = (states * weights).sum(axis=1) / weights.sum(axis=1)
        means /= numpy.linalg.norm(means, axis=1, keepdims=True)
        return [array("f", row.astype(numpy.float32).tobytes()) for row in means]

    def _loaded(self) -> Any:
        if self._session is None:
            runtime = import_module("onnxruntime")
            options = runtime.SessionOptions()
            options.intra_op_num_threads, options.inter_op_num_threads = self._threads, 1
            options.enable_cpu_mem_arena = False  # a third less memory, at the same speed
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
            options.log_severity_level = 3
            path = str(path_of(self.weights))
            try:
                self._session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
            except Exception as error:
                text = (
                    f"{path!r} could not be loaded: {error}; `rondel model pull {self.weights.name}` fetches it again"
                )
                raise EngineError(text, provider="local", model=self.weights.name) from error
        return self._session
