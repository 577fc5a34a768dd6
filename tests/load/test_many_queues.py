"""10,000 queues on one real node: an idle one of many holds no file, directory or thread."""

from __future__ import annotations

import os
import random
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from broker_process import Broker, wait_until
from cairnmq.client.blocking import Client
from cairnmq.client.records import LATEST
from cairnmq.storage.splitter.placement import Thresholds

TOPICS, PARTITIONS = 10, 1000
NAMES = [f"many-{number}" for number in range(TOPICS)]
FEW = Thresholds().few  # so many queues may have files of their own, however many there are
SOME = 40  # what may come with the work itself: packs, a checkpoint, worker threads
ALLOWED = {"open files": FEW + SOME, "threads": SOME, "directory entries": 3 * FEW + SOME}


def held(broker: Broker) -> dict[str, int]:
    tree = broker.tree()
    return {
        "open files": sum(process.num_fds() for process in tree),
        "threads": sum(process.num_threads() for process in tree),
        "directory entries": sum(len(names) + len(files) for _, names, files in os.walk(broker.data)),
    }


def content(topic: str, partition: int) -> bytes:
    return f"{topic}/{partition}".encode()


def read_some(broker: Broker, seed: int) -> None:
    """Random queues hold their one record, all of them read by one assignment."""
    chance = random.Random(seed)
    chosen = {(chance.choice(NAMES), chance.randrange(PARTITIONS)) for _ in range(200)}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "some", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in chosen])
        missing = set(chosen)

        def read() -> bool:
            for message in consumer.consume(500, 0.2):
                assert message.error() is None, message.error()
                place = (message.topic(), message.partition())
                assert message.offset() == 0 and message.value() == content(*place)
                missing.discard(place)
            return not missing

        wait_until(read, 60, f"the records of {len(chosen)} queues; those of {sorted(missing)[:5]} did not come")
    finally:
        consumer.close()


def test_an_idle_queue_holds_no_file_directory_or_thread(tmp_path: Path) -> None:
    broker = Broker(tmp_path, settings={"cairn.checkpoint.interval.ms": "500"}).start()
    try:
        before = held(broker)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for created in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in NAMES]).values():
            created.result(60)
        listed = admin.list_topics(timeout=60).topics
        assert [len(listed[name].partitions) for name in NAMES] == [PARTITIONS] * TOPICS

        failed: list[str] = []
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "queue.buffering.max.messages": TOPICS * PARTITIONS}
        )
        for name in NAMES:
            for partition in range(PARTITIONS):
                producer.produce(
                    name,
                    content(name, partition),
                    partition=partition,
                    on_delivery=lambda error, message: failed.append(str(error)) if error else None,
                )
            producer.poll(0)
        assert producer.flush(120) == 0 and not failed, failed[:3]
        del producer
        read_some(broker, seed=1)

        def small() -> bool:
            return all(now <= before[what] + ALLOWED[what] for what, now in held(broker).items())

        wait_until(small, 60, f"no more than {before} and {ALLOWED} to be held; see {held(broker)}")

        broker.kill_tree()
        broker.start()
        with Client.connect(broker.bootstrap) as client:
            for name in NAMES:
                ends = client.list_offsets(name, range(PARTITIONS), LATEST)
                assert len(ends) == PARTITIONS and {end.offset for end in ends.values()} == {1}
        read_some(broker, seed=2)
        wait_until(small, 60, f"no more than {before} and {ALLOWED} to be held after a restart; see {held(broker)}")
    finally:
        broker.stop()
        broker.close()
