"""Bytes by topic stay bounded, and nothing that was counted is lost."""

from __future__ import annotations

from cairnmq.broker.topic_traffic import OTHERS, TOPICS_MAX, TopicTraffic


def test_counts_by_topic() -> None:
    traffic = TopicTraffic()
    traffic.took("a", 5)
    traffic.took("a", 7)
    traffic.gave("a", 3)
    traffic.gave("b", 2)
    assert traffic.counts == {"a": [12, 3], "b": [0, 2], OTHERS: [0, 0]}


def test_topics_beyond_the_bound_are_counted_together() -> None:
    traffic = TopicTraffic()
    for number in range(TOPICS_MAX + 50):
        traffic.took(f"topic-{number}", 1)
    assert len(traffic.counts) == TOPICS_MAX + 1
    assert traffic.counts[OTHERS] == [50, 0]
    assert sum(counts[0] for counts in traffic.counts.values()) == TOPICS_MAX + 50


def test_deleted_topics_make_room() -> None:
    traffic = TopicTraffic()
    for number in range(TOPICS_MAX):
        traffic.took(f"topic-{number}", 1)
    traffic.forget_unless(lambda topic: topic != "topic-7")
    traffic.took("new", 4)
    assert traffic.counts["new"] == [4, 0] and "topic-7" not in traffic.counts and OTHERS in traffic.counts
