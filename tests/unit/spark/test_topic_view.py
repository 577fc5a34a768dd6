"""What the driver sees of topics that come and go."""

from __future__ import annotations

import time
from typing import Any

import pytest

from cairnmq.client.errors import Absent
from cairnmq.client.session import Topic
from cairnmq.errors import ErrorCode
from cairnmq.spark import topic_view
from cairnmq.spark.options import read_options
from cairnmq.spark.progress import Progress, TopicProgress
from cairnmq.spark.topic_view import POLL_MS, TopicView
from cairnmq.types import TopicPartition
from unit.spark.topic_client import TopicClient

ID, OTHER = b"1" * 16, b"2" * 16


def view_of(monkeypatch: pytest.MonkeyPatch, client: TopicClient, **selection: str) -> TopicView:
    def connect(*_: Any, **__: Any) -> TopicClient:
        return client

    monkeypatch.setattr(topic_view, "connect", connect)
    given = {"kafka.bootstrap.servers": "h:1", **(selection or {"subscribe": "a,b,c"})}
    options = read_options(given, stream=True)
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


class Electing(TopicClient):
    """Whoever asks for a topic has waited until it has a leader, or until it is deleted."""

    def topic(self, name: str) -> Topic:
        if self.errors.get(name) == ErrorCode.LEADER_NOT_AVAILABLE:
            del self.errors[name]
        return super().topic(name)


@pytest.mark.parametrize("selection", [{"subscribePattern": "[abc_]+"}, {"subscribe": "a,b,c"}])
def test_only_what_is_gone_is_left_out(monkeypatch: pytest.MonkeyPatch, selection: dict[str, str]) -> None:
    client = Electing({"a": (ID, 9), "b": (OTHER, 9), "__a": (ID, 9), "d": (ID, 9)})
    view = view_of(monkeypatch, client, **selection)
    client.errors = {"b": ErrorCode.LEADER_NOT_AVAILABLE, "c": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert view.topics(missing_is_fatal=False) == {"a": (ID.hex(), (0,)), "b": (OTHER.hex(), (0,))}
    client.errors = {"c": ErrorCode.LEADER_NOT_AVAILABLE}
    assert set(view.topics(missing_is_fatal=False)) == {"a", "b"}, "deleted while it was waited for"
    client.errors = {"b": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    with pytest.raises(Absent, match="topic b is not authorized"):
        view.topics(missing_is_fatal=False)


def test_a_topic_that_is_named_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Absent, match="topic b does not exist"):
        view_of(monkeypatch, TopicClient({"a": (ID, 9), "c": (ID, 9)})).topics()


def test_the_ends_of_all_topics_are_asked_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    client = TopicClient({name: (ID, 9) for name in "abc"})
    view = view_of(monkeypatch, client)
    every = {name: TopicProgress(ID.hex(), {0: 9}) for name in "abc"}
    assert (view.latest(), client.lookups) == (Progress(every), 1)
    listed = view.topics()
    monkeypatch.setattr(view, "topics", lambda **_: listed)
    del client.held["b"]  # since they were listed
    assert view.latest(missing_is_fatal=False) == Progress({name: every[name] for name in "ac"})
    with pytest.raises(Absent, match="topic b does not exist"):
        view.latest()
