"""Plans carried out by hand: who is asked, what a moved leader or a lost answer leads to, and what is final."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from cairnmq.client import admin, offsets, transactions
from cairnmq.client import records as data
from cairnmq.client.errors import Absent, ClientError, Disconnected, Refused, Unreachable
from cairnmq.client.session import Ask, Pause, Plan, Session
from cairnmq.codec.records import Record, build_batch
from cairnmq.errors import ErrorCode
from cairnmq.types import TopicPartition
from cairnmq.wire.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeClusterResponse,
    DescribeTransactionsResponse,
    FetchRequest,
    FetchResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    Message,
    MetadataRequest,
    MetadataResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    ProduceRequest,
    ProduceResponse,
)
from scripted_broker import metadata, topic_id

T = TypeVar("T")
Answer = Callable[[Ask], Message | ClientError]
PLAIN = build_batch([Record(0, 1, None, b"v")])
NUMBERED = build_batch([Record(0, 1, None, b"v")], producer_id=5, producer_epoch=0, base_sequence=0)


class Run:
    """Carries a plan out with answers from a function, and notes what it asked and when it paused."""

    def __init__(self, answer: Answer, patience: int = 5) -> None:
        self.asked: list[Ask] = []
        self.pauses: list[Pause] = []
        self._answer = answer
        self._patience = patience

    def __call__(self, plan: Plan[T]) -> T:
        try:
            step = next(plan)
            while True:
                if isinstance(step, Pause):
                    self.pauses.append(step)
                    if len(self.pauses) > self._patience:
                        raise step.reason
                    step = plan.send(())
                else:
                    self.asked += step
                    step = plan.send([self._reply(ask) for ask in step])
        except StopIteration as done:
            result: T = done.value
            return result

    def _reply(self, ask: Ask) -> Message | ClientError | None:
        reply = self._answer(ask)
        return reply if ask.answered or isinstance(reply, ClientError) else None

    def kinds(self) -> list[str]:
        return [type(ask.request).__name__ for ask in self.asked]


def produced(codes: dict[int, int], topic: str = "t") -> ProduceResponse:
    rows = [
        ProduceResponse.PartitionProduceResponse(index=i, error_code=code, base_offset=10 * i)
        for i, code in codes.items()
    ]
    return ProduceResponse(
        responses=[ProduceResponse.TopicProduceResponse(topic_id=topic_id(topic), partition_responses=rows)]
    )


def indexes(request: Message) -> list[int]:
    assert isinstance(request, ProduceRequest)
    return [row.index for topic in request.topic_data for row in topic.partition_data]


def test_each_leader_is_asked_for_its_own_partitions() -> None:
    def answer(ask: Ask) -> Message:
        if isinstance(ask.request, MetadataRequest):
            assert ask.request.allow_auto_topic_creation is False
            return metadata({"t": [1, 2, 1]}, {1: 11, 2: 22})
        assert isinstance(ask.request, ListOffsetsRequest) and ask.request.replica_id == -1
        asked = [row.partition_index for row in ask.request.topics[0].partitions]
        rows = [ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=i, offset=100 + i) for i in asked]
        return ListOffsetsResponse(topics=[ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=rows)])

    run = Run(answer)
    found = run(data.list_offsets(Session(), "t", [0, 1, 2], data.MAX_TIMESTAMP))
    assert {i: row.offset for i, row in found.items()} == {0: 100, 1: 101, 2: 102}
    assert [ask.node for ask in run.asked] == [None, 1, 2]
    assert [ask.min_version for ask in run.asked[1:]] == [7, 7]


def test_of_several_topics_each_leader_is_asked_once_and_again_for_what_it_refused() -> None:
    asked: list[tuple[int | None, list[str]]] = []

    def answer(ask: Ask) -> Message:
        if isinstance(ask.request, MetadataRequest):
            assert ask.request.topics is not None
            return metadata({each.name or "": [1, 2] for each in ask.request.topics}, {1: 11, 2: 22})
        assert isinstance(ask.request, ListOffsetsRequest)
        names, refused = [topic.name for topic in ask.request.topics], ErrorCode.NOT_LEADER_OR_FOLLOWER
        asked.append((ask.node, names))
        topics = []
        for name in names:
            code = refused if name == "u" and len(asked) == 2 else 0
            index = (ask.node or 0) - 1
            row = ListOffsetsResponse.ListOffsetsPartitionResponse(
                partition_index=index, error_code=code, offset=ord(name)
            )
            topics.append(ListOffsetsResponse.ListOffsetsTopicResponse(name=name, partitions=[row]))
        return ListOffsetsResponse(topics=topics)

    found = Run(answer)(data.list_offsets_of(Session(), {"t": [0, 1], "u": [0, 1]}, data.LATEST))
    assert [[found[name][index].offset for index in (0, 1)] for name in "tu"] == [[ord("t")] * 2, [ord("u")] * 2]
    assert asked == [(1, ["t", "u"]), (2, ["t", "u"]), (2, ["u"])]


def test_a_moved_leader_is_looked_up_and_only_the_rest_is_sent_again() -> None:
    leaders = iter([[1, 1], [1, 2]])

    def answer(ask: Ask) -> Message:
        if isinstance(ask.request, MetadataRequest):
            return metadata({"t": next(leaders)}, {1: 11, 2: 22})
        if ask.node == 1:
            return produced({0: 0, 1: ErrorCode.NOT_LEADER_OR_FOLLOWER})
        return produced({1: 0})

    run = Run(answer)
    done = run(data.produce(Session(), {TopicPartition("t", 0): PLAIN, TopicPartition("t", 1): PLAIN}, -1, 1000))
    assert {place.partition: row.base_offset for place, row in done.items()} == {0: 0, 1: 10}
    sends = [(ask.node, indexes(ask.request)) for ask in run.asked if isinstance(ask.request, ProduceRequest)]
    assert sends == [(1, [0, 1]), (2, [1])]
    assert len(run.pauses) == 1


def one_partition(reply: Callable[[int], Message | ClientError]) -> tuple[Run, Callable[[bytes], object]]:
    sends = 0

    def answer(ask: Ask) -> Message | ClientError:
        nonlocal sends
        if isinstance(ask.request, MetadataRequest):
            return metadata({"t": [1]}, {1: 11})
        sends += 1
        return reply(sends)

    run = Run(answer)
    return run, lambda batch: run(data.produce(Session(), {TopicPartition("t", 0): batch}, -1, 1000))


@pytest.mark.parametrize("lost", [Disconnected("gone"), Refused(ErrorCode.REQUEST_TIMED_OUT, "t")])
def test_a_lost_answer_is_asked_for_again_only_if_the_batch_cannot_double(lost: ClientError) -> None:
    def reply(sends: int) -> Message | ClientError:
        if sends > 1:
            return produced({0: 0})
        return lost if isinstance(lost, Disconnected) else produced({0: ErrorCode.REQUEST_TIMED_OUT})

    run, send = one_partition(reply)
    with pytest.raises(type(lost)):
        send(PLAIN)
    assert run.kinds().count("ProduceRequest") == 1
    run, send = one_partition(reply)
    send(NUMBERED)
    assert run.kinds().count("ProduceRequest") == 2


def test_a_broker_that_was_never_reached_may_be_tried_again() -> None:
    run, send = one_partition(lambda sends: Unreachable("down") if sends < 3 else produced({0: 0}))
    send(PLAIN)
    assert [round(pause.seconds, 2) for pause in run.pauses] == [0.05, 0.1]


def test_a_final_refusal_goes_before_one_worth_a_retry() -> None:
    def answer(ask: Ask) -> Message:
        if isinstance(ask.request, MetadataRequest):
            return metadata({"t": [1, 1]}, {1: 11})
        return produced({0: ErrorCode.NOT_LEADER_OR_FOLLOWER, 1: ErrorCode.MESSAGE_TOO_LARGE})

    run = Run(answer)
    with pytest.raises(Refused, match="t-1 accepts no batch this large.*MESSAGE_TOO_LARGE"):
        run(data.produce(Session(), {TopicPartition("t", 0): PLAIN, TopicPartition("t", 1): PLAIN}, -1, 1000))
    assert not run.pauses


@pytest.mark.parametrize("lost", [Unreachable("down"), Disconnected("gone")])
def test_what_one_broker_has_stored_is_not_sent_again_when_another_is_away(lost: ClientError) -> None:
    away = iter([lost])

    def answer(ask: Ask) -> Message | ClientError:
        if isinstance(ask.request, MetadataRequest):
            return metadata({"t": [1, 2]}, {1: 11, 2: 22})
        return produced({0: 0}) if ask.node == 1 else next(away, produced({1: 0}))

    for batch in (PLAIN, NUMBERED):
        away = iter([lost])
        run = Run(answer)
        plan = data.produce(Session(), {TopicPartition("t", 0): batch, TopicPartition("t", 1): batch}, -1, 1000)
        if batch is PLAIN and isinstance(lost, Disconnected):
            with pytest.raises(Disconnected):
                run(plan)
        else:
            assert {place.partition for place in run(plan)} == {0, 1}
        assert [ask.node for ask in run.asked if isinstance(ask.request, ProduceRequest)].count(1) == 1


def test_what_may_be_stored_is_not_sent_again_because_something_else_moved() -> None:
    def answer(ask: Ask) -> Message:
        if isinstance(ask.request, MetadataRequest):
            return metadata({"t": [1, 2]}, {1: 11, 2: 22})
        if ask.node == 1:
            return produced({0: ErrorCode.REQUEST_TIMED_OUT})
        return produced({1: ErrorCode.NOT_LEADER_OR_FOLLOWER})

    run = Run(answer)
    with pytest.raises(Refused, match="REQUEST_TIMED_OUT"):
        run(data.produce(Session(), {TopicPartition("t", 0): PLAIN, TopicPartition("t", 1): PLAIN}, -1, 1000))
    assert not run.pauses


def test_acks_0_waits_for_nothing() -> None:
    run, _ = one_partition(lambda sends: produced({0: 0}))
    assert run(data.produce(Session(), {TopicPartition("t", 0): PLAIN}, 0, 1000)) == {}
    assert run.asked[-1].answered is False


@pytest.mark.parametrize("lost", [Unreachable("down"), Disconnected("gone")])
def test_acks_0_tells_what_could_not_be_sent(lost: ClientError) -> None:
    away = iter([lost])

    def answer(ask: Ask) -> Message | ClientError:
        if isinstance(ask.request, MetadataRequest):
            return metadata({"t": [1, 2]}, {1: 11, 2: 22})
        return produced({0: 0}) if ask.node == 1 else next(away, produced({1: 0}))

    run = Run(answer)
    plan = data.produce(Session(), {TopicPartition("t", 0): PLAIN, TopicPartition("t", 1): PLAIN}, 0, 1000)
    if isinstance(lost, Disconnected):
        with pytest.raises(Disconnected):
            run(plan)
    else:
        run(plan)
    sends = [ask.node for ask in run.asked if isinstance(ask.request, ProduceRequest)]
    assert sends == ([1, 2] if isinstance(lost, Disconnected) else [1, 2, 2])


def no_topic(code: int) -> MetadataResponse:
    return MetadataResponse(topics=[MetadataResponse.MetadataResponseTopic(name="t", error_code=code)])


def test_an_unknown_topic_is_final() -> None:
    run = Run(lambda ask: no_topic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    with pytest.raises(Absent, match="topic t does not exist; `cairn topic list`"):
        run(data.list_offsets(Session(), "t", [0], -1))
    assert run.kinds() == ["MetadataRequest"]


def test_a_partition_that_does_not_exist_is_final() -> None:
    run = Run(lambda ask: metadata({"t": [1, 1]}, {1: 11}))
    with pytest.raises(Absent, match="partition 2 does not exist; the topic has partitions 0 to 1"):
        run(data.list_offsets(Session(), "t", [2], -1))


def test_the_only_partition_is_called_that() -> None:
    run = Run(lambda ask: metadata({"t": [1]}, {1: 11}))
    with pytest.raises(Absent, match="partition 1 does not exist; the topic has only partition 0"):
        run(data.list_offsets(Session(), "t", [1], -1))


@pytest.mark.parametrize("message", ["Topic 't' already exists", "Topic 't' already exists."])
def test_a_message_that_names_the_topic_is_not_given_its_name_again(message: str) -> None:
    code = ErrorCode.TOPIC_ALREADY_EXISTS
    assert str(Refused(code, "topic t", message)) == "Topic 't' already exists (TOPIC_ALREADY_EXISTS)"
    assert str(Refused(code, "topic t", "too late")) == "topic t: too late (TOPIC_ALREADY_EXISTS)"
    assert str(Refused(code, "topic t")) == "topic t already exists (TOPIC_ALREADY_EXISTS)"


def test_a_topic_being_created_is_waited_for_a_while() -> None:
    answers = iter([no_topic(3), no_topic(5), metadata({"t": [1]}, {1: 11})])
    run = Run(lambda ask: next(answers))
    assert run(Session().topic("t", create=True)).name == "t"
    run = Run(lambda ask: no_topic(3), patience=100)
    with pytest.raises(Absent):
        run(Session().topic("t", create=True))
    assert all(isinstance(a.request, MetadataRequest) and a.request.allow_auto_topic_creation for a in run.asked)


def test_a_partition_without_a_leader_is_waited_for() -> None:
    answers = iter([metadata({"t": [-1]}, {1: 11}), metadata({"t": [1]}, {1: 11})])

    def answer(ask: Ask) -> Message:
        if isinstance(ask.request, MetadataRequest):
            return next(answers)
        return produced({0: 0})

    run = Run(answer)
    run(data.produce(Session(), {TopicPartition("t", 0): PLAIN}, -1, 1000))
    assert [type(p.reason) for p in run.pauses] == [Refused]


def fetched(rows: dict[int, tuple[int, bytes | None]]) -> FetchResponse:
    partitions = [
        FetchResponse.PartitionData(
            partition_index=i, error_code=code, high_watermark=7, records=memoryview(records or b"")
        )
        for i, (code, records) in rows.items()
    ]
    topic = FetchResponse.FetchableTopicResponse(topic_id=topic_id("t"), partitions=partitions)
    return FetchResponse(responses=[topic])


def fetch(session: Session, positions: dict[int, int]) -> Plan[list[data.Fetched]]:
    return data.fetch(
        session, {"t": positions}, max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, partition_max_bytes=1 << 20
    )


def test_fetch_gives_whole_batches_and_leaves_out_of_range_to_its_caller() -> None:
    def answer(ask: Ask) -> Message:
        if isinstance(ask.request, MetadataRequest):
            return metadata({"t": [1, 1]}, {1: 11})
        assert isinstance(ask.request, FetchRequest)
        assert ask.wait_seconds == 0.5
        assert [row.fetch_offset for row in ask.request.topics[0].partitions] == [3, 4]
        assert ask.request.topics[0].topic_id == topic_id("t") and ask.request.topics[0].topic == "t"
        return fetched({0: (0, PLAIN + NUMBERED[:-1]), 1: (ErrorCode.OFFSET_OUT_OF_RANGE, None)})

    good, bad = Run(answer)(fetch(Session(), {0: 3, 1: 4}))
    assert (good.topic, good.partition, [bytes(b) for b in good.batches], good.high_watermark) == ("t", 0, [PLAIN], 7)
    assert (bad.error, bad.batches) == (ErrorCode.OFFSET_OUT_OF_RANGE, ())


def test_fetch_keeps_what_it_got_when_another_partition_moved() -> None:
    looked_up = 0

    def answer(ask: Ask) -> Message:
        nonlocal looked_up
        if isinstance(ask.request, MetadataRequest):
            looked_up += 1
            return metadata({"t": [1, 1]}, {1: 11})
        return fetched({0: (0, PLAIN), 1: (ErrorCode.FENCED_LEADER_EPOCH, None)})

    session = Session()
    run = Run(answer)
    assert [row.partition for row in run(fetch(session, {0: 0, 1: 0}))] == [0]
    assert not run.pauses
    run(fetch(session, {0: 0, 1: 0}))
    assert looked_up == 2


def test_fetch_waits_itself_when_one_partition_fails_and_the_others_have_nothing() -> None:
    """The broker does not wait with an error, so who reads on would ask without any rest."""
    code = ErrorCode.KAFKA_STORAGE_ERROR

    def answer(ask: Ask) -> Message:
        if isinstance(ask.request, MetadataRequest):
            return metadata({"t": [1, 1]}, {1: 11})
        return fetched({0: (0, None), 1: (code, None)})

    session, run = Session(), Run(answer)
    assert [row.partition for row in run(fetch(session, {0: 0, 1: 0}))] == [0]
    assert [pause.seconds for pause in run.pauses] == [0.5], "as long as the broker was to wait"
    assert [refused.where for refused in session.unread] == ["partition t-1"]
    code = ErrorCode.NONE
    run(fetch(session, {0: 0, 1: 0}))
    assert (len(run.pauses), session.unread) == (1, [])


def coordinator(node: int) -> FindCoordinatorResponse:
    row = FindCoordinatorResponse.Coordinator(key="g", node_id=node, host="127.0.0.1", port=1)
    return FindCoordinatorResponse(coordinators=[row])


def test_offsets_go_to_the_coordinator_and_follow_it() -> None:
    coordinators = iter([1, 2])

    def answer(ask: Ask) -> Message:
        if isinstance(ask.request, MetadataRequest):
            return metadata({"t": [1, 1]}, {1: 11, 2: 22})
        if isinstance(ask.request, FindCoordinatorRequest):
            return coordinator(next(coordinators))
        assert isinstance(ask.request, OffsetCommitRequest)
        code = ErrorCode.NOT_COORDINATOR if ask.node == 1 else 0
        row = OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=0, error_code=code)
        topic = OffsetCommitResponse.OffsetCommitResponseTopic(topic_id=topic_id("t"), partitions=[row])
        return OffsetCommitResponse(topics=[topic])

    run = Run(answer)
    run(offsets.commit(Session(), "g", {TopicPartition("t", 0): 42}))
    commits = [ask for ask in run.asked if isinstance(ask.request, OffsetCommitRequest)]
    assert [ask.node for ask in commits] == [1, 2]
    request = commits[-1].request
    assert isinstance(request, OffsetCommitRequest)
    assert (request.topics[0].name, request.topics[0].topic_id) == ("t", topic_id("t"))
    assert request.topics[0].partitions[0].committed_offset == 42


def test_a_coordinator_that_has_left_the_cluster_is_looked_for_again() -> None:
    coordinators = iter([1, 2])
    clusters = iter([{1: 11, 2: 22}, {2: 22}])
    run = Run(
        lambda ask: metadata({}, next(clusters)) if isinstance(ask.request, MetadataRequest)
        else coordinator(next(coordinators))
    )  # fmt: skip
    session = Session()
    run(session.metadata([]))
    assert [run(session.coordinator("g")), run(session.coordinator("g"))] == [1, 1]
    run(session.metadata([]))
    assert run(session.coordinator("g")) == 2


@pytest.mark.parametrize(
    ("code", "asked"), [(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 2), (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, 1)]
)
def test_an_open_transaction_is_not_left_out_because_its_broker_cannot_tell_yet(code: int, asked: int) -> None:
    codes = iter([code, 0])

    def answer(ask: Ask) -> Message:
        if isinstance(ask.request, MetadataRequest):
            return metadata({}, {1: 11})
        if isinstance(ask.request, ListTransactionsRequest):
            listed = ListTransactionsResponse.TransactionState(transactional_id="x")
            return ListTransactionsResponse(transaction_states=[listed])
        row = DescribeTransactionsResponse.TransactionState(
            error_code=next(codes), transactional_id="x", transaction_state="Ongoing", producer_id=7
        )
        return DescribeTransactionsResponse(transaction_states=[row])

    run = Run(answer)
    found = run(transactions.list_open(Session(), "x"))
    assert run.kinds().count("DescribeTransactionsRequest") == asked
    assert [each.transaction.producer_id for each in found] == [7] * (asked - 1)


@pytest.mark.parametrize("batched", [False, True])
def test_committed_offsets_of_both_forms_of_the_answer(batched: bool) -> None:
    def answer(ask: Ask) -> Message:
        if isinstance(ask.request, MetadataRequest):
            return metadata({"t": [1, 1]}, {1: 11})
        if isinstance(ask.request, FindCoordinatorRequest):
            return coordinator(1)
        request = ask.request
        assert isinstance(request, OffsetFetchRequest) and request.topics is not None
        assert request.topics[0].partition_indexes == [0, 1] and request.groups[0].group_id == "g"
        if batched:
            rows = [
                OffsetFetchResponse.OffsetFetchResponsePartitions(partition_index=i, committed_offset=o)
                for i, o in ((0, 9), (1, -1))
            ]
            topic = OffsetFetchResponse.OffsetFetchResponseTopics(topic_id=topic_id("t"), partitions=rows)
            return OffsetFetchResponse(
                groups=[OffsetFetchResponse.OffsetFetchResponseGroup(group_id="g", topics=[topic])]
            )
        old = [
            OffsetFetchResponse.OffsetFetchResponsePartition(partition_index=i, committed_offset=o)
            for i, o in ((0, 9), (1, -1))
        ]
        return OffsetFetchResponse(topics=[OffsetFetchResponse.OffsetFetchResponseTopic(name="t", partitions=old)])

    found = Run(answer)(offsets.fetch(Session(), "g", [TopicPartition("t", 0), TopicPartition("t", 1)]))
    assert found == {TopicPartition("t", 0): 9}


def test_creating_says_for_each_topic_how_it_went() -> None:
    def answer(ask: Ask) -> Message:
        assert isinstance(ask.request, CreateTopicsRequest)
        assert [(t.name, t.num_partitions, t.configs[0].value) for t in ask.request.topics] == [
            ("a", 3, "1"),
            ("b", 3, "1"),
        ]
        rows = [
            CreateTopicsResponse.CreatableTopicResult(name="a", num_partitions=3, replication_factor=1),
            CreateTopicsResponse.CreatableTopicResult(name="b", error_code=40, error_message="no such config"),
        ]
        return CreateTopicsResponse(topics=rows)

    made = Run(answer)(admin.create_topics(Session(), [admin.NewTopic(n, 3, 1, {"k": "1"}) for n in "ab"], 1000))
    assert made["a"] == admin.Created("a", 3, 1)
    assert str(made["b"]) == "topic b: no such config (INVALID_CONFIG)"


@pytest.mark.parametrize("lost", [Unreachable("down"), Disconnected("gone")])
@pytest.mark.parametrize("twice_is_harmless", [False, True])
def test_what_changes_something_is_sent_twice_only_if_that_is_harmless(
    lost: ClientError, twice_is_harmless: bool
) -> None:
    answers = iter([lost, CreateTopicsResponse()])
    run = Run(lambda ask: next(answers))
    plan = admin.create_topics(Session(), [], 1000, twice_is_harmless=twice_is_harmless)
    if isinstance(lost, Disconnected) and not twice_is_harmless:
        with pytest.raises(Disconnected):
            run(plan)
    else:
        assert run(plan) == {}


def test_a_question_is_asked_again_when_its_answer_is_lost() -> None:
    answers = iter([Disconnected("gone"), Unreachable("down"), DescribeClusterResponse(cluster_id="c")])
    run = Run(lambda ask: next(answers))
    assert run(admin.describe_cluster(Session())).cluster_id == "c"
    assert len(run.pauses) == 2
