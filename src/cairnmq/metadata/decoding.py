"""What the store holds, read; what cannot be read is named by its key."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from cairnmq.errors import Corrupt

T = TypeVar("T")


def decoded(key: str, value: bytes, decode: Callable[[bytes], T]) -> T:
    """The value of a key; Corrupt when it is none."""
    try:
        return decode(value)
    except (msgspec.DecodeError, ValueError) as error:
        raise Corrupt(f"metadata key {key}: {error}") from error


def number(key: str, value: bytes) -> int:
    """The value of a key that holds a number."""
    return decoded(key, value, int)
