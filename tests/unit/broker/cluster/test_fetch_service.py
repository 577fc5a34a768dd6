"""What a follower's request gets, and when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec.structs import replace

from cairnmq.broker.cluster.fetch_service import RESEND_MS, FetchService
from cairnmq.broker.internal.answer import Answer
from cairnmq.broker.internal.journal_messages import ask_of
from cairnmq.broker.internal.peer import Peer
from cairnmq.replication.follower_room import BACKLOG_MAX_PERCENT, FULL_PERCENT
from cairnmq.replication.messages import FetchPosition, Room
from cairnmq.wire.internal import DATA, AcceptedTold, DivergingTold, Hello, JournalAsk, NotLeader, ReplicaFetch
from unit.broker.cluster.replica_desk import JOURNAL, RECORD, B, C, Desk
from unit.broker.rig import scenario, until

PATIENT_MS = 60_000
MAX_BYTES = 1 << 20


class Bench:
    """A leader's service, and links of followers to it."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.service = FetchService({JOURNAL: desk.replica}, desk.store.engine, desk.cluster.view)
        desk.on_news = self.service.wake

    def peer(self, broker: int = 2) -> Peer:
        return Peer(Hello("c", broker, 12, 1, DATA, 1, 1, bytes(16)), 1)

    def ask(self, position: FetchPosition | None = None) -> JournalAsk:
        return ask_of(JOURNAL, position or self.desk.position(B))

    def park(self, peer: Peer, *asks: JournalAsk, wait_ms: int = PATIENT_MS) -> asyncio.Future[Answer]:
        peer.begin(False)
        request = ReplicaFetch(wait_ms, MAX_BYTES, list(asks or (self.ask(),)))
        return asyncio.ensure_future(self.service.serve(peer, request))

    async def get(self, peer: Peer, *asks: JournalAsk, max_bytes: int = MAX_BYTES) -> Answer:
        """Without a wait."""
        peer.begin(False)
        return await self.service.serve(peer, ReplicaFetch(0, max_bytes, list(asks or (self.ask(),))))

    def is_parked(self, peer: Peer) -> bool:
        return peer in self.service._parked.get(JOURNAL, ())


@asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    """Led, and followed by two that have all that there is."""
    async with Desk() as desk:
        await desk.lead()
        desk.asked(B)
        desk.asked(C)
        await until(lambda: desk.state.path.journal.synced == desk.end)
        yield Bench(desk)


def accepted(answer: Answer) -> AcceptedTold:
    (told,) = answer.told
    assert isinstance(told.reply, AcceptedTold), told
    return told.reply


@scenario
async def test_bytes_wake_a_parked_request() -> None:
    async with bench() as one:
        peer, end = one.peer(), one.desk.end
        waits = one.park(peer)
        await until(lambda: one.is_parked(peer))
        placed = one.desk.put()
        answer = await waits
        assert answer.told[0].size == placed.end - end and accepted(answer).sent_ms == one.desk.time_ms
        assert [part.offset for part in answer.parts[0]] == [end]  # type: ignore[union-attr]
        assert not one.is_parked(peer)


@scenario
async def test_a_request_without_news_is_answered_in_the_end() -> None:
    async with bench() as one:
        answer = await one.park(one.peer(), wait_ms=20)
        assert answer.told[0].size == 0 and not accepted(answer).sync


@scenario
async def test_a_later_request_takes_the_place_of_a_parked_one() -> None:
    async with bench() as one:
        peer = one.peer()
        waits = one.park(peer)
        await until(lambda: one.is_parked(peer))
        peer.supersede()
        assert await waits == Answer() and not one.is_parked(peer)


