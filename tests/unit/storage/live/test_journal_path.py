"""What both sides of a journal share."""

from __future__ import annotations

import pytest

from cairnmq.errors import ErrorCode, Refusal
from unit.storage.replica_harness import NOW, Leading, batch


def test_only_what_is_durable_is_split() -> None:
    leading = Leading()
    first = leading.put()
    leading.put()
    leading.path.synced_to(leading.path.sync())
    leading.path.replicated_to(leading.end)
    assert leading.path.splittable() == 0
    leading.path.durable_to(first)
    assert leading.path.splittable() == first


def test_nothing_is_durable_above_the_replicated_end() -> None:
    leading = Leading()
    first = leading.put()
    leading.put()
    leading.path.replicated_to(first)
    with pytest.raises(AssertionError):
        leading.path.durable_to(leading.end)


def test_refused_until_it_resumes() -> None:
    leading = Leading()
    leading.path.refuse("the disk is full")
    refusal = leading.path.stage(leading.queues[1], batch(), -1, NOW)
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.message) == (ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")
    leading.path.resume()
    leading.put()


def test_sync_is_due_when_the_first_entry_wants_it() -> None:
    leading = Leading("interval")
    leading.put()
    by = leading.path.sync_by_ms
    assert by is not None
    leading.put()
    assert leading.path.sync_by_ms == by
    leading.path.sync_begins()
    assert leading.path.sync_by_ms is None
