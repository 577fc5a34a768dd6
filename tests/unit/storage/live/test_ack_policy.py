"""The ack table, row by row."""

from __future__ import annotations

import pytest

from cairnmq.settings.topic import Flush, LogConfig
from cairnmq.storage.live.ack_policy import (
    BATCH,
    DURABLE,
    KEYED,
    MARKER,
    NONE_FLUSH_MS,
    REPLICATED,
    START,
    WITNESS,
    WRITTEN,
    AckLevel,
    EntryKind,
    durability,
    sync_within_ms,
)

FLUSHES: list[Flush] = ["commit", "interval", "none"]


@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("flush", FLUSHES)
def test_batch(flush: Flush, acks: int) -> None:
    rule = durability(BATCH, flush, acks)
    visible = DURABLE if (flush, acks) == ("commit", -1) else REPLICATED
    assert rule.visible is visible
    assert rule.acknowledged is (visible if acks == -1 else WRITTEN)


@pytest.mark.parametrize("flush", FLUSHES)
@pytest.mark.parametrize("journals", [1, 2])
def test_marker(flush: Flush, journals: int) -> None:
    """Visible as a record with acks=all; it is synced first where the coordinator's fact may be in another journal."""
    rule = durability(MARKER, flush, journals=journals)
    assert rule.visible is durability(BATCH, flush).visible
    assert rule.acknowledged is (DURABLE if journals > 1 else rule.visible)


@pytest.mark.parametrize(("journals", "flush", "expected"), [
    (1, "commit", DURABLE), (1, "interval", REPLICATED), (1, "none", REPLICATED), (2, "interval", DURABLE),
    (2, "none", DURABLE),
])  # fmt: skip
def test_keyed_fact(journals: int, flush: str, expected: AckLevel) -> None:
    assert durability(KEYED, flush, journals=journals).acknowledged is expected


@pytest.mark.parametrize(("kind", "expected"), [(START, DURABLE), (WITNESS, REPLICATED)])
@pytest.mark.parametrize("flush", FLUSHES)
def test_level_of_some_entries_is_fixed(kind: EntryKind, expected: AckLevel, flush: Flush) -> None:
    rule = durability(kind, flush, journals=2)
    assert rule.acknowledged is rule.visible is expected


@pytest.mark.parametrize(("flush", "acks", "expected"), [
    ("commit", -1, 0), ("commit", 1, 70), ("interval", -1, 70), ("interval", 1, 70), ("none", -1, NONE_FLUSH_MS),
    ("none", 1, 70),
])  # fmt: skip
def test_sync_is_due(flush: Flush, acks: int, expected: int) -> None:
    config = LogConfig(flush=flush, flush_ms=70)
    assert sync_within_ms(durability(BATCH, flush, acks).acknowledged, config, acks) == expected


@pytest.mark.parametrize("kind", [MARKER, KEYED])
@pytest.mark.parametrize("flush", FLUSHES)
def test_with_several_replicas_markers_and_keyed_facts_are_durable(kind: EntryKind, flush: Flush) -> None:
    rule = durability(kind, flush, alone=False)
    assert rule.acknowledged is rule.visible is DURABLE


def test_levels_are_ordered() -> None:
    assert WRITTEN < REPLICATED < DURABLE
