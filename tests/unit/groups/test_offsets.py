"""Committed offsets: facts are the state."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairnmq.errors import ErrorCode
from cairnmq.groups.groups import Groups
from cairnmq.groups.messages import Limits
from cairnmq.groups.offset_messages import OffsetCommit
from cairnmq.groups.offsets import SPACE, Committed, KeyedRecord, OffsetKey, Offsets, drop, put

ORDERS, PAYMENTS = b"o" * 16, b"p" * 16

keys = st.builds(
    OffsetKey, st.sampled_from(["a", "b", "grüppe", ""]), st.sampled_from([ORDERS, PAYMENTS]), st.integers(0, 3)
)
values = st.builds(
    Committed, st.integers(0, 2**63 - 1), st.integers(-1, 5), st.text(max_size=20), st.integers(0, 2**42)
)
facts = st.lists(st.one_of(st.builds(put, keys, values), st.builds(drop, keys)), max_size=30)


@given(facts)
def test_replaying_the_facts_gives_the_live_state(history: list[KeyedRecord]) -> None:
    live = Offsets()
    stored: dict[bytes, bytes] = {}
    for fact in history:
        live.apply(fact)
        _, key, value = fact
        if value is None:
            stored.pop(key, None)
        else:
            stored[key] = value
    loaded = Offsets.load(stored.items())
    assert _everything(loaded) == _everything(live)


@given(facts, st.sampled_from([ORDERS, PAYMENTS]))
def test_a_deleted_topic_takes_its_offsets_along_and_no_others(history: list[KeyedRecord], topic_id: bytes) -> None:
    offsets = Offsets()
    for fact in history:
        offsets.apply(fact)
    before = _everything(offsets)
    for fact in offsets.forget_topic(topic_id):
        offsets.apply(fact)
    assert _everything(offsets) == {key: value for key, value in before.items() if key[1] != topic_id}
    assert offsets.forget_topic(topic_id) == []


def test_offsets_of_topics_that_are_gone_are_found_at_start() -> None:
    offsets = Offsets()
    offsets.apply(put(OffsetKey("g", ORDERS, 0), Committed(1)))
    offsets.apply(put(OffsetKey("g", PAYMENTS, 0), Committed(2)))
    assert offsets.forget_unknown([ORDERS]) == [drop(OffsetKey("g", PAYMENTS, 0))]


def test_a_group_ends_with_its_last_offset() -> None:
    offsets = Offsets()
    offsets.apply(put(OffsetKey("g", ORDERS, 0), Committed(1)))
    assert list(offsets.groups()) == ["g"]
    offsets.apply(drop(OffsetKey("g", ORDERS, 0)))
    offsets.apply(drop(OffsetKey("g", ORDERS, 0)))
    assert list(offsets.groups()) == []


@pytest.mark.parametrize(
    ("group", "generation", "expected"),
    [
        ("new", -1, ErrorCode.NONE),
        ("known", -1, ErrorCode.NONE),
        ("known", 0, ErrorCode.UNKNOWN_MEMBER_ID),
        ("known", 3, ErrorCode.UNKNOWN_MEMBER_ID),
        ("new", 3, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_who_may_commit_to_a_group_without_members(group: str, generation: int, expected: ErrorCode) -> None:
    """A group that has only offsets is one without members, as in Kafka; a generation without a group is a mistake."""
    offsets = Offsets()
    offsets.apply(put(OffsetKey("known", ORDERS, 0), Committed(1)))
    groups = Groups(offsets, Limits())
    member = "m" if generation >= 0 else ""
    assert groups.commits.error(OffsetCommit(group, member, None, generation), 0) == expected


def test_facts_of_others_are_not_taken() -> None:
    with pytest.raises(AssertionError):
        Offsets().apply(("group", b"", b""))
    assert SPACE == "offset"


def test_the_stored_form_does_not_change() -> None:
    """Journals and checkpoints of older versions hold it."""
    _, key, value = put(OffsetKey("g", bytes(range(16)), 7), Committed(300, 2, "m", 5, -1))
    assert key.hex() == "93a167c410000102030405060708090a0b0c0d0e0f07"
    assert value is not None and value.hex() == "96cd012c02a16d05ff00"
    offsets = Offsets.load([(key, bytes.fromhex("95cd012c02a16d05ff"))])  # before `order` came
    assert offsets.get("g", bytes(range(16)), 7) == Committed(300, 2, "m", 5, -1)


def _everything(offsets: Offsets) -> dict[tuple[str, bytes, int], Committed]:
    return {
        (group, topic_id, partition): committed
        for group in offsets.groups()
        for topic_id, partitions in offsets.topics(group).items()
        for partition, committed in partitions.items()
    }
