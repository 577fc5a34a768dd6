"""Sessions in a real ZooKeeper: who ends them, and who is told."""

from __future__ import annotations

import logging
import subprocess
import sys
import time

import pytest

from cairnmq.errors import Fault
from cairnmq.metadata.store import Away, Check, Put
from unit.metadata.conformance import done, drained, last_values
from zookeeper.harness import SESSION_MS, ZookeeperHarness

pytestmark = pytest.mark.long


def test_a_session_is_confirmed_by_the_time_of_the_question(harness: ZookeeperHarness) -> None:
    store = harness.open()
    session = harness.session(store)
    first, before = session.confirmed_ms, store.nodes.clock()
    assert session.renew() is True
    assert first <= before <= session.confirmed_ms <= store.nodes.clock()
    second = session.confirmed_ms
    with harness.away(store):
        assert isinstance(session.renew(), Away) and session.confirmed_ms == second
    assert session.pace_ms == SESSION_MS // 6


def test_a_process_that_is_killed_is_missed_and_replaced_at_once(harness: ZookeeperHarness) -> None:
    """kill -9: its node in ZooKeeper stays for the time of its session, its key changes hands before that."""
    code = (
        "import sys; from cairnmq.metadata.zookeeper import *; from cairnmq.metadata.zookeeper_address import *\n"
        f"store = ZookeeperStore(parse_zookeeper(sys.argv[1])); session = store.session({SESSION_MS})\n"
        "print(session.register('live/1', b'first'), session.register('live/2', b'first'), flush=True)\n"
        "import time\nwhile True: time.sleep(0.1); session.renew()\n"
    )
    url = harness.url(harness.servers.addresses)
    child = subprocess.Popen([sys.executable, "-c", code, url], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    held, _ = map(int, child.stdout.readline().split())
    store = harness.open()
    watch = store.watch(store.revision)
    child.kill()
    child.wait()
    child.stdout.close()
    session = harness.session(store)
    assert store.get("live/1") is not None, "ZooKeeper does not know yet"
    done(session.register("live/1", b"second", expect=held))

    def other_is_missed() -> bool:
        assert session.renew() is True
        return store.get("live/2") is None

    harness.wait(other_is_missed, "the end of the session of a process that was killed")
    assert session.renew() is True
    entry = store.get("live/1")
    assert entry is not None and entry.value == b"second"
    assert last_values(drained(watch)) == {"live/1": b"second", "live/2": None}


def test_a_process_that_stands_still_changes_nothing_when_it_goes_on(harness: ZookeeperHarness) -> None:
    store = harness.open()
    zombie = harness.beside(store)
    session = zombie.session(SESSION_MS)
    assert not isinstance(session, Away)
    held = done(session.register("leaders/controller", b"1"))
    zombie.process.pause()
    other = harness.session(store)

    def is_missed() -> bool:
        assert other.renew() is True
        return store.get("leaders/controller") is None

    harness.wait(is_missed, "the end of the session of a process that stands still")
    done(other.register("leaders/controller", b"2"))
    zombie.process.go_on()
    refused = zombie.transact([Check("leaders/controller", held), Put("k/a", b"late")])
    assert not isinstance(refused, int) and store.get("k/a") is None
    assert session.renew() is False


def test_a_session_that_nobody_renews_ends_although_its_connection_lives(
    harness: ZookeeperHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """The process is there, and kazoo's thread answers for it; but whoever should renew stands still."""
    store = harness.open()
    session = harness.session(store)
    done(session.register("live/1", b"here"))
    with caplog.at_level(logging.ERROR):
        harness.wait_sessions(0)
    assert "has not renewed it" in caplog.text
    assert store.get("live/1") is None and not session.live
    assert session.renew() is False and session.renew() is False


def test_who_cannot_renew_because_zookeeper_is_away_loses_no_session(harness: ZookeeperHarness) -> None:
    """Nobody keeps the session alive meanwhile, and nobody else can lead."""
    store = harness.open()
    session = harness.session(store)
    with harness.away(store):
        time.sleep(SESSION_MS / 1000)
    assert session.renew() is True


def test_a_call_that_takes_long_is_no_standstill(harness: ZookeeperHarness) -> None:
    store = harness.open()
    session = harness.session(store)
    with store.nodes.using():
        time.sleep(SESSION_MS / 1000)
    assert session.live and session.renew() is True


def test_more_time_than_zookeeper_grants_is_refused(harness: ZookeeperHarness) -> None:
    store = harness.open()
    with pytest.raises(Fault, match="set cairn.session.ms to 10000 or less"):
        store.session(60_000)
    harness.wait_sessions(0)


def test_less_time_than_zookeeper_grants_is_said(harness: ZookeeperHarness, caplog: pytest.LogCaptureFixture) -> None:
    store = harness.open()
    with caplog.at_level(logging.WARNING):
        session = store.session(500)
    assert not isinstance(session, Away) and session.renew() is True
    assert "grants sessions of at least 1000 ms" in caplog.text


def test_what_a_closed_watch_was_told_of_wakes_nobody(harness: ZookeeperHarness) -> None:
    store = harness.open()
    woken: list[str] = []
    watch = store.watch(store.revision, lambda: woken.append("now"))
    done(store.put("k/a", b"1"))
    assert woken == ["now"] and last_values(drained(watch)) == {"k/a": b"1"}
    watch.close()
    watch.close()
    done(store.put("k/a", b"2"))
    assert woken == ["now"]
