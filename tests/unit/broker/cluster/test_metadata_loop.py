"""What others change arrives, the session lives on, and a store that is away is said and outlived."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cairnmq.broker.cluster.cluster_store import ClusterStore, Done
from cairnmq.broker.cluster.metadata_loop import MetadataLoop
from cairnmq.broker.live_catalog import LiveCatalog
from cairnmq.errors import Unreachable
from cairnmq.metadata.cluster_image import ClusterImage
from cairnmq.metadata.topics import CreateTopic
from cairnmq.replication.records import Member
from cairnmq.testing.memory_store import MemoryStore
from unit.broker.cluster.brokers import SESSION_MS, Machines, SomeJournals, entry
from unit.broker.rig import open_rig, scenario, until


class Watched:
    """Broker 1 with its loop, and what was told."""

    def __init__(self, machines: Machines, store: MemoryStore, catalog: LiveCatalog) -> None:
        self.machines = machines
        self.store = store
        self.catalog = catalog
        self.cluster = ClusterStore(
            store, 1, SESSION_MS, catalog=catalog._catalog, clock=machines.time, sleep=machines.time.sleep
        )
        self.loop = MetadataLoop(self.cluster, catalog, self.lost, clock=machines.time, look_seconds=0.001)
        self.loop.on_change(self.changed)
        self.told: list[ClusterImage] = []
        self.topics: list[set[str]] = []  # that clients saw when it was told
        self.lives: list[Member] = []
        self.failures = 0  # of registrations to come

    def changed(self, image: ClusterImage) -> None:
        self.told.append(image)
        self.topics.append(set(self.catalog.image.topics))

    async def lost(self) -> None:
        if self.failures:
            self.failures -= 1
            raise Unreachable("not now")
        stopped_as = self.lives[-1].broker_epoch if self.lives else 0
        self.lives.append(await self.loop.call(lambda: self.cluster.register(entry(1), stopped_as)))


@asynccontextmanager
async def watched(directory: Path) -> AsyncIterator[Watched]:
    machines = Machines()
    store = machines.store()
    async with open_rig(directory, shared=store) as rig:
        rig.ctx.catalog.queues.hosting = SomeJournals()
        one = Watched(machines, store, rig.ctx.catalog)
        one.loop.start()
        await until(lambda: one.lives)
        yield one
        await one.loop.close()


@scenario
async def test_what_another_broker_changes_is_told(tmp_path: Path) -> None:
    async with watched(tmp_path) as one:
        two = await one.catalog.call(lambda: one.machines.broker(2))
        await until(lambda: one.loop.cluster.live_members() == [Member(1, one.lives[0].broker_epoch), two.cluster.me])
        assert one.told[-1] is one.loop.cluster
        topic = await one.catalog.call(lambda: two.made("a", factor=2))
        await until(lambda: one.catalog.image.topic("a") is not None)
        journals = {journal for _, _, journal in topic.places()}
        (first,) = [n for n, image in enumerate(one.told) if journals <= set(image.view.journals)][:1]
        assert "a" in one.topics[first], "topics of the same changes are in place"


@scenario
async def test_who_catches_up_knows_what_others_changed_before(tmp_path: Path) -> None:
    async with watched(tmp_path) as one:
        two = await one.catalog.call(lambda: one.machines.broker(2))
        await one.loop.close()  # it does not look by itself
        looks, look = 0, one.store.look

        def counted() -> None:
            nonlocal looks
            looks += 1
            look()

        one.store.look = counted  # type: ignore[method-assign]
        for number in range(3):
            await one.catalog.call(lambda number=number: two.made(f"t{number}", factor=2))  # type: ignore[misc]
            assert one.catalog.image.topic(f"t{number}") is None
            await asyncio.gather(*(one.loop.catch_up() for _ in range(50)))
            assert one.catalog.image.topic(f"t{number}") is not None
            assert looks == number + 1, "one look for all that came before it began"


@scenario
async def test_an_own_change_is_told_before_the_call_returns(tmp_path: Path) -> None:
    async with watched(tmp_path) as one:
        assert await one.loop.call(one.cluster.elect_controller)
        assert one.told[-1].controller == one.lives[0]
        await one.catalog.create_topic(CreateTopic(name="a", replication_factor=1))
        assert one.told[-1].view.journals and "a" in one.topics[-1], "and those of topics, at once"
        assert isinstance(await one.loop.call(one.cluster.stopping), Done)
        assert one.told[-1].view.brokers[1].stopping


@scenario
async def test_a_topic_that_a_conflict_brought_is_in_place_first(tmp_path: Path) -> None:
    async with watched(tmp_path) as one:
        two = await one.catalog.call(lambda: one.machines.broker(2))

        def refresh() -> None:
            two.made("a", factor=1)
            one.cluster.poll()

        await one.loop.call(refresh)
        assert one.catalog.image.topic("a") is not None and "a" in one.topics[-1]


@scenario
async def test_the_session_lives_as_long_as_the_loop(tmp_path: Path) -> None:
    async with watched(tmp_path) as one:
        await one.catalog.call(lambda: one.machines.broker(2))
        for _ in range(12):
            await one.catalog.call(lambda: one.machines.pass_ms(SESSION_MS // 4))
            await until(lambda: one.loop.confirmed_ms >= one.machines.time.now_ms - SESSION_MS // 3)
        assert len(one.lives) == 1 and not one.loop.away


@scenario
async def test_a_session_that_ended_is_begun_again(tmp_path: Path) -> None:
    """As a clean next life, once the store lets it."""
    async with watched(tmp_path) as one:
        two, one.failures = await one.catalog.call(lambda: one.machines.broker(2)), 3
        await one.catalog.call(lambda: one.machines.pass_ms(SESSION_MS * 2, two))
        await until(lambda: len(one.lives) == 2)
        assert not one.failures
        await until(lambda: one.loop.cluster.view.is_live(one.lives[1]) and not one.loop.away)
        record = one.loop.cluster.brokers[1].record
        assert (record.clean, record.previous) == (True, one.lives[0].broker_epoch)


@scenario
async def test_a_store_that_is_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "cairnmq.broker")  # another test may have set another one
    async with watched(tmp_path) as one:
        image, since_ms = one.loop.cluster, one.machines.time.now_ms + SESSION_MS // 2
        one.store.away = True
        one.machines.time.now_ms = since_ms
        await until(lambda: one.loop.away)
        assert (one.loop.away, one.loop.away_since_ms) == ("the metadata store does not respond", since_ms)
        await asyncio.sleep(0.02)
        assert one.loop.cluster is image and caplog.text.count("the store is away") == 1
        one.store.away = False
        await until(lambda: not one.loop.away)
        assert one.loop.away_since_ms == 0 and len(one.lives) == 1, "nobody could write, so nobody has ended"


@scenario
async def test_a_look_that_fails_is_not_the_last(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "cairnmq.broker")  # another test may have set another one
    async with watched(tmp_path) as one:
        failing = [ZeroDivisionError(), Unreachable("no file")]
        look = one.store.look

        def fail() -> None:
            if failing:
                raise failing.pop()
            look()

        one.store.look = fail  # type: ignore[method-assign]
        await until(lambda: not failing)
        two = await one.catalog.call(lambda: one.machines.broker(2))
        await until(lambda: two.cluster.me in one.loop.cluster.live_members() and not one.loop.away)
        assert "a look at the store failed" in caplog.text
