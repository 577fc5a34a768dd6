"""The image answers by name, id and queue, and an old image stays as it was."""

from __future__ import annotations

import pytest

from cairnmq.metadata.image import ALL_BROKERS, Image, QueueRange, Topic


def topic(name: str, *ranges: tuple[int, int]) -> Topic:
    return Topic(name, name.encode().rjust(16, b"."), tuple(QueueRange(*each) for each in ranges))


def test_partitions_follow_the_ranges() -> None:
    grown = topic("t", (10, 3), (40, 2))
    assert grown.count == 5
    assert [grown.queue_id(partition) for partition in range(-1, 6)] == [None, 10, 11, 12, 40, 41, None]
    assert list(grown.queues()) == [(0, 10), (1, 11), (2, 12), (3, 40), (4, 41)]
    assert [grown.partition_of(queue) for queue in (9, 10, 12, 13, 39, 40, 41, 42)] == [
        None, 0, 2, None, None, 3, 4, None
    ]  # fmt: skip


def test_queues_of_a_range_take_its_journals_in_turn() -> None:
    """Each range from the beginning of its own cycle."""
    ranges = QueueRange(10, 4, (3, 17, 5)), QueueRange(40, 2, (17,))
    placed = list(Topic("t", bytes(16), ranges).places())
    assert placed == [(0, 10, 3), (1, 11, 17), (2, 12, 5), (3, 13, 3), (4, 40, 17), (5, 41, 17)]
    assert ranges[0].continued() == (17, 5, 3) and ranges[1].continued() == (17,)


def test_a_queue_without_a_journal_is_never_left_out() -> None:
    """Storage would take it for a deleted one."""
    with pytest.raises(AssertionError, match="topic t: its queues from 40 on have no journals"):
        list(Topic("t", bytes(16), (QueueRange(10, 1, (0,)), QueueRange(40, 2))).places())


def test_lookups() -> None:
    one, two = topic("one", (1, 2), (6, 1)), topic("two", (3, 3))
    image = Image([one, two], version=7, next_queue_id=9)
    assert image.topic("one") is one and image.topic("three") is None
    assert image.topic_by_id(two.topic_id) is two and image.topic_by_id(bytes(16)) is None
    assert set(image.topics) == {"one", "two"}
    assert [image.find_queue(queue) for queue in range(8)] == [
        None, (one, 0), (one, 1), (two, 0), (two, 1), (two, 2), (one, 2), None
    ]  # fmt: skip


def test_collisions_of_dot_and_underscore() -> None:
    image = Image([topic("a.b_c", (1, 1))])
    assert image.colliding("a_b.c") == "a.b_c"
    assert image.colliding("a-b_c") is None
    assert image.after(2, gone=["a.b_c"]).colliding("a_b.c") is None


def test_a_later_image_leaves_the_earlier_one_alone() -> None:
    before = Image([topic("a", (1, 1)), topic("b", (2, 1))], next_queue_id=3)
    before.find_queue(1)
    after = before.after(9, put=[topic("c", (3, 4)), topic("b", (2, 1), (7, 1))], gone=["a"], next_queue_id=8)
    assert set(before.topics) == {"a", "b"} and before.find_queue(3) is None
    assert set(after.topics) == {"b", "c"} and after.next_queue_id == 8 and after.version == 9
    assert after.find_queue(1) is None and after.find_queue(7) == (after.topic("b"), 1)
    assert after.topic_by_id(topic("a").topic_id) is None


def test_a_topic_created_again_has_only_its_new_id() -> None:
    image = Image([Topic("a", b"1" * 16, (QueueRange(1, 1),))]).after(
        2, put=[Topic("a", b"2" * 16, (QueueRange(2, 1),))]
    )
    assert image.topic_by_id(b"1" * 16) is None
    again = image.topic_by_id(b"2" * 16)
    assert again is not None and image.find_queue(2) == (again, 0) and image.find_queue(1) is None


def test_equality_is_of_content() -> None:
    image = Image([topic("a", (1, 1))], version=1, next_queue_id=2, broker_configs={ALL_BROKERS: {"x": "1"}})
    assert image == Image([topic("a", (1, 1))], version=5, next_queue_id=2, broker_configs={ALL_BROKERS: {"x": "1"}})
    assert image != Image([topic("a", (1, 1))], next_queue_id=3, broker_configs={ALL_BROKERS: {"x": "1"}})
    assert image != Image([topic("a", (1, 1))], next_queue_id=2)
    assert image != Image(next_queue_id=2, broker_configs={ALL_BROKERS: {"x": "1"}})


def test_work_follows_topics_not_partitions() -> None:
    """Counted, not timed: the index among 100,000 partitions has one row per range."""
    image = Image(topic(f"t{number}", (1 + number * 1000, 1000)) for number in range(100))
    for queue in range(1, 100_001):
        found = image.find_queue(queue)
        assert found is not None and found[1] == (queue - 1) % 1000
    assert image._ranges is not None and len(image._ranges) == 100


def test_group_settings_and_quotas_are_content() -> None:
    image = Image(group_configs={"g": {"x": "1"}}, quotas={(("user", None),): {"y": 1.0}})
    assert image != Image(group_configs={"g": {"x": "1"}})
    assert image != Image(quotas={(("user", None),): {"y": 1.0}})
    assert image.after(9) == image
    assert image.after(9, group_configs={}, quotas={}) == Image()
