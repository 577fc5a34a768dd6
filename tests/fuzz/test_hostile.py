"""Hostile clients, all at once: the broker lives within its memory, and a well-behaved client goes on beside them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from broker_process import CAIRN, Broker
from cairnmq.client.admin import NewTopic
from cairnmq.client.blocking import Client
from cairnmq.codec.records import Record, build_batch
from fuzz.hostile import BIG, BOMBS, COMPACTED, OWN, bombs
from fuzz.memory import MemoryWatch, findings_in_log
from fuzz.neighbour import Neighbour

TESTS = str(Path(__file__).parent.parent)
SECONDS = 60 if os.environ.get("FUZZ_FRAMES") else 20
MEMORY_MAX_MB = 256
SETTINGS = {
    "cairn.request.bytes.max": str(24 << 20),
    "cairn.response.bytes.max": str(24 << 20),
    "cairn.group.bytes.max": str(16 << 20),
    "cairn.decompressed.bytes.max": str(16 << 20),
    "cairn.fetch.session.partitions.max": "20000",
    "cairn.partitions.max": "2000",
}


def fill(bootstrap: str, topic: str, partitions: int, batches: int) -> None:
    """Batches of 900 KB, so that answers are large."""
    data = build_batch([Record(0, 1_700_000_000_000, None, os.urandom(900_000))])
    with Client.connect(bootstrap) as client:
        compacted = NewTopic(COMPACTED, 1, configs={"cleanup.policy": "compact"})
        client.create_topics([NewTopic(topic, partitions), NewTopic(OWN, 4), NewTopic(BOMBS, 4), compacted])
        for partition, bomb in enumerate(bombs()):
            client.produce(BOMBS, partition, bomb)
        for number in range(batches):
            client.produce(topic, number % partitions, data)


def test_hostile_clients(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(settings=SETTINGS).start()
    fill(broker.bootstrap, BIG, 4, 60)
    neighbour = Neighbour(broker.bootstrap)
    memory = MemoryWatch(broker)
    assert broker.http is not None
    line = [sys.executable, "-m", "fuzz.hostile", "--bootstrap", broker.bootstrap, "--http", broker.http]
    line += ["--seconds", str(SECONDS)]
    done = subprocess.run(line, cwd=TESTS, capture_output=True, text=True, timeout=SECONDS + 180)
    peak = memory.stop()
    measured = neighbour.finish()
    print(f"\nhostile: {done.stdout.strip()}\nneighbour {measured}, peak memory {peak} MB {memory.of_each}")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert not told["problems"] and told["bombs looked into"] and told["announcers cut off"], told
    assert told["bombs for a compacted topic"], told
    assert broker.running, broker.log_tail()
    assert not findings_in_log(broker), findings_in_log(broker)
    assert peak <= MEMORY_MAX_MB, f"{peak} MB {memory.of_each}"
    assert broker.stop() == 0
    verified = subprocess.run([CAIRN, "verify", str(broker.data)], capture_output=True, text=True)
    assert verified.returncode == 0, verified.stdout
