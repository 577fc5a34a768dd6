"""What a client reads where, if it says in which rack it is: three brokers in three racks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from cairnmq.broker.cluster.nearest_reads import SEND_AGAIN_MS
from cairnmq.errors import ErrorCode
from cairnmq.wire.messages import FetchRequest
from unit.broker.cluster.rig import ClusterRig, OneBroker, cluster
from unit.broker.rig import Rig, Time, scenario, until

FETCH, LATEST = 1, 17
SESSIONS_SINCE = 7
QUIET_MS = 300


class Reader:
    """A client of one connection to each broker, in the rack of one of them."""

    def __init__(self, rig: ClusterRig, rack: str) -> None:
        self.rig = rig
        self.rack = rack
        self.connection = 1

    async def ask(self, one: OneBroker, request: FetchRequest, version: int = LATEST) -> Any:
        rig = Rig(one.broker, Time(), [])
        rig.connection = self.connection
        return await rig.ask(FETCH, version, request)

    def request(self, offset: int, *, wait_ms: int = 0, epoch: int = -1, **more: Any) -> FetchRequest:
        topic = next(iter(self.rig.brokers.values())).catalog.image.topic("t")
        asked = FetchRequest.FetchPartition(
            partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=epoch
        )
        named = FetchRequest.FetchTopic(topic="t", topic_id=topic.topic_id, partitions=[asked])
        return FetchRequest(max_wait_ms=wait_ms, min_bytes=1, topics=[named], rack_id=self.rack, **more)

    async def fetch(
        self, one: OneBroker, offset: int = 0, *, wait_ms: int = 0, epoch: int = -1, version: int = LATEST
    ) -> Any:
        """The answer for the only partition."""
        answer = await self.ask(one, self.request(offset, wait_ms=wait_ms, epoch=epoch), version)
        return answer.responses[0].partitions[0]


class Racks:
    """`leader` and `near`, a follower, of the partition t-0, which has two records."""

    def __init__(self, rig: ClusterRig, journal: int, leader: OneBroker, near: OneBroker) -> None:
        self.rig, self.journal, self.leader, self.near = rig, journal, leader, near
        self.epoch = leader.leadership.led[journal]
        self.reader = Reader(rig, f"rack-{near.number}")

    def is_served(self) -> bool:
        return not self.near.nearest.refusal(self.journal) and self.rig.queue(self.near).high_watermark == 2


@asynccontextmanager
async def racks(directory: Path, **settings: str) -> AsyncIterator[Racks]:
    async with cluster(directory, **settings) as rig:
        journal = await rig.journal()
        leader = await rig.leader(journal)
        await rig.produce(leader, b"first")
        await rig.produce(leader, b"second")
        found = Racks(rig, journal, leader, rig.followers(journal)[0])
        await until(found.is_served)
        await until(lambda: leader.nearest.elsewhere(journal, found.reader.rack))
        yield found


@scenario
async def test_the_leader_names_the_replica_in_the_readers_rack(tmp_path: Path) -> None:
    async with racks(tmp_path) as found:
        told = await found.reader.fetch(found.leader, epoch=found.epoch, wait_ms=60_000)
        assert (told.error_code, told.preferred_read_replica, bytes(told.records)) == (0, found.near.number, b"")
        assert (told.high_watermark, told.last_stable_offset, told.log_start_offset) == (2, 2, 0)
        read = await found.reader.fetch(found.near, epoch=found.epoch)
        assert (read.error_code, read.preferred_read_replica) == (0, -1)
        assert b"first" in bytes(read.records) and b"second" in bytes(read.records)
        assert found.near.nearest.bytes_given == len(read.records)
        assert found.leader.nearest.sent_on == 1 and found.leader.nearest.bytes_given == 0


@scenario
async def test_who_comes_back_is_served_by_the_leader_for_a_minute(tmp_path: Path) -> None:
    async with racks(tmp_path) as found:
        nearest = found.leader.nearest
        assert (await found.reader.fetch(found.leader)).preferred_read_replica == found.near.number
        assert b"first" in bytes((await found.reader.fetch(found.leader)).records)
        found.reader.connection = 2
        assert (await found.reader.fetch(found.leader)).preferred_read_replica == found.near.number, "another client"
        later, found.reader.connection = nearest.now_ms() + SEND_AGAIN_MS, 1
        nearest.now_ms = lambda: later
        for follower in found.leader.replica(found.journal).leader.followers._followers.values():  # type: ignore[union-attr]
            follower.caught_up_ms = later
        assert (await found.reader.fetch(found.leader)).preferred_read_replica == found.near.number


@scenario
async def test_other_clients_read_from_the_leader(tmp_path: Path) -> None:
    async with racks(tmp_path) as found:
        for rack in ("", "rack-9", f"rack-{found.leader.number}"):
            other = Reader(found.rig, rack)
            assert b"first" in bytes((await other.fetch(found.leader)).records), rack
            refused = await other.fetch(found.near)
            assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert refused.current_leader.leader_id == found.leader.number
        old = await found.reader.fetch(found.near, version=10)
        assert old.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@scenario
async def test_it_can_be_switched_off(tmp_path: Path) -> None:
    async with cluster(tmp_path, replica_selector_class="") as rig:
        journal = await rig.journal()
        leader = await rig.leader(journal)
        await rig.produce(leader, b"first")
        near = rig.followers(journal)[0]
        await until(lambda: rig.queue(near).high_watermark == 1)
        reader = Reader(rig, f"rack-{near.number}")
        assert b"first" in bytes((await reader.fetch(leader)).records)
        assert (await reader.fetch(near)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@scenario
async def test_a_follower_that_is_late_sends_readers_back(tmp_path: Path) -> None:
    async with racks(tmp_path) as found:
        nearest = found.near.nearest
        clock = nearest.now_ms
        nearest.now_ms = lambda: clock() + 10_000
        late = await found.reader.fetch(found.near)
        assert late.error_code == ErrorCode.OFFSET_NOT_AVAILABLE and bytes(late.records) == b""
        assert nearest.sent_back == 1
        nearest.now_ms = clock
        assert (await found.reader.fetch(found.near)).error_code == 0


@scenario
async def test_a_parked_reader_is_sent_back_in_time(tmp_path: Path) -> None:
    async with racks(tmp_path, cairn_follower_read_max_lag_ms="1500") as found:
        waits = asyncio.ensure_future(found.reader.fetch(found.near, 2, wait_ms=3_600_000))
        await asyncio.sleep(0)
        await found.near.cut_off()
        answer = await waits
        while not answer.error_code:  # it came at the time at which it would have been late
            answer = await found.reader.fetch(found.near, 2, wait_ms=3_600_000)
        assert answer.error_code == ErrorCode.OFFSET_NOT_AVAILABLE


@scenario
async def test_the_leader_sends_nobody_to_a_follower_that_it_does_not_hear(tmp_path: Path) -> None:
    async with racks(tmp_path, cairn_follower_read_max_lag_ms="1500") as found:
        await found.near.cut_off()
        await until(lambda: not found.leader.nearest.elsewhere(found.journal, found.reader.rack))
        assert b"first" in bytes((await found.reader.fetch(found.leader)).records)


@scenario
async def test_epochs(tmp_path: Path) -> None:
    """KIP-320, as at a leader."""
    async with racks(tmp_path) as found:
        earlier = await found.reader.fetch(found.near, epoch=found.epoch - 1)
        assert earlier.error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert (earlier.current_leader.leader_id, earlier.current_leader.leader_epoch) == (
            found.leader.number,
            found.epoch,
        )
        later = await found.reader.fetch(found.near, epoch=found.epoch + 1)
        assert later.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


@scenario
async def test_a_record_wakes_who_waits_at_a_follower(tmp_path: Path) -> None:
    async with racks(tmp_path) as found:
        waits = asyncio.ensure_future(found.reader.fetch(found.near, 2, wait_ms=8_000))
        await until(lambda: found.rig.queue(found.near).waiters)
        await found.rig.produce(found.leader, b"third")
        assert b"third" in bytes((await waits).records)


@scenario
async def test_a_reader_that_is_ahead_waits_and_is_never_told_to_begin_anew(tmp_path: Path) -> None:
    """What it has may be from the leader, a moment ago. OFFSET_OUT_OF_RANGE would make clients reset."""
    async with racks(tmp_path) as found:
        nearest = found.near.nearest
        nearest.has_all_of = lambda journal, then_ms: False  # type: ignore[method-assign]
        assert (await found.reader.fetch(found.near, 9, wait_ms=20)).error_code == 0
        del nearest.has_all_of
        waits = asyncio.ensure_future(found.reader.fetch(found.near, 9, wait_ms=QUIET_MS))
        assert (await waits).error_code in (0, ErrorCode.OFFSET_NOT_AVAILABLE)
        while not (await found.reader.fetch(found.near, 9, wait_ms=8_000)).error_code:
            pass  # it shows by then what the leader showed when the request came
        assert (await found.reader.fetch(found.leader, 9)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@scenario
async def test_what_is_deleted_is_for_the_leader_to_say(tmp_path: Path) -> None:
    async with racks(tmp_path) as found:
        trimmed = await found.leader.store.trim(found.rig.queue(found.leader), 1)
        assert trimmed == 1
        await until(lambda: found.rig.queue(found.near).log_start == 1)
        assert (await found.reader.fetch(found.near, 0)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
        told = await found.reader.fetch(found.leader, 0)
        assert (told.error_code, told.preferred_read_replica) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


@scenario
async def test_the_last_epoch_that_was_read_is_for_the_leader_to_judge(tmp_path: Path) -> None:
    async with racks(tmp_path) as found:
        request = found.reader.request(2)
        request.topics[0].partitions[0].last_fetched_epoch = found.epoch
        answer = await found.reader.ask(found.near, request)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.OFFSET_NOT_AVAILABLE


@scenario
async def test_a_session_hears_where_to_read_and_forgets(tmp_path: Path) -> None:
    async with racks(tmp_path) as found:
        reader = found.reader
        opened = await reader.ask(found.leader, reader.request(2, session_id=0, session_epoch=0, wait_ms=0))
        assert opened.responses[0].partitions[0].preferred_read_replica == found.near.number
        nearest = found.leader.nearest
        nearest._sent.clear()  # as if a minute had gone by
        request = FetchRequest(
            max_wait_ms=0, min_bytes=1, session_id=opened.session_id, session_epoch=1, rack_id=reader.rack
        )
        again = await reader.ask(found.leader, request)
        assert again.responses[0].partitions[0].preferred_read_replica == found.near.number, "not left out"
        topic = found.near.catalog.image.topic("t")
        forgotten = FetchRequest.ForgottenTopic(topic="t", topic_id=topic.topic_id, partitions=[0])
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            session_id=opened.session_id,
            session_epoch=2,
            rack_id=reader.rack,
            forgotten_topics_data=[forgotten],
        )
        assert (await reader.ask(found.leader, request)).responses == []


@scenario
async def test_a_session_at_a_follower(tmp_path: Path) -> None:
    """Freshness is looked at with every request of it, not when a partition is named."""
    async with racks(tmp_path) as found:
        reader, nearest = found.reader, found.near.nearest
        opened = await reader.ask(found.near, reader.request(0, session_id=0, session_epoch=0))
        assert opened.session_id and b"first" in bytes(opened.responses[0].partitions[0].records)
        clock = nearest.now_ms
        nearest.now_ms = lambda: clock() + 60_000
        request = FetchRequest(
            max_wait_ms=0, min_bytes=1, session_id=opened.session_id, session_epoch=1, rack_id=reader.rack
        )
        late = await reader.ask(found.near, request)
        assert late.responses[0].partitions[0].error_code == ErrorCode.OFFSET_NOT_AVAILABLE


@scenario
async def test_after_an_election_a_follower_serves_what_the_next_leader_has(tmp_path: Path) -> None:
    async with racks(tmp_path) as found:
        waits = asyncio.ensure_future(found.reader.fetch(found.near, 2, wait_ms=60_000))
        await until(lambda: found.rig.queue(found.near).waiters)
        await found.leader.broker.hand_over()
        after = await found.rig.leader(found.journal, but=[found.leader.number])
        await found.rig.produce(after, b"third")
        assert b"third" in bytes((await waits).records), "from the same broker, in whatever role"
