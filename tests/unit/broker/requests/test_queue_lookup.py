"""Finding queues, and the epochs clients come with.

What another broker leads: every request that names a partition of it is refused, and so is one for a partition without
a replica here. Who was just elected tells no end that is not certain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cairnmq.broker.leadership import JournalView
from cairnmq.broker.requests.queue_lookup import NO_PARTITION, epoch_error, find_queue
from cairnmq.codec.batch import read_header
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.wire import apis
from cairnmq.wire import messages as m
from unit.broker.rig import Rig, batch, open_rig, records_of, scenario, until

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
Question = Callable[[Rig], Awaitable[int]]


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


# --------------------------------------------------------------------------------------------------- led elsewhere


async def produce(rig: Rig) -> int:
    code: int = (await rig.produce("a", batch(b"y"))).error_code
    return code


async def fetch(rig: Rig) -> int:
    return (await rig.fetch("a", 0)).responses[0].partitions[0].error_code


async def list_offsets(rig: Rig, timestamp: int = -1) -> int:
    row = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topic = m.ListOffsetsRequest.ListOffsetsTopic(name="a", partitions=[row])
    answer = await rig.ask(apis.LIST_OFFSETS, 7, m.ListOffsetsRequest(topics=[topic]))
    code: int = answer.topics[0].partitions[0].error_code
    return code


async def delete_records(rig: Rig) -> int:
    row = m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=0)
    topic = m.DeleteRecordsRequest.DeleteRecordsTopic(name="a", partitions=[row])
    answer = await rig.ask(apis.DELETE_RECORDS, 2, m.DeleteRecordsRequest(topics=[topic]))
    code: int = answer.topics[0].partitions[0].error_code
    return code


async def end_of_epoch(rig: Rig) -> int:
    row = m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=0, leader_epoch=1)
    topic = m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="a", partitions=[row])
    answer = await rig.ask(apis.OFFSET_FOR_LEADER_EPOCH, 4, m.OffsetForLeaderEpochRequest(topics=[topic]))
    code: int = answer.topics[0].partitions[0].error_code
    return code


async def describe_producers(rig: Rig) -> int:
    topic = m.DescribeProducersRequest.TopicRequest(name="a", partition_indexes=[0])
    answer = await rig.ask(apis.DESCRIBE_PRODUCERS, 0, m.DescribeProducersRequest(topics=[topic]))
    code: int = answer.topics[0].partitions[0].error_code
    return code


async def keep_offsets(rig: Rig) -> int:
    known = rig.ctx.catalog.image.topic("a")
    assert known is not None
    part = m.KeepOffsetsRequest.KeptPartition(index=0, start_offset=1, end_offset=2, records=batch(b"z", base_offset=1))
    topic = m.KeepOffsetsRequest.KeptTopic(topic_id=known.topic_id, partitions=[part])
    answer = await rig.ask(apis.KEEP_OFFSETS, 0, m.KeepOffsetsRequest(topics=[topic]))
    code: int = answer.topics[0].partitions[0].error_code
    return code


async def write_marker(rig: Rig) -> int:
    topic = m.WriteTxnMarkersRequest.WritableTxnMarkerTopic(name="a", partition_indexes=[0])
    marker = m.WriteTxnMarkersRequest.WritableTxnMarker(producer_id=1 << 40, producer_epoch=0, topics=[topic])
    answer = await rig.ask(apis.WRITE_TXN_MARKERS, 1, m.WriteTxnMarkersRequest(markers=[marker]))
    code: int = answer.markers[0].topics[0].partitions[0].error_code
    return code


QUESTIONS: list[Question] = [
    produce,
    fetch,
    list_offsets,
    delete_records,
    end_of_epoch,
    describe_producers,
    keep_offsets,
    write_marker,
]


@pytest.mark.parametrize("question", QUESTIONS)
@scenario
async def test_another_broker_leads(tmp_path: Path, question: Question) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        await rig.produce("a", batch(b"x"))
        assert await question(rig) != NOT_LEADER
        end = rig.queue("a").state.end
        rig.join_cluster()
        rig.lose()
        assert await question(rig) == NOT_LEADER
        assert rig.queue("a").state.end == end


@pytest.mark.parametrize("question", QUESTIONS)
@scenario
async def test_no_replica_is_here(tmp_path: Path, question: Question) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        await rig.produce("a", batch(b"x"))
        rig.join_cluster()
        rig.lose()
        del rig.ctx.store.engine.queues[rig.queue("a").queue_id]
        assert await question(rig) == NOT_LEADER


@scenario
async def test_of_two_journals_one_is_led_here(tmp_path: Path) -> None:
    async with open_rig(tmp_path, journals=(0, 1)) as rig:
        await rig.create("a", partitions=2)
        rig.join_cluster()
        away = rig.queue("a", 0).journal
        rig.lose(away)
        codes = [(await rig.produce("a", batch(b"x"), partition=partition)).error_code for partition in (0, 1)]
        assert codes == [NOT_LEADER, 0]
        codes = [
            (await rig.fetch("a", 0, partition=partition)).responses[0].partitions[0].error_code for partition in (0, 1)
        ]
        assert codes == [NOT_LEADER, 0]


@pytest.mark.parametrize("version", [12, 15, 16, 18])
@scenario
async def test_a_fetch_is_told_who_leads(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        rig.join_cluster()
        rig.lose()
        answer = await rig.fetch("a", 0, version=version)
        told = answer.responses[0].partitions[0].current_leader
        endpoints = [(each.node_id, each.host, each.port, each.rack) for each in answer.node_endpoints]
        if version < 16:
            assert (told.leader_id, told.leader_epoch, endpoints) == (-1, -1, [])
        else:
            assert (told.leader_id, told.leader_epoch) == (2, rig.ctx.leadership.view(0).epoch)
            assert endpoints == [(2, "second", 9192, "rack-2")]


@scenario
async def test_a_parked_fetch_hears_of_it(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        rig.join_cluster()
        parked = asyncio.ensure_future(rig.fetch("a", 0, max_wait_ms=60_000, min_bytes=1))
        await until(lambda: rig.queue("a").waiters)
        rig.lose()
        assert (await parked).responses[0].partitions[0].error_code == NOT_LEADER
        assert not rig.ctx.leadership.on_lost and rig.queue("a").waiters is None


@scenario
async def test_a_session_hears_of_it_and_of_its_end(tmp_path: Path) -> None:
    """What a session has found is found again when this broker begins or ceases to lead."""
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        await rig.produce("a", batch(b"x"))
        rig.join_cluster()
        first = await rig.fetch("a", 0, session_epoch=0, max_wait_ms=0)
        assert first.session_id and len(records_of(first)) == 1

        async def again(epoch: int) -> m.FetchResponse:
            request = m.FetchRequest(session_id=first.session_id, session_epoch=epoch, topics=[], max_wait_ms=0)
            answer: m.FetchResponse = await rig.ask(apis.FETCH, 12, request)
            return answer

        rig.lose()
        assert (await again(1)).responses[0].partitions[0].error_code == NOT_LEADER
        rig.lead(0, rig.ctx.store.epochs[0])
        assert len(records_of(await again(2))) == 1


@scenario
async def test_a_produce_that_waited_for_room_looks_again(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        rig.join_cluster()
        waiting = asyncio.ensure_future(_produce_later(rig))
        await until(lambda: rig.ctx.store.backlog._waiting)
        rig.lose()
        _give_room(rig)
        assert (await waiting).error_code == NOT_LEADER


async def _produce_later(rig: Rig) -> Any:
    store = rig.ctx.store
    store.engine.config = _with_room(store.engine.config, 0)
    return await rig.produce("a", batch(b"x"))


def _give_room(rig: Rig) -> None:
    store = rig.ctx.store
    store.engine.config = _with_room(store.engine.config, 1 << 30)
    store.backlog.give_room()


def _with_room(config: Any, room: int) -> Any:
    return replace(config, unsplit_bytes_max=room)


# ------------------------------------------------------------------------------------------------------- not ready yet


@scenario
async def test_who_was_just_elected_tells_no_end(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        await rig.produce("a", batch(b"x", b"y"))
        rig.replicate(is_ready=False)
        not_yet = ErrorCode.OFFSET_NOT_AVAILABLE
        assert await list_offsets(rig, -1) == not_yet  # the latest
        assert await list_offsets(rig, -3) == not_yet  # the largest timestamp
        assert await list_offsets(rig, -2) == 0  # the earliest
        assert await list_offsets(rig, 1) == 0  # a time at which there is a record
        assert await list_offsets(rig, 1 << 50) == not_yet  # a time at which there is none that is certain
        assert await end_of_epoch(rig) == not_yet
        assert len(records_of(await rig.fetch("a", 0))) == 2, "what is replicated is there to be read"

        async def ahead(**fields: int) -> int:
            return (await rig.fetch("a", 3, **fields)).responses[0].partitions[0].error_code

        assert await ahead() == not_yet, "its reader may have read it from the leader before"
        assert (await rig.fetch("a", 0, last_fetched_epoch=0)).responses[0].partitions[0].error_code == not_yet
        rig.ctx.leadership.ready(0)
        assert [await list_offsets(rig, timestamp) for timestamp in (-1, -3, 1 << 50)] == [0, 0, 0]
        assert await end_of_epoch(rig) == 0
        assert await ahead() == ErrorCode.OFFSET_OUT_OF_RANGE


@scenario
async def test_elected_and_not_serving_yet(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        rig.join_cluster()
        rig.lose()
        rig.ctx.leadership.know(0, JournalView(1, 9, (1, 2, 3), (1, 2)))
        for question in QUESTIONS:
            assert await question(rig) == NOT_LEADER
