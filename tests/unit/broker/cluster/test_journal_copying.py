"""A follower appends, cuts or stays out, whatever changes while it does."""

from __future__ import annotations

import asyncio
import errno

import pytest
from msgspec.structs import replace

from cairnmq.broker.cluster.journal_copying import FRUITLESS_MAX, OUT, PIECE_BYTES, PIECE_BYTES_MAX
from cairnmq.errors import Corrupt, Fault
from cairnmq.replication.history import EpochEnd
from cairnmq.replication.messages import Diverging, Gone, UnknownEpoch
from cairnmq.storage.journal.segment_files import OPEN_MAX
from unit.broker.cluster.replica_desk import JOURNAL, RECORD, B, C, Desk, Source, fed, follows, is_equal
from unit.broker.rig import scenario, until

LED_BY_B = replace(RECORD, leader=B)
NOTHING = memoryview(b"")


async def parted(desk: Desk, at: int, epoch: int = 20) -> None:
    """Its leader says that its own journal has no more of that epoch."""
    assert desk.copying.follower is not None
    await desk.copying.replied(desk.copying.follower.position(), Diverging(EpochEnd(epoch, at)), NOTHING)


@scenario
async def test_what_the_leader_has_is_appended_and_its_ends_are_learned() -> None:
    async with Desk() as desk:
        source = Source()
        source.put(3)
        await follows(desk, source, LED_BY_B)
        await fed(desk, source, replicated=1 << 40, durable=90)
        assert is_equal(desk, source) and desk.is_true()
        assert desk.state.known.replicated == desk.end, "no more than is here"
        assert desk.state.known.durable == 90 and desk.state.known.epoch == 20
        assert desk.machine.engine.queues[1].end == 3


@scenario
async def test_half_an_entry_is_left_until_there_is_more() -> None:
    async with Desk() as desk:
        source = Source()
        source.put(2)
        await follows(desk, source, LED_BY_B)
        assert desk.copying.follower is not None
        whole = source.data(0)
        await desk.copying.replied(desk.copying.follower.position(), source.reply(), whole[:-1])
        assert 0 < desk.end < len(whole) and desk.is_true()
        await fed(desk, source)
        assert is_equal(desk, source)


@scenario
async def test_replies_are_taken_one_after_another_and_a_late_one_means_nothing() -> None:
    """Two requests were under way, and the first one's bytes go to the disk on a thread."""
    async with Desk() as desk:
        source = Source()
        source.put(2)
        await follows(desk, source, LED_BY_B)
        assert desk.copying.follower is not None
        asked = desk.copying.follower.position()
        gate = desk.hold_writes()
        first = asyncio.ensure_future(desk.copying.replied(asked, source.reply(), source.data(0)))
        await until(lambda: desk.loop._writing)
        source.put()
        second = asyncio.ensure_future(desk.copying.replied(asked, source.reply(), source.data(0)))
        await asyncio.sleep(0.01)
        assert not second.done()
        gate.set()
        await asyncio.gather(first, second)
        assert desk.is_true() and desk.end < source.machine.end(), "the second one was about another end"
        await fed(desk, source)
        assert is_equal(desk, source) and desk.is_true()


@scenario
async def test_an_epoch_that_begins_in_the_middle_of_an_append() -> None:
    async with Desk() as desk:
        source = Source()
        source.put(2)
        await follows(desk, source, LED_BY_B)
        gate = desk.hold_writes()
        waits = asyncio.ensure_future(fed(desk, source, replicated=50))
        await until(lambda: desk.loop._writing)
        before = desk.copying.follower
        await follows(desk, source, replace(LED_BY_B, epoch=21))
        gate.set()
        await waits
        assert desk.copying.follower is not before and desk.is_true(), "the bytes are there, and known"
        assert desk.state.known.replicated == 0, "what the former leader said of them does not count"
        source.elected(21)
        await fed(desk, source)
        assert is_equal(desk, source) and desk.is_true()
        assert [epoch for epoch, _ in desk.histories[0]] == [20, 21]


@scenario
async def test_after_an_append_that_failed_it_goes_on_where_the_disk_is() -> None:
    async with Desk() as desk:
        source = Source()
        source.put(2)
        await follows(desk, source, LED_BY_B)
        desk.disk.faults[desk.disk.operations + 2] = errno.EIO
        await fed(desk, source, replicated=1 << 40)
        assert desk.is_true() and desk.state.known.replicated == desk.end
        assert desk.state.path.stopped is not None
        with pytest.raises(Fault, match="write failed"):
            await fed(desk, source)
        await until(lambda: desk.state.path.stopped is None)
        await fed(desk, source)
        assert is_equal(desk, source) and desk.is_true()


