"""Topics come and go for storage and clients in the right order."""

from __future__ import annotations

import asyncio
from pathlib import Path

from cairnmq.broker.catalog import queue_specs
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.metadata.image import Topic
from cairnmq.metadata.topics import CreateTopic
from cairnmq.settings.broker import BrokerConfig
from unit.broker.rig import open_rig, scenario


def test_specs_of_a_topic_that_has_grown() -> None:
    topic = Topic("a", b"i" * 16, ((5, 2), (20, 2)), {"retention.ms": "9"})
    specs = queue_specs(topic, BrokerConfig())
    assert [(spec.queue_id, spec.partition) for spec in specs] == [(5, 0), (6, 1), (20, 2), (21, 3)]
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
