"""Loaded models, each with its thread, shared by all engines of the same file and settings.

A model is loaded at its first use and freed with its last engine.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from ...contracts.dialect import Json
from . import prefix
from .llama import ModelSettings, load


class SharedModel:
    """One loaded model and the thread that runs it, first come, first served. The thread lives only while there is
    work, so that the interpreter can exit."""

    def __init__(self, settings: ModelSettings) -> None:
        self.settings, self.engines = settings, 0
        self._lock = threading.Lock()
        self._jobs = deque[Callable[[], object]]()
        self._busy = False
        self._server: Any = None

    @property
    def is_loaded(self) -> bool:
        return self._server is not None

    def submit(self, job: Callable[[], object]) -> None:
        """Run a job on the model's thread. It must not raise."""
        with self._lock:
            self._jobs.append(job)
            if not self._busy:
                self._busy = True
                threading.Thread(target=self._work, name="rondel-local").start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._busy = False
                    return
                job = self._jobs.popleft()
            job()

    async def run(self, job: Callable[[], object]) -> None:
        future = Future[None]()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                job()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(None)

        self.submit(work)
        await asyncio.wrap_future(future)

    def server(self, body: Json | None = None, take: Callable[[bytes], bool] = lambda _: False) -> Any:
        """Return the runtime with the model in it, loaded if necessary, and prepared for a request with this body. Only
        for the model's thread, like `free`."""
        if self._server is None:
            self._server = load(
                self.settings,
                str(prefix.folder()),
                lambda server, act: prefix.prepare(server, act, self.settings, body or {}, take),
            )
        return self._server

    def free(self) -> None:
        self._server = None


_models: dict[ModelSettings, SharedModel] = {}
"""The loaded models of the whole process: a second copy of the same file would need its memory again."""
_models_lock = threading.Lock()


def acquire(settings: ModelSettings) -> SharedModel:
    with _models_lock:
        model = _models.setdefault(settings, SharedModel(settings))
        model.engines += 1
        return model


def release(model: SharedModel) -> bool:
    with _models_lock:
        model.engines -= 1
        if not model.engines:
            del _models[model.settings]
        return not model.engines
