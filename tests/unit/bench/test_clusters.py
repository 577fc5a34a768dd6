"""Three brokers are measured as one server: their backlogs together, and when all is in sync."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.clusters import NODES, Cluster, cairn_cluster, kafka_cluster, lacking
from bench.results import CAIRN, KAFKA
from bench.servers import CairnServer
from cairnmq.wire.messages import MetadataResponse
from programs import require_program


class Waiting(CairnServer):
    """A broker, not started, with so much to split; None as Kafka says it."""

    def __init__(self, directory: Path, waits: float | None) -> None:
        super().__init__(directory, {})
        self.waits = waits

    def backlog_bytes(self) -> float | None:
        return self.waits


@pytest.mark.parametrize(
    ("waits", "expected"), [((1.0, 2.0, 4.0), 7.0), ((0.0, 0.0, 0.0), 0.0), ((None, None, None), None)]
)
def test_the_backlog_of_a_cluster_is_that_of_all(
    tmp_path: Path, waits: tuple[float | None, ...], expected: float | None
) -> None:
    brokers = {node: Waiting(tmp_path / str(node), each) for node, each in zip(NODES, waits, strict=True)}
    assert Cluster(CAIRN, tmp_path, brokers).backlog_bytes() == expected


def test_ours_share_one_metadata_file_and_have_numbers(tmp_path: Path) -> None:
    cluster = cairn_cluster(tmp_path, {"cairn.session.ms": "2000"})
    for node, broker in cluster.brokers.items():
        assert isinstance(broker, CairnServer)
        line = broker.broker.command({})
        assert line[-4:] == ["--node-id", str(node), "--metadata", f"sqlite:{tmp_path / 'cluster.db'}"]
        assert "cairn.session.ms=2000" in line
    assert cluster.bootstrap == ",".join(f"127.0.0.1:{port}" for port in cluster.ports.values())
    assert len(set(cluster.ports.values())) == len(NODES)


@pytest.mark.long
def test_each_of_kafkas_votes_for_the_controller(tmp_path: Path) -> None:
    require_program("java")
    cluster = kafka_cluster(tmp_path, {"broker.session.timeout.ms": "2000"})
    texts = [(tmp_path / f"broker{node}" / "server.properties").read_text() for node in NODES]
    voters = {line for text in texts for line in text.splitlines() if line.startswith("controller.quorum.voters")}
    assert (cluster.name, len(voters)) == (KAFKA, 1)
    for node, text in zip(NODES, texts, strict=True):
        assert f"node.id={node}\n" in text
        assert f"PLAINTEXT://127.0.0.1:{cluster.ports[node]}," in text
        assert text.endswith("broker.session.timeout.ms=2000\n")


@pytest.mark.parametrize(("leader", "isr", "expected"), [(1, [1, 2, 3], 0), (-1, [1, 2, 3], 1), (2, [2, 3], 1)])
def test_a_partition_lacks_a_leader_or_a_replica_in_sync(leader: int, isr: list[int], expected: int) -> None:
    row = MetadataResponse.MetadataResponsePartition(leader_id=leader, replica_nodes=[1, 2, 3], isr_nodes=isr)
    assert lacking(MetadataResponse(topics=[MetadataResponse.MetadataResponseTopic(partitions=[row])])) == expected
