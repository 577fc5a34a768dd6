"""At most once: nothing is handled twice, some of it may never be.

python at_most_once.py 127.0.0.1:9092 send 100
python at_most_once.py 127.0.0.1:9092 receive
"""

from __future__ import annotations

import sys
import time

from confluent_kafka import Consumer, Producer


def send(bootstrap: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "0"})
    for number in range(count):
        producer.produce("readings", f"reading {number}")
    producer.flush()


def handle(reading: str) -> None:
    time.sleep(0.01)  # the work
    print(reading, flush=True)


def receive(bootstrap: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "thermometer",
            "group.instance.id": "thermometer-1",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["readings"])
    while True:
        messages = [message for message in consumer.consume(20, 1.0) if message.error() is None]
        if messages:
            consumer.commit(asynchronous=False)  # first
            for message in messages:
                handle(message.value().decode())


if __name__ == "__main__":
    if sys.argv[2] == "send":
        send(sys.argv[1], int(sys.argv[3]))
    else:
        receive(sys.argv[1])
