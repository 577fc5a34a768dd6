"""Transactions on the wire: begun, ended, fenced, timed out, described, and gone on with after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cairnmq.broker.coordination import transaction_coordinator
from cairnmq.broker.storage_loop.store import StorageStopped
from cairnmq.errors import ErrorCode
from cairnmq.storage.batches.markers import Marker
from cairnmq.transactions.messages import End, Producer
from cairnmq.transactions.record import TransactionRecord, put
from cairnmq.wire import messages as m
from cairnmq.wire.messages import ProduceRequest
from unit.broker.rig import Rig, batch, open_rig, scenario

OK = ErrorCode.NONE
V1, V2 = 1, 2  # transaction versions
PRODUCE = {V1: 11, V2: 12}
END = {V1: 4, V2: 5}
OFFSETS = {V1: 4, V2: 5}


class Client:
    """A transactional producer without any manners: it does what the test says."""

    def __init__(self, rig: Rig, name: str = "t", version: int = V2) -> None:
        self.rig = rig
        self.name = name
        self.version = version
        self.pid = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    async def init(self, timeout_ms: int = 60_000, goes_on: bool = False) -> int:
        pid, epoch = (self.pid, self.epoch) if goes_on else (-1, -1)
        answer = await self.rig.ask(
            22,
            5,
            m.InitProducerIdRequest(
                transactional_id=self.name, transaction_timeout_ms=timeout_ms, producer_id=pid, producer_epoch=epoch
            ),
        )
        if not answer.error_code:
            self.take(answer)
        return int(answer.error_code)

    def take(self, answer: Any) -> None:
        self.pid, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences.clear()

    async def ready(self, **options: Any) -> Client:
        while (code := await self.init(**options)) == ErrorCode.CONCURRENT_TRANSACTIONS:
            await settled(self.rig)
        assert code == OK
        return self

    async def add(self, topic: str, *partitions: int) -> list[int]:
        asked = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))
        answer = await self.rig.ask(
            24,
            3,
            m.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=self.pid,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[asked],
            ),
        )
        (topic_result,) = answer.results_by_topic_v3_and_below
        return [one.partition_error_code for one in topic_result.results_by_partition]

    async def send(self, topic: str, partition: int, *values: bytes) -> int:
        sequence = self.sequences.get((topic, partition), 0)
        records = batch(
            *values, producer_id=self.pid, producer_epoch=self.epoch, base_sequence=sequence, transactional=True
        )
        data = ProduceRequest.PartitionProduceData(index=partition, records=records)
        request = ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout_ms=60_000,
            topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])],
        )
        answer = (await self.rig.ask(0, PRODUCE[self.version], request)).responses[0].partition_responses[0]
        if not answer.error_code:
            self.sequences[topic, partition] = sequence + len(values)
        return int(answer.error_code)

    async def ask_end(self, commit: bool) -> Any:
        return await self.rig.ask(
            26,
            END[self.version],
            m.EndTxnRequest(
                transactional_id=self.name, producer_id=self.pid, producer_epoch=self.epoch, committed=commit
            ),
        )

    async def end(self, commit: bool = True) -> int:
        answer = await self.ask_end(commit)
        if not answer.error_code and self.version == V2:
            self.take(answer)
        return int(answer.error_code)

    async def commit_offset(
        self, group: str, topic: str, offset: int, *, version: int | None = None, **fields: Any
    ) -> int:
        """By the topic's id where the version has that."""
        version = OFFSETS[self.version] if version is None else version
        known = self.rig.ctx.catalog.image.topic(topic)
        topic_id = b"\1" * 16 if known is None else known.topic_id
        partition = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata="why"
        )
        answer = await self.rig.ask(
            28,
            version,
            m.TxnOffsetCommitRequest(
                transactional_id=self.name,
                group_id=group,
                producer_id=self.pid,
                producer_epoch=self.epoch,
                topics=[
                    m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
                        name=topic, topic_id=topic_id, partitions=[partition]
                    )
                ],
                **fields,
            ),
        )
        assert (answer.topics[0].topic_id, answer.topics[0].name) == (
            (topic_id, "") if version >= 6 else (bytes(16), topic)
        )
        return int(answer.topics[0].partitions[0].error_code)


