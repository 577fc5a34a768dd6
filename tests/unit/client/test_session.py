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


# ---------------------------------------------------------------------------------------------------- leaders that move


def led_by(leaders: list[int], nodes: dict[int, int], epoch: int = 1) -> MetadataResponse:
    answer = metadata({"t": leaders}, nodes)
    for row in answer.topics[0].partitions:
        row.leader_epoch = epoch
    return answer


def hinted(code: int, leader: int, epoch: int, endpoints: dict[int, int], kind: type[Message]) -> Message:
    """Partition 0 is refused, and who leads is named."""
    if kind is ProduceResponse:
        answer: Message = produced({0: code})
        row = answer.responses[0].partition_responses[0]  # type: ignore[attr-defined]
        row.current_leader = ProduceResponse.LeaderIdAndEpoch(leader, epoch)
        answer.node_endpoints = [  # type: ignore[attr-defined]
            ProduceResponse.NodeEndpoint(node, "127.0.0.1", port) for node, port in endpoints.items()
        ]
        return answer
    answer = fetched({0: (code, None)})
    row = answer.responses[0].partitions[0]
    row.current_leader = FetchResponse.LeaderIdAndEpoch(leader, epoch)
    answer.node_endpoints = [FetchResponse.NodeEndpoint(node, "127.0.0.1", port) for node, port in endpoints.items()]
    return answer


@pytest.mark.parametrize("kind", [ProduceResponse, FetchResponse])
@pytest.mark.parametrize(
    ("leader", "epoch", "endpoints", "is_news"),
    [
        (3, 2, {3: 33}, True),  # a broker that nobody knew
        (2, 2, {}, True),  # one that is known
        (2, 1, {2: 22}, False),  # not newer than what the metadata said
        (3, 2, {}, False),  # where is it?
        (-1, -1, {}, False),  # nobody knows
    ],
)
def test_the_leader_that_a_broker_names_is_asked_next(
    kind: type[Message], leader: int, epoch: int, endpoints: dict[int, int], is_news: bool
) -> None:
    looked_up = 0

    def answer(ask: Ask) -> Message:
        nonlocal looked_up
        if isinstance(ask.request, MetadataRequest):
            looked_up += 1
            return led_by([1], {1: 11, 2: 22}) if looked_up == 1 else led_by([2], {1: 11, 2: 22}, 2)
        if ask.node == 1:
            return hinted(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader, epoch, endpoints, kind)
        return produced({0: 0}) if kind is ProduceResponse else fetched({0: (0, PLAIN)})

    session, run = Session(), Run(answer)
    if kind is ProduceResponse:
        run(data.produce(session, {TopicPartition("t", 0): PLAIN}, -1, 1000))
    else:
        run(fetch(session, {0: 0}))
    assert looked_up == (1 if is_news else 2)
    asked = [ask.node for ask in run.asked if not isinstance(ask.request, MetadataRequest)]
    assert asked == [1, leader if is_news else 2]
    if endpoints and is_news:
        assert session.nodes[3].port == 33


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    ],
)
def test_what_passes_is_waited_out_by_readers(code: ErrorCode) -> None:
    wrong = [code, code]

    def answer(ask: Ask) -> Message:
        if isinstance(ask.request, MetadataRequest):
            return metadata({"t": [1]}, {1: 11})
        row = ListOffsetsResponse.ListOffsetsPartitionResponse(error_code=wrong.pop() if wrong else 0, offset=4)
        return ListOffsetsResponse(topics=[ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=[row])])

    run = Run(answer)
    assert run(data.list_offsets(Session(), "t", [0], data.LATEST))[0].offset == 4
    seconds = [pause.seconds for pause in run.pauses]
    assert len(seconds) == 2 and seconds[0] < seconds[1]


@pytest.mark.parametrize(
    ("batch", "code", "again"),
    [
        (PLAIN, ErrorCode.NOT_ENOUGH_REPLICAS, True),  # nothing was appended
        (PLAIN, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, False),
        (PLAIN, ErrorCode.REQUEST_TIMED_OUT, False),
        (NUMBERED, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, True),  # it is recognised
        (NUMBERED, ErrorCode.REQUEST_TIMED_OUT, True),
    ],
)
def test_a_batch_that_may_be_stored_is_sent_again_only_if_it_has_a_number(
    batch: bytes, code: ErrorCode, again: bool
) -> None:
    codes = [0, code]

    def answer(ask: Ask) -> Message:
        if isinstance(ask.request, MetadataRequest):
            return metadata({"t": [1]}, {1: 11})
        return produced({0: codes.pop()})

    run, plan = Run(answer), data.produce(Session(), {TopicPartition("t", 0): batch}, -1, 1000)
    if again:
        assert run(plan)[TopicPartition("t", 0)].base_offset == 0
    else:
        with pytest.raises(Refused) as raised:
            run(plan)
        assert raised.value.code == code


def test_a_fetch_reads_on_while_another_partition_has_no_leader_or_its_broker_is_away() -> None:
    def answer(ask: Ask) -> Message | ClientError:
        if isinstance(ask.request, MetadataRequest):
            return metadata({"t": [1, 2, -1]}, {1: 11, 2: 22})
        return fetched({0: (0, PLAIN)}) if ask.node == 1 else Unreachable("cannot reach 127.0.0.1:22")

    session, run = Session(), Run(answer)
    for _ in range(2):
        assert [row.partition for row in run(fetch(session, {0: 0, 1: 0, 2: 0}))] == [0]
        told = {refused.where: refused.code for refused in session.unread}
        assert told == {
            "partition t-1": ErrorCode.BROKER_NOT_AVAILABLE,
            "partition t-2": ErrorCode.LEADER_NOT_AVAILABLE,
        }
    assert run.kinds().count("MetadataRequest") == 2, "who leads is asked again"
    assert not run.pauses


def test_a_fetch_of_nothing_but_what_is_away_is_tried_again() -> None:
    away = [True, True]

    def answer(ask: Ask) -> Message | ClientError:
        if isinstance(ask.request, MetadataRequest):
            return metadata({"t": [1]}, {1: 11})
        return Unreachable("cannot reach it") if away and away.pop() else fetched({0: (0, PLAIN)})

    run = Run(answer)
    assert [row.partition for row in run(fetch(Session(), {0: 0}))] == [0]
    assert [str(pause.reason) for pause in run.pauses] == ["cannot reach it"] * 2


def test_a_topic_that_one_broker_has_not_heard_of_yet() -> None:
    def answers(nodes: dict[int, int], heard_at: int) -> Run:
        asked = 0

        def answer(ask: Ask) -> Message:
            nonlocal asked
            asked += 1
            if asked >= heard_at:
                return metadata({"t": [1]}, nodes)
            unknown = MetadataResponse.MetadataResponseTopic(error_code=3, name="t")
            told = metadata({}, nodes)
            told.topics = [unknown]
            return told

        return Run(answer)

    run = answers({1: 11, 2: 22}, 3)
    assert run(Session().topic("t")).name == "t"
    for nodes, attempts in (({1: 11, 2: 22}, 4), ({1: 11}, 1)):
        run = answers(nodes, 9)
        with pytest.raises(Absent):
            run(Session().topic("t"))
        assert len(run.asked) == attempts
