"""A queue's batches, wherever a directory stores them."""

from __future__ import annotations

import pytest

from cairnmq.errors import Corrupt
from cairnmq.storage.check.replica import Replica
from cairnmq.storage.check.stored_queue import StoredQueue
from unit.storage.compaction_harness import Room
from unit.storage.comparison_harness import filled, replica_of
from unit.storage.splitter_harness import Broker


def opened(room: Broker) -> tuple[Replica, StoredQueue]:
    replica = replica_of(room, "a")
    assert replica.open()
    return replica, StoredQueue(replica, replica.image.queues[1])


@pytest.mark.parametrize("model", ["dedicated", "shared"])
def test_from_any_offset_to_any(model: str) -> None:
    room = filled(model)
    replica, stored = opened(room)
    assert stored.place == {"dedicated": "a/queues/t-1", "shared": "a/packs"}[model]
    all_batches = [(batch.header.base_offset, batch.data) for batch in stored.batches(0, 1000)]
    assert [data for _, data in all_batches] == room.batches()
    for start in range(21):
        for end in range(start, 22):
            wanted = [(base, data) for base, data in all_batches if base < end and base + 3 > start + (base == 0)]
            found = [(batch.header.base_offset, batch.data) for batch in stored.batches(start, end)]
            assert found == wanted, (start, end)
    replica.close()


def test_after_compaction() -> None:
    room = Room()
    for _ in range(5):
        room.fill(2, pad=30)
    room.compact()
    replica, stored = opened(room)
    assert [batch.data for batch in stored.batches(0, 1000)] == room.batches()
    replica.close()


def test_damage_is_raised() -> None:
    room = filled()
    name = room.segments()[0]
    room.read_disk.damage(f"queues/t-1/{name}", 16)  # no batch any more
    replica, stored = opened(room)
    with pytest.raises(Corrupt):
        list(stored.batches(0, 1000))
    replica.close()


def test_aborted_ones_are_known() -> None:
    room = Broker()
    room.abort(1, 9)
    room.split()
    room.checkpoint()
    replica, stored = opened(room)
    batch, marker = stored.batches(0, 10)
    assert stored.aborted().hold(batch.header) and not stored.aborted().hold(marker.header)
    replica.close()
