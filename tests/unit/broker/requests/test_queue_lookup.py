"""Finding queues, and the epochs clients come with."""

from __future__ import annotations

from pathlib import Path

from cairnmq.broker.requests.queue_lookup import epoch_error, find_queue
from cairnmq.errors import ErrorCode
from unit.broker.rig import open_rig, scenario


@scenario
async def test_found_or_not(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        topic = await rig.create("a", partitions=2)
        found = find_queue(rig.ctx, topic, 1)
        assert found is not None and (found.topic, found.partition) == ("a", 1)
        assert find_queue(rig.ctx, topic, 2) is None
        assert find_queue(rig.ctx, topic, -1) is None
        assert find_queue(rig.ctx, None, 0) is None
        await rig.ctx.catalog.delete_topic(topic)
        assert find_queue(rig.ctx, topic, 1) is None


@scenario
async def test_epochs(tmp_path: Path) -> None:
    async with open_rig(tmp_path):
        pass
    async with open_rig(tmp_path) as rig:
        assert [epoch_error(rig.ctx, epoch) for epoch in (-1, 1, 2, 3)] == [
            ErrorCode.NONE,
            ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_LEADER_EPOCH,
        ]
