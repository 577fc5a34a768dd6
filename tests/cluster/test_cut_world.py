"""The judge of power cuts is told of ends whatever a client believes of leaders."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Consumer, TopicPartition

from cluster.brokers import Cluster
from cluster.cut_world import ASK_SECONDS, ends_of
from crash.ledger import Place
from interop.clients.librdkafka import LibrdkafkaClient


def test_an_end_is_told_although_a_client_has_seen_the_leader_go(make_cluster: Callable[..., Cluster]) -> None:
    """This client asked before, and took down what its metadata said while the leader was away."""
    cluster = make_cluster()
    made = cluster.cairn("topic", "create", "orders", "-p", "3", "-b", cluster.bootstrap)
    assert made.returncode == 0, made.stderr
    cluster.wait_in_sync()
    places = [Place("orders", partition) for partition in range(3)]
    client = LibrdkafkaClient(cluster.bootstrap)
    before = client.consumer()
    for place in places:
        assert before.get_watermark_offsets(TopicPartition(*place), ASK_SECONDS) == (0, 0)
    cluster.restart(cluster.leader(places[1]))
    cluster.wait_in_sync()
    clients = [before]

    def make() -> Consumer:
        return clients.pop() if clients else client.consumer()

    assert ends_of(make, places) == dict.fromkeys(places, 0)
