"""Features in Kafka's sense: what clients may rely on everywhere, beyond versions of single requests."""

from __future__ import annotations

from msgspec import Struct


class Feature(Struct, frozen=True):
    """`level` is finalized: it holds, and does not change at run time."""

    name: str
    min: int
    max: int
    level: int


# 2: every transaction has an epoch of its own, and the broker adds partitions by itself (KIP-890).
FEATURES = (Feature("transaction.version", 0, 2, 2),)
