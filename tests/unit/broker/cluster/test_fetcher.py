"""A follower's requests over a real link: two under way, taken one after another, whatever the link and the disk do."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from cairnmq.broker.cluster.fetcher import UNDER_WAY_MAX, Fetcher
from cairnmq.broker.internal.answer import Answer
from cairnmq.broker.internal.journal_messages import told_of
from cairnmq.broker.internal.link import Link
from cairnmq.broker.internal.peer import Peer
from cairnmq.replication.messages import Room
from cairnmq.wire.internal import JournalAsk, NotLeader, ReplicaFetch
from cairnmq.wire.internal_handshake import Identity
from unit.broker.cluster.replica_desk import JOURNAL, RECORD, A, B, Desk, Source, is_equal
from unit.broker.internal.link_rig import Bench, open_bench
from unit.broker.rig import scenario, until

LED_BY_B = replace(RECORD, leader=B)
FOLLOWER, LEADER = (Identity("cluster-a", one.broker, one.broker_epoch) for one in (A, B))


class Served:
    """A leader that gives what it has, and lets requests wait that want more. `repeats`: it does not know what it has
    sent already."""

    def __init__(self) -> None:
        self.source = Source()
        self.asked: list[JournalAsk] = []
        self.under_way = self.most = 0
        self.leads = True
        self.peers: set[Peer] = set()
        self.superseded = 0
        self.sent: dict[int, int] = {}

    def put(self, count: int = 1) -> None:
        self.source.put(count)
        self.wake()

    def wake(self) -> None:
        for peer in self.peers:
            peer.wake()

    async def serve(self, peer: Peer, request: ReplicaFetch) -> Answer:
        (ask,) = request.journals
        self.asked.append(ask)
        self.peers.add(peer)
        while True:
            if not self.leads:
                return Answer([told_of(JOURNAL, NotLeader(20))], [[]])
            data = self.source.data(ask.end)
            if len(data):
                reply = self.source.reply(replicated=self.source.machine.end(), sent_ms=len(self.asked))
                return Answer([told_of(JOURNAL, reply, len(data))], [[data]])
            why = await peer.park(5)
            if why.name == "SUPERSEDED":
                self.superseded += 1
                return Answer()


class Follower:
    """A desk whose replica follows over links to a bench."""

    def __init__(self, desk: Desk, served: Served, bench: Bench) -> None:
        self.desk = desk
        self.served = served
        self.bench = bench
        self.fetcher = Fetcher(2, lambda journal: self.room, lambda: 0)
        self.room = Room()
        self.numbers = iter(range(1, 100))

    async def connect(self) -> Link:
        link = await self.bench.link(next(self.numbers), FOLLOWER, to=LEADER.broker)
        self.fetcher.use(link)
        return link

    async def is_same(self) -> None:
        await until(lambda: self.desk.end == self.served.source.machine.end() and not self.desk.loop._writing)
        await until(self.desk.is_true)
        assert is_equal(self.desk, self.served.source)


@asynccontextmanager
async def following(*, connected: bool = True) -> AsyncIterator[Follower]:
    served = Served()
    async with Desk() as desk, open_bench(served.serve, LEADER) as bench:
        one = Follower(desk, served, bench)
        desk.on_synced = one.fetcher.progressed
        desk.see(LED_BY_B)
        await until(lambda: desk.copying.follower is not None)
        one.fetcher.follow(desk.copying)
        if connected:
            await one.connect()
            await one.is_same()
        yield one
        for link in bench.links:
            link.close("test is over")
        await one.fetcher.close()


@scenario
async def test_it_has_what_the_leader_has_and_waits_there_for_more() -> None:
    async with following() as one:
        for _ in range(5):
            one.served.put(2)
            await one.is_same()
        assert one.desk.state.known.replicated == one.desk.end
        await until(lambda: one.served.asked[-1].end == one.desk.end)


@scenario
async def test_progress_is_told_at_once_while_a_request_waits() -> None:
    async with following() as one:
        await until(lambda: one.served.asked[-1].end == one.desk.end)
        one.desk.loop.sync()
        await until(lambda: one.served.asked[-1].synced == one.desk.end)
        await until(lambda: one.served.superseded)
        before = len(one.served.asked)
        one.fetcher.progressed(JOURNAL)
        await asyncio.sleep(0.02)
        assert len(one.served.asked) == before, "there is nothing new"


@scenario
async def test_while_bytes_are_on_their_way_to_the_disk_the_journal_is_not_asked_for() -> None:
    async with following() as one:
        gate = one.desk.hold_writes()
        one.served.put()
        await until(lambda: one.desk.loop._writing)
        before = len(one.served.asked)
        one.fetcher._due.set()
        await asyncio.sleep(0.02)
        assert len(one.served.asked) == before and one.desk.copying.is_busy
        gate.set()
        await one.is_same()


@scenario
async def test_two_replies_with_bytes_and_a_slow_disk() -> None:
    """A request that waits is given bytes, and so is the one that told progress meanwhile: of the same position."""
    async with following() as one:
        desk, served = one.desk, one.served
        for _ in range(10):
            gate = desk.hold_writes()
            desk.loop.sync()
            synced = desk.state.path.journal.synced
            served.source.put(3)  # and those that wait are not told before the next request comes
            await until(lambda synced=synced: desk.end == synced or desk.state.path.journal.synced > synced)
            served.wake()
            await asyncio.sleep(0.002)
            gate.set()
            await one.is_same()
        assert one.fetcher._asking is not None and not one.fetcher._asking.done()


@scenario
async def test_no_more_than_two_are_under_way() -> None:
    async with following() as one:
        gate = one.desk.hold_writes()
        one.served.put()
        await until(lambda: one.desk.loop._writing)
        for _ in range(5):
            one.fetcher.follow(one.desk.copying)
            one.fetcher.progressed(JOURNAL)
            await asyncio.sleep(0.001)
            assert len(one.fetcher._exchanges) <= UNDER_WAY_MAX
        gate.set()
        await one.is_same()


@scenario
async def test_new_links_do_not_cancel_what_has_arrived() -> None:
    """Two of them, while the disk is slow: half of an append would be a gap in what is known of the journal."""
    async with following() as one:
        gate = one.desk.hold_writes()
        one.served.put(2)
        await until(lambda: one.desk.loop._writing)
        for _ in range(3):
            one.bench.links[-1].close("broken")
            await one.connect()
            await asyncio.sleep(0.002)
        assert one.desk.loop._writing
        gate.set()
        await one.is_same()
        one.served.put(2)
        await one.is_same()


@scenario
async def test_the_end_waits_for_what_has_arrived() -> None:
    async with following() as one:
        gate = one.desk.hold_writes()
        one.served.put(2)
        await until(lambda: one.desk.loop._writing)
        one.bench.links[-1].close("over")
        closing = asyncio.ensure_future(one.fetcher.close())
        await asyncio.sleep(0.01)
        assert not closing.done()
        gate.set()
        await closing
        assert one.desk.is_true() and is_equal(one.desk, one.served.source)


@scenario
async def test_a_link_that_comes_later_is_used() -> None:
    async with following(connected=False) as one:
        one.served.put(2)
        await asyncio.sleep(0.01)
        assert one.desk.end == 0
        await one.connect()
        await one.is_same()


@scenario
async def test_whoever_follows_nobody_asks_nothing() -> None:
    async with following() as one:
        one.fetcher.unfollow(one.desk.copying)
        one.desk.copying.stop()
        end = one.desk.end
        one.served.put()
        await until(lambda: not one.fetcher._exchanges)
        before = len(one.served.asked)
        one.fetcher.progressed(JOURNAL)
        await asyncio.sleep(0.01)
        assert one.desk.end == end and len(one.served.asked) == before


@scenario
async def test_a_broker_that_does_not_lead_yet_is_asked_again() -> None:
    async with following() as one:
        one.served.leads = False
        one.served.wake()
        rereads = one.desk.rereads
        await until(lambda: one.desk.rereads > rereads + 1)
        one.served.leads = True
        one.served.put()
        await one.is_same()


@scenario
async def test_a_disk_that_refuses_is_said_once_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("cairnmq.broker.cluster.fetcher.RETRY_SECONDS", 0.01)
    async with following() as one:
        one.desk.state.path.refuse("journal 4: the disk is gone")
        one.served.put()
        before = len(one.served.asked)
        await until(lambda: len(one.served.asked) > before + 3)
        assert one.desk.state.trouble == "journal 4: the disk is gone"
        assert caplog.text.count("the disk is gone") == 1
        one.desk.state.path.resume()
        await one.is_same()
        await until(lambda: one.desk.state.trouble == "")


@scenario
async def test_what_nobody_expected_is_not_repeated_without_a_pause(caplog: pytest.LogCaptureFixture) -> None:
    async with following() as one:
        path, history = one.desk.state.path, one.desk.state.history
        history.end -= 1  # so that nothing fits any more
        before = len(one.served.asked)
        one.served.put()
        await until(lambda: "following broker" in caplog.text)
        history.end += 1
        assert len(one.served.asked) <= before + 4
        assert path.journal.end == history.end
        await one.is_same()


@scenario
async def test_a_write_that_failed_is_asked_for_again() -> None:
    async with following() as one:
        one.desk.disk.faults[one.desk.disk.operations + 1] = errno.EIO
        one.served.put(2)
        await one.is_same()
