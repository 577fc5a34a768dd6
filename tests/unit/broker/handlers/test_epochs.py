"""OffsetForLeaderEpoch."""

from __future__ import annotations

from pathlib import Path

from cairnmq.errors import ErrorCode
from cairnmq.wire.messages import OffsetForLeaderEpochRequest
from unit.broker.rig import Rig, batch, open_rig, scenario

KEY = 23


async def ask(rig: Rig, epoch: int, *, current: int = -1, topic: str = "a", version: int = 4) -> tuple[int, int, int]:
    """(error, epoch, end offset)"""
    asked = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
        partition=0, current_leader_epoch=current, leader_epoch=epoch
    )
    request = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=topic, partitions=[asked])]
    )
    answer = (await rig.ask(KEY, version, request)).topics[0].partitions[0]
    return answer.error_code, answer.leader_epoch, answer.end_offset


@scenario
async def test_where_a_term_ended(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        await rig.produce("a", batch(b"0", b"1"))
        assert await ask(rig, 1) == (0, 1, 2)
    async with open_rig(tmp_path) as rig:
        await rig.produce("a", batch(b"2"))
        assert await ask(rig, 1, version=2) == (0, 1, 2)
        assert await ask(rig, 2) == (0, 2, 3)
        assert await ask(rig, 3) == (0, -1, -1)
        assert await ask(rig, -1) == (0, -1, -1), "who names no term is told of none"


@scenario
async def test_errors(tmp_path: Path) -> None:
    async with open_rig(tmp_path):
        pass
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        assert await ask(rig, 1, topic="b") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
        assert await ask(rig, 1, current=1) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
        assert await ask(rig, 1, current=3) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
