"""Three brokers of one cluster as real processes, the network between them, and what can be asked of them together."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import time
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from broker_process import CAIRN, STOP_SECONDS, Broker, fixed_port, wait_until
from cairnmq.metadata.cluster_records import JOURNALS, decode_journal
from cairnmq.metadata.topics import TOPICS, decode_topic
from cairnmq.wire.messages import (
    DescribeJournalsRequest,
    DescribeJournalsResponse,
    MetadataRequest,
    MetadataResponse,
)
from cluster.links import Links
from conftest import QUICK_GROUPS
from crash.ledger import Place
from damage.wire_client import WireClient

BROKERS = 3
SESSION_MS = LAG_MS = 2000
SETTINGS = {
    "cairn.session.ms": str(SESSION_MS),
    "replica.lag.time.max.ms": str(LAG_MS),
    "offsets.topic.replication.factor": "3",
    "default.replication.factor": "3",
    **QUICK_GROUPS,
}
SYNC_SECONDS = 120.0  # only a failure uses it up
COMMAND_SECONDS = 120
WIRE_SECONDS = 5.0
FAILURES = (AssertionError, OSError)
"""What a question ends with while a broker is away."""


def rack_of(node: int) -> str:
    return f"rack-{node}"


Rows: TypeAlias = dict[Place, MetadataResponse.MetadataResponsePartition]


class Cluster:
    """Node ids count from 1. All share one metadata file, and reach one another through `links` alone."""

    def __init__(
        self,
        directory: Path,
        *,
        settings: Mapping[str, str] | None = None,
        brokers: int = BROKERS,
        metadata: Path | str | None = None,
        direct: bool = False,
        http: bool = False,
    ) -> None:
        """`direct`: nothing is between them, so nothing can be cut. `http`: they tell metrics."""
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.metadata = metadata if isinstance(metadata, str) else f"sqlite:{metadata or directory / 'cluster.db'}"
        self.links = Links(self._pids)
        self.brokers: dict[int, Broker] = {}
        for node in range(1, brokers + 1):
            door, inner = fixed_port(), fixed_port()
            flags = ["--node-id", str(node), "--metadata", self.metadata, "--internal", f"127.0.0.1:{inner}"]
            flags += ["--rack", rack_of(node)]
            own = {} if direct else {"cairn.internal.advertise": f"127.0.0.1:{door}"}
            self.brokers[node] = Broker(
                directory / f"node{node}",
                port=fixed_port(),
                settings={**SETTINGS, **(settings or {}), **own},
                flags=flags,
                http=http,
            )
            self.links.add(node, door, inner)

    def _pids(self) -> dict[int, int]:
        return {node: broker.pid for node, broker in self.brokers.items() if broker.pid}

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers.values())

    @property
    def running(self) -> list[int]:
        return [node for node, broker in self.brokers.items() if broker.running]

    @contextmanager
    def up(self) -> Iterator[Cluster]:
        """Afterwards no process is left, and none wrote a traceback."""
        try:
            self.start()
            yield self
        finally:
            self.close()

    def start(self) -> None:
        """All at once: whoever is first makes the cluster."""
        for node, broker in self.brokers.items():
            self.links.accept(node)
            broker.launch()
        for broker in self.brokers.values():
            broker.wait_ready()

    # What happens to brokers

    def kill(self, node: int) -> None:
        """kill -9 of all processes of a broker; whoever connects to it is refused from then on."""
        self.brokers[node].kill_tree()
        self.links.refuse(node)

    def kill_alone(self, node: int) -> None:
        """Its splitter is left to notice by itself."""
        self.brokers[node].kill_broker()
        self.links.refuse(node)

    def revive(self, node: int) -> None:
        self.links.accept(node)
        self.brokers[node].start()

    @contextmanager
    def paused(self, node: int) -> Iterator[None]:
        """SIGSTOP, and SIGCONT at the end."""
        broker = self.brokers[node]
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            with suppress(ProcessLookupError):
                os.kill(broker.pid, signal.SIGCONT)

    def restart(self, node: int) -> None:
        """Cleanly, as an upgrade does it."""
        broker = self.brokers[node]
        code = broker.stop()
        begins_again = code == -signal.SIGTERM and broker.log_tail(1).endswith("the broker starts again")
        assert code == 0 or begins_again, broker.log_tail()  # by itself, and does not handle signals yet
        self.links.refuse(node)
        self.revive(node)

    def stop(self) -> None:
        """All at once, each with exit code 0."""
        for node in self.running:
            os.kill(self.brokers[node].pid, signal.SIGTERM)
        for broker in self.brokers.values():
            assert broker.wait_dead(STOP_SECONDS) == 0, f"SIGTERM did not end in exit code 0\n{broker.log_tail()}"

    def close(self) -> None:
        problems = []
        for broker in self.brokers.values():
            try:
                broker.close()
            except AssertionError as problem:
                problems.append(f"{broker.directory.name}: {problem}")
        self.links.close()
        assert not problems, "\n".join(problems)

    # What is asked

    def metric(self, node: int, name: str) -> float:
        """The sum of its samples."""
        with urllib.request.urlopen(f"{self.brokers[node].http}/metrics", timeout=COMMAND_SECONDS) as answer:
            lines = [line.split() for line in answer.read().decode().splitlines()]
        return sum(float(words[-1]) for words in lines if words[0].partition("{")[0] == name)

    def cairn(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([CAIRN, *words], capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)

    def health(self) -> tuple[bool, str]:
        done = self.cairn("cluster", "health", "-b", self.bootstrap)
        return done.returncode == 0, done.stdout + done.stderr

    def wait_in_sync(self, seconds: float = SYNC_SECONDS) -> None:
        """Every broker is there, and every journal has a leader and all its replicas in sync."""
        deadline = time.monotonic() + seconds
        while True:
            healthy, said = self.health()
            if healthy and not (lacking := self.lacking()):
                return
            if time.monotonic() > deadline:
                logs = "\n".join(f"{node}:\n{broker.log_tail(30)}" for node, broker in self.brokers.items())
                raise AssertionError(f"not in sync after {seconds:g} s\n{said}\n{lacking if healthy else ''}\n{logs}")

    def lacking(self) -> list[str]:
        """Partitions without a leader, or without all replicas in sync."""
        return [
            f"{place}: leader {row.leader_id}, in sync {sorted(row.isr_nodes)} of {sorted(row.replica_nodes)}"
            for place, row in self.described().items()
            if row.leader_id < 0 or sorted(row.isr_nodes) != sorted(row.replica_nodes)
        ]

    def described(self, node: int | None = None) -> Rows:
        """All partitions as a broker tells them."""
        chosen = node or self.running[0]
        with WireClient(f"127.0.0.1:{self.brokers[chosen].port}", WIRE_SECONDS) as client:
            answer = client.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False), MetadataResponse)
        return {
            Place(topic.name or "", row.partition_index): row for topic in answer.topics for row in topic.partitions
        }

    def told(self, node: int | None = None) -> Rows:
        """The same, once it answers."""
        found: Rows = {}

        def answers() -> bool:
            with suppress(*FAILURES):
                found.update(self.described(node))
            return bool(found)

        wait_until(answers, SYNC_SECONDS, "what a broker knows of its partitions")
        return found

    def stored_isr(self) -> dict[Place, set[int]]:
        """As the metadata have it at this moment: what a broker tells may be older, by as much as it stands still."""
        with closing(sqlite3.connect(self.metadata.removeprefix("sqlite:"), SYNC_SECONDS)) as db:
            rows = dict(db.execute("SELECT key, value FROM entries"))
        records = [decode_journal(value) for key, value in rows.items() if key.startswith(JOURNALS)]
        isr = {record.journal: {member.broker for member in record.isr} for record in records}
        topics = [decode_topic(value) for key, value in rows.items() if key.startswith(TOPICS)]
        return {
            Place(topic.name, partition): isr[journal] for topic in topics for partition, _, journal in topic.places()
        }

    def leader(self, place: Place) -> int:
        """Waits until there is one."""
        found = -1

        def known() -> bool:
            nonlocal found
            for node in self.running:
                with suppress(*FAILURES):
                    found = self.described(node)[place].leader_id
                    return found > 0
            return False

        wait_until(known, SYNC_SECONDS, f"a leader of {place}")
        return found

    def controller(self) -> int:
        with WireClient(f"127.0.0.1:{self.brokers[self.running[0]].port}", WIRE_SECONDS) as client:
            answer = client.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False), MetadataResponse)
        return answer.controller_id

    def report(self, node: int) -> DescribeJournalsResponse:
        """What a broker knows of the others and of the metadata."""
        with WireClient(f"127.0.0.1:{self.brokers[node].port}", WIRE_SECONDS) as client:
            return client.ask(DescribeJournalsRequest(), DescribeJournalsResponse)

    def verify(self, nodes: Iterable[int] = ()) -> None:
        """While no broker runs: each directory alone, and the replicas against each other."""
        directories = [str(self.brokers[node].data) for node in nodes or self.brokers]
        done = self.cairn("verify", *directories, "--metadata", self.metadata)
        assert done.returncode == 0, f"cairn verify:\n{done.stdout}{done.stderr}"
        assert len(directories) == 1 or "replicas: compared " in done.stderr, done.stderr
