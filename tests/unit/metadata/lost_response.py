"""A COMMIT of which nobody is told whether it was made."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cairnmq.metadata.sqlite import SqliteStore


@contextmanager
def lost_response(store: SqliteStore, *, made: bool) -> Iterator[None]:
    """Within, each commit of this store fails, after it was done or before."""
    db = store._file._db
    store._file._db = _LostResponse(db, made)  # type: ignore[assignment]
    try:
        yield
    finally:
        store._file._db = db


class _LostResponse:
    def __init__(self, db: sqlite3.Connection, made: bool) -> None:
        self._db = db
        self._made = made

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        if statement == "COMMIT":
            if self._made:
                self._db.execute(statement)
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
            raise error
        return self._db.execute(statement, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)
