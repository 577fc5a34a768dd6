"""Three brokers of one cluster that a test handles as if they were one: it starts, kills and stops all of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

from broker_process import Broker, fixed_port, wait_until
from cairnmq.wire.messages import MetadataRequest, MetadataResponse
from damage.wire_client import WireClient

REPLICAS = 3
SETTINGS = {"default.replication.factor": str(REPLICAS), "offsets.topic.replication.factor": str(REPLICAS)}

LEADERS_SECONDS = 120.0  # only a failure uses it up


def has_leaders(broker: Broker) -> bool:
    """As one broker has them at its start."""
    with WireClient(f"127.0.0.1:{broker.port}") as client:
        told = client.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False), MetadataResponse)
    return all(row.leader_id >= 0 for topic in told.topics for row in topic.partitions)


class ThreeBrokers:
    """Has what tests use of `Broker`, and is made like it; `port` is there because each has a port that stays."""

    def __init__(self, directory: Path, *, settings: Mapping[str, str] | None = None, port: int = 0) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.brokers = [
            Broker(
                directory / f"broker{number}",
                settings={**SETTINGS, **(settings or {})},
                flags=["--node-id", str(number), "--metadata", f"sqlite:{directory / 'cluster.db'}"],
                port=fixed_port(),
            )
            for number in range(1, REPLICAS + 1)
        ]

    def __iter__(self) -> Iterator[Broker]:
        return iter(self.brokers)

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self)

    @property
    def running(self) -> bool:
        return all(broker.running for broker in self)

    def start(self) -> ThreeBrokers:
        for broker in self:
            broker.launch()
        for broker in self:
            broker.wait_ready()
        for broker in self:
            wait_until(lambda broker=broker: has_leaders(broker), LEADERS_SECONDS, "leaders of all partitions")  # type: ignore[misc]
        return self

    def stop(self) -> int:
        """SIGTERM to all; the first exit code that is not 0, if there is one."""
        for broker in self:
            os.kill(broker.pid, signal.SIGTERM)
        return next((code for code in [broker.wait_dead() for broker in self] if code), 0)

    def kill_tree(self) -> None:
        """kill -9 of every process of all."""
        for broker in self:
            broker.kill_tree()

    def log_tail(self, lines: int = 60) -> str:
        return "\n".join(f"{broker.directory.name}:\n{broker.log_tail(lines)}" for broker in self)

    def close(self) -> None:
        with ExitStack() as stack:
            for broker in self:
                stack.callback(broker.close)
