"""The secret that brokers of a cluster share: one that does not know it copies nothing, and both sides say why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from broker_process import Broker, fixed_port, wait_until
from cluster.brokers import Cluster
from interop.clients.contract import Sent
from interop.clients.librdkafka import LibrdkafkaClient, answer

SECRET, OTHER = "a-secret-of-this-test", "another-secret-of-it"
SETTING = "cairn.cluster.secret"
SECONDS = 120.0  # only a failure uses it up


@pytest.mark.long
def test_a_broker_that_has_another_secret_is_let_in_nowhere(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(settings={SETTING: SECRET})
    client = LibrdkafkaClient(cluster.bootstrap)
    answer(client.admin.create_topics([NewTopic("orders", 3, 3)], request_timeout=SECONDS)["orders"])
    cluster.wait_in_sync()
    stranger, friend = cluster.brokers[3], cluster.brokers[1]
    for given, why in (
        (OTHER, f"broker 3 has another {SETTING}"),
        ("", f"{SETTING} must be the same on all brokers: broker 3 has none"),
    ):
        told, heard = len(stranger.log()), len(friend.log())
        stranger.settings = {name: value for name, value in stranger.settings.items() if name != SETTING}
        if given:
            stranger.settings[SETTING] = given
        cluster.restart(3)
        says(stranger, told, f"link to broker 1 cannot be opened: {why}")
        says(friend, heard, "internal connection from", f"closed: {why}")
        wait_until(
            lambda: all(3 not in row.isr_nodes for row in cluster.told(1).values()), SECONDS, "it to be left out"
        )
        records = [Sent(value=given.encode() or b"none", partition=each) for each in range(3)]
        client.produce("orders", records, idempotent=True)
    healthy, said = cluster.health()
    assert not healthy and "broker 3" in said, said
    stranger.settings[SETTING] = SECRET
    cluster.restart(3)
    cluster.wait_in_sync()
    read = [got.value for got in client.read("orders", range(3), 0)]
    assert Counter(read) == {OTHER.encode(): 3, b"none": 3}
    assert not any(secret in broker.log() for broker in cluster.brokers.values() for secret in (SECRET, OTHER))
    cluster.stop()
    cluster.verify()


def says(broker: Broker, since: int, *texts: str) -> None:
    """In one line of its log."""

    def said() -> bool:
        return any(all(text in line for text in texts) for line in broker.log()[since:].splitlines())

    wait_until(said, SECONDS, f"{' ... '.join(texts)}\n{broker.log_tail()}")


def test_an_address_for_other_machines_needs_a_secret(tmp_path: Path) -> None:
    """Nothing is listened at, nothing is written."""
    port = fixed_port()
    metadata = tmp_path / "cluster.db"
    broker = Broker(
        tmp_path / "broker",
        flags=["--node-id", "1", "--metadata", f"sqlite:{metadata}", "--internal", f"0.0.0.0:{port}"],
        http=False,
    )
    broker.launch()
    try:
        assert broker.wait_dead() == 2
    finally:
        broker.close()
    said = f"--internal 0.0.0.0:{port} is reachable from other machines and brokers have no secret"
    assert said in broker.log() and f"set {SETTING}" in broker.log()
    assert not metadata.exists()