@scenario
async def test_a_sync_that_somebody_waits_for_wakes_once() -> None:
    async with bench() as one:
        desk, peer = one.desk, one.peer()
        end = desk.end
        placed = desk.put()
        desk.store.when(placed, lambda met: None)  # a producer waits until it is durable
        await until(lambda: desk.end == placed.end)
        unsynced = desk.position(B, placed.end, end)
        assert accepted(await one.get(peer, one.ask(unsynced))).sync
        waits = one.park(peer, one.ask(unsynced))
        await until(lambda: one.is_parked(peer))
        assert not waits.done(), "it knows"
        peer.supersede()
        await waits
        other = one.peer()
        answer = await one.park(other, one.ask(unsynced))
        assert accepted(answer).sync, "another link was not told"


@scenario
async def test_a_sync_wakes_a_request_that_is_parked_already() -> None:
    """A member leaves: the others are to sync at once what was not urgent."""
    async with bench() as one:
        desk, peer = one.desk, one.peer()
        end = desk.end
        await desk.produced()
        desk.asked(C)
        desk.asked(B, synced=end)
        await until(lambda: desk.state.path.journal.synced == desk.end)
        waits = one.park(peer, one.ask(desk.position(B, synced=end)))
        await until(lambda: one.is_parked(peer))
        del desk.cluster.live[3]
        desk.replica.look_after(desk.cluster.view())
        assert accepted(await waits).sync


@scenario
async def test_the_loss_of_leadership_wakes_a_parked_request() -> None:
    async with bench() as one:
        peer = one.peer()
        waits = one.park(peer)
        await until(lambda: one.is_parked(peer))
        one.desk.see(replace(RECORD, leader=B, epoch=21))
        answer = await waits
        assert isinstance(answer.told[0].reply, NotLeader) and not answer.parts[0]


@scenario
async def test_what_it_does_not_lead_it_says_at_once() -> None:
    async with bench() as one:
        unknown = ask_of(99, one.desk.position(B))
        answer = await one.park(one.peer(), unknown, one.ask())
        assert [type(told.reply) for told in answer.told] == [NotLeader, AcceptedTold]
        assert answer.told[0].reply == NotLeader(0)


@scenario
async def test_where_the_journals_part_is_said_at_once() -> None:
    async with bench() as one:
        ahead = replace(one.desk.position(B), end=one.desk.end + 500)
        answer = await one.park(one.peer(), one.ask(ahead))
        assert answer.told[0].reply == DivergingTold(20, one.desk.end)


@scenario
async def test_bytes_that_are_on_their_way_are_not_sent_twice() -> None:
    """The second request was made before the first one's bytes arrived; both positions are the same."""
    async with bench() as one:
        desk, peer = one.desk, one.peer()
        before = desk.position(B)
        await desk.produced()
        desk.time_ms += 5
        first = await one.get(peer, one.ask(before))
        assert first.told[0].size
        assert not (await one.get(peer, one.ask(before))).told[0].size
        await desk.produced()
        desk.time_ms += 5
        assert not (await one.get(peer, one.ask(before))).told[0].size, "also when there is more"
        arrived = replace(before, end=before.end + first.told[0].size, echo_ms=accepted(first).sent_ms)
        rest = await one.get(peer, one.ask(arrived))
        assert rest.told[0].size == desk.end - arrived.end


@scenario
async def test_bytes_that_never_arrived_are_sent_again() -> None:
    async with bench() as one:
        desk, peer = one.desk, one.peer()
        before = desk.position(B)
        await desk.produced()
        desk.time_ms += 5
        first = await one.get(peer, one.ask(before))
        echoes = replace(before, echo_ms=accepted(first).sent_ms)
        assert (await one.get(peer, one.ask(echoes))).told[0].size, "it saw the reply, and could not store the bytes"
        assert (await one.get(one.peer(), one.ask(before))).told[0].size, "another link"
        desk.time_ms += 5
        await one.get(peer, one.ask(echoes))
        desk.time_ms += RESEND_MS
        assert (await one.get(peer, one.ask(before))).told[0].size, "nobody knows why"


