"""Bytes that no client sends, from many connections at once: whoever behaves notices nothing, and no request fails."""

from __future__ import annotations

import json
import random
import socket
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import psutil
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from broker_process import Broker

SECONDS = 5.0
FRAMES = [
    bytes.fromhex(case["frame"])
    for case in json.loads((Path(__file__).parent.parent / "golden" / "wire.json").read_text())
]
MEMORY_MAX = 600 * 2**20


def sized(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def changed(chance: random.Random) -> bytes:
    """A recorded request with bytes changed, cut out, or repeated; its size tells the truth."""
    frame = bytearray(chance.choice(FRAMES))
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(frame))
        what = chance.randrange(4)
        if what == 0:
            frame[place] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
        elif what == 1 and len(frame) > 20:
            del frame[place : place + chance.randint(1, 8)]
        elif what == 2:
            frame[place:place] = frame[place : place + 16]
        else:
            frame[place : place + 4] = chance.choice([b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0"])
    return sized(bytes(frame))


def lying(chance: random.Random) -> bytes:
    """A size that is not that of what follows."""
    size = chance.choice([-1, 0, 1, 7, 100 * 2**20, 100 * 2**20 + 1, 2**31 - 1, -(2**31)])
    return size.to_bytes(4, "big", signed=True) + chance.choice(FRAMES)


def noise(chance: random.Random) -> bytes:
    return chance.choice(
        [chance.randbytes(200), b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\0" + bytes(100), b"\0" * 64]
    )


def disturb(address: tuple[str, int], seed: int, until: float, sent: list[int]) -> None:
    chance = random.Random(seed)
    kinds: list[Callable[[random.Random], bytes]] = [changed, changed, changed, lying, noise]
    while time.monotonic() < until:
        with socket.create_connection(address, timeout=2) as connection:
            connection.settimeout(0.02)
            try:
                for _ in range(chance.randint(1, 5)):
                    data = chance.choice(kinds)(chance)
                    connection.sendall(data[: chance.randint(1, len(data))] if chance.random() < 0.1 else data)
                    sent[0] += 1
                    connection.recv(65536)
            except (TimeoutError, ConnectionError):
                continue


def test_noise_harms_nobody_else(tmp_path: Path) -> None:
    broker = Broker(tmp_path).start()
    try:
        host, port = broker.bootstrap.split(":")
        until, sent = time.monotonic() + SECONDS, [0]
        threads = [
            threading.Thread(target=disturb, args=((host, int(port)), seed, until, sent), daemon=True)
            for seed in range(4)
        ]
        for thread in threads:
            thread.start()
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        delivered: list[int] = []
        count = 0
        while time.monotonic() < until:
            producer.produce(
                "well", str(count).encode(), partition=0, on_delivery=lambda e, m: delivered.append(m.offset())
            )
            count += 1
            producer.poll(0.002)
        assert producer.flush(20) == 0
        for thread in threads:
            thread.join(60)
        assert sent[0] > 200, f"{sent[0]} are too little noise to show anything"
        assert delivered == list(range(count)), "what a well-behaved producer sent is there, in order and once"
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader"})
        consumer.assign([TopicPartition("well", 0, OFFSET_BEGINNING)])
        values: list[int] = []
        deadline = time.monotonic() + 120
        while len(values) < count and time.monotonic() < deadline:
            values += [int(message.value()) for message in consumer.consume(1000, 1.0) if message.error() is None]
        consumer.close()
        assert values == list(range(count))
        del producer
        assert broker.http is not None
        ready = json.load(urllib.request.urlopen(broker.http + "/health/ready", timeout=60))
        assert ready["ready"]
        assert psutil.Process(broker.pid).memory_info().rss < MEMORY_MAX, "announced sizes are not allocated"
        assert "request failed" not in broker.log(), broker.log_tail()
        assert broker.stop() == 0, broker.log_tail()
    finally:
        broker.close()
