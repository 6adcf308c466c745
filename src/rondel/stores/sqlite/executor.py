"""Executes statements: a connection, or a cursor that is reused instead of making one for each statement."""

from __future__ import annotations

import sqlite3
from typing import TypeAlias

Executor: TypeAlias = sqlite3.Connection | sqlite3.Cursor
