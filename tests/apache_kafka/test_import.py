"""A directory that a real Apache Kafka wrote, imported: record by record, through clients, and across kill -9."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from apache_kafka.command import assert_sound, cairn
from apache_kafka.records import SECONDS, bounds, producer, read_all, send, shapes
from apache_kafka.source import GROUP, TOPICS, Source
from broker_process import Broker
from cairnmq.client.blocking import Client
from cairnmq.types import TopicPartition
from interop.clients.roster import CLIENTS, PROGRAMS
from programs import require_program

HEADER = struct.Struct(">qiibIhiqqqhii")
COUNT_AT, PRODUCER_AT, KEPT_FROM = 57, 43, 16
SMALL = ("--request-bytes", "40000")
AS_IT_IS = ("-c", "min.compaction.lag.ms=9000000000000000000")  # else compaction would go on here


@pytest.fixture(scope="module")
def imported(source: Source, module_broker: Callable[[], Broker]) -> Broker:
    broker = module_broker()
    done = cairn("import", str(source.logs), "-b", broker.bootstrap, *AS_IT_IS)
    assert "created codecs with 5 partitions" in done.stderr
    return broker


def assert_imported(source: Source, broker: Broker, topics: tuple[str, ...] = tuple(TOPICS)) -> None:
    for topic in topics:
        parts = source.topics[topic]
        assert read_all(broker.bootstrap, topic, len(parts)) == parts, topic
        for number in parts:
            assert bounds(broker.bootstrap, topic, number) == source.bounds[topic, number], (topic, number)


def test_every_record_and_every_offset_is_kept(source: Source, imported: Broker) -> None:
    assert sum(len(records) for parts in source.topics.values() for records in parts.values()) > 2000
    assert source.bounds["trimmed", 0][0] > 0
    offsets = [record.offset for record in source.topics["compacted"][0]]
    assert offsets[0] > 0 and any(b - a > 4 for a, b in zip(offsets, offsets[1:], strict=False)), (
        "nothing was compacted"
    )
    assert_imported(source, imported)


def batches(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = HEADER.unpack_from(data, at)[1] + 12
        yield data[at : at + size]
        at += size


@pytest.mark.parametrize("topic", ["codecs", "trimmed", "compacted", "stamped"])
def test_batches_are_kept_byte_for_byte(source: Source, imported: Broker, topic: str) -> None:
    """But for the leader epoch, bytes 12 to 15. Offsets that Kafka has no batch for are empty batches."""
    with Client.connect(imported.bootstrap) as client:
        for number in source.topics[topic]:
            start, end = source.bounds[topic, number]
            segments = sorted((source.logs / f"{topic}-{number}").glob("*.log"))
            written = [batch for file in segments for batch in batches(file.read_bytes())]
            wanted = [b for b in written if HEADER.unpack_from(b)[0] + HEADER.unpack_from(b)[6] >= start]
            got: list[bytes] = []
            at = start
            while at < end:
                (fetched,) = client.fetch({topic: {number: at}})
                got.extend(bytes(batch) for batch in fetched.batches)
                last = HEADER.unpack_from(got[-1])
                assert HEADER.unpack_from(fetched.batches[0])[0] <= at < last[0] + last[6] + 1
                at = last[0] + last[6] + 1
            full = [batch for batch in got if HEADER.unpack_from(batch)[12] or HEADER.unpack_from(batch)[9] >= 0]
            assert [(b[:12], b[KEPT_FROM:]) for b in full] == [(b[:12], b[KEPT_FROM:]) for b in wanted]


def test_settings_and_committed_offsets_come_along(source: Source, imported: Broker) -> None:
    described = cairn("topic", "describe", "codecs", "compacted", "-b", imported.bootstrap).stdout
    assert "segment.bytes" in described and "1048576" in described
    with Client.connect(imported.bootstrap) as client:
        places = {TopicPartition(*place): offset for place, offset in source.committed.items()}
        assert client.offset_fetch(GROUP) == places
        assert not [name for name in client.metadata(None).topics if name.startswith("__")]


def test_a_second_import_changes_nothing(source: Source, imported: Broker) -> None:
    with Client.connect(imported.bootstrap) as client:
        client.offset_commit(GROUP, {TopicPartition("codecs", 0): 200})
        said = cairn("import", str(source.logs), "-b", imported.bootstrap).stderr
        assert "codecs-0 was imported before" in said and "nothing left to import" in said
        assert client.offset_fetch(GROUP)[TopicPartition("codecs", 0)] == 200
    assert_imported(source, imported, ("trimmed", "ledger"))


@pytest.mark.parametrize("name", CLIENTS)
def test_every_client_reads_what_was_imported(source: Source, imported: Broker, name: str) -> None:
    """Empty batches, gaps inside batches, markers of transactions at the end."""
    if name in PROGRAMS:
        require_program(PROGRAMS[name])
    client = CLIENTS[name](imported.bootstrap)
    try:
        for topic, number in (("compacted", 0), ("ledger", 0), ("trimmed", 0)):
            records = source.topics[topic][number]
            reader = client.reader(topic, number, source.bounds[topic, number][0], 100)
            # kafkajs reads all partitions, whichever is asked for
            count = sum(map(len, source.topics[topic].values())) if name == "kafkajs" else len(records)
            got = [record for record in reader.take(count, SECONDS) if record.partition == number]
            reader.close()
            assert [(g.offset, g.timestamp, g.key, g.value) for g in got] == [
                (r.offset, r.timestamp[1], r.key, r.value) for r in records
            ]
    finally:
        client.close()


def test_producers_go_on_behind_the_import(source: Source, imported: Broker) -> None:
    """With ids that Kafka's producers never had: a broker that took a new producer for an old one would refuse it."""
    before = source.bounds["codecs", 0][1]
    for _ in range(3):
        send(producer(imported.bootstrap, **{"enable.idempotence": True}), "codecs", 0, shapes("none", 5, 60))
    records = read_all(imported.bootstrap, "codecs", 5)[0]
    assert [record.offset for record in records] == list(range(before + 15))
    said = cairn("import", str(source.logs), "-b", imported.bootstrap, code=1).stderr
    assert f"codecs-0 is not empty: it holds offsets 0 to {before + 15}" in said


