"""meta.db damaged at random: topics and settings are what they were, or the start is refused with the file's name."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Producer

from broker_process import CAIRN, Broker, fixed_port
from cairnmq.errors import Fault, Refusal
from cairnmq.metadata.catalog import Catalog
from cairnmq.metadata.inspection import read_queues
from cairnmq.metadata.sqlite import SqliteStore
from cairnmq.metadata.topics import CreateTopic
from cairnmq.settings.broker import BrokerConfig
from damage.test_campaign import WAYS, damaged

TRIALS = 100


def load(path: Path) -> dict[str, object]:
    with closing(SqliteStore(str(path))) as store:
        catalog = Catalog(store)
        catalog.load()
        return dict(catalog.image.topics)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("meta") / "meta.db"
    with closing(SqliteStore(str(path))) as store:
        catalog = Catalog(store)
        catalog.load()
        for number in range(60):
            topic = CreateTopic(name=f"topic-{number}", partitions=number % 5 + 1)
            assert not isinstance(catalog.create_topic(topic, broker=BrokerConfig(), now_ms=number), Refusal)
    return path


def test_damage_at_random(original: Path, tmp_path: Path) -> None:
    topics = load(original)
    assert len(topics) == 60
    data = original.read_bytes()
    path = tmp_path / "meta.db"
    refused = 0
    for trial in range(TRIALS):
        random = Random(trial)
        for old in tmp_path.iterdir():
            old.unlink()
        way = random.choice(WAYS[:-1])
        after = damaged(data, way, random)
        assert after is not None
        path.write_bytes(after)
        shutil.copy(path, tmp_path / "copy.db")
        try:
            found = load(path)
        except Fault as fault:
            assert "meta.db" in str(fault), f"trial {trial}, {way}: {fault}"
            with pytest.raises(Fault):
                read_queues(str(tmp_path / "copy.db"))  # what verify goes by
            refused += 1
            continue
        assert found == topics, f"trial {trial}, {way}: other topics than there were"
    assert refused > TRIALS // 4, "most of the file holds something"


@pytest.mark.parametrize("way", ["a bit", "emptied"])
def test_changes_lost_from_the_end_of_the_metadata_are_noticed(way: str, make_broker: Callable[..., Broker]) -> None:
    """SQLite drops what follows a bad frame of its write-ahead log without a word. Records of unknown topics tell."""
    broker = make_broker(port=fixed_port()).start()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for topic in ("a", "b", "c"):
        producer.produce(topic, b"kept")
        assert producer.flush(20) == 0
    broker.kill_tree()
    wal = broker.data / "meta.db-wal"
    if way == "a bit":
        data = bytearray(wal.read_bytes())
        data[len(data) * 2 // 3] ^= 1
        wal.write_bytes(data)
    else:
        wal.unlink()
        (broker.data / "meta.db").write_bytes(b"")
    before = {path: path.read_bytes() for path in (broker.data / "journal" / "0").glob("*.jnl")}
    verified = subprocess.run(
        [CAIRN, "verify", str(broker.data)], capture_output=True, text=True, timeout=30, check=False
    )
    assert verified.returncode == 1 and "meta.db: is older than the records" in verified.stdout, verified
    broker.launch()
    assert broker.wait_dead() != 0
    wanted = "the metadata is older than the records" if way == "a bit" else "meta.db is empty: names, partitions"
    assert wanted in broker.log() and "Restore the newest meta.db" in broker.log(), broker.log_tail()
    assert all(path.read_bytes() == data for path, data in before.items()), "nothing was deleted"
