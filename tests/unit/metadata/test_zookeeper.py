"""The store on a real ZooKeeper, beyond the suite of all stores (tests/zookeeper/test_store.py)."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cairnmq.metadata.store import Made
from unit.metadata.conformance import done, doubtful
from zookeeper.harness import ZookeeperHarness

pytestmark = pytest.mark.long


def test_history_that_nobody_keeps_any_more_hides_no_outcome(harness: ZookeeperHarness) -> None:
    """Others change more than `rev` remembers before it is asked."""
    store = harness.open()
    watch = store.watch(store.revision)
    with harness.in_doubt(store, made=True):
        doubt = doubtful(store.put("k/a", b"1"))
    beside = harness.beside(store)
    for number in range(70):
        done(beside.put("k/b", b"%d" % number))
    assert isinstance(store.resolve(doubt), Made)
    assert not isinstance(watch.poll(), list)


def test_many_writers_at_once_lose_nothing(harness: ZookeeperHarness) -> None:
    """Three processes add to one number, each at the revision that it read."""
    code = (
        "import sys; from cairnmq.metadata.zookeeper import *; from cairnmq.metadata.zookeeper_address import *\n"
        "store = ZookeeperStore(parse_zookeeper(sys.argv[1])); left = 40\n"
        "while left:\n"
        "    entry = store.get('k/n')\n"
        "    made = store.put('k/n', b'%d' % (int(entry.value) + 1), entry.revision)\n"
        "    left -= isinstance(made, int)\n"
        "store.close()\n"
    )
    store = harness.open()
    done(store.put("k/n", b"0"))
    line = [sys.executable, "-c", code, harness.url(harness.servers.addresses)]
    children = [subprocess.Popen(line) for _ in range(3)]
    assert [child.wait() for child in children] == [0, 0, 0]
    entry = store.get("k/n")
    assert entry is not None and entry.value == b"120" and store.revision == entry.revision
