"""Serves reads on a connection of its own: a read never waits for a write. Knows no event loop."""

from __future__ import annotations

import sqlite3

from .file import DatabaseFile
from .requests import Call


class SqliteReader:
    """Everything here runs on one thread."""

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file
        self._connection: sqlite3.Connection | None = None

    def serve(self, group: list[Call]) -> None:
        for request in group:
            try:
                request.result = request.call(self._open())
                self._file.check()
            except Exception as error:
                request.error = self._file.fault_of(error)

    def close(self) -> None:
        if self._connection is not None:
            self._file.close(self._connection)

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            # Like the writer's, so that the first read does not wait for the write that creates the file.
            self._connection = self._file.open()
            self._connection.execute("pragma query_only = on")
        return self._connection
