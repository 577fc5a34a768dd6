"""Names without a meaning here do not overlap with those that have one, and cover Kafka's shipped file."""

from __future__ import annotations

from cairnmq.settings.broker_table import ALIASES, BROKER
from cairnmq.settings.known import WITHOUT_MEANING, is_known

SHIPPED = """
process.roles node.id controller.quorum.bootstrap.servers listeners inter.broker.listener.name advertised.listeners
controller.listener.names listener.security.protocol.map num.network.threads num.io.threads socket.send.buffer.bytes
socket.receive.buffer.bytes socket.request.max.bytes log.dirs num.partitions num.recovery.threads.per.data.dir
offsets.topic.replication.factor share.coordinator.state.topic.replication.factor
share.coordinator.state.topic.min.isr transaction.state.log.replication.factor transaction.state.log.min.isr
log.flush.interval.messages log.flush.interval.ms log.retention.hours log.retention.bytes log.segment.bytes
log.retention.check.interval.ms broker.id zookeeper.connect zookeeper.connection.timeout.ms
group.initial.rebalance.delay.ms
""".split()


def test_no_name_has_two_meanings() -> None:
    assert not WITHOUT_MEANING & (set(BROKER) | set(ALIASES))


def test_every_name_of_the_shipped_files_is_known() -> None:
    assert [name for name in SHIPPED if not (name in BROKER or name in ALIASES or is_known(name))] == []
    assert not is_known("num.partiton")