@scenario
async def test_a_cut_that_is_refused_is_tried_again() -> None:
    async with Desk() as desk:
        source = Source()
        await follows(desk, source, LED_BY_B)
        await fed(desk, source)
        first = desk.end
        source.put(2)
        await fed(desk, source)
        await follows(desk, source, replace(LED_BY_B, epoch=21))
        desk.disk.faults[desk.disk.operations + 1] = errno.EIO
        with pytest.raises(OSError, match="disk|error"):
            await parted(desk, first)
        await parted(desk, first)
        assert desk.end == first and desk.is_true()
        await fed(desk, source)
        assert is_equal(desk, source)


@scenario
async def test_a_cut_takes_what_was_synced_with_it_whoever_is_followed_by_then() -> None:
    """It waits for a sync, and meanwhile another epoch begins: the next follower must not tell of bytes that went."""
    async with Desk() as desk:
        source = Source()
        await follows(desk, source, LED_BY_B)
        await fed(desk, source)
        first = desk.end
        source.put(2)
        await fed(desk, source)
        desk.loop.sync()
        await until(lambda: desk.state.path.journal.synced == desk.end)
        await follows(desk, source, replace(LED_BY_B, epoch=21))
        gate = desk.hold_syncs()
        source.put()
        await fed(desk, source)
        desk.loop.sync()
        cut = asyncio.ensure_future(parted(desk, first))
        await until(lambda: desk.loop._noting.locked())
        await follows(desk, source, replace(LED_BY_B, epoch=22))
        gate.set()
        await cut
        assert desk.copying.follower is not None
        told = desk.copying.follower.position()
        assert (told.epoch, told.end, told.synced) == (22, first, first) and desk.is_true()
        await fed(desk, source)
        told = desk.copying.follower.position()
        assert told.end == source.machine.end() and told.synced == first, "they are not synced again"


@scenario
async def test_below_what_is_in_queue_logs_it_stays_out_until_another_epoch(caplog: pytest.LogCaptureFixture) -> None:
    async with Desk() as desk:
        source = Source()
        source.put(2)
        await follows(desk, source, LED_BY_B)
        await fed(desk, source)
        end = desk.end
        desk.machine.engine.split[JOURNAL] = end
        await parted(desk, end - 10)
        assert desk.end == end and desk.copying.follower is None
        assert desk.state.trouble == OUT and "from position" in caplog.text and desk.told[-1] == "follows nobody"
        desk.replica.see(desk.cluster.kept)
        desk.see(replace(LED_BY_B, isr=(B, C)))
        await asyncio.sleep(0.01)
        assert desk.copying.follower is None, "the same leader lacks the same"
        await follows(desk, source, replace(LED_BY_B, epoch=21))


@scenario
async def test_a_cut_below_what_is_folded_starts_the_process_again(caplog: pytest.LogCaptureFixture) -> None:
    """After an election among members that all lost power: what is replicated does not count, what is durable does."""
    async with Desk() as desk:
        source = Source()
        source.put(2)
        await follows(desk, source, LED_BY_B)
        await fed(desk, source, replicated=1 << 40)
        end = desk.end
        await parted(desk, end - 10)
        assert not desk.restarts and desk.state.trouble == OUT and "lacks replicated bytes" in caplog.text, (
            "its leader is wrong"
        )
        await follows(desk, source, replace(LED_BY_B, epoch=22, recovered=22))
        await parted(desk, end - 10)
        assert desk.restarts == 1 and desk.copying.follower is None
        assert desk.end == end and desk.is_true(), "nothing is cut under live state"


@scenario
async def test_what_the_leader_has_no_more_is_taken_over_until_another_leads() -> None:
    async with Desk() as desk:
        source = Source()
        await follows(desk, source, LED_BY_B)
        assert desk.copying.follower is not None
        await desk.copying.replied(desk.copying.follower.position(), Gone(500), NOTHING)
        assert desk.copying.follower is None and desk.told[-1] == "is installed from 2"
        desk.see(LED_BY_B)
        await asyncio.sleep(0)
        assert desk.copying.follower is None, "it would take bytes that are lost with the next start"
        desk.told.clear()
        await follows(desk, source, replace(LED_BY_B, epoch=22))
        assert desk.told[:2] == ["is not installed", "follows 2"]


