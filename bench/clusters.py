"""Three brokers as one server: ours on one metadata file, Apache Kafka's with KRaft, broker and controller in each
process. So both are three processes, and any of them may be the one that elects leaders."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from bench.librdkafka import LoadFailed
from bench.results import CAIRN, KAFKA
from bench.servers import START_SECONDS, CairnServer, KafkaServer, Maker, Server
from bench.usage import Tree
from broker_process import fixed_port, wait_until
from cairnmq.cli.bench_pipe import Pipe
from cairnmq.client.errors import ClientError
from cairnmq.wire.messages import MetadataRequest, MetadataResponse

NODES = (1, 2, 3)
LOOK_SECONDS = 0.5
ASK_SECONDS = 60.0
KAFKA_PROPERTIES = """
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{{port}},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
log.dirs={{logs}}
log.segment.delete.delay.ms=1000
"""
# Both notice a silent broker as soon, and drop a replica that is behind as soon.
QUICK_SESSION = {
    CAIRN: {"cairn.session.ms": "2000", "replica.lag.time.max.ms": "2000"},
    KAFKA: {
        "broker.session.timeout.ms": "2000",
        "broker.heartbeat.interval.ms": "500",
        "replica.lag.time.max.ms": "2000",
    },
}


class Cluster:
    """All brokers together; one of them may be killed and started again."""

    def __init__(self, name: str, directory: Path, brokers: Mapping[int, Server]) -> None:
        self.name = name
        self.directory = self.data = directory
        self.brokers = brokers
        self.ports = {node: broker.port for node, broker in brokers.items()}
        self.port = self.ports[NODES[0]]
        self.bootstrap = ",".join(broker.bootstrap for broker in brokers.values())

    def prepare(self) -> None:
        for broker in self.brokers.values():
            broker.prepare()

    def launch(self) -> None:
        for broker in self.brokers.values():
            broker.launch()

    def wait_ready(self) -> None:
        for broker in self.brokers.values():
            broker.wait_ready()
        wait_until(lambda: all(map(knows_all, self.ports.values())), START_SECONDS, "brokers that know one another")

    def tree(self) -> Tree:
        return Tree(*(root.pid for broker in self.brokers.values() for root in broker.tree().roots))

    def backlog_bytes(self) -> float | None:
        waiting = [broker.backlog_bytes() for broker in self.brokers.values()]
        return sum(each or 0.0 for each in waiting) if any(each is not None for each in waiting) else None

    def hold_back(self) -> None:
        for broker in self.brokers.values():
            broker.hold_back()

    def kill(self) -> None:
        for broker in self.brokers.values():
            broker.kill()

    def revive(self, node: int) -> None:
        """After a kill; returns when all replicas are in sync."""
        self.brokers[node].launch()
        self.brokers[node].wait_ready()
        self.wait_in_sync()

    def pause(self, node: int) -> None:
        """SIGSTOP: it keeps its connections, and says nothing."""
        for process in self.brokers[node].tree().processes():
            process.suspend()

    def resume(self, node: int) -> None:
        """Returns when all replicas are in sync."""
        for process in self.brokers[node].tree().processes():
            process.resume()
        self.wait_in_sync()

    def wait_in_sync(self) -> None:
        """All brokers see it. Asked seldom: with 10,000 partitions an answer is work."""
        deadline = time.monotonic() + START_SECONDS
        while not all(map(sees_all_in_sync, self.ports.values())):
            if time.monotonic() > deadline:
                raise LoadFailed(f"{self.name}: replicas are not in sync after {START_SECONDS:g} s")
            time.sleep(LOOK_SECONDS)

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.close()
        shutil.rmtree(self.directory, ignore_errors=True)


def cairn_cluster(directory: Path, settings: Mapping[str, str]) -> Cluster:
    metadata = f"sqlite:{directory / 'cluster.db'}"

    def broker(node: int) -> Server:
        return CairnServer(directory / f"broker{node}", settings, ("--node-id", str(node), "--metadata", metadata))

    return Cluster(CAIRN, directory, {node: broker(node) for node in NODES})


def kafka_cluster(directory: Path, settings: Mapping[str, str]) -> Cluster:
    controllers = {node: fixed_port() for node in NODES}
    voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in controllers.items())

    def broker(node: int) -> Server:
        own = KAFKA_PROPERTIES.format(node=node, voters=voters, controller=controllers[node])
        return KafkaServer(directory / f"broker{node}", settings, own)

    return Cluster(KAFKA, directory, {node: broker(node) for node in NODES})


CLUSTERS: dict[str, Maker] = {CAIRN: cairn_cluster, KAFKA: kafka_cluster}


def described(port: int, topics: Iterable[str] | None = None, seconds: float = ASK_SECONDS) -> MetadataResponse:
    """What a broker knows of these topics; of all without them."""
    named = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
    pipe = Pipe(port, seconds)
    try:
        known = pipe.ask(MetadataRequest(topics=named, allow_auto_topic_creation=False))
    finally:
        pipe.close()
    assert isinstance(known, MetadataResponse)
    return known


def knows_all(port: int) -> bool:
    """This broker knows of all brokers."""
    try:
        return len(described(port, ()).brokers) == len(NODES)
    except (OSError, ClientError):
        return False


def sees_all_in_sync(port: int) -> bool:
    """This broker knows of all brokers, and that each partition has a leader and all its replicas in sync."""
    try:
        known = described(port)
    except (OSError, ClientError):
        return False
    return len(known.brokers) == len(NODES) and not lacking(known)


def lacking(known: MetadataResponse) -> int:
    """Partitions without a leader, or without all replicas in sync."""
    rows = [row for topic in known.topics for row in topic.partitions]
    return sum(row.leader_id < 0 or len(row.isr_nodes) < len(row.replica_nodes) for row in rows)
