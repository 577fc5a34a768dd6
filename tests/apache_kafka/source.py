"""What a real Kafka is filled with before its directory is imported: a topic for each thing that may go wrong."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from msgspec import Struct

from apache_kafka.records import CODECS, SECONDS, Seen, bounds, producer, read_all, send, shapes
from broker_process import wait_until

TOPICS = {
    "codecs": (5, {"segment.bytes": "1048576", "retention.ms": "-1"}),
    "trimmed": (2, {"segment.bytes": "1048576", "retention.ms": "-1"}),
    "compacted": (1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "1000"}),
    "ledger": (2, {"retention.ms": "-1"}),
    "stamped": (1, {"message.timestamp.type": "LogAppendTime"}),
    "unused": (3, {}),
}
GROUP = "readers"
TRIMMED_TO = 120


class Source(Struct):
    """What readers of committed records saw in Kafka."""

    logs: Path
    killed: Path
    topics: dict[str, dict[int, list[Seen]]]
    bounds: dict[tuple[str, int], tuple[int, int]]
    committed: dict[tuple[str, int], int]


def fill(bootstrap: str, logs: Path) -> Source:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(name, parts, 1, config=configs) for name, (parts, configs) in TOPICS.items()])
    for future in made.values():
        future.result(SECONDS)
    for partition, codec in enumerate(CODECS):
        writer = producer(bootstrap, **{"compression.type": codec, "enable.idempotence": partition % 2 == 0})
        send(writer, "codecs", partition, shapes(codec, 400, 6000 if codec == "none" else 60))
    plain = producer(bootstrap, **{"batch.num.messages": 10})
    send(plain, "trimmed", 0, shapes("none", 500, 6000))
    send(plain, "trimmed", 1, shapes("none", 50, 60))
    send(plain, "stamped", 0, shapes("none", 20, 60))
    for future in admin.delete_records(
        [TopicPartition("trimmed", 0, TRIMMED_TO * 3 + 5), TopicPartition("trimmed", 1, 50)]
    ).values():
        future.result(SECONDS)
    _transactions(bootstrap)
    _compaction(bootstrap, logs)
    committed = {("codecs", 0): 123, ("ledger", 1): 3}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    consumer.commit(offsets=[TopicPartition(*place, offset) for place, offset in committed.items()], asynchronous=False)
    consumer.close()
    topics = {name: read_all(bootstrap, name, parts) for name, (parts, _) in TOPICS.items()}
    ends = {(name, number): bounds(bootstrap, name, number) for name, parts in topics.items() for number in parts}
    return Source(logs, logs.with_name("killed"), topics, ends, committed)


def _transactions(bootstrap: str) -> None:
    writer = producer(bootstrap, **{"transactional.id": "bank"})
    writer.init_transactions(SECONDS)
    for number, fate in enumerate(("commit", "abort", "commit", "abort", "commit")):
        writer.begin_transaction()
        for partition in range(2):
            send(writer, "ledger", partition, shapes(f"{fate}-{number}", 7, 60))
        if fate == "commit":
            writer.commit_transaction(SECONDS)
        else:
            writer.abort_transaction(SECONDS)
    other = producer(bootstrap)
    send(other, "ledger", 0, shapes("none", 3, 60))


def _compaction(bootstrap: str, logs: Path) -> None:
    """Three segments of the same keys; the cleaner leaves the last value of each, with gaps."""
    writer = producer(bootstrap, **{"batch.num.messages": 4})
    now = 1_700_000_000_000
    for turn in range(3):
        records = [
            {
                "key": b"key-%d" % (number % (9 - turn)),
                "value": None if number > 27 else b"turn %d number %d" % (turn, number),
                "timestamp": now,
            }
            for number in range(30)
        ]
        now += 5000  # older than segment.ms: the next batch begins a segment
        send(writer, "compacted", 0, records)
    told = logs / "cleaner-offset-checkpoint"  # written when a pass is over; what it leaves is the third segment

    def is_clean() -> bool:
        return told.exists() and "compacted 0 60" in told.read_text().splitlines()

    wait_until(is_clean, SECONDS, "a compaction")
