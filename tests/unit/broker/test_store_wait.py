"""Steps of a start that are repeated while the shared metadata cannot be used."""

from __future__ import annotations

import logging

import pytest

from cairnmq.broker.start_errors import CannotServe
from cairnmq.broker.store_wait import PATIENCE_SECONDS, StoreWait
from cairnmq.errors import Fault, Locked, Unreachable
from cairnmq.metadata.shared_place import SharedPlace, shared_place
from unit.broker.cluster.brokers import Time

FILE = SharedPlace(path="/x/cluster.db")
IN_USE = Unreachable("/x/cluster.db: in use by another process")


class Store:
    """One that cannot be used for some time."""

    def __init__(self, seconds: float, error: Fault = IN_USE, place: SharedPlace = FILE) -> None:
        time = Time()
        self.asked = 0
        self.wait = StoreWait(place, lambda: time.now_ms / 1000, time.sleep)
        self._error = error
        self._is_over = lambda: time.now_ms >= until_ms
        until_ms = time.now_ms + seconds * 1000

    def step(self) -> str:
        self.asked += 1
        if not self._is_over():
            raise self._error
        return "done"


def test_nothing_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    store = Store(0)
    assert (store.wait.until(store.step), store.asked, caplog.text) == ("done", 1, "")


def test_what_ends_in_time_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    store = Store(PATIENCE_SECONDS / 2)
    with caplog.at_level(logging.WARNING):
        assert store.wait.until(store.step) == "done"
    assert store.asked > 2
    (line,) = caplog.messages
    assert line == (
        "start: the metadata cannot be used yet: /x/cluster.db: in use by another process; waiting up to 15 s"
    )


def test_patience_ends_with_a_text_that_helps() -> None:
    store = Store(PATIENCE_SECONDS * 2)
    with pytest.raises(
        CannotServe, match="--metadata sqlite:/x/cluster.db: .*in use.*; waited 15 s. Another broker of"
    ):
        store.wait.until(store.step)
    assert store.asked > 2


def test_zookeeper_has_its_own_text() -> None:
    place = shared_place("zookeeper://a:1/x")
    assert place is not None
    store = Store(PATIENCE_SECONDS * 2, Unreachable("ZooKeeper does not respond"), place)
    with pytest.raises(CannotServe, match="ZooKeeper does not respond; waited 15 s$"):
        store.wait.until(store.step)


def test_only_the_fault_that_may_end_is_waited_for() -> None:
    store = Store(1, Locked("in use"))
    with pytest.raises(Locked):
        store.wait.until(store.step)
    assert store.asked == 1
    assert store.wait.until(store.step, Locked) == "done"
