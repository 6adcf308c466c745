"""The knowledge store on disk: one thread that writes, one that reads and holds the matrices."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from typing import IO, TypeVar

from ....contracts.embedder import Vector
from ....contracts.knowledge import BaseInfo, BaseState, Changes, Filter, Hit, StoredChunk, StoredDocument
from ....errors import StoreError
from ....files.lock import try_lock
from ....files.private import private_folder
from ..file import DatabaseFile
from ..reader import SqliteReader
from ..requests import Call
from ..store_thread import StoreThread
from . import rows
from .matrix import Matrix

T = TypeVar("T")

BUSY_TIMEOUT_S = 30.0
LOCK_POLL_S = 0.1
MATRICES_MAX = 8  # bases whose vectors are kept in memory


class SqliteKnowledge:
    """Knowledge bases in the file `path`, for one event loop; without a path, in a temporary file that `aclose`
    removes. The file is created by the first change or search."""

    def __init__(self, path: str | Path = "") -> None:
        self._temporary = "" if path else mkdtemp(prefix="rondel-knowledge-")
        self.path = Path(path or Path(self._temporary, "knowledge.db")).resolve()
        file = DatabaseFile(self.path, durability="normal", busy_timeout_s=BUSY_TIMEOUT_S, migrations=rows.MIGRATIONS)
        reader, writer = SqliteReader(file), _Writer(file)
        self._reading: StoreThread[Call] = StoreThread("rondel-knowledge-reader", reader.serve, reader.close)
        self._writing: StoreThread[Call] = StoreThread("rondel-knowledge-writer", writer.serve, writer.close)
        self._matrices: OrderedDict[int, Matrix] = OrderedDict()  # used on the reader's thread only
        self._loop: asyncio.AbstractEventLoop | None = None

    # --- changes ------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def lock(self, base: str, *, wait: bool = True) -> AsyncGenerator[bool]:
        private_folder(self.path.parent)
        name = f"{self.path.name}.{sha256(base.encode()).hexdigest()[:16]}.lock"
        # The lock is the system's, on a file that stays: it is released when its process ends, in any way.
        with self.path.with_name(name).open("a+b") as file:
            yield await _locked(file, wait=wait)

    async def apply(self, base: str, changes: Changes, *, at: float) -> None:
        await self._write(lambda c: rows.apply(c, base, changes, at))

    async def remove(self, base: str) -> bool:
        return await self._write(lambda c: rows.remove_base(c, base))

    async def set_embedder(self, base: str, embedder: str, dimensions: int) -> None:
        await self._write(lambda c: rows.set_embedder(c, base, embedder, dimensions))

    async def put_vectors(self, base: str, vectors: Sequence[tuple[bytes, Vector]]) -> None:
        await self._write(lambda c: rows.put_vectors(c, base, vectors))

    # --- questions ----------------------------------------------------------------------------------------------------

    async def info(self, base: str) -> BaseInfo | None:
        return next(iter(await self._read(lambda c: rows.infos(c, base))), None)

    async def bases(self) -> list[BaseInfo]:
        return await self._read(rows.infos)

    async def state(self, base: str) -> BaseState:
        return await self._read(lambda c: rows.base_state(c, base))

    async def documents(self, base: str, paths: Collection[str] | None = None) -> list[StoredDocument]:
        return await self._read(lambda c: rows.documents(c, base, paths))

    async def known_vectors(self, base: str, keys: Collection[bytes]) -> set[bytes]:
        return await self._read(lambda c: rows.known_vectors(c, base, keys))

    async def without_vectors(self, base: str, limit: int) -> list[StoredChunk]:
        return await self._read(lambda c: rows.without_vectors(c, base, limit))

    async def chunks(self, base: str, ids: Sequence[int]) -> list[StoredChunk]:
        return await self._read(lambda c: rows.chunks(c, ids))

    async def chunks_of(self, base: str, path: str) -> list[StoredChunk]:
        return await self._read(lambda c: rows.chunks_of(c, base, path))

    # --- search -------------------------------------------------------------------------------------------------------

    async def find_words(self, base: str, words: str, limit: int, filter: Filter) -> list[Hit]:
        return await self._read(lambda c: rows.find_words(c, base, words, limit, filter))

    async def find_vectors(self, base: str, vector: Vector, limit: int, filter: Filter) -> list[Hit]:
        return await self._read(lambda c: self._nearest(c, base, vector, limit, filter))

    def _nearest(
        self, connection: sqlite3.Connection, base: str, vector: Vector, limit: int, filter: Filter
    ) -> list[Hit]:
        connection.execute("begin")  # everything after this sees one state of the file
        try:
            if (state := rows.state(connection, base)) is None:
                return []
            id, version, dimensions = state
            if dimensions != len(vector):
                return []
            matrix = self._matrix(connection, id, version, dimensions)
            return matrix.nearest(vector, limit, rows.matching_documents(connection, id, filter))
        finally:
            connection.execute("rollback")

    def _matrix(self, connection: sqlite3.Connection, id: int, version: int, dimensions: int) -> Matrix:
        matrix = self._matrices.get(id)
        if matrix is None or matrix.dimensions != dimensions:
            matrix = self._matrices[id] = Matrix(dimensions)
            while len(self._matrices) > MATRICES_MAX:
                self._matrices.popitem(last=False)
        self._matrices.move_to_end(id)
        if matrix.version != version:
            missing, spare = matrix.difference(rows.vector_ids(connection, id))
            matrix.remove(spare)
            matrix.add(len(missing), rows.vectors_of(connection, id, missing))
            matrix.version = version
        return matrix

    # --- threads ------------------------------------------------------------------------------------------------------

    async def _read(self, call: Callable[[sqlite3.Connection], T]) -> T:
        self._use()
        return await self._reading.ask(Call(call))

    async def _write(self, call: Callable[[sqlite3.Connection], T]) -> T:
        self._use()
        return await self._writing.ask(Call(call))

    def _use(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._reading.start(loop)
            self._writing.start(loop)
            self._loop = loop
        elif self._loop is not loop:
            raise StoreError("a knowledge store belongs to one event loop; open another one for this loop")

    async def aclose(self) -> None:
        if self._loop is not None:
            await self._reading.aclose()
            await self._writing.aclose()
            self._loop = None
        if self._temporary:
            shutil.rmtree(self._temporary, ignore_errors=True)


class _Writer:
    """Serves each request in a transaction of its own. Everything here runs on one thread."""

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file
        self._connection: sqlite3.Connection | None = None

    def serve(self, group: list[Call]) -> None:
        for request in group:
            try:
                request.result = self._transaction(request)
            except Exception as error:
                request.error = self._file.fault_of(error)

    def _transaction(self, request: Call) -> object:
        if self._connection is None:
            self._connection = self._file.open()
        connection = self._connection
        connection.execute("begin immediate")
        try:
            result = request.call(connection)
            self._file.check()
            connection.execute("commit")
        except BaseException:
            if connection.in_transaction:
                connection.execute("rollback")
            raise
        return result

    def close(self) -> None:
        if self._connection is not None:
            self._file.close(self._connection)


async def _locked(file: IO[bytes], *, wait: bool) -> bool:
    held = try_lock(file.fileno())
    while wait and not held:
        await asyncio.sleep(LOCK_POLL_S)
        held = try_lock(file.fileno())
    return held