async def settled(rig: Rig) -> None:
    """Every transaction whose end has begun has ended."""
    await rig.transactions.settled()


async def committed(rig: Rig, group: str, topic: str, *, stable: bool = True) -> tuple[int, int]:
    topics = [m.OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
    request = m.OffsetFetchRequest(group_id=group, topics=topics, require_stable=stable)
    (answer,) = (await rig.ask(9, 7, request)).topics[0].partitions
    return answer.error_code, answer.committed_offset


async def state(rig: Rig, name: str = "t") -> Any:
    (answer,) = (await rig.ask(65, 0, m.DescribeTransactionsRequest(transactional_ids=[name]))).transaction_states
    return answer


def stable(rig: Rig, topic: str = "a", partition: int = 0) -> tuple[int, int]:
    queue = rig.queue(topic, partition)
    return queue.last_stable, queue.end


@pytest.mark.parametrize("version", [V1, V2])
@pytest.mark.parametrize("commit", [True, False])
@scenario
async def test_a_whole_transaction(tmp_path: Path, version: int, commit: bool) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a", partitions=2)
        client = await Client(rig, version=version).ready()
        for epoch in range(3):
            if version == V1:
                assert await client.add("a", 0, 1) == [0, 0]
            assert [await client.send("a", partition, b"x", b"y") for partition in (0, 1)] == [0, 0]
            assert stable(rig)[0] == 3 * epoch, "nothing of an open transaction is stable"
            assert (await state(rig)).transaction_state == "Ongoing"
            assert [(one.topic, one.partitions) for one in (await state(rig)).topics] == [("a", [0, 1])]
            assert await client.end(commit) == 0
            assert stable(rig) == (3 * epoch + 3, 3 * epoch + 3), "a marker behind two records"
            assert (await state(rig)).transaction_state == ("CompleteCommit" if commit else "CompleteAbort")
            assert client.epoch == (epoch + 1 if version == V2 else 0)


@scenario
async def test_a_partition_that_was_not_added(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a", partitions=2)
        client = await Client(rig, version=V1).ready()
        assert await client.send("a", 0, b"x") == ErrorCode.TRANSACTION_ABORTABLE
        assert await client.add("a", 0) == [0]
        assert await client.send("a", 1, b"x") == ErrorCode.TRANSACTION_ABORTABLE
        assert await client.add("a", 0, 7) == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert await client.send("a", 0, b"x") == 0
        assert rig.queue("a", 1).end == 0


@pytest.mark.parametrize("version", [V1, V2])
@scenario
async def test_a_second_instance_fences_the_first(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        first = await Client(rig, version=version).ready()
        await first.add("a", 0)
        await first.send("a", 0, b"zombie")
        second = Client(rig, version=version)
        assert await second.init() == ErrorCode.CONCURRENT_TRANSACTIONS, "the first one's transaction ends first"
        await second.ready()
        assert second.pid == first.pid and second.epoch > first.epoch
        assert stable(rig) == (2, 2)
        assert await first.send("a", 0, b"late") == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await first.end() == ErrorCode.PRODUCER_FENCED
        assert await first.add("a", 0) == [ErrorCode.PRODUCER_FENCED]
        assert await first.commit_offset("g", "a", 1) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await first.init(goes_on=True) == ErrorCode.PRODUCER_FENCED
        await second.add("a", 0)
        assert await second.send("a", 0, b"new") == 0
        assert await first.init(goes_on=True) == ErrorCode.PRODUCER_FENCED, "nor does it harm a later transaction"
        assert (await state(rig)).transaction_state == "Ongoing"
        assert await second.end() == 0 and stable(rig) == (4, 4)


@scenario
async def test_ends_are_answered_again(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        old = await Client(rig, "old", V1).ready()
        assert (await old.ask_end(True)).error_code == ErrorCode.INVALID_TXN_STATE
        await old.add("a", 0)
        for _ in range(3):
            assert (await old.ask_end(True)).error_code == 0
        assert (await old.ask_end(False)).error_code == ErrorCode.INVALID_TXN_STATE
        new = await Client(rig, "new", V2).ready()
        await new.send("a", 0, b"x")
        first = await new.ask_end(True)
        again = await new.ask_end(True)
        assert (again.error_code, again.producer_id, again.producer_epoch) == (0, first.producer_id, 1)
        assert (await new.ask_end(False)).error_code == ErrorCode.INVALID_TXN_STATE
        new.epoch = 1
        assert (await new.ask_end(True)).error_code == ErrorCode.INVALID_TXN_STATE, "the next one has not begun"
        assert await new.end(False) == 0 and new.epoch == 2, "an abort may be one too many, and raises the epoch"
        assert rig.queue("a").end == 3, "x and two markers"


@scenario
async def test_time_is_up(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        client = await Client(rig).ready(timeout_ms=5_000)
        await client.send("a", 0, b"x")
        coordinator = rig.transactions
        began = coordinator._now()
        assert list(coordinator.core.advance(began + 4_000, 0)) == []
        for name, decision in coordinator.core.advance(began + 6_000, 0):
            coordinator._carry_out(name, decision)
        await settled(rig)
        assert stable(rig) == (2, 2) and (await state(rig)).transaction_state == "CompleteAbort"
        assert await client.send("a", 0, b"late") == ErrorCode.INVALID_PRODUCER_EPOCH
        assert (await client.ask_end(True)).error_code == ErrorCode.PRODUCER_FENCED
        await client.ready()
        assert await client.send("a", 0, b"y") == 0 and await client.end() == 0


@pytest.mark.parametrize("version", [V1, V2])
@scenario
async def test_offsets_of_a_transaction(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        client = await Client(rig, version=version).ready()

        async def join() -> None:
            if version == V1:
                request = m.AddOffsetsToTxnRequest(
                    transactional_id="t", producer_id=client.pid, producer_epoch=client.epoch, group_id="g"
                )
                assert (await rig.ask(25, 3, request)).error_code == 0

        if version == V1:
            assert await client.commit_offset("g", "a", 5) == ErrorCode.TRANSACTION_ABORTABLE
        for offset, commit, expected in ((5, True, 5), (7, False, 5), (9, True, 9)):
            await join()
            assert await client.commit_offset("g", "a", offset) == 0
            assert await committed(rig, "g", "a") == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
            assert (await committed(rig, "g", "a", stable=False))[0] == 0
            assert await client.end(commit) == 0
            assert await committed(rig, "g", "a") == (0, expected)
        await join()
        wrong = await client.commit_offset("g", "a", 1, generation_id_or_member_epoch=3, member_id="nobody")
        assert wrong in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


@scenario
async def test_offsets_by_topic_id_with_the_errors_of_offset_commit(tmp_path: Path) -> None:
    """TxnOffsetCommit 6 (KIP-1319); older producers know neither a missing group nor a stale epoch."""
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        client = await Client(rig).ready()
        beat = m.ConsumerGroupHeartbeatRequest(
            group_id="cg", member_id="m", rebalance_timeout_ms=5_000, subscribed_topic_names=["a"], topic_partitions=[]
        )
        epoch = (await rig.ask(68, 1, beat)).member_epoch
        assert await client.commit_offset("g", "a", 5, version=6) == 0
        assert (
            await client.commit_offset("cg", "a", 6, version=6, generation_id_or_member_epoch=epoch, member_id="m") == 0
        )
        illegal, missing = ErrorCode.ILLEGAL_GENERATION, ErrorCode.GROUP_ID_NOT_FOUND
        for version, no_group, stale, no_topic in (
            (5, illegal, illegal, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (6, missing, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_TOPIC_ID),
        ):
            late = {"generation_id_or_member_epoch": epoch + 1, "member_id": "m"}
            assert await client.commit_offset("none", "a", 1, version=version, **late) == no_group
            assert await client.commit_offset("cg", "a", 1, version=version, **late) == stale
            assert await client.commit_offset("g", "nowhere", 1, version=version) == no_topic
        assert await client.end() == 0
        assert await committed(rig, "g", "a") == (0, 5) and await committed(rig, "cg", "a") == (0, 6)


@scenario
async def test_transactions_do_not_make_more_groups_than_allowed(tmp_path: Path) -> None:
    async with open_rig(tmp_path, {"cairn.groups.max": "2"}) as rig:
        await rig.create("a")
        client = await Client(rig).ready()
        assert [await client.commit_offset(group, "a", 5) for group in "ghigh"] == [
            OK, OK, ErrorCode.POLICY_VIOLATION, OK, OK,
        ]  # fmt: skip
        assert await client.end() == OK
        assert [await committed(rig, group, "a") for group in "ghi"] == [(0, 5), (0, 5), (0, -1)]
        assert await client.commit_offset("i", "a", 5) == ErrorCode.POLICY_VIOLATION


@scenario
async def test_a_later_commit_outside_of_the_transaction_stays(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        client = await Client(rig).ready()
        assert await client.commit_offset("g", "a", 5) == 0
        rig.now_ms += 10
        partition = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=8)
        topics = [m.OffsetCommitRequest.OffsetCommitRequestTopic(name="a", partitions=[partition])]
        await rig.ask(8, 8, m.OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=topics))
        assert await client.end() == 0
        assert await committed(rig, "g", "a") == (0, 8)


@pytest.mark.parametrize("version", [V1, V2])
@scenario
async def test_a_restart_goes_on(tmp_path: Path, version: int) -> None:
    """An open transaction stays open, one whose end was decided is ended, with its offsets."""
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        opened = await Client(rig, "open", version).ready()
        decided = await Client(rig, "decided", V2).ready()
        for client in (opened, decided):
            await client.add("a", 0)
            assert await client.send("a", 0, b"x") == 0
        await decided.commit_offset("g", "a", 5)

        # The broker dies when the decision is stored, before the first marker.
        ends = End("decided", Producer(decided.pid, 0), commit=True, raises_epoch=True)
        await rig.facts.commit(rig.transactions.core.end(ends, None, rig.now_ms, -1).records)
    async with open_rig(tmp_path) as rig:
        assert (await state(rig, "decided")).transaction_state == "PrepareCommit"
        assert await committed(rig, "g", "a") == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        rig.transactions.start(10**9, 10**9)
        await settled(rig)
        assert (await state(rig, "decided")).transaction_state == "CompleteCommit"
        assert await committed(rig, "g", "a") == (0, 5)
        opened.rig = decided.rig = rig
        assert stable(rig) == (0, 3), "the other one is open, from the first record on"
        assert await opened.send("a", 0, b"y") == 0
        assert await opened.end() == 0
        assert stable(rig) == (5, 5)
        assert await decided.end() == 0 and decided.epoch == 1, "a retry, answered from what is stored"


@scenario
async def test_epochs_run_out(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        client = await Client(rig).ready()
        first = client.pid
        record = rig.transactions.core.describe("t")
        assert record is not None
        last = TransactionRecord(first, 32766, record.state, record.timeout_ms, record.update_ms)
        await rig.facts.commit([put("t", last)])
        rig.transactions.core.reload("t")
        client.epoch = 32766
        assert await client.send("a", 0, b"x") == 0
        answer = await client.ask_end(True)
        assert answer.error_code == 0 and answer.producer_epoch == 0 and answer.producer_id != first
        again = await client.ask_end(True)
        assert (again.error_code, again.producer_id, again.producer_epoch) == (0, answer.producer_id, 0)
        client.take(answer)
        assert await client.send("a", 0, b"y") == 0 and await client.end() == 0
        assert stable(rig) == (4, 4)


@scenario
async def test_listed_and_described(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        one, two = await Client(rig, "one").ready(), await Client(rig, "two").ready()
        await two.send("a", 0, b"x")

        async def listed(version: int = 2, **fields: Any) -> list[str]:
            answer = await rig.ask(66, version, m.ListTransactionsRequest(**fields))
            assert answer.error_code == 0
            return sorted(state.transactional_id for state in answer.transaction_states)

        assert await listed() == ["one", "two"]
        assert await listed(state_filters=["Ongoing"]) == ["two"]
        assert await listed(producer_id_filters=[one.pid]) == ["one"]
        assert await listed(transactional_id_pattern="o.*") == ["one"]
        assert "two" not in await listed(duration_filter=1_000_000)
        unknown = await rig.ask(66, 1, m.ListTransactionsRequest(state_filters=["Nope"]))
        assert (unknown.unknown_state_filters, unknown.transaction_states) == (["Nope"], [])
        wrong = await rig.ask(66, 2, m.ListTransactionsRequest(transactional_id_pattern="("))
        assert wrong.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
        assert (await state(rig, "nobody")).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert (await state(rig, "")).error_code == ErrorCode.INVALID_REQUEST


async def write_marker(rig: Rig, client: Client, coordinator_epoch: int, *partitions: int) -> list[int]:
    """An abort in topic a, as an administrator sends it."""
    topics = [m.WriteTxnMarkersRequest.WritableTxnMarkerTopic(name="a", partition_indexes=list(partitions))]
    marker = m.WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=client.pid,
        producer_epoch=client.epoch,
        transaction_result=False,
        topics=topics,
        coordinator_epoch=coordinator_epoch,
    )
    answer = await rig.ask(27, 1, m.WriteTxnMarkersRequest(markers=[marker]))
    return [one.error_code for one in answer.markers[0].topics[0].partitions]


@scenario
async def test_an_administrator_ends_what_hangs(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        client = await Client(rig, version=V1).ready()
        await client.add("a", 0)
        await client.send("a", 0, b"x")
        described = await rig.ask(
            61,
            0,
            m.DescribeProducersRequest(
                topics=[m.DescribeProducersRequest.TopicRequest(name="a", partition_indexes=[0])]
            ),
        )
        (producer,) = described.topics[0].partitions[0].active_producers
        assert producer.current_txn_start_offset == 0
        assert (producer.producer_id, producer.producer_epoch) == (client.pid, client.epoch)
        codes = await write_marker(rig, client, max(producer.coordinator_epoch, 0), 0, 9)
        assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert stable(rig) == (2, 2)


@scenario
async def test_nobody_fences_the_coordinator(tmp_path: Path) -> None:
    """A marker of a later coordinator than there is would make queues refuse the markers of ours, for ever."""
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        client = await Client(rig, version=V1).ready()
        await client.add("a", 0)
        await client.send("a", 0, b"x")
        for epoch in (rig.ctx.store.engine.epoch + 1, 2**31 - 1):
            assert await write_marker(rig, client, epoch, 0) == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
        assert stable(rig)[0] == 0, "it is still open"
        assert await client.end() == OK
        assert stable(rig) == (2, 2)
        assert await write_marker(rig, client, rig.ctx.store.engine.epoch, 0) == [OK], "a repeated one"


@scenario
async def test_markers_are_tried_until_they_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_coordinator, "RETRY_SECONDS", 0.01)
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        client = await Client(rig).ready()
        await client.send("a", 0, b"x")
        write, tries = rig.ctx.store.write_markers, []

        async def twice_in_vain(markers: list[Marker]) -> list[ErrorCode]:
            tries.append(len(markers))
            if len(tries) < 3:
                raise StorageStopped("the disk is full")
            return await write(markers)

        rig.transactions._write_markers = twice_in_vain
        assert await client.end() == 0
        assert tries == [1, 1, 1] and stable(rig) == (2, 2)


@scenario
async def test_a_deleted_topic_ends_with_its_transactions(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("a")
        await rig.create("b")
        client = await Client(rig).ready()
        await client.send("a", 0, b"x")
        await client.send("b", 0, b"x")
        topic = rig.ctx.catalog.image.topic("a")
        assert topic is not None
        await rig.ctx.catalog.delete_topic(topic)
        assert [one.topic for one in (await state(rig)).topics] == ["b"]
        assert await client.end() == 0 and stable(rig, "b") == (2, 2)
