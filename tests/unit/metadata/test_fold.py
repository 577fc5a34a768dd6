"""One watch, two images: each change replaces the one that it belongs to, and no other."""

from __future__ import annotations

import msgspec

from cairnmq.metadata.cluster_records import encode_journal
from cairnmq.metadata.fold import MetadataFold
from cairnmq.metadata.image import QueueRange, Topic
from cairnmq.metadata.store import ABSENT, Change
from cairnmq.replication.records import JournalRecord


def topic(name: str, revision: int, partitions: int = 1) -> Change:
    made = Topic(name, name.encode() * 16, (QueueRange(1, partitions, (1,)),))
    return Change(f"topics/{name}", msgspec.json.encode(made), revision)


def journal(number: int, revision: int, epoch: int = 1) -> Change:
    return Change(f"journals/{number}", encode_journal(JournalRecord(number, (1,), None, epoch, ())), revision)


def folded() -> MetadataFold:
    fold = MetadataFold(in_cluster=True)
    fold.take([topic("a", 1), journal(1, 2)], 1)
    return fold


def test_a_change_of_an_isr_copies_no_topic() -> None:
    fold = folded()
    topics, cluster = fold.image, fold.cluster
    fold.touched.clear()
    fold.take([journal(1, 3, epoch=2)], 1)
    assert fold.image is topics and not fold.touched
    assert fold.cluster is not cluster and fold.cluster is not None
    assert fold.cluster.view.journals[1].record.epoch == 2


def test_a_topic_changes_nothing_of_the_cluster() -> None:
    fold = folded()
    cluster = fold.cluster
    fold.take([topic("b", 3)], 1)
    assert fold.cluster is cluster and fold.touched == {"a", "b"} and fold.image.version == 3


def test_an_epoch_is_news_without_a_change() -> None:
    fold = folded()
    cluster = fold.cluster
    fold.take([], 1)
    assert fold.cluster is cluster
    fold.take([], 2)
    assert fold.cluster is not None and fold.cluster.view.last_epoch == 2


def test_older_values_do_not_come_back() -> None:
    """A watch repeats what this process has written and folded already."""
    fold = folded()
    fold.take([topic("a", 5, partitions=3), journal(1, 5, epoch=4)], 1)
    image, cluster = fold.image, fold.cluster
    fold.take([topic("a", 4, partitions=2), journal(1, 4, epoch=3), topic("a", 5, partitions=3)], 1)
    assert fold.image is image and fold.cluster is cluster
    fold.take([Change("topics/a", None, 6)], 1)
    fold.take([topic("a", 5, partitions=3)], 1)
    assert fold.image.topic("a") is None and fold.revision("topics/a") == ABSENT


def test_one_node_has_no_cluster() -> None:
    fold = MetadataFold(in_cluster=False)
    image = fold.image
    fold.take([journal(1, 2)], 7)
    assert fold.cluster is None and fold.image is image


def test_all_is_read_anew() -> None:
    """After that, whoever compares must look at what was there before, too."""
    fold = folded()
    fold.touched.clear()
    fold.begin(9)
    assert not fold.image.topics and fold.cluster is not None and not fold.cluster.view.journals
    fold.take([topic("b", 4)], 1)
    assert fold.touched == {"a", "b"} and fold.image.version == 9
