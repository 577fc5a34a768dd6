"""Overload is answered by back-pressure: 256 MB for all processes of the broker, and no error that cannot be retried.

Each process has RLIMIT_DATA, so that more memory is refused by the kernel (and would be a MemoryError in the log); the
sum over the processes is watched. Both are absolute because they are what is promised, not a measure of speed.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil

from broker_process import CAIRN, Broker
from cairnmq.client.admin import NewTopic
from cairnmq.client.blocking import Client
from fuzz.memory import MemoryWatch, findings_in_log
from fuzz.neighbour import Neighbour
from fuzz.overload import PARTITIONS, TOPIC

TESTS = str(Path(__file__).parent.parent)
SECONDS = 60 if os.environ.get("FUZZ_FRAMES") else 20
LIMIT = 256 << 20


def test_overload_within_256_mb(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker().start()
    for process in broker.tree():
        psutil.Process(process.pid).rlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))
    with Client.connect(broker.bootstrap) as client:
        client.create_topics([NewTopic(TOPIC, PARTITIONS)])
    neighbour = Neighbour(broker.bootstrap)
    memory = MemoryWatch(broker)
    line = [sys.executable, "-m", "fuzz.overload", "--bootstrap", broker.bootstrap, "--seconds", str(SECONDS)]
    done = subprocess.run(line, cwd=TESTS, capture_output=True, text=True, timeout=SECONDS + 120)
    peak = memory.stop()
    measured = neighbour.finish()
    print(f"\noverload: {done.stdout.strip()}\nneighbour {measured}, peak memory {peak} MB {memory.of_each}")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert not told["errors"], told
    assert told["batches"] > 100 and told["fetches"] > 20 and told["metadata"] > 500, told
    assert broker.running, broker.log_tail()
    assert not findings_in_log(broker), findings_in_log(broker)
    assert peak <= LIMIT >> 20, f"{peak} MB {memory.of_each}"
    assert broker.stop() == 0
    verified = subprocess.run([CAIRN, "verify", str(broker.data)], capture_output=True, text=True)
    assert verified.returncode == 0, verified.stdout