@scenario
async def test_a_reply_that_ends_within_an_entry_holds_nothing_up() -> None:
    """The follower keeps whole entries, and asks from there on; the clock goes on between two looks at it."""
    async with bench() as one:
        desk, peer = one.desk, one.peer()
        before = desk.position(B)
        await desk.produced()
        whole = desk.end
        await desk.produced()
        desk.tick_ms = 1
        first = await one.get(peer, one.ask(before), max_bytes=whole - before.end + 10)
        assert first.told[0].size == whole - before.end + 10
        kept = replace(before, end=whole, echo_ms=accepted(first).sent_ms)
        assert (await one.get(peer, one.ask(kept))).told[0].size == desk.end - whole


@scenario
async def test_what_was_sent_in_another_epoch_counts_for_nothing() -> None:
    async with bench() as one:
        desk, peer = one.desk, one.peer()
        before = desk.position(B)
        await desk.produced()
        desk.time_ms += 5
        assert (await one.get(peer, one.ask(before))).told[0].size
        desk.see(replace(RECORD, leader=B, epoch=21))
        await until(lambda: "follows 2" in desk.told)
        await desk.lead(replace(RECORD, epoch=22))
        again = replace(before, epoch=22)
        assert (await one.get(peer, one.ask(again))).told[0].size


@scenario
async def test_the_bytes_of_one_answer_are_bounded() -> None:
    async with bench() as one:
        desk = one.desk
        before = desk.position(B)
        for _ in range(20):
            await desk.produced()
        answer = await one.get(one.peer(), one.ask(before), max_bytes=100)
        assert answer.told[0].size == 100 and len(answer.checked(100)) == len(answer.parts[0])


@scenario
async def test_a_follower_whose_splitter_is_too_far_behind_gets_no_bytes() -> None:
    async with bench() as one:
        desk = one.desk
        placed = desk.put()
        await until(lambda: desk.end == placed.end)
        behind = desk.position(B, placed.end - 60)
        assert (await one.get(one.peer(), one.ask(replace(behind, end=0, last_epoch=0)))).told[0].size > 0
        full = replace(behind, end=0, last_epoch=0, room=Room(backlog_percent=FULL_PERCENT))
        answer = await one.get(one.peer(), one.ask(full))
        assert answer.told[0].size == 0 and accepted(answer)


@scenario
async def test_producers_wait_while_a_follower_in_the_isr_has_too_little_room() -> None:
    async with bench() as one:
        desk = one.desk
        backlog = desk.store.backlog
        await one.get(one.peer(), one.ask(replace(desk.position(B), room=Room(backlog_percent=BACKLOG_MAX_PERCENT))))
        assert backlog.holds_up({JOURNAL})
        await one.get(one.peer(), one.ask(desk.position(B)))
        assert not backlog.full
        await one.get(one.peer(), one.ask(replace(desk.position(B), room=Room(backlog_percent=BACKLOG_MAX_PERCENT))))
        assert backlog.full
        desk.see(replace(RECORD, leader=C, epoch=99))
        await until(lambda: not backlog.full)


@scenario
async def test_a_follower_with_readers_hears_how_far_everything_is_replicated() -> None:
    """At once; another one with the next bytes, because each such reply costs."""
    async with bench() as one:
        desk, reading, other = one.desk, one.peer(2), one.peer(3)
        placed = desk.put()
        await until(lambda: desk.end == placed.end)
        with_readers = replace(desk.position(B), has_readers=True)
        first = accepted(await one.get(reading, one.ask(with_readers)))
        assert first.replicated_end < placed.end
        waits = one.park(reading, one.ask(with_readers))
        await until(lambda: one.is_parked(reading))
        waits_too = one.park(other, one.ask(desk.position(C)))
        await until(lambda: one.is_parked(other))
        before = accepted(await waits).replicated_end
        assert before == placed.end, "what the request of broker 3 has moved"
        assert not waits_too.done()
        other.supersede()
        await waits_too
        again = one.park(reading, one.ask(with_readers))
        await until(lambda: one.is_parked(reading))
        assert not again.done(), "it knows"
        reading.supersede()
        await again
