"""Facts of one group, or of one transactional id, are all in one slot, whatever they say."""

from __future__ import annotations

from cairnmq.broker.coordination.slot_keys import owner_of, place_of
from cairnmq.codec.crc32c import crc32c
from cairnmq.groups import offsets, pending, stored_consumer_group, stored_group
from cairnmq.groups.offsets import Committed, OffsetKey
from cairnmq.groups.pending import PendingKey
from cairnmq.transactions import record
from cairnmq.types import Slots

SLOTS = Slots(50, 24, (0, 1, 2))
TOPIC = b"t" * 16


def test_all_facts_of_a_group_are_in_its_slot() -> None:
    facts = [
        offsets.put(OffsetKey("g", TOPIC, 3), Committed(1)),
        pending.put(PendingKey("g", 5, TOPIC, 3), Committed(1)),
        stored_consumer_group.drop_member("g", "member"),
        (stored_group.SPACE, b"g", b"state"),
    ]
    assert {owner_of(space, key) for space, key, _ in facts} == {b"g"}
    slot = crc32c(b"g") % 24
    assert {place_of(SLOTS, space, key) for space, key, _ in facts} == {(50 + slot, slot % 3)}


def test_transactional_ids_and_the_node() -> None:
    assert owner_of(record.SPACE, "täglich".encode()) == "täglich".encode()
    assert place_of(SLOTS, "witness", b"metadata") is place_of(SLOTS, "losses", b"4") is None


def test_slots_follow_the_cycle() -> None:
    assert [SLOTS.of(number)[1] for number in range(5)] == [0, 1, 2, 0, 1]
    assert SLOTS.of(24) == SLOTS.of(0) == (50, 0)


def test_slots_never_move() -> None:
    """A group that went to another slot would be looked for where it is not."""
    names = ("readers", "orders-0", "", "täglich")
    places = [place_of(SLOTS, stored_group.SPACE, name.encode()) for name in names]
    assert [place.queue_id - 50 for place in places if place is not None] == [23, 14, 0, 10]
    assert {place_of(SLOTS, record.SPACE, b"group-%d" % number) for number in range(1000)} == {
        SLOTS.of(slot) for slot in range(24)
    }
