"""Keys of records in a batch: the newest offset of each, for compaction; and which records are still wanted; and those
that may not be stored: without a key, or with a wrong time. Pure.

Pure twin of _key_map.pyx. Keys are held as hashes of 128 bits: 24 bytes for each in the kernel, whatever its size.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from cairnmq.codec.compression import Undecodable
from cairnmq.codec.records import read_varint
from cairnmq.types import Buffer

# records kept, tombstones among them, largest timestamp delta of them, their bytes (None: all of the body)
Sifted: TypeAlias = tuple[int, int, int, bytes | None]

_Span: TypeAlias = tuple[int, int, int, int, bytes | None, bool]


class KeyMap:
    """`limit`: how many keys it should hold at most; whoever fills it looks at `count` before each batch."""

    def __init__(self, limit: int, seed: bytes) -> None:
        """`seed`: 16 random bytes, so that nobody can choose keys whose hashes are the same."""
        if len(seed) != 16:
            raise ValueError("a seed has 16 bytes")
        self.limit = limit
        from hashlib import blake2b  # brings OpenSSL, 3.5 MB: not for a splitter that uses the kernel

        self._hasher = blake2b(digest_size=16, key=seed)
        self._offsets: dict[bytes, int] = {}

    @property
    def count(self) -> int:
        return len(self._offsets)

    def note(self, body: Buffer, count: int, last_delta: int, base_offset: int) -> None:
        """Takes in the keys of a decompressed batch. Batches come in the order of their offsets."""
        for _, _, _, delta, key, _ in list(_spans(body, count, last_delta)):
            if key is not None:
                self._offsets[self._hash(key)] = base_offset + delta

    def newest(self, key: bytes) -> int:
        """-1: no batch had this key."""
        return self._offsets.get(self._hash(key), -1)

    def sift(
        self, body: Buffer, count: int, last_delta: int, base_offset: int, end: int, keep_tombstones: bool
    ) -> Sifted:
        """What stays of a batch: records at or behind offset `end`, and before it those with the newest of a key."""
        kept = tombstones = 0
        newest_delta: int | None = None
        parts: list[bytes] = []
        raw = bytes(body)
        for start, stop, time_delta, delta, key, has_value in list(_spans(body, count, last_delta)):
            offset = base_offset + delta
            if offset < end and (key is None or offset < self.newest(key) or not (has_value or keep_tombstones)):
                continue
            kept += 1
            tombstones += not has_value
            newest_delta = time_delta if newest_delta is None else max(newest_delta, time_delta)
            parts.append(raw[start:stop])
        return kept, tombstones, newest_delta or 0, None if kept == count else b"".join(parts)

    def _hash(self, key: bytes) -> bytes:
        hasher = self._hasher.copy()
        hasher.update(key)
        return hasher.digest()


def keyless(body: Buffer, count: int, last_delta: int, limit: int) -> list[int]:
    """The first `limit` records of a decompressed batch that have no key, counted from 0."""
    spans = list(_spans(body, count, last_delta))
    return [index for index, (_, _, _, _, key, _) in enumerate(spans) if key is None][:limit]


def misdated(
    body: Buffer, count: int, last_delta: int, low: int, high: int, undated: int, limit: int
) -> list[tuple[int, int]]:
    """The first `limit` records whose timestamp delta is neither in `low` to `high` nor `undated`: (index, delta)."""
    deltas = [time_delta for _, _, time_delta, _, _, _ in list(_spans(body, count, last_delta))]
    wrong = [(index, delta) for index, delta in enumerate(deltas) if not low <= delta <= high and delta != undated]
    return wrong[:limit]


def _spans(body: Buffer, count: int, last_delta: int) -> Iterator[_Span]:
    """(start, end, timestamp delta, offset delta, key, has a value) of each record. Headers are not looked at."""
    data = bytes(body)
    position, before = 0, -1
    try:
        for _ in range(count):
            start = position
            size, position = read_varint(data, position)
            end = position + size
            if size < 0 or end > len(data):
                raise Undecodable(f"a record has length {size}, but only {len(data) - position} bytes are left")
            time_delta, position = read_varint(data, position + 1)
            delta, position = read_varint(data, position)
            if not before < delta <= last_delta:
                raise Undecodable(f"offset delta {delta} behind {before}, the last one is {last_delta}")
            before = delta
            key_size, position = read_varint(data, position)
            key = data[position : position + key_size] if key_size >= 0 else None
            position += max(key_size, 0)
            if position >= end:
                raise Undecodable("a key extends past the end of its record")
            value_size, position = read_varint(data, position)
            if position + max(value_size, 0) > end:
                raise Undecodable("a value extends past the end of its record")
            yield start, end, time_delta, delta, key, value_size >= 0
            position = end
    except IndexError:
        raise Undecodable("truncated record data") from None
    if position != len(data):
        raise Undecodable(f"{len(data) - position} bytes follow the last of its {count} records")
