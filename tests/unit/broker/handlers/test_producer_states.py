"""DescribeProducers: what a queue remembers of idempotent producers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cairnmq.errors import ErrorCode
from cairnmq.wire.messages import DescribeProducersRequest
from unit.broker.rig import NOW_MS, Rig, batch, open_rig, scenario


async def describe(rig: Rig, topic: str, *partitions: int) -> list[Any]:
    asked = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=list(partitions))
    answer = await rig.ask(61, 0, DescribeProducersRequest(topics=[asked]))
    assert answer.topics[0].name == topic
    found: list[Any] = answer.topics[0].partitions
    return found


@scenario
async def test_the_last_sequence_of_each_producer(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a", partitions=2)
        await rig.produce("a", batch(b"1", b"2", producer_id=7, producer_epoch=3, base_sequence=0))
        rig.now_ms += 5
        await rig.produce("a", batch(b"3", producer_id=7, producer_epoch=3, base_sequence=2))
        await rig.produce("a", batch(b"plain"))
        first, second = await describe(rig, "a", 0, 1)
        (state,) = first.active_producers
        assert (state.producer_id, state.producer_epoch, state.last_sequence) == (7, 3, 2)
        assert (state.last_timestamp, state.coordinator_epoch, state.current_txn_start_offset) == (NOW_MS + 5, -1, -1)
        assert (second.partition_index, second.error_code, second.active_producers) == (1, 0, [])
    async with open_rig(tmp_path) as rig:
        (again,) = await describe(rig, "a", 0)
        assert [each.last_sequence for each in again.active_producers] == [2]


@scenario
async def test_what_does_not_exist(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        (beyond,) = await describe(rig, "a", 5)
        (none,) = await describe(rig, "none", 0)
        (odd,) = await describe(rig, "a b", 0)
        assert beyond.error_code == none.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert odd.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION and odd.error_message
