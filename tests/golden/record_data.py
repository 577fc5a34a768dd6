"""Records a data directory of the version at hand, for `test_former_data.py`: everything that a broker stores is in it.

    PYTHONPATH=tests python -m golden.record_data NAME COMMAND...

COMMAND is that version's `cairn`. The broker is killed, so the journals have more than the checkpoint says.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

HERE = Path(__file__).parent
TOPICS = {
    "packed": {"cairn.model": "shared"},
    "segmented": {"cairn.model": "dedicated", "index.interval.bytes": "1024"},
    "compacted": {"cleanup.policy": "compact"},
    "unsynced": {"cairn.flush": "interval"},
}
PARTITIONS = 2
OPEN_MS = 900_000
SETTING = ("cairn.journal.retain.bytes", "12345")  # under the name that it had then
Story = dict[str, list[list[object]]]


def places() -> list[TopicPartition]:
    return [TopicPartition(topic, partition, 0) for topic in TOPICS for partition in range(PARTITIONS)]


def read_all(bootstrap: str, isolation: str) -> Story:
    """Every record, by partition: offset, key, value."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.assign(places())
    found: Story = {f"{place.topic}-{place.partition}": [] for place in places()}
    open_ends = set(found)
    while open_ends:
        message = consumer.poll(1.0)
        if message is None:
            continue
        name = f"{message.topic()}-{message.partition()}"
        if message.error() is None:
            key, value = message.key(), message.value()
            found[name].append([message.offset(), key and key.decode(), value and value.decode()])
        elif message.error().code() == KafkaError._PARTITION_EOF:
            open_ends.discard(name)
        else:
            raise SystemExit(message.error())
    consumer.close()
    return found


def committed(bootstrap: str) -> dict[str, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "app"})
    found = {f"{one.topic}-{one.partition}": one.offset for one in consumer.committed(places(), timeout=60)}
    consumer.close()
    return found


def told(bootstrap: str) -> dict[str, object]:
    """What clients are told of this data directory."""
    return {
        "read_uncommitted": read_all(bootstrap, "read_uncommitted"),
        "read_committed": read_all(bootstrap, "read_committed"),
        "committed": committed(bootstrap),
    }


def write(bootstrap: str) -> Producer:
    """Returns a producer whose transaction is open."""
    servers = {"bootstrap.servers": bootstrap}
    admin = AdminClient(servers)
    for made in admin.create_topics([NewTopic(name, PARTITIONS, 1, config=TOPICS[name]) for name in TOPICS]).values():
        made.result()
    plain = Producer({**servers, "enable.idempotence": True})
    for number in range(120):
        for topic in TOPICS:
            plain.produce(topic, key=f"k{number % 20}", value=f"{number} {'x' * 20}", partition=number % PARTITIONS)
        if number % 10 == 9:
            plain.flush()
    for number in range(5):
        producer = Producer({**servers, "transactional.id": f"t{number}", "transaction.timeout.ms": OPEN_MS})
        producer.init_transactions()
        producer.begin_transaction()
        for topic in ("packed", "segmented"):
            producer.produce(topic, key="t", value=f"transaction {number}", partition=number % PARTITIONS)
        producer.flush()
        if number == 4:
            return producer
        (producer.commit_transaction if number % 2 else producer.abort_transaction)()
    raise AssertionError


def commit_and_configure(bootstrap: str) -> None:
    servers = {"bootstrap.servers": bootstrap}
    consumer = Consumer({**servers, "group.id": "app", "enable.auto.commit": False})
    positions = [TopicPartition("packed", 0, 11), TopicPartition("segmented", 1, 22)]
    consumer.commit(offsets=positions, asynchronous=False)
    consumer.close()
    name, value = SETTING
    change = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    broker = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[change])
    admin = AdminClient(servers)
    for done in admin.incremental_alter_configs([broker]).values():
        done.result()


def fill(bootstrap: str) -> dict[str, object]:
    left_open = write(bootstrap)  # its transaction is open until the broker is killed
    commit_and_configure(bootstrap)
    time.sleep(12)  # two checkpoints
    late = Producer({"bootstrap.servers": bootstrap})
    for number in range(20):
        late.produce("unsynced", key="late", value=f"late {number}", partition=number % PARTITIONS)
        late.produce("segmented", key="late", value=f"late {number}", partition=1)
    late.flush()
    story = told(bootstrap)
    del left_open
    return story


def main(name: str, command: list[str]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        data, ready = Path(directory, "data"), Path(directory, "ready")
        settings = ("cairn.journals=2", "cairn.reserve.bytes=0", "cairn.journal.segment.bytes=65536")
        options = ["--data", str(data), "--listen", "127.0.0.1:0", "--no-http", "--ready-file", str(ready)]
        arguments = ["serve", *options, *(f"--set={each}" for each in settings)]
        broker = subprocess.Popen([*command, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while not ready.exists():
                time.sleep(0.1)
            story = fill(json.loads(ready.read_text())["bootstrap"])
        finally:
            broker.kill()
            broker.wait()
        (HERE / f"{name}.json").write_text(json.dumps(story, separators=(",", ":")).replace('],"', '],\n"') + "\n")
        with tarfile.open(HERE / f"{name}.tar.gz", "w:gz") as archive:
            for path in sorted(data.rglob("*")):
                if path.is_file() and path.name not in ("lock", "next.new"):
                    archive.add(path, path.relative_to(data).as_posix())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
