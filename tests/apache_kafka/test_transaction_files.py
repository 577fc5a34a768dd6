"""Transactions in files: our markers and aborted transactions are Kafka's to the byte, and Kafka's tools read ours."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from apache_kafka.command import assert_sound, cairn
from apache_kafka.node import kafka_tool
from apache_kafka.records import producer, read_all, send, shapes
from apache_kafka.source import SECONDS, Source
from broker_process import Broker
from cairnmq.codec.batch import CONTROL_BIT, BatchHeader, read_header, set_offset_and_epoch
from cairnmq.codec.records import iter_batches
from cairnmq.storage.batches.markers import Marker, marker_batch, read_marker
from cairnmq.storage.files.format import TXN_INDEX_ENTRY, Aborted, txn_index_bytes
from cairnmq.storage.queue.state import QueueState

ROW = re.compile(
    r"version: 0 producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", re.IGNORECASE
)


def batches(directory: Path) -> Iterator[tuple[BatchHeader, memoryview]]:
    for file in sorted(directory.glob("*.log")):
        for batch in iter_batches(file.read_bytes()):
            yield read_header(batch), batch


def replayed(directory: Path) -> list[Aborted]:
    state = QueueState()
    for _, batch in batches(directory):
        state.apply_batch(batch, 0)
    return state.aborted


@pytest.mark.parametrize("queue", ["ledger-0", "ledger-1", "__transaction_state-0"])
def test_our_markers_are_kafkas(source: Source, queue: str) -> None:
    compared = 0
    for header, batch in batches(source.logs / queue):
        found = read_marker(batch) if header.attributes & CONTROL_BIT else None
        if found is None:
            continue
        marker = Marker(1, header.producer_id, header.producer_epoch, *found)
        made = marker_batch(marker, header.max_timestamp)
        set_offset_and_epoch(made, header.base_offset, header.leader_epoch)
        assert made == batch
        compared += 1
    assert compared == (5 if queue.startswith("ledger") else 0)


@pytest.mark.parametrize("queue", ["ledger-0", "ledger-1"])
def test_our_aborted_transactions_are_kafkas(source: Source, queue: str) -> None:
    (index,) = (source.logs / queue).glob("*.txnindex")
    rows = replayed(source.logs / queue)
    assert len(rows) == 2
    assert txn_index_bytes(rows) == index.read_bytes()


@pytest.fixture(scope="module")
def ours(module_broker: Callable[[], Broker]) -> Path:
    """A stopped broker's files, with aborted and committed transactions over several segments."""
    broker = module_broker()
    small = ("-c", "internal.segment.bytes=2000", "-c", "cairn.model=dedicated")
    cairn("topic", "create", "ledger", "-p", "2", "-b", broker.bootstrap, *small)
    writer = producer(broker.bootstrap, **{"transactional.id": "bank"})
    writer.init_transactions(SECONDS)
    for number in range(10):
        writer.begin_transaction()
        for partition in range(2):
            send(writer, "ledger", partition, shapes(f"turn-{number}", 7, 60))
        if number % 3:
            writer.abort_transaction(SECONDS)
        else:
            writer.commit_transaction(SECONDS)
    found = read_all(broker.bootstrap, "ledger", 2)
    assert [len(found[partition]) for partition in range(2)] == [28, 28]
    assert_sound(broker)
    return broker.data / "queues"


@pytest.mark.parametrize("queue", ["ledger-0", "ledger-1"])
def test_kafkas_tool_reads_ours(ours: Path, queue: str) -> None:
    files = sorted((ours / queue).glob("*.txnindex"))
    assert len(files) > 1
    printed: list[Aborted] = []
    for file in files:
        done = kafka_tool("org.apache.kafka.tools.DumpLogSegments", "--files", str(file))
        assert done.returncode == 0, done.stdout + done.stderr
        printed += [Aborted(*map(int, row)) for row in ROW.findall(done.stdout)]
        assert len(file.read_bytes()) % TXN_INDEX_ENTRY.size == 0
    assert printed == replayed(ours / queue)
    assert len(printed) == 6
