"""What a task reads of topics that are not any more what they were."""

from __future__ import annotations

import pytest

from cairnmq.spark import task_reader
from cairnmq.spark.errors import DataLoss
from cairnmq.spark.options import read_options
from cairnmq.spark.ranges import Range
from unit.spark.topic_client import TopicClient

ID, OTHER = b"1" * 16, b"2" * 16


def read(monkeypatch: pytest.MonkeyPatch, client: TopicClient, *, strict: bool) -> list[bytes]:
    monkeypatch.setattr(task_reader, "connect", lambda connection: client)
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "a", "failOnDataLoss": str(strict)}
    wanted = Range("a", ID.hex(), 0, 2, 6)
    batches = task_reader.read_ranges(read_options(given, stream=True), ("value",), [wanted])
    return [value.as_py() for batch in batches for value in batch.column(0)]


@pytest.mark.parametrize(
    ("client", "sentence", "left"),
    [
        (TopicClient({}), "topic a was deleted while", []),
        (TopicClient({"a": (OTHER, 9)}), "topic a was deleted and created again", []),
        (TopicClient({"a": (ID, 1)}), "a-0 has lost its records from offset 2 on", []),
        (TopicClient({"a": (ID, 9)}, first=4), "a-0 from offset 2 on are gone", [b"4", b"5"]),
    ],
)
def test_what_is_gone_ends_the_range_or_the_query(
    monkeypatch: pytest.MonkeyPatch, client: TopicClient, sentence: str, left: list[bytes]
) -> None:
    with pytest.raises(DataLoss, match=sentence):
        read(monkeypatch, client, strict=True)
    assert read(monkeypatch, client, strict=False) == left


def test_what_was_read_before_a_topic_was_deleted_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    client = TopicClient({"a": (ID, 9)})
    client.deleted_at_fetch = 3
    assert read(monkeypatch, client, strict=False) == [b"2", b"3"]
