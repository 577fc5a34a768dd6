"""Picks the compiled kernel of a function where there is one, else the function itself: its pure twin.

The kernel of `package.module.function` is `package._module.function`. Both pass the same tests. CAIRNMQ_PURE=1 keeps
the twins; so does an install without a compiler. Imports nothing of ours.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import TypeVar

F = TypeVar("F", bound=Callable[..., object])

KERNELS = (
    "cairnmq.broker.requests._fetch_rows",
    "cairnmq.codec._batch",
    "cairnmq.codec._columns",
    "cairnmq.codec._crc32c",
    "cairnmq.codec._row_packing",
    "cairnmq.storage.batches._admission",
    "cairnmq.storage.journal._entries",
    "cairnmq.storage.batches._key_map",
    "cairnmq.wire._codec",
)


def pick(twin: F) -> F:
    package, _, module = twin.__module__.rpartition(".")
    kernel = _load(f"{package}._{module}")
    if kernel is None:
        return twin
    compiled: F = getattr(kernel, twin.__name__)
    return compiled


def _load(name: str) -> object | None:
    if os.environ.get("CAIRNMQ_PURE") == "1":
        return None
    try:
        return import_module(name)
    except ImportError:
        return None


def summary() -> str:
    """What this process runs on, in a few words."""
    missing = [name.rpartition(".")[2].removeprefix("_") for name in KERNELS if _load(name) is None]
    if not missing:
        return "compiled kernels"
    if len(missing) == len(KERNELS):
        return "pure Python"
    return f"compiled kernels, but {', '.join(missing)} in pure Python"
