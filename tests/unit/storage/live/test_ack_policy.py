"""The ack table, row by row."""

from __future__ import annotations

import pytest

from cairnmq.settings.topic import Flush, LogConfig
from cairnmq.storage.live.ack_policy import (
    BATCH,
    KEYED,
    MARKER,
    NONE_FLUSH_MS,
    START,
    SYNCED,
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
    expected = SYNCED if (flush, acks) == ("commit", -1) else WRITTEN
    assert rule.acknowledged is rule.visible is expected


@pytest.mark.parametrize("flush", FLUSHES)
@pytest.mark.parametrize("journals", [1, 2])
def test_marker(flush: Flush, journals: int) -> None:
    """Visible as a record with acks=all; it is synced first where the coordinator's fact may be in another journal."""
    rule = durability(MARKER, flush, journals=journals)
    assert rule.visible is durability(BATCH, flush).visible
    assert rule.acknowledged is (SYNCED if journals > 1 else rule.visible)


@pytest.mark.parametrize(("journals", "flush", "expected"), [
    (1, "commit", SYNCED), (1, "interval", WRITTEN), (1, "none", WRITTEN), (2, "interval", SYNCED), (2, "none", SYNCED),
])  # fmt: skip
def test_keyed_fact(journals: int, flush: str, expected: AckLevel) -> None:
    assert durability(KEYED, flush, journals=journals).acknowledged is expected


@pytest.mark.parametrize(("kind", "expected"), [(START, SYNCED), (WITNESS, WRITTEN)])
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


def test_levels_are_ordered() -> None:
    assert WRITTEN < SYNCED
