"""Disks that refuse, and disks that hang."""

from __future__ import annotations

from cairnmq.broker.cluster.disk_watch import REFUSES_SECONDS, DiskWatch
from unit.storage.replica_harness import Leading


def test_a_write_that_gets_nowhere() -> None:
    leading, watch = Leading(), DiskWatch(5.0)
    leading.put()
    leading.path.synced_to(leading.path.sync())
    assert not watch.fails(leading.path, 0.0) and not watch.fails(leading.path, 9.0), "nobody waits"
    leading.put(write=False)
    assert not watch.fails(leading.path, 10.0) and not watch.fails(leading.path, 14.9)
    assert watch.fails(leading.path, 15.0)
    leading.write()
    assert not watch.fails(leading.path, 15.1), "it has moved"


def test_a_sync_that_somebody_waits_for() -> None:
    leading, watch = Leading(), DiskWatch(5.0)
    leading.put()
    assert not watch.fails(leading.path, 0.0) and watch.fails(leading.path, 5.0)
    leading.path.synced_to(leading.path.sync())
    assert not watch.fails(leading.path, 5.1), "only followers are waited for now"


def test_a_disk_that_refuses() -> None:
    leading, watch = Leading(), DiskWatch(5.0)
    leading.path.refuse("the disk is full")
    assert not watch.fails(leading.path, 0.0) and watch.fails(leading.path, REFUSES_SECONDS)
    leading.path.resume()
    assert not watch.fails(leading.path, 2.0)
