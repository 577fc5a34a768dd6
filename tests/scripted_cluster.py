"""Three scripted brokers that answer as a cluster: what tools ask brokers about journals, without a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from cairnmq.wire.messages import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeJournalsRequest,
    DescribeJournalsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectUncleanRequest,
    ElectUncleanResponse,
    ForgetBrokerRequest,
    ForgetBrokerResponse,
    Message,
)
from scripted_broker import ScriptedBroker, metadata

Answer = DescribeJournalsResponse
END = 10_000


class ScriptedCluster:
    """Brokers 1 to 3, journal n led by broker n. The test bends it: `down`, `deaf` (up, and silent), `isr`, `behind`
    (journal, broker) -> bytes, `election` codes."""

    def __init__(self) -> None:
        self.ports: dict[int, int] = {1: 9092, 2: 9093, 3: 9094}  # of nobody, until it runs
        self.down: set[int] = set()
        self.deaf: set[int] = set()
        self.expired: set[int] = set()  # suspended: their sessions have ended, and Metadata still name them
        self.asked_for_disks: list[int] = []
        self.leaders: dict[int, int] = {1: 1, 2: 2, 3: 3}
        self.isr: dict[int, list[int]] = {}
        self.behind: dict[tuple[int, int], int] = {}
        self.ends: dict[tuple[int, int], tuple[int, int]] = {}  # (journal, broker) -> epoch, end: without a leader
        self.damaged: dict[int, list[int]] = {}
        self.forgotten: list[int] = []
        self.refusals: dict[int, tuple[int, str]] = {}
        self.elected: list[Message] = []

    @contextmanager
    def running(self) -> Iterator[str]:
        with ExitStack() as stack:
            for number in (1, 2, 3):
                broker = ScriptedBroker(lambda request, header, n=number: self._answer(n, request))  # type: ignore[misc]
                self.ports[number] = stack.enter_context(broker).port
            yield ",".join(f"127.0.0.1:{port}" for number, port in self.ports.items() if number not in self.down)

    def _answer(self, number: int, request: Message) -> Message | None:
        live = {node: port for node, port in self.ports.items() if node not in self.down}
        if isinstance(request, DescribeJournalsRequest):
            return None if number in self.deaf | self.expired else self.told_by(number)
        if isinstance(request, ElectUncleanRequest):
            return self._elect(request)
        if isinstance(request, ForgetBrokerRequest):
            return self._forget(request.broker_id)
        if isinstance(request, ElectLeadersRequest):
            self.elected.append(request)
            return self._preferred()
        if isinstance(request, DescribeLogDirsRequest):
            self.asked_for_disks.append(number)
            return DescribeLogDirsResponse(results=[DescribeLogDirsResponse.DescribeLogDirsResult(log_dir="/d")])
        if isinstance(request, DescribeClusterRequest):
            rows = [
                DescribeClusterResponse.DescribeClusterBroker(broker_id=node, host="127.0.0.1", port=port)
                for node, port in live.items()
            ]
            return DescribeClusterResponse(cluster_id="the-id", controller_id=min(live), brokers=rows)
        return metadata({"orders": [self.leaders[1], self.leaders[2], self.leaders[3]]}, live)

    def told_by(self, number: int) -> Answer:
        """What a broker answers to DescribeJournals."""
        return Answer(
            cluster_id="the-id",
            node_id=number,
            controller_id=min(set(self.ports) - self.down),
            metadata_revision=7,
            metadata_away_ms=-1,
            brokers=[
                Answer.DescribedBroker(
                    node_id=node,
                    broker_epoch=10 + node,
                    host="127.0.0.1",
                    port=port,
                    is_live=node not in self.down | self.expired,
                    session_age_ms=-1 if node in self.down else 250,
                    damaged=self.damaged.get(node, []),
                )
                for node, port in self.ports.items()
            ],
            journals=[self._journal(number, journal) for journal in self.leaders],
        )

    def _journal(self, number: int, journal: int) -> Answer.DescribedJournal:
        leader = self.leaders[journal]
        ends = [
            Answer.ReplicaEnds(node_id=node, end=END - self.behind.get((journal, node), 0), lag_ms=50)
            for node in (1, 2, 3)
            if node != leader
        ]
        return Answer.DescribedJournal(
            journal=journal,
            epoch=20,
            leader=Answer.Member(node_id=leader, broker_epoch=10 + leader) if leader > 0 else None,
            replicas=[(journal + turn - 1) % 3 + 1 for turn in range(3)],
            isr=[Answer.Member(node_id=node, broker_epoch=10 + node) for node in self.isr.get(journal, [1, 2, 3])],
            led_here=Answer.LedJournal(is_ready=True, end=END, replicated_end=END, durable_end=END, replicas=ends)
            if leader == number
            else None,
            ends=[
                Answer.ToldEnd(node_id=node, last_epoch=epoch, end=end)
                for (where, node), (epoch, end) in self.ends.items()
                if where == journal
            ],
        )

    def _forget(self, broker: int) -> Message:
        if broker in self.ports:
            return ForgetBrokerResponse(error_code=42, error_message=f"broker {broker} is up; stop it first")
        self.forgotten.append(broker)
        return ForgetBrokerResponse()

    def _elect(self, request: ElectUncleanRequest) -> Message:
        self.elected.append(request)
        results = []
        for journal in request.journals:
            code, why = self.refusals.get(journal, (0, None))
            result = ElectUncleanResponse.ElectUncleanResult(journal=journal, error_code=code, error_message=why)
            results.append(result)
        return ElectUncleanResponse(results=results)

    def _preferred(self) -> Message:
        """Partition n of orders is in journal n + 1."""
        rows = []
        for partition in range(3):
            code, why = self.refusals.get(partition + 1, (0, None))
            rows.append(
                ElectLeadersResponse.PartitionResult(partition_id=partition, error_code=code, error_message=why)
            )
        result = ElectLeadersResponse.ReplicaElectionResult(topic="orders", partition_result=rows)
        return ElectLeadersResponse(replica_election_results=[result])