def test_the_files_are_sound_afterwards(imported: Broker) -> None:
    assert_sound(imported)


def test_kill_9_in_the_middle_and_again(source: Source, make_broker: Callable[..., Broker]) -> None:
    """Each start dies at another place of the write path; the same command goes on until all is there."""
    broker = make_broker()
    arguments = ("import", str(source.logs), *SMALL, *AS_IT_IS, "--timeout", "5")
    for point in ("journal-write:5", "journal-sync:4", "journal-write:4"):
        broker.start(cairn_fault_point=point)
        failed = cairn(*arguments, "-b", broker.bootstrap, code=1)
        assert "run the same command again to continue" in failed.stderr
        assert broker.wait_dead() == -9
    broker.start()
    said = cairn(*arguments, "-b", broker.bootstrap).stderr
    assert "continues at offset" in said
    assert_imported(source, broker)
    broker.kill_tree()
    assert_sound(broker.start())
    broker.start()
    assert_imported(source, broker, ("trimmed", "compacted"))


def test_verify_before_anything_is_split(source: Source, make_broker: Callable[..., Broker]) -> None:
    """All of the import is in the journal alone, also where logs begin."""
    broker = make_broker(settings={"cairn.split.enable": "false"}).start()
    cairn("import", str(source.logs), "--topic", "t*", "-b", broker.bootstrap)
    broker.kill_tree()
    assert cairn("verify", str(broker.data)).stdout == ""
    broker.start()
    assert_imported(source, broker, ("trimmed",))


