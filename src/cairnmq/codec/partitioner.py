"""Which partition a record goes to, as Kafka's Java client decides it: the same key lands in the same place. Pure."""

from __future__ import annotations

_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995


def murmur2(data: bytes) -> int:
    """The 32-bit MurmurHash2 with Kafka's seed, unsigned."""
    size = len(data)
    state = _SEED ^ size
    whole = size & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ (word >> 24)) * _MULTIPLIER & _MASK
        state = (state * _MULTIPLIER & _MASK) ^ word
    if size > whole:
        state = (state ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    state = (state ^ (state >> 13)) * _MULTIPLIER & _MASK
    return state ^ (state >> 15)


def partition_for(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions
