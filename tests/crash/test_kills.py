"""kill -9 of real processes under load: whole tree, broker alone, splitter alone, and inside every named phase.

Nothing acknowledged may be lost, moved, doubled or reordered, committed offsets stay, and `cairn verify` finds nothing.
`make chaos` (tests/chaos) goes on with kills by chance.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from itertools import chain, cycle, islice

from broker_process import CAIRN, Broker, fixed_port
from crash.killer import PHASES, RECOVERY_PHASES, WHOLE, Killer
from crash.ledger import Place
from crash.load import Committer, Load
from interop.clients.librdkafka import LibrdkafkaClient

ACKS_BETWEEN_KILLS = 1_000
SECONDS = 120.0
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
    """Every kind at least once and KILLS_MIN in all."""
    yield from chain(islice(cycle(WHOLE), KILLS_MIN - len(PHASES)), PHASES, RECOVERY_PHASES)


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
    assert kills >= KILLS_MIN
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
