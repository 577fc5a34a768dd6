"""OffsetCommit of several partitions: each has its row, in the order of the request."""

from __future__ import annotations

from pathlib import Path

from cairnmq.errors import ErrorCode
from cairnmq.wire.messages import OffsetCommitRequest
from unit.broker.rig import open_rig, scenario

COMMIT = 8


@scenario
async def test_rows_keep_the_order_of_the_request(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a", partitions=2)
        asked = [
            OffsetCommitRequest.OffsetCommitRequestPartition(
                partition_index=index, committed_offset=index, committed_metadata=text
            )
            for index, text in ((7, ""), (1, "x" * 5000), (0, ""))
        ]
        topics = [
            OffsetCommitRequest.OffsetCommitRequestTopic(name=name, partitions=asked) for name in ("missing", "a")
        ]
        answer = await rig.ask(COMMIT, 9, OffsetCommitRequest(group_id="g", topics=topics))
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        rows = [(topic.name, row) for topic in answer.topics for row in topic.partitions]
        assert [(name, row.partition_index, row.error_code) for name, row in rows] == [
            ("missing", 7, unknown), ("missing", 1, unknown), ("missing", 0, unknown),
            ("a", 7, unknown), ("a", 1, ErrorCode.OFFSET_METADATA_TOO_LARGE), ("a", 0, ErrorCode.NONE),
        ]  # fmt: skip
        assert rig.coordinator.groups.offsets.topics("g").keys() == {rig.ctx.catalog.image.topic("a").topic_id}
