"""A broker under load on two disks, and what every test of faults asks of it."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from broker_process import CAIRN, Broker, fixed_port, wait_until
from crash.ledger import Place
from crash.load import Load
from interop.clients.contract import Got
from interop.clients.librdkafka import LibrdkafkaClient

SECONDS = 120.0  # on a machine that others use too; only a failure uses it up
REPAIRED_SECONDS = 60.0  # by itself
SMALL = {
    "cairn.journal.segment.bytes": str(1 << 20),
    "cairn.reserve.bytes": str(1 << 20),
    "cairn.checkpoint.interval.ms": "500",
}
MODELS = {"packed": "shared", "own": "dedicated"}
PLACES = [Place("packed", 0), Place("packed", 1), Place("own", 0)]


class Scene:
    """`acked(n)`: the load got n more acknowledgements; `ends_well`: nothing was lost, and verify finds nothing."""

    def __init__(
        self,
        make_broker: Callable[..., Broker],
        *,
        data: Path | None = None,
        journals: Path | None = None,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        start: bool = True,
    ) -> None:
        self.broker = make_broker(port=fixed_port(), settings=SMALL | dict(settings or {}), environment=environment)
        if data is not None:
            self.broker.data = data
        self.broker.journal_dir = journals if journals is not None else self.broker.directory / "journals"
        self.client = LibrdkafkaClient(f"127.0.0.1:{self.broker.port}")
        self.loads: list[Load] = []
        if start:
            self.broker.start()
            for topic, model in MODELS.items():
                self.client.create_topic(topic, 2 if topic == "packed" else 1, {"cairn.model": model})

    def load(self, rate: int = 1500) -> Load:
        """Flows into every place when it is given."""
        load = Load(self.broker.bootstrap, PLACES, rate=rate, idempotent=True)
        self.loads.append(load)
        wait_until(lambda: all(load.ledger.acked[place] for place in PLACES), SECONDS, "an acknowledgement everywhere")
        return load

    def reasons(self) -> list[str]:
        """What /health/ready says; [] when it is well."""
        answer = self._get("/health/ready")
        assert answer["ready"] is not bool(answer["reasons"])
        return list(answer["reasons"])

    def status(self) -> dict[str, Any]:
        return self._get("/api/v1/status")

    def _get(self, path: str) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"{self.broker.http}{path}", timeout=30) as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:
            assert error.code == 503
            return dict(json.load(error))

    def wait_for_reason(self, *words: str) -> str:
        said: list[str] = []

        def says() -> bool:
            said[:] = [reason for reason in self.reasons() if all(word in reason for word in words)]
            return bool(said)

        wait_until(says, SECONDS, f"a reason with {words}")
        return said[0]

    def wait_until_well(self) -> float:
        """How long it took."""
        started = time.monotonic()
        wait_until(lambda: not self.reasons(), REPAIRED_SECONDS, f"readiness; {self.reasons()}")
        return time.monotonic() - started

    def read(self, place: Place) -> list[Got]:
        """All that is visible now; under load there is no end to wait for."""
        start, end = self.client.bounds(place.topic, place.partition)
        reader = self.client.reader(place.topic, place.partition, start, 100)
        records = reader.take(end - start)
        reader.close()
        assert [record.offset for record in records] == list(range(start, end))
        return records

    def read_all(self) -> None:
        """Consumers go on, whatever the disk does."""
        for place in PLACES:
            assert self.read(place)

    def findings(self) -> list[str]:
        found: list[str] = []
        for load in self.loads:
            for place in load.places:
                found += load.ledger.findings(place, self.read(place))
        return found

    def ends_well(self, *, kill: bool = True) -> None:
        for load in self.loads:
            load.finish()
        assert self.findings() == []
        assert self.broker.starts == 1, "nothing needed a restart"
        if kill:
            self.broker.kill_tree()
            self.broker.start()
            assert self.findings() == [], "a kill and a start changed what was read before"
        assert self.broker.stop() == 0
        verify(self.broker)

    def abandon(self) -> None:
        for load in self.loads:
            load.abandon()


def verify(broker: Broker) -> None:
    command = [CAIRN, "verify", str(broker.data), "--journal-dir", str(broker.journal_dir)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"cairn verify:\n{done.stdout}{done.stderr}"
