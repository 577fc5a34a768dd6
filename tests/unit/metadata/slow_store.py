"""A metadata store on a disk that stands still: a change waits in it until the test lets it go on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cairnmq.metadata.catalog import Catalog
from cairnmq.metadata.store import MetadataStore

SECONDS = 60.0  # only a failure uses it up


class SlowStore:
    def __init__(self, store: MetadataStore) -> None:
        self.asked = threading.Event()
        self.go_on = threading.Event()
        self._store = store

    def transact(self, ops: Any) -> Any:
        self.asked.set()
        assert self.go_on.wait(SECONDS), "the test did not let it go on"
        return self._store.transact(ops)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@contextmanager
def slow_store(catalog: Catalog) -> Iterator[SlowStore]:
    """That of a catalog, and then it is as it was."""
    store = catalog._store
    slow = SlowStore(store)
    catalog._store = slow  # type: ignore[assignment]
    try:
        yield slow
    finally:
        slow.go_on.set()
        catalog._store = store
