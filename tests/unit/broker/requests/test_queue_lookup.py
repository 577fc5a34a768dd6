"""Finding queues, and the epochs clients come with."""

from __future__ import annotations

from pathlib import Path

from cairnmq.broker.requests.queue_lookup import NO_PARTITION, epoch_error, find_queue
from cairnmq.codec.batch import read_header
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.wire import messages as m
from unit.broker.rig import batch, open_rig, scenario


@scenario
async def test_found_or_not(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        topic = await rig.create("a", partitions=2)
        found = find_queue(rig.ctx, topic, 1)
        assert not isinstance(found, Refusal) and (found.topic, found.partition) == ("a", 1)
        assert find_queue(rig.ctx, topic, 2) is NO_PARTITION
        assert find_queue(rig.ctx, topic, -1) is NO_PARTITION
        assert find_queue(rig.ctx, None, 0) is NO_PARTITION
        no_topic = Refusal(ErrorCode.UNKNOWN_TOPIC_ID)
        assert find_queue(rig.ctx, None, 0, no_topic) is find_queue(rig.ctx, topic, 2, no_topic) is no_topic
        await rig.ctx.catalog.delete_topic(topic)
        assert find_queue(rig.ctx, topic, 1) is NO_PARTITION


@scenario
async def test_epochs(tmp_path: Path) -> None:
    async with open_rig(tmp_path):
        pass
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        assert [epoch_error(rig.ctx, rig.queue("a"), epoch) for epoch in (-1, 1, 2, 3)] == [
            ErrorCode.NONE,
            ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_LEADER_EPOCH,
        ]


@scenario
async def test_each_journal_has_an_epoch(tmp_path: Path) -> None:
    """Whatever tells or compares a leader epoch goes by the one of the partition's journal."""
    async with open_rig(tmp_path, journals=(3, 17)) as rig:
        rig.lead(17, 9)
        await rig.create("a", partitions=2)
        assert [rig.queue("a", partition).journal for partition in (0, 1)] == [17, 3]
        for partition, epoch in ((0, 9), (1, 1)):
            assert (await rig.produce("a", batch(b"x"), partition=partition)).error_code == ErrorCode.NONE
            found = (await rig.fetch("a", 0, partition=partition)).responses[0].partitions[0]
            assert read_header(found.records).leader_epoch == epoch
            for said in (1, 9):
                answer = await rig.fetch("a", 1, partition=partition, current_leader_epoch=said)
                right = epoch == said
                wrong = ErrorCode.FENCED_LEADER_EPOCH if said < epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
                assert answer.responses[0].partitions[0].error_code == (ErrorCode.NONE if right else wrong)
            latest = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=-1)
            topic = m.ListOffsetsRequest.ListOffsetsTopic(name="a", partitions=[latest])
            told = await rig.ask(2, 7, m.ListOffsetsRequest(topics=[topic]))
            assert told.topics[0].partitions[0].leader_epoch == epoch
            term = m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=partition, leader_epoch=epoch)
            named = m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="a", partitions=[term])
            ended = (await rig.ask(23, 4, m.OffsetForLeaderEpochRequest(topics=[named]))).topics[0].partitions[0]
            assert (ended.leader_epoch, ended.end_offset) == (epoch, 1)
        asked = [m.MetadataRequest.MetadataRequestTopic(name="a")]
        metadata = await rig.ask(3, 12, m.MetadataRequest(topics=asked))
        assert [each.leader_epoch for each in metadata.topics[0].partitions] == [9, 1]
        page = m.DescribeTopicPartitionsRequest(
            topics=[m.DescribeTopicPartitionsRequest.TopicRequest(name="a")], response_partition_limit=10
        )
        described = await rig.ask(75, 0, page)
        assert [each.leader_epoch for each in described.topics[0].partitions] == [9, 1]
