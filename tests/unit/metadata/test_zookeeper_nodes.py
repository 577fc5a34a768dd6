"""The nodes in a real ZooKeeper: how many there may be, and whose they are."""

from __future__ import annotations

import pytest

from broker_process import fixed_port
from cairnmq.errors import Fault
from cairnmq.metadata.store import Put
from cairnmq.metadata.zookeeper import ZookeeperStore
from cairnmq.metadata.zookeeper_address import parse_zookeeper
from unit.metadata.conformance import done
from zookeeper.harness import ZookeeperHarness
from zookeeper.servers import Servers

pytestmark = pytest.mark.long


def test_many_topics_are_listed(harness: ZookeeperHarness) -> None:
    """In buckets, more than are asked for at once."""
    store = harness.open()
    names = [f"t{number:04}" for number in range(1200)]
    for first in range(0, len(names), 300):
        done(store.transact([Put(f"topics/{name}", name.encode()) for name in names[first : first + 300]]))
    assert [entry.value.decode() for entry in store.list("topics/")] == names
    with harness.asked() as client:
        assert 200 < len(client.get_children(f"{harness.path}/keys/topics")) <= 256


def test_the_address_may_name_servers_that_are_down(harness: ZookeeperHarness, servers: Servers) -> None:
    address = harness.url([f"127.0.0.1:{fixed_port()}", *servers.addresses])
    store = ZookeeperStore(parse_zookeeper(address))
    try:
        done(store.put("k/a", b"1"))
    finally:
        store.close()


def test_nodes_of_another_program_are_left_alone(harness: ZookeeperHarness) -> None:
    with harness.asked() as client:
        client.ensure_path(f"{harness.path}/brokers/ids")
        with pytest.raises(Fault, match=r"nodes of another program \(brokers\)"):
            harness.open()
        assert client.get_children(harness.path) == ["brokers"]


def test_nodes_that_a_person_removed_are_missed(harness: ZookeeperHarness) -> None:
    store = harness.open()
    done(store.put("k/a", b"1"))
    with harness.asked() as client:
        client.delete(f"{harness.path}/rev")
    with pytest.raises(Fault, match="were removed"):
        store.put("k/a", b"2")
    with pytest.raises(Fault, match="were removed"):
        assert store.revision


def test_a_directory_that_a_person_removed_is_made_again(harness: ZookeeperHarness) -> None:
    store = harness.open()
    done(store.put("k/a", b"1"))
    with harness.asked() as client:
        client.delete(f"{harness.path}/keys/k", recursive=True)
    done(store.put("k/b", b"2"))
    assert [entry.key for entry in store.list("k/")] == ["k/b"]


def test_what_is_too_large_is_refused_and_harms_nothing(harness: ZookeeperHarness) -> None:
    store = harness.open()
    with pytest.raises(Fault, match="more than ZooKeeper takes"):
        store.put("k/a", b"x" * 1_000_000)
    done(store.put("k/a", b"x" * 800_000))
    entry = store.get("k/a")
    assert entry is not None and len(entry.value) == 800_000
