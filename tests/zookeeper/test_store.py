"""The ZooKeeper store passes the suite of all stores, on one real server and on three; and what only ZooKeeper does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from broker_process import wait_until
from cairnmq.errors import Unreachable
from cairnmq.metadata.store import Away
from cairnmq.metadata.zookeeper import ZookeeperStore
from unit.metadata.conformance import StoreConformance, done
from unit.metadata.second_process import SecondProcess
from zookeeper.harness import SECONDS, SESSION_MS, ZookeeperHarness
from zookeeper.servers import Servers


@pytest.fixture(scope="module", params=[1, 3], ids=["one-server", "three-servers"])
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    directory: Path = tmp_path_factory.mktemp("zookeeper")
    with Servers(directory, request.param).up() as servers:
        yield servers


class TestZookeeper(StoreConformance):
    """The suite, with a second process beside."""


def made_again(harness: ZookeeperHarness, store: ZookeeperStore, key: str) -> int:
    """A change as soon as one can be made."""
    told: list[int] = []

    def is_made() -> bool:
        answer = store.put(key, b"again")
        if isinstance(answer, int):
            told.append(answer)
        return bool(told)

    harness.wait(is_made, f"a change of {key}")
    return told[0]


def test_time_in_which_all_servers_are_down_ends_no_session(harness: ZookeeperHarness) -> None:
    store = harness.open()
    session = harness.session(store)
    done(session.register("live/1", b"here"))
    revision = store.revision
    with harness.away(store):
        harness.stand_still(2 * SESSION_MS)
        assert isinstance(session.renew(), Away)
        with pytest.raises(Unreachable):
            store.get("live/1")
    assert session.renew() is True and store.get("live/1") is not None and store.revision == revision


def test_the_leader_of_zookeeper_dies(harness: ZookeeperHarness, servers: Servers) -> None:
    if len(servers.each) == 1:
        pytest.skip("the only server is in the suite")
    store = harness.open()
    session = harness.session(store)
    done(session.register("live/1", b"here"))
    before = done(store.put("k/a", b"1"))
    servers.leader.kill()
    try:
        assert made_again(harness, store, "k/a") > before
        wait_until(lambda: session.renew() is True, SECONDS, "the session at another server")
        assert store.get("live/1") is not None
    finally:
        servers.start()


def test_without_a_majority_nothing_is_changed(harness: ZookeeperHarness, servers: Servers) -> None:
    if len(servers.each) == 1:
        pytest.skip("one server is its own majority")
    store = harness.open()
    before = done(store.put("k/a", b"1"))
    down = [server for server in servers.each if server is not servers.leader]
    for server in down:
        server.kill()
    try:
        answer = store.put("k/a", b"2", before)
        while not isinstance(answer, Away):
            assert not isinstance(answer, int)
            time.sleep(0.1)
            answer = store.put("k/a", b"2", before)
        with pytest.raises(Unreachable):
            store.get("k/a")
    finally:
        servers.start()
    harness.wait_back(store)
    entry = store.get("k/a")
    assert entry is not None and entry.value in (b"1", b"2")
    assert made_again(harness, store, "k/a") > before


def test_silence_of_the_network_is_not_waited_for(harness: ZookeeperHarness) -> None:
    store = harness.open()
    before = done(store.put("k/a", b"1"))
    harness.passages.silence()
    begun = time.monotonic()
    assert not isinstance(store.put("k/a", b"2"), int)
    assert isinstance(store.put("k/a", b"3"), Away)
    assert time.monotonic() - begun < SECONDS
    harness.passages.refuse()
    harness.passages.accept()
    harness.wait_back(store)
    assert made_again(harness, store, "k/a") > before


def test_a_server_that_says_nothing_is_left(harness: ZookeeperHarness, servers: Servers) -> None:
    """Although it takes connections, and requests that follow one another put off kazoo's next ping for ever."""
    if len(servers.each) == 1:
        pytest.skip("there is no other")
    store = harness.open()
    before = done(store.put("k/a", b"1"))
    harness.passages.silence(harness.passages.used)
    try:
        assert made_again(harness, store, "k/a") > before
    finally:
        harness.passages.accept()


def test_a_session_leaves_a_server_that_says_nothing(harness: ZookeeperHarness, servers: Servers) -> None:
    if len(servers.each) == 1:
        pytest.skip("there is no other")
    store = harness.open()
    session = harness.session(store)
    harness.passages.silence(harness.passages.used)
    try:
        wait_until(lambda: not isinstance(session.renew(), Away), SECONDS, "what became of the session")
    finally:
        harness.passages.accept()


def test_the_leader_of_zookeeper_stands_still(tmp_path: Path, second: SecondProcess) -> None:
    """Three servers of its own. The store is connected to the one that is suspended, whose kernel keeps that."""
    with Servers(tmp_path, 3).up() as servers, closing(ZookeeperHarness(servers, second)) as harness:
        leader = servers.leader
        store = harness.open()
        while harness.passages.used != {leader.address}:
            store = harness.reopen(store)
        before = done(store.put("k/a", b"1"))
        leader.pause()
        try:
            assert made_again(harness, store, "k/a") > before
        finally:
            leader.go_on()
        servers.wait_ready()
        harness.wait_back(store)
