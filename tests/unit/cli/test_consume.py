"""Reading a topic: what is printed, in which order, where it stops, and what is committed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest

from cairnmq.cli.main import main
from cairnmq.codec.records import Record, build_batch
from cairnmq.errors import ErrorCode
from cairnmq.types import Buffer
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    FetchRequest,
    FetchResponse,
    FindCoordinatorResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    Message,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from scripted_broker import ScriptedBroker, metadata, topic_id

Consume = Callable[..., tuple[int, bytes, str]]


def records(first: int, *values: str) -> bytes:
    made = [Record(0, 1000 + first + i, f"k{first + i}".encode(), value.encode()) for i, value in enumerate(values)]
    return build_batch(made, base_offset=first)


class Log:
    """A topic "t" with batches per partition, answered as a broker answers; whole batches, whatever the offset."""

    def __init__(self, *partitions: list[bytes], start: int = 0, ends: list[int], committed: int = -1) -> None:
        self.partitions = partitions
        self.start = start
        self.ends = ends
        self.committed = committed
        self.broker = ScriptedBroker(self.answer)

    def answer(self, request: Message, header: RequestHeader) -> Message | None:
        if isinstance(request, MetadataRequest):
            return metadata({"t": [1] * len(self.partitions)}, {1: self.broker.port})
        if isinstance(request, ListOffsetsRequest):
            return self.list_offsets(request)
        if isinstance(request, FetchRequest):
            return self.fetch(request)
        if isinstance(request, OffsetFetchRequest):
            row = OffsetFetchResponse.OffsetFetchResponsePartitions(partition_index=0, committed_offset=self.committed)
            topic = OffsetFetchResponse.OffsetFetchResponseTopics(topic_id=topic_id("t"), partitions=[row])
            return OffsetFetchResponse(groups=[OffsetFetchResponse.OffsetFetchResponseGroup("g", [topic])])
        if isinstance(request, OffsetCommitRequest):
            self.committed = request.topics[0].partitions[0].committed_offset
            return OffsetCommitResponse()
        if isinstance(request, ConsumerGroupHeartbeatRequest):
            return self.heartbeat(request)
        place = FindCoordinatorResponse.Coordinator(key="g", node_id=1, host="127.0.0.1", port=self.broker.port)
        return FindCoordinatorResponse(coordinators=[place])

    def heartbeat(self, request: ConsumerGroupHeartbeatRequest) -> Message:
        """The only member gets everything."""
        rows = ConsumerGroupHeartbeatResponse.TopicPartitions
        all_of_it = [rows(topic_id=topic_id("t"), partitions=list(range(len(self.partitions))))]
        return ConsumerGroupHeartbeatResponse(
            member_epoch=max(1, request.member_epoch),
            heartbeat_interval_ms=5000,
            assignment=ConsumerGroupHeartbeatResponse.Assignment(all_of_it) if request.member_epoch == 0 else None,
        )

    def list_offsets(self, request: ListOffsetsRequest) -> Message:
        rows = []
        for asked in request.topics[0].partitions:
            offset = {-1: self.ends[asked.partition_index], -2: self.start}.get(asked.timestamp, asked.timestamp - 1000)
            rows.append(
                ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=asked.partition_index, offset=offset)
            )
        return ListOffsetsResponse(topics=[ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=rows)])

    def fetch(self, request: FetchRequest) -> Message:
        rows = []
        for asked in request.topics[0].partitions:
            data: Buffer = b"".join(self.partitions[asked.partition])
            outside = asked.fetch_offset < self.start
            rows.append(
                FetchResponse.PartitionData(
                    partition_index=asked.partition,
                    error_code=ErrorCode.OFFSET_OUT_OF_RANGE if outside else 0,
                    records=None if outside else data,
                )
            )
        topic = FetchResponse.FetchableTopicResponse(topic_id=topic_id("t"), partitions=rows)
        return FetchResponse(responses=[topic])


@pytest.fixture
def consume(capfdbinary: pytest.CaptureFixture[bytes]) -> Iterator[Consume]:
    logs: set[Log] = set()

    def run(log: Log, *words: str) -> tuple[int, bytes, str]:
        logs.add(log)
        code = main(["consume", "t", "-b", log.broker.bootstrap, "--timeout", "60", *words])
        sys.stdout.flush()
        captured = capfdbinary.readouterr()
        return code, captured.out, captured.err.decode()

    yield run
    for log in logs:
        log.broker.__exit__()


BATCHES = [records(0, "a", "b", "c"), records(3, "d", "e")]


def test_everything_up_to_the_end(consume: Consume) -> None:
    assert consume(Log(BATCHES, ends=[5]), "-o", "start", "-e") == (0, b"a\nb\nc\nd\ne\n", "")


def test_an_offset_inside_a_batch_skips_what_is_before_it(consume: Consume) -> None:
    assert consume(Log(BATCHES, ends=[5]), "-o", "1", "-e")[1] == b"b\nc\nd\ne\n"
    assert consume(Log(BATCHES, ends=[5]), "-o", "-2", "-e")[1] == b"d\ne\n"
    assert consume(Log(BATCHES, ends=[5]), "-o", "@1002", "-e")[1] == b"c\nd\ne\n"


def test_the_end_is_the_end_at_the_start(consume: Consume) -> None:
    assert consume(Log(BATCHES, ends=[4]), "-o", "start", "-e")[1] == b"a\nb\nc\nd\n"
    assert consume(Log([], ends=[0]), "-e") == (0, b"", "")


def test_a_count_stops_in_the_middle(consume: Consume) -> None:
    assert consume(Log(BATCHES, ends=[5]), "-o", "start", "-n", "2")[1] == b"a\nb\n"


def test_only_the_partitions_asked_for(consume: Consume) -> None:
    log = Log(BATCHES, [records(0, "x")], ends=[5, 1])
    assert consume(log, "-o", "start", "-e", "-p", "1", "-f", "%p:%o:%k:%v;")[1] == b"1:0:k0:x;"
    code, _, errors = consume(log, "-p", "2", "-e")
    assert code == 1 and "partition 2 does not exist; the topic has partitions 0 to 1" in errors


def test_markers_are_not_messages(consume: Consume) -> None:
    marker = build_batch([Record(0, 0, b"\0\0\0\1", b"\0\0\0\0\0\0", control=True)], base_offset=3, transactional=True)
    assert consume(Log([BATCHES[0], marker], ends=[4]), "-o", "start", "-e")[1] == b"a\nb\nc\n"


@pytest.mark.parametrize("committed", [False, True])
def test_aborted_records_are_left_out_only_if_asked(consume: Consume, committed: bool) -> None:
    """The end of those who read committed records is where the first open transaction begins."""

    class Transactions(Log):
        def fetch(self, request: FetchRequest) -> Message:
            response = super().fetch(request)
            assert isinstance(response, FetchResponse)
            if request.isolation_level:
                aborted = FetchResponse.AbortedTransaction(producer_id=7, first_offset=1)
                response.responses[0].partitions[0].aborted_transactions = [aborted]
            return response

        def list_offsets(self, request: ListOffsetsRequest) -> Message:
            self.ends = [3] if request.isolation_level else [4]
            return super().list_offsets(request)

    def sent(offset: int, value: bytes) -> bytes:
        of_producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": offset, "transactional": True}
        return build_batch([Record(0, 5, None, value)], base_offset=offset, **of_producer)  # type: ignore[arg-type]

    marker = Record(0, 5, bytes(4), bytes(6), control=True)
    ended = build_batch([marker], base_offset=2, producer_id=7, producer_epoch=0, transactional=True)
    log = Transactions([records(0, "a"), sent(1, b"aborted"), ended, sent(3, b"open")], ends=[4])
    words = ["--read-committed"] if committed else []
    assert consume(log, "-o", "start", "-e", *words)[1] == (b"a\n" if committed else b"a\naborted\nopen\n")


def test_an_offset_that_is_gone_is_noted(consume: Consume) -> None:
    log = Log([BATCHES[1]], start=3, ends=[5])
    code, out, errors = consume(log, "-o", "1", "-e")
    assert (code, out) == (0, b"d\ne\n")
    assert "t-0 holds offsets 3 to 4; reading from 3" in errors


def test_an_offset_of_an_empty_partition_is_noted(consume: Consume) -> None:
    code, out, errors = consume(Log([], start=0, ends=[0]), "-o", "7", "-e")
    assert (code, out) == (0, b"")
    assert "t-0 is empty; reading from 0" in errors


def test_a_partition_that_cannot_be_read_is_told_once_and_does_not_stop_the_others(consume: Consume) -> None:
    class Damaged(Log):
        def fetch(self, request: FetchRequest) -> Message:
            response = super().fetch(request)
            assert isinstance(response, FetchResponse)
            bad, good = response.responses[0].partitions
            bad.error_code, bad.records = ErrorCode.KAFKA_STORAGE_ERROR, None
            if len(self.broker.requests(FetchRequest)) < 3:
                good.records = None
            return response

    log = Damaged(BATCHES, BATCHES, ends=[5, 5])
    code, out, errors = consume(log, "-o", "start", "-n", "2")
    assert (code, out) == (0, b"a\nb\n")
    assert errors.count("partition t-0 is not available") == 1


def test_a_group_goes_on_where_it_was_and_commits_what_was_printed(consume: Consume) -> None:
    log = Log(BATCHES, ends=[5])
    assert consume(log, "-o", "start", "-g", "g", "-n", "2")[1] == b"a\nb\n"
    assert log.committed == 2
    assert consume(log, "-o", "start", "-g", "g", "-e")[1] == b"c\nd\ne\n"
    assert log.committed == 5
    commits = len(log.broker.requests(OffsetCommitRequest))
    assert consume(log, "-o", "start", "-g", "g", "-e")[1] == b""
    assert len(log.broker.requests(OffsetCommitRequest)) == commits


def test_a_member_that_was_removed_joins_again(consume: Consume) -> None:
    class Forgetful(Log):
        def heartbeat(self, request: ConsumerGroupHeartbeatRequest) -> Message:
            if len(self.broker.requests(ConsumerGroupHeartbeatRequest)) == 2:
                return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
            return super().heartbeat(request)

    log = Forgetful(BATCHES, ends=[5], committed=3)
    code, out, errors = consume(log, "-g", "g", "-e")
    assert (code, out, log.committed) == (0, b"d\ne\n", 5)
    assert errors.count("group g removed this member; rejoining") == 1
    epochs = [request.member_epoch for request in log.broker.requests(ConsumerGroupHeartbeatRequest)]
    assert epochs[:4] == [0, 1, 0, 1] and epochs[-1] == -1, "joined, removed, joined, and left at the end"


def test_a_commit_with_an_old_epoch_is_made_again(consume: Consume) -> None:
    class Ahead(Log):
        """A rebalance that the member has not heard of when it commits."""

        def answer(self, request: Message, header: RequestHeader) -> Message | None:
            if isinstance(request, OffsetCommitRequest) and request.generation_id_or_member_epoch == 1:
                row = OffsetCommitResponse.OffsetCommitResponsePartition(error_code=ErrorCode.STALE_MEMBER_EPOCH)
                topic = OffsetCommitResponse.OffsetCommitResponseTopic(topic_id=topic_id("t"), partitions=[row])
                return OffsetCommitResponse(topics=[topic])
            return super().answer(request, header)

        def heartbeat(self, request: ConsumerGroupHeartbeatRequest) -> Message:
            response = super().heartbeat(request)
            assert isinstance(response, ConsumerGroupHeartbeatResponse)
            if self.broker.requests(OffsetCommitRequest):
                response.member_epoch = 2
            return response

    log = Ahead(BATCHES, ends=[5])
    assert consume(log, "-g", "g", "-o", "start", "-e")[:2] == (0, b"a\nb\nc\nd\ne\n")
    assert log.committed == 5


def test_several_topics_until_and_filters_are_refused_where_they_make_no_sense(consume: Consume) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["consume", "t", "-e", "--until", "5"])
    with pytest.raises(SystemExit, match="2"):
        main(["consume", "t", "--grep", "("])
    with pytest.raises(SystemExit, match="2"):
        main(["consume", "^t("])


def test_a_group_behind_the_start_is_moved_into_range(consume: Consume) -> None:
    log = Log([BATCHES[1]], start=3, ends=[5], committed=1)
    code, out, errors = consume(log, "-g", "g", "-e")
    assert (code, out) == (0, b"d\ne\n")
    assert "t-0 no longer holds offset 1; continuing at 3" in errors


def test_damage_is_a_failure_and_nothing_of_it_is_printed(consume: Consume) -> None:
    damaged = bytearray(BATCHES[0])
    damaged[70] ^= 1
    code, out, errors = consume(Log([bytes(damaged)], ends=[3]), "-o", "start", "-e")
    assert (code, out) == (1, b"")
    assert "batch at offset 0 is damaged" in errors
