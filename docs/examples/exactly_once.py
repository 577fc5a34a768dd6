"""Exactly once: each order becomes one invoice, whoever dies and whenever. Run it again when it ends.

python exactly_once.py 127.0.0.1:9092 send 100
python exactly_once.py 127.0.0.1:9092 transform
python exactly_once.py 127.0.0.1:9092 receive
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

SOURCE = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "isolation.level": "read_committed"}


def send(bootstrap: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
    for number in range(count):
        producer.produce("orders", f"order {number}")
    producer.flush()


def invoice(order: Message) -> str:
    return order.value().decode().replace("order", "invoice")


def insist(call: Callable[[], object]) -> None:
    """Asks again what may be asked again. Any other error ends the program, and its next life goes on."""
    while True:
        try:
            call()
            return
        except KafkaException as problem:
            if not problem.args[0].retriable():
                raise


def transform(bootstrap: str) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": "billing-1",
            # librdkafka 2.16 waits for ever for offsets in a transaction if it begins anew while all brokers are away.
            "metadata.recovery.strategy": "none",
        }
    )
    insist(producer.init_transactions)
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "billing", "group.instance.id": "billing-1", **SOURCE}
    )
    consumer.subscribe(["orders"])
    while True:
        orders = [message for message in consumer.consume(20, 1.0) if message.error() is None]
        if not orders:
            continue
        producer.begin_transaction()
        ends = {}
        for order in orders:
            producer.produce("invoices", invoice(order))
            ends[order.topic(), order.partition()] = order.offset() + 1
        offsets = [TopicPartition(*place, end) for place, end in ends.items()]
        group = consumer.consumer_group_metadata()
        insist(lambda offsets=offsets, group=group: producer.send_offsets_to_transaction(offsets, group))
        insist(producer.commit_transaction)


def receive(bootstrap: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "letters", **SOURCE})
    consumer.subscribe(["invoices"])
    while True:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            print(message.value().decode(), flush=True)


if __name__ == "__main__":
    if sys.argv[2] == "send":
        send(sys.argv[1], int(sys.argv[3]))
    else:
        {"transform": transform, "receive": receive}[sys.argv[2]](sys.argv[1])
