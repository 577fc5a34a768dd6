"""Brokers are restarted one after the other under load, as an upgrade does it: clients notice nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from confluent_kafka.admin import NewTopic

from cluster.brokers import Cluster
from cluster.shipped_clients import ShippedClients
from cluster.world import MANNERS, World
from interop.clients.librdkafka import LibrdkafkaClient, answer

ROUNDS = 2
SECONDS = 120.0  # only a failure uses it up


@pytest.mark.parametrize("rounds", [1, pytest.param(ROUNDS, marks=pytest.mark.long)])
def test_no_delivery_fails(rounds: int, make_cluster: Callable[..., Cluster]) -> None:
    """With the retries that clients have as they are shipped, idempotent or not."""
    cluster = make_cluster()
    tally: Counter[str] = Counter()
    world = World(cluster, tally, [manner._replace(retried=True) for manner in MANNERS if not manner.weak])
    with world.lived_in():
        for _ in range(rounds):
            for node in cluster.brokers:
                cluster.restart(node)
                cluster.wait_in_sync()
                world.goes_on()
    assert sum(writer.failed for writer in world.writers) == 0
    cluster.stop()
    cluster.verify()


@pytest.mark.long
def test_clients_as_they_are_shipped(make_cluster: Callable[..., Cluster]) -> None:
    """Nothing is set but the address, the topic and the group: no delivery fails, and no consumer hears of an error
    that it would have to handle. aiokafka's producer writes with acks=1: a clean restart loses none of that either."""
    cluster = make_cluster()
    client = LibrdkafkaClient(cluster.bootstrap)
    new = NewTopic("orders", 6, 3, config={"min.insync.replicas": "2"})
    answer(client.admin.create_topics([new], request_timeout=SECONDS)["orders"])
    cluster.wait_in_sync()
    clients = ShippedClients(cluster.bootstrap, "orders")
    try:
        clients.wait_until_all_go_on(20)
        for node in cluster.brokers:
            cluster.restart(node)
            cluster.wait_in_sync()
            clients.wait_until_all_go_on(20)
        clients.stop_producers()
        clients.wait_until_all_is_read()
    finally:
        clients.close()
    assert clients.problems() == []
    cluster.stop()
    cluster.verify()
