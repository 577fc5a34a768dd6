"""kill -9 of real processes under load: whole tree, broker alone, splitter alone, and inside every named phase.

Nothing acknowledged may be lost, moved, doubled or reordered, committed offsets stay, and `cairn verify` finds nothing.
`make chaos` runs the same for MINUTES with kills chosen by SEED.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from itertools import chain, cycle, islice

import psutil

from broker_process import CAIRN, Broker, fixed_port, wait_until
from crash.ledger import Place
from crash.load import Committer, Load
from interop.clients.librdkafka import LibrdkafkaClient

ACKS_BETWEEN_KILLS = 1_000
SECONDS = 20.0
WHOLE = ("whole-tree", "broker-alone", "splitter-alone")
# Phase -> at which arrival there the process dies: what happens all the time is let pass a while.
PHASES = {
    "journal-write": 30,
    "journal-sync": 20,
    "journal-roll": 2,
    "split-round": 2,
    "checkpoint-sync": 1,
    "checkpoint-publish": 1,
    "retention-delete": 1,
    "journal-delete": 1,
}
RECOVERY_PHASES = ("recovery-scan", "recovery-cut")
KILLS_MIN = 20
SETTINGS = {
    "cairn.journal.segment.bytes": str(1 << 20),
    "log.retention.check.interval.ms": "500",
}
TOPICS = {
    "synced": (4, {}),
    "interval": (2, {"cairn.flush": "interval", "flush.ms": "100"}),
    "unsynced": (1, {"cairn.flush": "none"}),
    # Small segments and little kept: rolls and retention happen all the time.
    "expiring": (2, {"segment.bytes": str(1 << 20), "retention.bytes": str(2 << 20)}),
}
PLAIN = Place("plain", 0)


def planned_kills() -> Iterator[str]:
    """Every kind at least once and KILLS_MIN in all; or, as a campaign, by chance until the time is over."""
    minutes = os.environ.get("CAIRN_CHAOS_MINUTES")
    if not minutes:
        yield from chain(islice(cycle(WHOLE), KILLS_MIN - len(PHASES)), PHASES, RECOVERY_PHASES)
        return
    seed = os.environ.get("CAIRN_CHAOS_SEED") or str(random.SystemRandom().randrange(1 << 32))
    print(f"chaos: SEED={seed}")
    choose = random.Random(seed)
    deadline = time.monotonic() + 60 * float(minutes)
    while time.monotonic() < deadline:
        yield choose.choice([*WHOLE, *PHASES, *RECOVERY_PHASES])


def dead(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def tear_journal(broker: Broker) -> None:
    """Half an entry at the end of the journal, as a kill in the middle of a write leaves it."""
    assert broker.journal_dir is not None
    newest = max(broker.journal_dir.rglob("*.jnl"), key=lambda path: path.name)
    with newest.open("ab") as journal:
        journal.write(b"\x7fhalf an entry" * 3)


class Killer:
    """Carries out one kill and brings the broker back."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def kill(self, kind: str) -> None:
        if kind in PHASES:
            self.in_phase(kind)
        elif kind in RECOVERY_PHASES:
            self.in_recovery(kind)
        elif kind == "splitter-alone":
            self.splitter()
        elif kind == "broker-alone":
            # Its splitter may still be there when the successor starts: nothing waits for it.
            self.broker.kill_broker()
            self.broker.start()
        else:
            self.broker.kill_tree()
            self.broker.start()

    def splitter(self) -> None:
        """The broker goes on and finds itself a new one."""
        pid, old = self.broker.pid, self.broker.kill_splitter()

        def replaced() -> bool:
            now = self.broker.splitter()
            return now is not None and now.pid != old.pid

        wait_until(replaced, SECONDS, "a new splitter")
        assert self.broker.running and self.broker.pid == pid, "the broker did not outlive its splitter"

    def in_phase(self, phase: str) -> None:
        """A clean restart arms the point, so that the acknowledgements since the last kill stay counted."""
        assert self.broker.stop() == 0
        self.broker.launch(cairn_fault_point=f"{phase}:{PHASES[phase]}")
        splitters: list[psutil.Process] = []

        def struck() -> bool:
            if not splitters and (splitter := self.broker.splitter()) is not None:
                splitters.append(splitter)
            return not self.broker.running or any(dead(splitter) for splitter in splitters)

        wait_until(struck, SECONDS, f"the kill at {phase}")
        if self.broker.running:
            self.broker.kill_tree()
        else:
            assert self.broker.wait_dead() == -9, f"the broker ended before it came to {phase}"
        self.broker.start()

    def in_recovery(self, phase: str) -> None:
        self.broker.kill_tree()
        tear_journal(self.broker)
        self.broker.launch(cairn_fault_point=phase)
        assert self.broker.wait_dead() == -9, f"the broker did not die at {phase}"
        self.broker.start()


def verify(broker: Broker) -> None:
    command = [CAIRN, "verify", str(broker.data), "--journal-dir", str(broker.journal_dir)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"cairn verify:\n{done.stdout}{done.stderr}"


def findings(client: LibrdkafkaClient, load: Load) -> list[str]:
    found: list[str] = []
    for place in load.places:
        found += load.ledger.findings(place, client.read(place.topic, [place.partition], start=-2))
    return found


def test_kills_under_load(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(port=fixed_port(), settings=SETTINGS)
    broker.journal_dir = broker.directory / "journals"
    broker.start()
    client = LibrdkafkaClient(broker.bootstrap)
    for topic, (partitions, configs) in TOPICS.items():
        client.create_topic(topic, partitions, configs)
    client.create_topic(PLAIN.topic)
    places = [Place(topic, part) for topic, (partitions, _) in TOPICS.items() for part in range(partitions)]
    loads = [
        Load(broker.bootstrap, places, rate=6_000, idempotent=True),
        Load(broker.bootstrap, [PLAIN], rate=500, idempotent=False),
    ]
    committer = Committer(broker.bootstrap, places[0])
    killer = Killer(broker)
    kills = 0
    try:
        for kind in planned_kills():
            loads[0].wait_for(ACKS_BETWEEN_KILLS, SECONDS)
            killer.kill(kind)
            committer.check(client)
            kills += 1
        loads[0].wait_for(ACKS_BETWEEN_KILLS, SECONDS)
        committer.finish()
        for load in loads:
            load.finish()
    finally:
        committer.stopping.set()
        for load in loads:
            load.abandon()
    assert kills >= KILLS_MIN or "CAIRN_CHAOS_MINUTES" in os.environ
    committer.check(client)
    assert committer.confirmed > 0
    assert findings(client, loads[0]) == []
    assert findings(client, loads[1]) == []
    assert client.bounds("expiring", 0)[0] > 0, "retention never deleted anything: its phase was not tested"
    broker.kill_tree()
    verify(broker)
    broker.start()
    assert findings(client, loads[0]) == [], "one more kill changed what was read before"
    assert broker.stop() == 0
    verify(broker)