def test_what_a_killed_kafka_leaves(source: Source, make_broker: Callable[..., Broker]) -> None:
    """Without its note of a clean stop, and with a tail that was never flushed."""
    assert not (source.killed / ".kafka_cleanshutdown").exists()
    torn = source.killed / "stamped-0" / f"{0:020d}.log"
    size = torn.stat().st_size
    with torn.open("ab") as file:
        file.write((source.killed / "codecs-1" / f"{0:020d}.log").read_bytes()[:1000])
    broker = make_broker().start()
    said = cairn("import", str(source.killed), "-b", broker.bootstrap).stderr
    assert f"note: {torn} at {size}: " in said
    assert "compacted: no directory" not in said
    # Log starts are written down once a minute: what was trimmed would be back in Kafka too.
    assert_imported(source, broker, ("codecs", "ledger", "stamped", "unused"))


def test_refusals(source: Source, make_broker: Callable[..., Broker], tmp_path: Path) -> None:
    broker = make_broker().start()
    cairn("topic", "create", "ledger", "-p", "3", "-b", broker.bootstrap)
    assert "already exists with 3 partitions; the one to import has 2" in (
        cairn("import", str(source.logs), "--topic", "ledger", "-b", broker.bootstrap, code=1).stderr
    )
    cairn("topic", "create", "stamped", "-p", "1", "-b", broker.bootstrap)
    send(producer(broker.bootstrap), "stamped", 0, shapes("none", 1, 60))
    said = cairn("import", str(source.logs), "--topic", "stamped", "-b", broker.bootstrap, code=1).stderr
    assert "stamped-0 is not empty: it holds offsets 0 to 1" in said
    assert len(read_all(broker.bootstrap, "stamped", 1)[0]) == 1
    assert "is not a Kafka log directory" in cairn("import", str(tmp_path), "-b", broker.bootstrap, code=1).stderr
    cairn("topic", "create", "trimmed", "-p", "2", "-b", broker.bootstrap)
    cairn("import", str(source.logs), "--topic", "trimmed", "-b", broker.bootstrap)
    assert_imported(source, broker, ("trimmed",))


def test_a_log_start_that_a_compacted_topic_cannot_have(source: Source, make_broker: Callable[..., Broker]) -> None:
    """Inside of a batch, and nothing can be deleted from the topic; the rest of the import does not suffer."""
    broker = make_broker().start()
    cairn("topic", "create", "trimmed", "-p", "2", "-c", "cleanup.policy=compact", "-b", broker.bootstrap)
    arguments = ("import", str(source.logs), "--topic", "trimmed", "--topic", "codecs", "-b", broker.bootstrap)
    start, end = source.bounds["trimmed", 0]
    for _ in range(2):
        said = cairn(*arguments).stderr
        assert "trimmed-0: its cleanup.policy has no delete" in said and f"to {start - 1}, before" in said
    first, last = bounds(broker.bootstrap, "trimmed", 0)
    assert first < start and last == end
    with Client.connect(broker.bootstrap) as client:
        assert client.offset_fetch(GROUP)[TopicPartition("codecs", 0)] == source.committed["codecs", 0]


def test_dry_run_needs_no_broker(source: Source) -> None:
    done = cairn("import", str(source.logs), "--dry-run", "-b", "127.0.0.1:1")
    assert "nothing was sent" in done.stderr
    assert len(done.stdout.splitlines()) == 1 + sum(parts for parts, _ in TOPICS.values())


def test_every_file_of_kafka_can_be_dumped(source: Source) -> None:
    from cairnmq.storage.check.dump import dump_file

    files = [file for file in source.logs.rglob("*") if file.is_file() and file.name != ".lock"]
    kinds = {file.suffix or file.name for file in files}
    assert kinds >= {".log", ".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint", ".metadata"}
    assert kinds >= {".properties", "recovery-point-offset-checkpoint", "replication-offset-checkpoint"}
    assert kinds >= {"log-start-offset-checkpoint", "cleaner-offset-checkpoint", ".checkpoint", "quorum-state"}
    for file in files:
        lines = list(dump_file(str(file), records=True))
        # The letters alone may be part of a topic's id.
        assert not [line for line in lines if "BAD:" in line or "crc=BAD" in line], file