@scenario
async def test_a_leader_that_knows_less_is_asked_again_when_the_metadata_are_read() -> None:
    async with Desk() as desk:
        source = Source()
        await follows(desk, source, LED_BY_B)
        assert desk.copying.follower is not None
        before = desk.rereads
        assert not await desk.copying.replied(desk.copying.follower.position(), UnknownEpoch(), NOTHING)
        await desk.copying.wait_for_leader()
        assert desk.rereads == before + 1 and desk.copying.follower is not None


@scenario
async def test_a_reply_to_an_earlier_life_means_nothing() -> None:
    async with Desk() as desk:
        source = Source()
        source.put()
        await follows(desk, source, LED_BY_B)
        assert desk.copying.follower is not None
        asked = desk.copying.follower.position()
        earlier = replace(asked, follower=replace(asked.follower, broker_epoch=3))
        await desk.copying.replied(earlier, source.reply(), source.data(0))
        assert desk.end == 0


@scenario
async def test_a_sync_that_somebody_waits_for_follows_the_one_under_way_at_once() -> None:
    async with Desk() as desk:
        source = Source()
        source.put()
        await follows(desk, source, LED_BY_B)
        await fed(desk, source)
        gate = desk.hold_syncs()
        desk.loop.sync()
        source.put()
        await fed(desk, source, sync=True)
        assert desk.loop.path.sync_by_ms is not None
        assert desk.loop.path.sync_by_ms <= desk.loop.runtime.wall_ms(), "not half a second later"
        gate.set()
        await until(lambda: desk.state.path.journal.synced == desk.end)
        assert desk.copying.follower is not None and desk.copying.follower.position().synced == desk.end


@scenario
async def test_a_leader_of_very_many_elections_is_copied_with_few_files_open() -> None:
    async with Desk() as desk:
        source = Source()
        for epoch in range(21, 101):
            source.elected(epoch)
        source.put(2)
        await follows(desk, source, replace(LED_BY_B, epoch=source.epoch))
        journal, most = desk.state.path.journal, 0
        while desk.end < source.machine.end():
            await fed(desk, source)
            most = max(most, sum(segment._file is not None for segment in journal.segments))
        assert is_equal(desk, source) and len(journal.segments) == 81
        assert most <= 3 * OPEN_MAX + 1


@scenario
async def test_a_replica_whose_leader_has_damage_takes_over_what_is_behind_it() -> None:
    async with Desk() as desk:
        source = Source()
        await follows(desk, source, LED_BY_B)
        await fed(desk, source)
        source.put()
        asked, data = desk.copying.follower.position(), bytearray(source.data(desk.end))  # type: ignore[union-attr]
        data[40] ^= 1
        for _ in range(FRUITLESS_MAX - 1):
            with pytest.raises(Corrupt, match="are no entry"):
                await desk.copying.replied(asked, source.reply(), memoryview(data))
        assert desk.copying.follower is not None
        await desk.copying.replied(asked, source.reply(), memoryview(data))
        assert desk.copying.follower is None and desk.told[-1] == f"is installed from 2, behind {desk.end}"


@scenario
async def test_so_does_one_that_never_gets_a_whole_entry() -> None:
    """The leader's disk has another length there."""
    async with Desk() as desk:
        source = Source()
        await follows(desk, source, LED_BY_B)
        await fed(desk, source)
        source.put()
        asked, data = desk.copying.follower.position(), source.data(desk.end)[:-1]  # type: ignore[union-attr]
        for _ in range(FRUITLESS_MAX - 1):
            await desk.copying.replied(asked, source.reply(), data)
        assert desk.copying.follower is not None and desk.copying.piece_bytes == PIECE_BYTES_MAX
        await desk.copying.replied(asked, source.reply(), data)
        assert desk.copying.follower is None and desk.told[-1] == f"is installed from 2, behind {desk.end}"


@scenario
async def test_damage_on_the_way_is_forgotten_with_the_next_whole_entry() -> None:
    async with Desk() as desk:
        source = Source()
        await follows(desk, source, LED_BY_B)
        for _ in range(3):
            source.put()
            asked, data = desk.copying.follower.position(), bytearray(source.data(desk.end))  # type: ignore[union-attr]
            data[40] ^= 1
            for _ in range(FRUITLESS_MAX // 2):
                with pytest.raises(Corrupt):
                    await desk.copying.replied(asked, source.reply(), memoryview(data))
            await fed(desk, source)
        assert is_equal(desk, source) and desk.copying.piece_bytes == PIECE_BYTES
