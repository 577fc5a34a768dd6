"""What is asked of transactions: both versions, in every state, with offsets, fenced, and what makes no sense."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from cairnmq.codec.records import Record, build_batch
from cairnmq.wire import messages as m
from golden.question import Question, Script, question

STAMP = 1_700_000_000_000
MINUTE = 60_000
TOPIC, GROUP = "txn", "txn-group"


def transactions() -> Script:
    # Records are older than markers: Kafka must not take that for a reason to begin a segment, where a fetch ends.
    setting = m.CreateTopicsRequest.CreatableTopicConfig(name="segment.ms", value=str(10**13))
    topic = m.CreateTopicsRequest.CreatableTopic(name=TOPIC, num_partitions=3, replication_factor=1, configs=[setting])
    yield question("of transactions", 19, m.CreateTopicsRequest(topics=[topic], timeout_ms=5000), [4])
    # Kafka makes the coordinator's topic when it is first asked for.
    yield question("of a transaction", 10, m.FindCoordinatorRequest(key_type=1, coordinator_keys=["t1"]), [4])
    yield from strangers()
    first: Any = yield init("first", "t1")
    yield from version_1("t1", first)
    second: Any = yield init("second", "t2")
    yield from version_2("t2", second)
    third: Any = yield init("third", "t3")
    yield from fencing("t3", third)
    for number, version in (("t4", 3), ("t5", 5)):
        told: Any = yield init(f"for consumers, {number}", number)
        yield from of_consumers(number, told, version)
    yield from listing()


def init(label: str, name: str | None, known: Any = None, versions: Sequence[int] = (5,), **more: int) -> Question:
    request = m.InitProducerIdRequest(
        transactional_id=name,
        transaction_timeout_ms=more.get("timeout", MINUTE),
        producer_id=more.get("producer_id", -1 if known is None else known.producer_id),
        producer_epoch=more.get("epoch", -1 if known is None else known.producer_epoch),
    )
    return question(f"transactional, {label}", 22, request, versions)


def epoch_of(told: Any, more: dict[str, int]) -> tuple[int, int]:
    """Id and epoch that a request says; `epoch` is how far it is off."""
    return more.get("producer_id", told.producer_id), told.producer_epoch + more.get("epoch", 0)


def add(
    label: str, name: str, told: Any, places: dict[str, list[int]], versions: Sequence[int] = (3,), **more: int
) -> Question:
    topics = [
        m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=parts)
        for topic, parts in places.items()
    ]
    producer_id, epoch = epoch_of(told, more)
    request = m.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=topics,
    )
    return question(label, 24, request, versions)


def add_group(
    label: str, name: str, told: Any, group: str = GROUP, versions: Sequence[int] = (3,), **more: int
) -> Question:
    producer_id, epoch = epoch_of(told, more)
    request = m.AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=producer_id, producer_epoch=epoch, group_id=group
    )
    return question(label, 25, request, versions)


def commit(label: str, name: str, told: Any, versions: Sequence[int], **more: Any) -> Question:
    """Offset 7 of a partition, as part of the transaction."""
    producer_id, epoch = epoch_of(told, more)
    row = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
        partition_index=more.get("partition", 0), committed_offset=7, committed_metadata=more.get("metadata", "")
    )
    topic = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=more.get("topic", TOPIC), partitions=[row])
    request = m.TxnOffsetCommitRequest(
        transactional_id=name,
        group_id=more.get("group", GROUP),
        producer_id=producer_id,
        producer_epoch=epoch,
        generation_id_or_member_epoch=more.get("generation", -1),
        member_id=more.get("member", ""),
        topics=[topic],
    )
    return question(label, 28, request, versions)


def end(label: str, name: str, told: Any, result: bool, versions: Sequence[int] = (4,), **more: int) -> Question:
    producer_id, epoch = epoch_of(told, more)
    request = m.EndTxnRequest(transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=result)
    return question(label, 26, request, versions)


def send(label: str, name: str, told: Any, sequence: int, version: int, partition: int = 0, **more: int) -> Question:
    producer_id, epoch = epoch_of(told, more)
    records = build_batch(
        [Record(offset=0, timestamp=STAMP, key=None, value=b"v")],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
    )
    data = m.ProduceRequest.PartitionProduceData(index=partition, records=records)
    topic = m.ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[data])
    request = m.ProduceRequest(transactional_id=name, acks=-1, timeout_ms=5000, topic_data=[topic])
    return question(f"in a transaction, {label}", 0, request, [version])


def seen(label: str, *names: str) -> Iterator[Question]:
    """How it looks from outside: to whoever describes it, in its partitions, to readers, to readers of its group."""
    yield question(label, 65, m.DescribeTransactionsRequest(transactional_ids=list(names)))
    places = [m.DescribeProducersRequest.TopicRequest(name=TOPIC, partition_indexes=[0, 1, 2])]
    yield question(f"of transactions, {label}", 61, m.DescribeProducersRequest(topics=places))
    for level, kind in ((0, "all"), (1, "committed")):
        row = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
        topic = m.ListOffsetsRequest.ListOffsetsTopic(name=TOPIC, partitions=[row])
        ends = m.ListOffsetsRequest(replica_id=-1, isolation_level=level, topics=[topic], timeout_ms=5000)
        yield question(f"{kind}, {label}", 2, ends, [10])
        part = m.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        wanted = m.FetchRequest.FetchTopic(topic=TOPIC, partitions=[part])
        fetch = m.FetchRequest(
            max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, isolation_level=level, topics=[wanted], session_epoch=-1
        )
        yield question(f"{kind}, {label}", 1, fetch, [4, 12])
    for stable in (False, True):
        names_ = m.OffsetFetchRequest.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
        group = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=GROUP, topics=[names_])
        asked = m.OffsetFetchRequest(groups=[group], require_stable=stable)
        yield question(f"{'stable' if stable else 'any'}, {label}", 9, asked, [9])


def strangers() -> Iterator[Question]:
    """Ids that nobody has, and settings that nobody may have."""
    nobody = m.InitProducerIdResponse(producer_id=4711, producer_epoch=0)
    every = range(6)
    yield init("no id", "", versions=every)
    yield init("no time", "t0", timeout=0, versions=every)
    yield init("too much time", "t0", timeout=900_001, versions=every)
    yield init("id without epoch", "t0", producer_id=5, versions=[3, 5])
    yield init("epoch without id", "t0", epoch=5, versions=[3, 5])
    yield add("of a stranger", "nobody", nobody, {TOPIC: [0]}, range(4))
    yield add("without an id", "", nobody, {TOPIC: [0]}, [0, 3])
    yield add_group("of a stranger", "nobody", nobody, versions=range(5))
    yield add_group("without an id", "", nobody)
    yield commit("of a stranger", "nobody", nobody, range(6))
    yield commit("without an id", "", nobody, [3, 5])
    for result in (True, False):
        yield end(f"of a stranger, {result}", "nobody", nobody, result, range(6))
        yield end(f"without an id, {result}", "", nobody, result, [4, 5])
    yield send("of a stranger", "nobody", nobody, 0, 11)
    yield send("of a stranger", "nobody", nobody, 0, 12)
    yield question("of a stranger", 65, m.DescribeTransactionsRequest(transactional_ids=["nobody"]))
    yield question("without an id", 65, m.DescribeTransactionsRequest(transactional_ids=[""]))
    yield question("of nobody", 66, m.ListTransactionsRequest())


def version_1(name: str, told: Any) -> Iterator[Question]:
    """The client adds partitions and groups itself; the epoch stays over transactions."""
    yield from seen("empty", name)
    yield end("v1, nothing begun", name, told, True)
    yield add("other producer", name, told, {TOPIC: [0]}, [0, 3], producer_id=4711)
    yield add("later epoch", name, told, {TOPIC: [0]}, [0, 1, 2, 3], epoch=1)
    yield add("no such topic", name, told, {"nowhere": [0]})
    yield add("one of two", name, told, {TOPIC: [0], "nowhere": [0]})
    yield add("no such partition", name, told, {TOPIC: [9]})
    yield send("v1, not added", name, told, 0, 11)
    yield add("well", name, told, {TOPIC: [0]}, range(4))
    yield send("v1, other partition", name, told, 0, 11, 1)
    yield send("v1, later epoch", name, told, 0, 11, epoch=1)
    yield send("v1, well", name, told, 0, 11)
    yield send("v1, again", name, told, 0, 11)
    yield send("v1, gap", name, told, 5, 11)
    yield from seen("v1, ongoing", name)
    yield commit("v1, not added", name, told, [3, 4])
    yield add_group("other producer", name, told, producer_id=4711)
    yield add_group("later epoch", name, told, versions=[0, 1, 2, 3], epoch=1)
    yield add_group("well", name, told, versions=range(5))
    yield commit("v1, later epoch", name, told, [3, 4], epoch=1)
    yield commit("v1, other producer", name, told, [3, 4], producer_id=4711)
    yield commit("v1, other group", name, told, [3, 4], group="other")
    yield commit("v1, no group", name, told, [3], group="")
    yield commit("v1, no such topic", name, told, [3], topic="nowhere")
    yield commit("v1, no such partition", name, told, [3], partition=9)
    yield commit("v1, long metadata", name, told, [3], metadata="x" * 5000)
    yield commit("v1, unknown member", name, told, [3], member="zz", generation=1)
    yield commit("v1, well", name, told, range(5))
    yield from seen("v1, with offsets", name)
    yield end("v1, other producer", name, told, True, producer_id=4711)
    yield end("v1, later epoch", name, told, True, range(5), epoch=1)
    yield end("v1, commit", name, told, True)
    yield from seen("v1, committed", name)
    yield end("v1, commit again", name, told, True, range(5))
    yield end("v1, abort what is committed", name, told, False)
    yield add("for an abort", name, told, {TOPIC: [0, 1]})
    yield send("v1, to be aborted", name, told, 1, 11)
    yield send("v1, to be aborted too", name, told, 0, 11, 1)
    yield add_group("for an abort", name, told)
    yield commit("v1, to be aborted", name, told, [3], partition=1)
    yield end("v1, abort", name, told, False)
    yield from seen("v1, aborted", name)
    yield end("v1, abort again", name, told, False, range(5))
    yield end("v1, commit what is aborted", name, told, True)


def version_2(name: str, told: Any) -> Script:
    """The broker adds what is touched, and every transaction has an epoch of its own."""
    yield end("v2, commit of nothing", name, told, True, [5])
    raised: Any = yield end("v2, abort of nothing", name, told, False, [5])
    yield send("v2, well", name, raised, 0, 12)
    yield send("v2, later epoch", name, raised, 1, 12, epoch=1)
    yield send("v2, other partition", name, raised, 0, 12, 2)
    yield commit("v2, well", name, raised, [5])
    yield commit("v2, later epoch", name, raised, [5], epoch=1)
    yield commit("v2, no group", name, raised, [5], group="")
    yield commit("v2, unknown member", name, raised, [5], member="zz", generation=1)
    yield from seen("v2, ongoing", name)
    yield end("v2, later epoch", name, raised, True, [5], epoch=1)
    yield end("v2, epoch before", name, raised, True, [5], epoch=-1)
    after: Any = yield end("v2, commit", name, raised, True, [5])
    yield from seen("v2, committed", name)
    yield end("v2, commit again", name, raised, True, [5])
    yield end("v2, abort what is committed", name, raised, False, [5])
    yield end("v2, commit of nothing after it", name, after, True, [5])
    yield send("v2, epoch before", name, raised, 1, 12)
    yield send("v2, sequence goes on", name, after, 1, 12)
    yield send("v2, sequence begins", name, after, 0, 12)
    last: Any = yield end("v2, abort", name, after, False, [5])
    yield from seen("v2, aborted", name)
    yield end("v2, abort again", name, after, False, [5])
    yield end("v2, commit what is aborted", name, after, True, [5])
    yield send("v2, then in version 1", name, last, 0, 11)


def fencing(name: str, told: Any) -> Script:
    """A second instance, and a producer that asks for a higher epoch (KIP-360)."""
    higher: Any = yield init("its own epoch again", name, told)
    yield init("its own epoch, repeated", name, told)
    yield init("an epoch of nobody", name, told, epoch=9, versions=[3, 4, 5])
    yield init("another producer's", name, told, producer_id=4711, versions=[3, 4, 5])
    yield add("before it is fenced", name, higher, {TOPIC: [0]})
    heir: Any = yield init("by a second instance", name)
    yield add("of a fenced one", name, higher, {TOPIC: [0]}, range(4))
    yield add_group("of a fenced one", name, higher, versions=range(5))
    yield commit("of a fenced one", name, higher, range(6))
    yield send("of a fenced one", name, higher, 0, 11)
    yield send("of a fenced one", name, higher, 0, 12)
    for result in (True, False):
        yield end(f"of a fenced one, {result}", name, higher, result, range(6))
    yield init("of a fenced one", name, higher, versions=[3, 4, 5])
    yield from seen("fenced", name)
    yield end("of the heir, nothing begun", name, heir, True)


def of_consumers(name: str, told: Any, version: int) -> Iterator[Question]:
    """Offsets of a group of the consumer protocol: its members know no error that only that protocol has."""
    member, group = f"m-{name}", f"{GROUP}-{name}"
    beat = m.ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=member, rebalance_timeout_ms=MINUTE, subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )  # fmt: skip
    yield question(f"in a transaction, {name}", 68, beat, [1])
    yield add_group(f"of consumers, {name}", name, told, group)
    for label, generation in (("at its epoch", 2), ("too early", 1), ("too late", 9), ("from outside", -1)):
        known = "" if generation < 0 else member
        yield commit(f"by a consumer, {label}", name, told, [version], group=group, member=known, generation=generation)
    yield commit("by a consumer, unknown", name, told, [version], group=group, member="zz", generation=1)
    yield end(f"of consumers, {name}", name, told, False, [4])


def listing() -> Iterator[Question]:
    def rows(label: str, versions: Sequence[int] | None = None, **more: Any) -> Question:
        return question(label, 66, m.ListTransactionsRequest(**more), versions)

    yield rows("every one")
    yield rows("of a state", state_filters=["CompleteAbort"])
    yield rows("of no state", state_filters=["Odd", "Ongoing"])
    yield rows("of no producer", producer_id_filters=[4711])
    yield rows("for long", [1, 2], duration_filter=3_600_000)
    yield rows("by pattern", [2], transactional_id_pattern="t[12]")
    yield rows("by half a pattern", [2], transactional_id_pattern="t")
    yield rows("by no pattern", [2], transactional_id_pattern="t[")
    yield question("three", 65, m.DescribeTransactionsRequest(transactional_ids=["t1", "t2", "nobody"]))

    def marker(label: str, topic: str, partition: int, epoch: int = 0) -> Question:
        place = m.WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])
        row = m.WriteTxnMarkersRequest.WritableTxnMarker(producer_id=4711, producer_epoch=epoch, topics=[place])
        return question(label, 27, m.WriteTxnMarkersRequest(markers=[row]), [1])

    yield marker("to nowhere", "nowhere", 0)
    yield marker("to no partition", TOPIC, 9)
    yield marker("of a stranger", TOPIC, 2, 5)
