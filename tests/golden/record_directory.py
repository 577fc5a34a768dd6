"""Records a data directory as a killed broker leaves it: run by hand, with the code whose format is to be kept.

    python tests/golden/record_directory.py version-2

Writes directories/NAME.tar.xz, and NAME.json beside it: what a start must find in it. Two journals; packs and segments,
a compacted topic, an idempotent producer, transactions that were committed, aborted and are still open, committed
offsets of groups, some of it behind the checkpoint when the broker is killed.
"""

from __future__ import annotations

import io
import json
import lzma
import os
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

sys.path[:0] = [str(Path(__file__).parents[1])]

from broker_process import Broker, fixed_port, wait_until  # noqa: E402
from golden.directory import DIRECTORIES, seen, unpack  # noqa: E402

SETTINGS = {
    "cairn.journals": "2",
    "cairn.journal.segment.bytes": str(1 << 20),
    "cairn.checkpoint.interval.ms": "1000",
    "cairn.reserve.bytes": "0",
}
TOPICS = {
    "packed": ({"cairn.model": "shared"}, 3),
    "segmented": ({"cairn.model": "dedicated"}, 2),
    "compacted": (
        {"cleanup.policy": "compact", "cairn.model": "dedicated", "min.cleanable.dirty.ratio": "0.01",
         "segment.ms": "1000", "max.compaction.lag.ms": "1000"}, 1,
    ),
    "durable": ({"cairn.flush": "commit"}, 2),
}  # fmt: skip


def record(name: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        broker = Broker(Path(directory), settings=SETTINGS, http=False, port=fixed_port())
        broker.start()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        topics = [
            NewTopic(topic, count, 1, config={"retention.ms": "-1", **config})
            for topic, (config, count) in TOPICS.items()
        ]
        for made in admin.create_topics(topics).values():
            made.result()
        plain = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1})
        idempotent = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 1})
        transactional = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "golden", "linger.ms": 1})
        transactional.init_transactions()
        for number in range(6):
            work(number, plain, idempotent, transactional)
            commit(broker, number)
            time.sleep(1.2)  # a checkpoint
        wait_until(lambda: list((broker.data / "packs").glob("*.pack")), 30, "packs")
        wait_until(lambda: compacted(broker), 60, "compaction")
        stop_splitting(admin)  # from here on all of it stays in the journals
        for number in range(6, 9):
            work(number, plain, idempotent, transactional)
            commit(broker, number)
        transactional.begin_transaction()
        transactional.produce("segmented", b"never ended", b"open", 0)
        transactional.flush()
        broker.kill_tree()
        save(name, broker.data)


def stop_splitting(admin: AdminClient) -> None:
    entry = ConfigEntry("cairn.split.enable", "false", incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    for done in admin.incremental_alter_configs([changed]).values():
        done.result()
    time.sleep(1)


def work(number: int, plain: Producer, idempotent: Producer, transactional: Producer) -> None:
    for topic, (_, count) in TOPICS.items():
        for partition in range(count):
            for i in range(20):
                plain.produce(topic, b"%s %d " % (topic.encode(), number) + b"v" * 150, b"k%d" % (i % 7), partition)
    plain.flush()
    for partition in range(3):
        idempotent.produce("packed", b"idempotent %d" % number, b"i", partition)
    idempotent.flush()
    transactional.begin_transaction()
    for partition in range(2):
        transactional.produce("durable", b"transaction %d" % number, b"t", partition)
    transactional.produce("packed", b"transaction %d" % number, b"t", 0)
    source = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": f"in-transaction-{number % 3}"})
    transactional.send_offsets_to_transaction(
        [TopicPartition("packed", 0, number + 100)], source.consumer_group_metadata()
    )
    (transactional.abort_transaction if number % 3 == 1 else transactional.commit_transaction)()


def commit(broker: Broker, number: int) -> None:
    for group in range(8):
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": f"group-{group}"})
        places = [TopicPartition("packed", number % 3, number + 1), TopicPartition("durable", 0, number + 1)]
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()


def compacted(broker: Broker) -> bool:
    logs = sorted((broker.data / "queues").glob("compacted-0/*.log"))
    return bool(logs) and sum(log.stat().st_size for log in logs) < 15_000


def save(name: str, data: Path) -> None:
    DIRECTORIES.mkdir(exist_ok=True)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path in sorted(data.rglob("*")):
            if path.name in ("reserve", "lock", "next.new"):
                continue
            member = tar.gettarinfo(path, str(path.relative_to(data)))
            member.uid = member.gid = member.mtime = 0
            member.uname = member.gname = ""
            if path.is_file():
                with path.open("rb") as file:
                    tar.addfile(member, file)
            else:
                tar.addfile(member)
    (DIRECTORIES / f"{name}.tar.xz").write_bytes(lzma.compress(packed.getvalue(), preset=9 | lzma.PRESET_EXTREME))
    with tempfile.TemporaryDirectory() as copy:
        unpack(name, Path(copy))
        said = json.dumps(found_in(Path(copy)), indent=1, sort_keys=True)
    (DIRECTORIES / f"{name}.json").write_text(f"{said}\n")


def found_in(root: Path) -> dict[str, Any]:
    """What a start finds, by the code that runs this."""
    from cairnmq.broker.live_catalog import all_queue_specs
    from cairnmq.metadata.catalog import Catalog
    from cairnmq.metadata.sqlite import SqliteStore
    from cairnmq.metadata.topics import placed
    from cairnmq.settings.broker import BrokerConfig
    from cairnmq.storage.engine import Engine, EngineConfig
    from cairnmq.storage.files.disk import RealDisk

    now_ms = time.time_ns() // 1_000_000
    store = SqliteStore(str(root / "meta.db"))
    catalog = Catalog(store)
    catalog.load()
    specs = all_queue_specs(placed(catalog.image, (0, 1)), BrokerConfig())
    engine = Engine.open(
        RealDisk(root / "journal"), RealDisk(root), specs, begin=lambda _: catalog.next_epoch(),
        seed=1, config=EngineConfig(), now_ms=now_ms, journals=(0, 1),
    )  # fmt: skip
    store.close()
    return {"time_ms": now_ms, **seen(engine)}


if __name__ == "__main__":
    os.chdir(Path(__file__).parents[2])
    record(sys.argv[1])
