"""Mutated requests of every API and version against a real broker. `make fuzz SEED= FRAMES=` for more of them.

What one frame did is seen again with `python -m fuzz.attack --seed S --show N` in tests/.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from broker_process import CAIRN, Broker
from cairnmq.client.admin import NewTopic
from cairnmq.client.blocking import Client
from cairnmq.wire.apis import APIS, request_class
from cairnmq.wire.codec import decode
from fuzz.frames import Maker, served
from fuzz.memory import MemoryWatch, findings_in_log
from fuzz.neighbour import Neighbour

TESTS = str(Path(__file__).parent.parent)
SEED = int(os.environ.get("FUZZ_SEED") or random.SystemRandom().randrange(1 << 30))
FRAMES = int(os.environ.get("FUZZ_FRAMES") or 0)
SECONDS = 20.0  # the share of `make test-all`
RATE = 2500.0
MEMORY_MAX_MB = 256
# A fuzzer that may ask for a million partitions tests only how many fit.
SETTINGS = {"cairn.partitions.max": "2000", "group.initial.rebalance.delay.ms": "0"}


def test_what_is_mutated_was_right_before() -> None:
    """Else the fuzzer would only find the same first check again and again."""
    rng = random.Random(1)
    for number, (key, version) in enumerate(served()):
        frame = Maker(rng, []).frame(key, version, number)
        body = b"".join(token.data for token in frame.tokens)
        start = 10 + int.from_bytes(body[8:10], "big") + (1 if APIS[key].is_flexible(version) else 0)
        _, end = decode(request_class(key), version, body, start)
        assert end == len(body), (key, version)


def test_mutated_frames(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(settings=SETTINGS).start()
    with Client.connect(broker.bootstrap) as client:
        client.create_topics([NewTopic("fuzz-0", 3), NewTopic("fuzz-1", 1), NewTopic("fuzz-2", 8)])
    neighbour = Neighbour(broker.bootstrap)
    memory = MemoryWatch(broker)
    line = [sys.executable, "-m", "fuzz.attack", "--bootstrap", broker.bootstrap, "--seed", str(SEED)]
    line += ["--rate", str(RATE), "--frames", str(FRAMES or 10_000_000)]
    line += [] if FRAMES else ["--seconds", str(SECONDS)]
    done = subprocess.run(line, cwd=TESTS, capture_output=True, text=True, timeout=60 + (FRAMES / 100 or SECONDS))
    peak = memory.stop()
    measured = neighbour.finish()
    print(f"\nfuzz seed {SEED}: {done.stdout.strip()}\nneighbour {measured}, peak memory {peak} MB {memory.of_each}")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    told = json.loads(done.stdout)
    assert told["frames"] >= (FRAMES or 1000) and told["answers"] > told["frames"] / 10, told
    assert told["versions answered"] == told["versions"] == len(served()), told
    assert broker.running, broker.log_tail()
    assert not findings_in_log(broker), findings_in_log(broker)
    assert peak <= MEMORY_MAX_MB, f"{peak} MB"
    assert broker.stop() == 0
    verified = subprocess.run([CAIRN, "verify", str(broker.data)], capture_output=True, text=True)
    assert verified.returncode == 0, verified.stdout
