"""Golden data directories: a broker of today opens them with everything that is in them, upgraded or as they are."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from msgspec.structs import replace

from broker_process import Broker
from cairnmq.broker.live_catalog import all_queue_specs
from cairnmq.metadata.catalog import Catalog
from cairnmq.metadata.inspection import read_counters, read_queues
from cairnmq.metadata.sqlite import SqliteStore
from cairnmq.metadata.topics import placed
from cairnmq.settings.broker import BrokerConfig
from cairnmq.storage.api.verify import verify
from cairnmq.storage.engine import Engine, EngineConfig
from cairnmq.storage.files.disk import RealDisk
from cairnmq.storage.recovery.owner import read_owner, write_owner
from golden.directory import expected, seen, unpack

NAMES = ("version-1", "version-2")
KEPT = {"cairn.journals": "2", "offsets.retention.minutes": "2147483647"}  # however old the directories are
STEPS = (
    "recovery-cut",
    "upgrade-split",
    "upgrade-split:2",
    "checkpoint-publish",
    "upgrade-checkpoint",
    "upgrade-owner",
)


def found_in(root: Path, time_ms: int) -> dict[str, Any]:
    """What recovery finds, without a broker around it."""
    with closing(SqliteStore(str(root / "meta.db"))) as store:
        catalog = Catalog(store)
        catalog.load()
        engine = Engine.open(
            RealDisk(root / "journal"),
            RealDisk(root),
            all_queue_specs(placed(catalog.image, (0, 1)), BrokerConfig()),
            begin=lambda _: catalog.next_epoch(),
            seed=1,
            config=EngineConfig(),
            now_ms=time_ms,
            journals=(0, 1),
        )
        return seen(engine)


def findings(root: Path) -> list[str]:
    lines = verify([str(root)], None, read_queues, read_counters)
    return [line for line in lines if not line.startswith("note: ")]


@pytest.fixture(params=NAMES)
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Broker, dict[str, Any]]]:
    broker = Broker(tmp_path, settings=KEPT, http=False)
    unpack(request.param, broker.data)
    yield broker, expected(request.param)
    broker.close()


@pytest.mark.parametrize("name", NAMES)
def test_recovery_reads_them(name: str, tmp_path: Path) -> None:
    want = expected(name)
    root = unpack(name, tmp_path)
    assert findings(root) == []
    assert {"time_ms": want["time_ms"], **found_in(root, want["time_ms"])} == want


def test_a_broker_serves_them(broker: tuple[Broker, dict[str, Any]]) -> None:
    running, want = broker
    running.start()
    consumer = Consumer(
        {"bootstrap.servers": running.bootstrap, "group.id": "group-3", "isolation.level": "read_uncommitted"}
    )
    queues: dict[str, dict[str, int]] = want["queues"]
    for name, queue in queues.items():
        topic, _, partition = name.rpartition("-")
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, int(partition)), timeout=30)
        assert low == queue["start"] and high >= queue["end"], name  # a transaction that was open may have ended since
    places = [TopicPartition("packed", number) for number in range(3)] + [TopicPartition("durable", 0)]
    assert [place.offset for place in consumer.committed(places, timeout=30)] == [7, 8, 9, 9]
    assert consumer.list_topics(timeout=30).topics.keys() >= {"packed", "segmented", "compacted", "durable"}
    consumer.close()
    assert running.stop() == 0
    assert findings(running.data) == []
    owner = read_owner(RealDisk(running.data / "journal"))
    assert owner is not None and owner.format == 2
    running.start()
    assert "after a clean stop" in running.log_tail(20)
    assert "upgrading" not in running.log().rpartition("--- start 2")[2], "once"


@pytest.mark.parametrize("step", STEPS)
def test_an_upgrade_that_is_killed_goes_on(step: str, tmp_path: Path) -> None:
    want = expected("version-1")
    broker = Broker(tmp_path, settings=KEPT, http=False)
    unpack("version-1", broker.data)
    broker.launch(cairn_fault_point=step)
    assert broker.wait_dead() == -9, broker.log_tail()
    copied = broker.data  # what an outsider finds now is whole
    assert findings(copied) == []
    broker.start(cairn_split_enable="false")
    broker.kill_tree()
    assert "upgrading the data directory" in broker.log().rpartition("--- start 2")[2]
    found = found_in(broker.data, want["time_ms"])
    assert queues_of(found) == queues_of(want), step
    offsets = {key for key in want["keyed"] if not key.startswith("transaction ")}
    assert {key: found["keyed"][key] for key in offsets} == {key: want["keyed"][key] for key in offsets}
    broker.close()


def queues_of(found: dict[str, Any]) -> dict[str, Any]:
    """Without the transaction that was open, which its coordinator may have ended meanwhile; and without producers: a
    broker forgets those that were silent for long."""
    queues = {name: dict(queue) for name, queue in found["queues"].items() if name != "segmented-0"}
    for queue in queues.values():
        del queue["producers"]
    return queues


def test_a_directory_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    broker = Broker(tmp_path, settings=KEPT, http=False)
    disk = RealDisk(unpack("version-2", broker.data) / "journal")
    owner = read_owner(disk)
    assert owner is not None
    write_owner(disk, replace(owner, format=3))
    before = contents(broker.data)
    broker.launch()
    assert broker.wait_dead() == 1
    assert "their format is 3, this version knows 2. Start the newer version, or restore a backup" in broker.log()
    assert contents(broker.data) == before
    broker.close()


def contents(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file() and path.name != "lock"}


def test_metadata_of_a_golden_directory_know_the_slots(tmp_path: Path) -> None:
    root = unpack("version-2", tmp_path)
    with closing(sqlite3.connect(root / "meta.db")) as connection:
        rows = dict(connection.execute("SELECT key, value FROM entries").fetchall())
    assert rows["slots"] == b'{"first":1,"count":24,"cycle":[0,1]}'
