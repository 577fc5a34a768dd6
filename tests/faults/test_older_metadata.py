"""Metadata that are older than the records: every start is refused until they are restored, and a start that accepts
the loss gives out no producer id, queue id or epoch for the second time. What docs/recovery.md says about a restored
copy and about a lost disk is done here step by step."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from broker_process import CAIRN, Broker, fixed_port
from cairnmq.storage.files.disk import RealDisk
from cairnmq.storage.recovery.owner import Owner, read_owner, write_owner
from interop.clients.librdkafka import LibrdkafkaClient

SECONDS = 20.0
BATCH = 10
TOPIC = "orders"


def _set(name: str, value: str) -> ConfigEntry:
    return ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)


class Shop:
    """A broker whose metadata fall behind its records."""

    def __init__(self, make_broker: Callable[..., Broker]) -> None:
        self.broker = make_broker(port=fixed_port())
        self.broker.journal_dir = self.broker.directory / "journals"
        self.client = LibrdkafkaClient(f"127.0.0.1:{self.broker.port}")

    @property
    def metadata(self) -> Path:
        return self.broker.data / "meta.db"

    def create(self, topic: str = TOPIC) -> None:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        for made in admin.create_topics([NewTopic(topic, 1, 1)]).values():
            made.result(SECONDS)

    def configure(self, name: str, value: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[_set(name, value)])
        for done in admin.incremental_alter_configs([resource]).values():
            done.result(SECONDS)

    def produce(self, value: bytes, topic: str = TOPIC) -> None:
        """One batch of a new idempotent producer; all of it is acknowledged."""
        acknowledged: list[object] = []
        settings = {"bootstrap.servers": self.broker.bootstrap, "enable.idempotence": True, "linger.ms": 500}
        producer = Producer({**settings, "batch.num.messages": BATCH})
        for _ in range(BATCH):
            producer.produce(
                topic, value, partition=0, on_delivery=lambda error, message: acknowledged.append(error or message)
            )
        assert producer.flush(SECONDS) == 0
        assert len(acknowledged) == BATCH and all(hasattr(one, "offset") for one in acknowledged), acknowledged

    def read(self, topic: str = TOPIC) -> list[bytes]:
        start, end = self.client.bounds(topic, 0)
        if start == end:
            return []
        reader = self.client.reader(topic, 0, start, 100)
        try:
            return [record.value or b"" for record in reader.take(end - start)]
        finally:
            reader.close()

    def status(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.broker.http}/api/v1/status", timeout=SECONDS) as answer:
            return dict(json.load(answer))

    def put_back(self, copy: Path) -> None:
        """As a person does it: only the file that was copied."""
        for name in ("meta.db", "meta.db-wal", "meta.db-shm"):
            (self.broker.data / name).unlink(missing_ok=True)
        shutil.copy(copy, self.metadata)

    def refused(self) -> str:
        seen = len(self.broker.log())
        self.broker.launch()
        assert self.broker.wait_dead() == 1, self.broker.log_tail()
        return self.broker.log()[seen:]

    def is_refused_for_ever(self) -> None:
        """At the first start, at the second, and at the third, as a supervisor tries them."""
        before = files(self.broker)
        for _ in range(3):
            said = self.refused()
            assert "older than" in said and "--accept-loss" in said, said
            assert files(self.broker) == before, "a start that is refused changes nothing"
        code, said = verify(self.broker)
        assert code == 1 and "meta.db: is older than the records" in said, said

    def accept(self) -> dict[str, Any]:
        """Goes on above all ids and epochs; the loss is listed and the next start needs no flag."""
        self.broker.flags = ("--accept-loss",)
        self.broker.start()
        self.broker.flags = ()
        (loss,) = self.status()["losses"]
        assert any("older than" in line for line in loss["what"]), loss
        return dict(loss)

    def ends_well(self) -> None:
        before, losses = self.status()["broker"]["epoch"], self.status()["losses"]
        assert self.broker.stop() == 0
        code, said = verify(self.broker)
        assert code == 0, said
        self.broker.start()
        assert self.status()["broker"]["epoch"] > before and self.status()["losses"] == losses
        assert self.broker.stop() == 0


def verify(broker: Broker) -> tuple[int, str]:
    command = [CAIRN, "verify", str(broker.data), "--journal-dir", str(broker.journal_dir)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def files(broker: Broker) -> dict[str, bytes]:
    """All but the locks."""
    assert broker.journal_dir is not None
    return {
        str(path): path.read_bytes()
        for root in (broker.data, broker.journal_dir)
        for path in root.rglob("*")
        if path.is_file() and path.name != "lock"
    }


@pytest.fixture
def shop(make_broker: Callable[..., Broker]) -> Shop:
    return Shop(make_broker)


def an_older_copy(shop: Shop) -> None:
    """The copy was taken in a clean stop, as the documentation advises; then the broker ran on."""
    copy = shop.broker.directory / "copy.db"
    assert shop.broker.stop() == 0
    shutil.copy(shop.metadata, copy)
    shop.broker.start()
    shop.produce(b"first")
    assert shop.broker.stop() == 0
    shop.put_back(copy)


def a_lost_disk(shop: Shop) -> None:
    """The same, and the read disk is gone: an empty one takes its place, and the copy is put there."""
    an_older_copy(shop)
    shutil.rmtree(shop.broker.data)
    shop.broker.data.mkdir()
    shop.put_back(shop.broker.directory / "copy.db")


def a_bit_of_the_log(shop: Shop) -> None:
    """SQLite drops what follows a bad frame of its write-ahead log without a word."""
    wal = shop.broker.data / "meta.db-wal"
    size = wal.stat().st_size
    shop.produce(b"first")
    shop.broker.kill_tree()
    data = bytearray(wal.read_bytes())
    assert len(data) > size, "a block of producer ids was written"
    data[size + 100] ^= 1
    wal.write_bytes(data)


@pytest.mark.parametrize("fall_back", [an_older_copy, a_lost_disk, a_bit_of_the_log])
def test_a_new_producer_is_not_taken_for_an_old_one(shop: Shop, fall_back: Callable[[Shop], None]) -> None:
    """Its records were acknowledged and not stored."""
    shop.broker.start()
    shop.create()
    fall_back(shop)
    shop.is_refused_for_ever()
    shop.accept()
    kept = shop.read()
    assert kept in ([b"first"] * BATCH, []) and (kept or fall_back is a_lost_disk)
    shop.produce(b"other")
    assert shop.read() == kept + [b"other"] * BATCH
    shop.ends_well()


def test_epochs_of_runs_that_wrote_nothing_are_not_given_again(shop: Shop) -> None:
    copy = shop.broker.directory / "copy.db"
    seen = []
    for turn in range(4):
        shop.broker.start()
        seen.append(shop.status()["broker"]["epoch"])
        assert shop.broker.stop() == 0
        if turn == 0:
            shutil.copy(shop.metadata, copy)
    assert seen == [1, 2, 3, 4]
    assert not list((shop.broker.directory / "journals").rglob("*.jnl")), "an idle start writes no journal"
    shop.put_back(copy)
    shop.is_refused_for_ever()
    shop.accept()
    assert shop.status()["broker"]["epoch"] > 4
    shop.ends_well()


def test_settings_that_fell_back_are_told(shop: Shop) -> None:
    """No id is missing and no record: only the number of the last change tells."""
    shop.broker.start()
    shop.create()
    shop.produce(b"first")
    size = (shop.broker.data / "meta.db-wal").stat().st_size
    shop.configure("retention.ms", "1234567")
    shop.broker.kill_tree()
    wal = shop.broker.data / "meta.db-wal"
    data = bytearray(wal.read_bytes())
    data[size + 100] ^= 1
    wal.write_bytes(data)
    shop.is_refused_for_ever()
    loss = shop.accept()
    assert any("1 change" in line for line in loss["what"]) and any(TOPIC in line for line in loss["what"]), loss
    assert shop.read() == [b"first"] * BATCH
    shop.ends_well()


def test_a_topic_that_was_deleted_since_comes_back(shop: Shop) -> None:
    """Without the records that were split; offsets that were given out are not given again. A topic that was made since
    is gone, and its queue is named."""
    copy = shop.broker.directory / "copy.db"
    shop.broker.start()
    shop.create()
    shop.produce(b"first")
    assert shop.broker.stop() == 0
    shutil.copy(shop.metadata, copy)
    shop.broker.start()
    shop.produce(b"second")
    admin = AdminClient({"bootstrap.servers": shop.broker.bootstrap})
    for done in admin.delete_topics([TOPIC]).values():
        done.result(SECONDS)
    shop.create("later")
    shop.produce(b"third", "later")
    shop.broker.kill_tree()
    shop.put_back(copy)
    shop.is_refused_for_ever()
    loss = shop.accept()
    assert any("queue 2" in line or "queues 2" in line for line in loss["what"]), loss
    start, end = shop.client.bounds(TOPIC, 0)
    shop.produce(b"fourth")
    assert shop.client.bounds(TOPIC, 0) == (start, end + BATCH)
    assert shop.read()[-BATCH:] == [b"fourth"] * BATCH
    shop.create("later")
    assert shop.read("later") == []
    shop.produce(b"fifth", "later")
    assert shop.read("later") == [b"fifth"] * BATCH
    shop.ends_well()


def test_all_metadata_are_lost(shop: Shop) -> None:
    """The new ones give out no id that the lost ones gave."""
    shop.broker.start()
    shop.create()
    shop.produce(b"first")
    before = shop.status()["broker"]["epoch"]
    shop.broker.kill_tree()
    for name in ("meta.db", "meta.db-wal", "meta.db-shm"):
        (shop.broker.data / name).unlink(missing_ok=True)
    assert "the metadata is missing" in shop.refused()
    shop.broker.flags = ("--accept-loss",)
    shop.broker.start()
    shop.broker.flags = ()
    assert shop.status()["broker"]["epoch"] > before
    shop.create()
    shop.produce(b"other")
    assert shop.read() == [b"other"] * BATCH
    shop.ends_well()


def a_lost_log(shop: Shop) -> None:
    (shop.broker.data / "meta.db-wal").unlink()


def a_bit_of_the_log_s_head(shop: Shop) -> None:
    wal = shop.broker.data / "meta.db-wal"
    data = bytearray(wal.read_bytes())
    data[20] ^= 1
    wal.write_bytes(data)


def an_empty_file(shop: Shop) -> None:
    a_lost_log(shop)
    shop.metadata.write_bytes(b"")


@pytest.mark.parametrize("lose", [a_lost_log, a_bit_of_the_log_s_head, an_empty_file])
def test_a_file_without_tables_is_not_taken_for_a_new_one(shop: Shop, lose: Callable[[Shop], None]) -> None:
    """Until its first clean stop a broker has all metadata in SQLite's log. A start without it made new tables, removed
    the log, and said that nothing was changed."""
    shop.broker.start()
    shop.create()
    shop.produce(b"first")
    shop.broker.kill_tree()
    lose(shop)
    before = files(shop.broker)
    for _ in range(3):
        assert "meta.db is empty" in shop.refused()
        assert files(shop.broker) == before, "a start that is refused changes nothing"
    shop.broker.flags = ("--accept-loss",)
    shop.broker.start()
    shop.broker.flags = ()
    kept = {path.name: path.read_bytes() for path in (shop.broker.data / "lost").rglob("meta.db*")}
    assert kept == {Path(path).name: data for path, data in before.items() if Path(path).name.startswith("meta.db")}
    shop.create()
    shop.produce(b"other")
    assert shop.read() == [b"other"] * BATCH
    shop.ends_well()


def test_a_directory_of_a_later_format_is_not_touched(shop: Shop) -> None:
    shop.broker.start()
    shop.create()
    shop.produce(b"first")
    assert shop.broker.stop() == 0
    assert shop.broker.journal_dir is not None
    journals = RealDisk(shop.broker.journal_dir)
    owner = read_owner(journals)
    assert owner is not None and owner.format == 2 and owner.witness.epoch == 1
    write_owner(journals, Owner(owner.cluster_id, 3, owner.witness))
    whole = files(shop.broker)
    for flags in ((), ("--accept-loss",)):
        shop.broker.flags = flags
        assert "newer version of CairnMQ" in shop.refused()
        assert files(shop.broker) == whole
    code, said = verify(shop.broker)
    assert code == 1 and "format is 3, this version knows 2" in said


def test_a_directory_of_an_earlier_version_opens(shop: Shop) -> None:
    """It has no witness, and its owner file names the cluster alone."""
    shop.broker.start()
    shop.create()
    shop.produce(b"first")
    assert shop.broker.stop() == 0
    assert shop.broker.journal_dir is not None
    owner = read_owner(RealDisk(shop.broker.journal_dir))
    assert owner is not None
    path = shop.broker.journal_dir / "owner.json"
    path.write_text(json.dumps({"cluster_id": owner.cluster_id}))
    shop.broker.start()
    shop.produce(b"second")
    assert shop.read() == [b"first"] * BATCH + [b"second"] * BATCH
    assert json.loads(path.read_text())["witness"]["epoch"] == 2
    assert shop.broker.stop() == 0
    assert verify(shop.broker)[0] == 0
