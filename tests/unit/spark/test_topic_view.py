"""What the driver sees of topics that come and go."""

from __future__ import annotations

import time
from typing import Any

import pytest

from cairnmq.spark import topic_view
from cairnmq.spark.options import read_options
from cairnmq.spark.progress import Progress, TopicProgress
from cairnmq.spark.topic_view import POLL_MS, TopicView
from cairnmq.types import TopicPartition
from unit.spark.topic_client import TopicClient

ID, OTHER = b"1" * 16, b"2" * 16


def view_of(monkeypatch: pytest.MonkeyPatch, client: TopicClient) -> TopicView:
    def connect(*_: Any, **__: Any) -> TopicClient:
        return client

    monkeypatch.setattr(topic_view, "connect", connect)
    options = read_options({"kafka.bootstrap.servers": "h:1", "subscribe": "a,b,c"}, stream=True)
    return TopicView(options.connection, options.selection, read_committed=True)


def test_a_group_hears_nothing_of_topics_that_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    client = TopicClient({"a": (ID, 9), "b": (OTHER, 9)})
    view = view_of(monkeypatch, client)
    view.publish("g", Progress({name: TopicProgress(ID.hex(), {0: 5}) for name in ("a", "b", "c")}))
    assert client.committed == [{TopicPartition("a", 0): 5}], "b was made again, c deleted"
    view.publish("g", Progress({"c": TopicProgress(ID.hex(), {0: 5})}))
    assert len(client.committed) == 1


def test_waiting_takes_time_also_where_there_is_nothing_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else Spark would ask again without end."""
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    view = view_of(monkeypatch, TopicClient({"a": (ID, 9)}))
    view.wait_for_more(Progress({"a": TopicProgress(ID.hex(), {0: 9})}))
    assert slept == [], "the broker waits"
    for gone in (Progress({}), Progress({"b": TopicProgress(ID.hex(), {0: 5})})):
        view.wait_for_more(gone)
    assert slept == [POLL_MS / 1000] * 2
