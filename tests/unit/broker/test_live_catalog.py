"""Topics come and go for storage and clients in the right order."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cairnmq.broker import live_catalog as catalog_module
from cairnmq.broker.live_catalog import queue_specs
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.metadata.image import QueueRange, Topic
from cairnmq.metadata.quotas import QuotaChange
from cairnmq.metadata.topics import CreateTopic
from cairnmq.settings.alteration import ConfigChange
from cairnmq.settings.broker import BrokerConfig
from cairnmq.storage.files.disk import RealDisk
from cairnmq.storage.journal.journal import JournalReader
from cairnmq.storage.recovery.owner import read_owner
from cairnmq.storage.recovery.witness import Seen
from cairnmq.types import OWN_PRODUCERS_FROM, Counters
from unit.broker.rig import open_rig, scenario


def test_specs_of_a_topic_that_has_grown() -> None:
    topic = Topic("a", b"i" * 16, (QueueRange(5, 2, (3, 17)), QueueRange(20, 2, (0,))), {"retention.ms": "9"})
    specs = queue_specs(topic, BrokerConfig())
    placed = [(spec.queue_id, spec.partition, spec.journal) for spec in specs]
    assert placed == [(5, 0, 3), (6, 1, 17), (20, 2, 0), (21, 3, 0)]
    assert {spec.config.retention_ms for spec in specs} == {9}
    assert [spec.partition for spec in queue_specs(topic, BrokerConfig(), 2)] == [2, 3]


@scenario
async def test_whoever_sees_a_topic_finds_its_queues(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        seen = 0
        working = True

        async def watch() -> None:
            nonlocal seen
            while working:
                for topic in rig.ctx.catalog.image.topics.values():
                    seen += 1
                    assert all(queue_id in rig.ctx.store.queues for _, queue_id in topic.queues())
                await asyncio.sleep(0)

        watching = asyncio.create_task(watch())
        for number in range(5):
            topic = await rig.create(f"t{number}", partitions=3)
            await rig.ctx.catalog.add_partitions(topic.name, 6)
            await asyncio.sleep(0)
        for number in range(5):
            found = rig.ctx.catalog.image.topic(f"t{number}")
            assert found is not None
            await rig.ctx.catalog.delete_topic(found)
        working = False
        await watching
        assert seen > 5 and not rig.ctx.store.queues


@scenario
async def test_changes_at_the_same_time_are_made_one_after_another(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        create = rig.ctx.catalog.create_topic
        answers = await asyncio.gather(*(create(CreateTopic(name=f"t{n % 4}", partitions=2)) for n in range(12)))
        made = [answer for answer in answers if isinstance(answer, Topic)]
        assert len(made) == 4
        assert {a.code for a in answers if isinstance(a, Refusal)} == {ErrorCode.TOPIC_ALREADY_EXISTS}
        ids = [queue_id for topic in made for _, queue_id in topic.queues()]
        assert len(set(ids)) == 8 and set(ids) == set(rig.ctx.store.queues)


@scenario
async def test_a_topic_made_again_is_not_deleted_in_place_of_the_old(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        old = await rig.create("a")
        await rig.ctx.catalog.delete_topic(old)
        new = await rig.create("a")
        refusal = await rig.ctx.catalog.delete_topic(old)
        assert refusal is not None and refusal.code == ErrorCode.UNKNOWN_TOPIC_ID
        assert rig.ctx.catalog.image.topic("a") == new


def witnessed(directory: Path) -> Counters:
    """What the journal says, as the next start would read it."""
    seen = Seen()
    reader = JournalReader(RealDisk(directory / "data" / "journal"), 0)
    for entry in reader.entries(reader.bases[0], reader.end()) if reader.bases else ():
        seen.add_entry(entry)
    reader.close()
    return seen.stored


@scenario
async def test_the_journal_knows_of_a_change_before_the_client_does(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        catalog, numbers = rig.ctx.catalog, rig.ctx.catalog._catalog.counters
        assert witnessed(tmp_path) == Counters(), "a start alone writes nothing into the journal"
        topic = await rig.create("a", partitions=3)
        assert witnessed(tmp_path) == numbers() and numbers().next_queue_id == 4
        await catalog.next_producer_id()
        assert witnessed(tmp_path) == numbers() and numbers().next_producer_id > OWN_PRODUCERS_FROM
        for change in (
            catalog.add_partitions("a", 4),
            catalog.alter_configs("a", [ConfigChange("retention.ms", 0, "9")]),
            catalog.alter_broker_configs(None, [ConfigChange("log.retention.ms", 0, "9")]),
            catalog.alter_group_configs("g", [ConfigChange("consumer.session.timeout.ms", 0, "50000")]),
            catalog.alter_quotas([QuotaChange((("user", "u"),), (("producer_byte_rate", 5.0),))]),
            catalog.delete_topic(topic),
        ):
            before = numbers().revision
            await change
            assert numbers().revision > before and witnessed(tmp_path) == numbers()


@scenario
async def test_what_changes_nothing_is_not_witnessed(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        catalog = rig.ctx.catalog
        await catalog.create_topic(CreateTopic(name="a", partitions=1), validate_only=True)
        await catalog.create_topic(CreateTopic(name="a/b", partitions=1))
        assert rig.ctx.store.engine.paths[0].journal.staged_end == 0
        await catalog.next_producer_id()
        end = rig.ctx.store.engine.paths[0].journal.staged_end
        await catalog.next_producer_id()  # of the same block
        assert rig.ctx.store.engine.paths[0].journal.staged_end == end


@scenario
async def test_a_journal_that_takes_no_writes_refuses_no_change_of_the_metadata(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        path = rig.ctx.store.engine.paths[0]
        path.stop("the disk is gone")
        await rig.create("a")
        assert witnessed(tmp_path) == Counters()
        path.resume()
        await rig.ctx.catalog.next_producer_id()
        assert witnessed(tmp_path) == rig.ctx.catalog._catalog.counters()


@scenario
async def test_the_owner_file_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_module, "KEEP_SECONDS", 0.01)
    journals = RealDisk(tmp_path / "data" / "journal")
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        for _ in range(500):
            owner = read_owner(journals)
            if owner is not None and owner.witness == rig.ctx.catalog._catalog.counters():
                break
            await asyncio.sleep(0.01)
        else:
            pytest.fail("it lags")
        monkeypatch.setattr(catalog_module, "KEEP_SECONDS", 1000)
        await rig.create("b")
        numbers = rig.ctx.catalog._catalog.counters()
    owner = read_owner(journals)
    assert owner is not None and owner.witness == numbers, "at the end in any case"
