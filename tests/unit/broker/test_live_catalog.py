"""Topics come and go for storage and clients in the right order."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cairnmq.broker import live_catalog as catalog_module
from cairnmq.broker.live_catalog import queue_specs
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.metadata.catalog import Catalog
from cairnmq.metadata.image import QueueRange, Topic
from cairnmq.metadata.quotas import QuotaChange
from cairnmq.metadata.topics import CreateTopic
from cairnmq.settings.alteration import ConfigChange
from cairnmq.settings.broker import BrokerConfig
from cairnmq.storage.files.disk import RealDisk
from cairnmq.storage.journal.journal import JournalReader
from cairnmq.storage.recovery.owner import read_owner
from cairnmq.storage.recovery.witness import Seen
from cairnmq.types import OWN_PRODUCERS_FROM, Counters, Slots
from unit.broker.cluster.brokers import CONFIG, Machines, SomeJournals
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
        assert witnessed(tmp_path) == numbers() and numbers().next_queue_id == 28, "after 24 slots"
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


# ------------------------------------------------------------------------------------------------------- a cluster


@scenario
async def test_a_topic_of_another_broker_has_queues_before_it_is_seen(tmp_path: Path) -> None:
    """In journals of this broker, which are made before; of others it only knows that they exist."""
    machines = Machines()
    async with open_rig(tmp_path, shared=machines.store()) as rig:
        two, three = machines.broker(2), machines.broker(3)
        catalog, queues = rig.ctx.catalog, rig.ctx.store.queues
        hosting = catalog.queues.hosting = SomeJournals()
        hosting.heard = lambda: (sorted(catalog.image.topics), len(queues))
        made = await catalog.call(lambda: two.made("a", partitions=4, factor=1))
        journals = {journal for _, _, journal in made.places()}
        assert len(journals) == 4 and catalog.image.topic("a") is None
        hosting.journals = set(sorted(journals)[:2])
        await catalog.refresh()
        assert catalog.image.topic("a") == made
        assert {queue.journal for queue in queues.values()} == hosting.journals and len(queues) == 2
        assert hosting.told == [
            ("host", frozenset(), [], 0),
            ("knows", 25, [], 0),
            ("host", frozenset(journals), [], 0),
            ("knows", catalog.image.next_queue_id, ["a"], 2),
        ]
        assert (await catalog.call(lambda: three.made("b", factor=2))) and catalog.queues.count == 4
        grown = await catalog.call(lambda: two.catalog.add_partitions("a", 6))
        assert isinstance(grown, Topic)
        await catalog.refresh()
        assert catalog.queues.count == 7 and catalog.image.topic("a") == grown
        assert sorted(queues) == [each for _, each, journal in grown.places() if journal in hosting.journals]


@scenario
async def test_a_topic_that_another_broker_changes_and_deletes(tmp_path: Path) -> None:
    machines = Machines()
    async with open_rig(tmp_path, shared=machines.store()) as rig:
        two, catalog, store = machines.broker(2), rig.ctx.catalog, rig.ctx.store
        catalog.queues.hosting = SomeJournals()
        old = await catalog.call(lambda: two.made("a", factor=1))
        await catalog.call(lambda: two.made("b", factor=1))
        await catalog.refresh()
        change = [ConfigChange("retention.ms", 0, "77")]
        assert isinstance(await catalog.call(lambda: two.catalog.alter_configs("a", change, broker=CONFIG)), Topic)
        await catalog.refresh()
        assert rig.queue("a").config.retention_ms == 77
        await catalog.call(lambda: two.catalog.delete_topic("a", broker=CONFIG))
        await catalog.call(lambda: two.made("a", partitions=2, factor=1))
        await catalog.refresh()
        new = catalog.image.topic("a")
        assert new is not None and new.topic_id != old.topic_id
        assert not any(each in store.queues for _, each in old.queues())
        assert all(each in store.queues for _, each in new.queues()) and catalog.queues.count == 3


@scenario
async def test_settings_that_another_broker_changes(tmp_path: Path) -> None:
    machines = Machines()
    async with open_rig(tmp_path, shared=machines.store()) as rig:
        two, catalog = machines.broker(2), rig.ctx.catalog
        catalog.queues.hosting = SomeJournals()
        await catalog.call(lambda: two.made("a", factor=1))
        change = [ConfigChange("log.retention.ms", 0, "88")]
        await catalog.call(lambda: two.catalog.alter_broker_configs(None, change, broker=CONFIG))
        await catalog.refresh()
        assert rig.queue("a").config.retention_ms == 88 and rig.configs[-1] is catalog.config
        await catalog.call(lambda: two.catalog.alter_broker_configs(2, change, broker=CONFIG))
        await catalog.refresh()
        assert len(rig.configs) == 2 and catalog.config.layers.dynamic == {}, "that was for broker 2"


@scenario
async def test_what_is_folded_is_not_lost_with_who_waited_for_it(tmp_path: Path) -> None:
    """A call that is cancelled has perhaps learned of topics, and its names must reach the next one."""
    machines = Machines()
    async with open_rig(tmp_path, shared=machines.store()) as rig:
        two, catalog = machines.broker(2), rig.ctx.catalog
        catalog.queues.hosting = SomeJournals()
        await catalog.call(lambda: two.made("a", factor=1))
        waiting = asyncio.create_task(catalog.refresh())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await catalog.refresh()
        assert rig.queue("a") is not None and await catalog.make_slots() == catalog.image.slots


@scenario
async def test_a_journal_that_cannot_be_made_is_tried_again(tmp_path: Path) -> None:
    """Until then nobody sees its topics."""
    machines = Machines()
    async with open_rig(tmp_path, shared=machines.store()) as rig:
        two, catalog = machines.broker(2), rig.ctx.catalog
        hosting = catalog.queues.hosting = SomeJournals()
        await catalog.call(lambda: two.made("a", factor=1))
        hosting.heard = lambda: 1 // 0  # type: ignore[assignment, return-value]
        with pytest.raises(ZeroDivisionError):
            await catalog.refresh()
        assert catalog.image.topic("a") is None
        hosting.heard = tuple
        await catalog.adopt()
        assert rig.queue("a") is not None


@scenario
async def test_topics_that_came_and_went_while_the_broker_started(tmp_path: Path) -> None:
    """Storage is opened before the broker is registered, and knows what was there then."""
    machines = Machines()
    two = machines.broker(2)
    for name in ("stays", "goes", "changes"):
        two.made(name, factor=1)
    started = two.catalog.image

    def meanwhile(catalog: Catalog) -> None:
        two.catalog.delete_topic("goes", broker=CONFIG)
        two.made("new", partitions=2, factor=1)
        two.catalog.alter_configs("changes", [ConfigChange("retention.ms", 0, "77")], broker=CONFIG)
        catalog.refresh()

    async with open_rig(tmp_path, journals=(1, 2), shared=machines.store(), recovered=meanwhile) as rig:
        catalog, store = rig.ctx.catalog, rig.ctx.store
        assert len(store.queues) == 3 and catalog.image != started
        hosting = catalog.queues.hosting = SomeJournals()
        await catalog.refresh()
        assert sorted(store.queues) == sorted(q for t in catalog.image.topics.values() for _, q in t.queues())
        assert rig.queue("changes").config.retention_ms == 77 and catalog.queues.count == 4
        assert [told for told, *_ in hosting.told] == ["host", "knows"]
        await catalog.adopt()
        assert len(hosting.told) == 2, "once"


@scenario
async def test_topics_of_a_cluster_are_counted_together(tmp_path: Path) -> None:
    machines = Machines()
    async with open_rig(tmp_path, {"cairn.partitions.max": "4"}, shared=machines.store()) as rig:
        two, catalog = machines.broker(2), rig.ctx.catalog
        catalog.queues.hosting = SomeJournals(set())
        await catalog.call(lambda: two.made("a", partitions=4, factor=1))
        await catalog.refresh()
        refusal = await catalog.create_topic(CreateTopic(name="b", replication_factor=1))
        assert isinstance(refusal, Refusal) and "more than the 4 that exist" in refusal.message


@scenario
async def test_slots_of_a_cluster(tmp_path: Path) -> None:
    """They wait for as many brokers as their replicas need, and are made once."""
    machines = Machines()
    machines.broker(1), machines.broker(2)
    catalogs = [machines.broker(number, registered=False).catalog for number in (4, 5)]
    refusal = catalogs[0].make_slots_replicated(CONFIG)
    assert isinstance(refusal, Refusal) and refusal.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (
        "when 3 brokers have been live together (offsets.topic.replication.factor); live now: 1, 2" in refusal.message
    )
    machines.broker(3)
    slots = catalogs[0].make_slots_replicated(CONFIG)
    assert isinstance(slots, Slots) and slots == catalogs[1].make_slots_replicated(CONFIG)
    cluster = catalogs[1].cluster
    assert cluster is not None and set(slots.cycle) == set(cluster.view.journals) and slots.count == 24
    assert {len(kept.record.replicas) for kept in cluster.view.journals.values()} == {3}
