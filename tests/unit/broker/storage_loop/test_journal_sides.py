"""Stores of a cluster on real files: journals led, followed and hosted at run time, split by real splitters."""

from __future__ import annotations

from pathlib import Path

from cairnmq.broker.clocks import wall_ms
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.groups.offsets import Committed, OffsetKey, put
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.files.disk import RealDisk
from cairnmq.storage.journal.replica_note import ReplicaNote, read_replica_note
from cairnmq.storage.live.follow_path import FollowPath
from cairnmq.storage.recovery.witness import witness_fact
from cairnmq.types import Counters
from unit.broker.rig import scenario, until
from unit.broker.storage_loop.stored_broker import Broker
from unit.storage.cluster_harness import spec
from unit.storage.replica_harness import batch


async def pair(tmp_path: Path) -> tuple[Broker, Broker]:
    """The first leads journal 4 in epoch 5."""
    first, second = Broker(1, tmp_path / "1"), Broker(2, tmp_path / "2")
    await first.lead(5)
    return first, second


async def keep_in_step(first: Broker, second: Broker, journal: int = 4) -> None:
    await second.copy(first, journal)
    end = min(await first.sync(journal), await second.sync(journal))
    for each in (first, second):
        each.counts(end, journal)


@scenario
async def test_replicas_serve_and_split_the_same_after_a_change_of_leaders(tmp_path: Path) -> None:
    first, second = await pair(tmp_path)
    await first.put(1)
    await keep_in_step(first, second)
    assert first.told >= {("written", 4), ("synced", 4)} <= second.told
    heard: list[bool] = []
    woken: list[int] = []
    lost = await first.put(1)
    first.store.when(lost, heard.append)
    for number in (1, 3):
        first.store.queues[number].waiters = {lambda number=number: woken.append(number)}  # type: ignore[misc]
    path = await first.store.follow(4, "broker 2 leads")
    assert heard == [False] and woken == [1], "who reads from journal 9 waits on"
    new = await second.lead(6)
    await second.put(1)
    await first.store.loops[4].cut(new.epoch_start, 5, 6)
    assert first.store.engine.paths[4] is path and first.store.epochs[4] == 5
    await keep_in_step(second, first)
    for each in (first, second):
        await each.split()
        assert each.read() == 2
    for each in (first, second):
        await each.store.stop()


@scenario
async def test_what_a_follower_is_asked_to_write_is_refused(tmp_path: Path) -> None:
    first, second = await pair(tmp_path)
    await first.put(1)
    await keep_in_step(first, second)
    store, queue = second.store, second.store.queues[1]
    refused = store.append(queue, batch(), -1, wall_ms())
    assert isinstance(refused, Refusal) and refused.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    told: list[Exception | None] = []
    store.put_facts([put(OffsetKey("g", bytes(16), 0), Committed(1))], told.append)
    await until(lambda: told)
    assert "does not lead" in str(told[0])
    assert await store.put_witness(witness_fact(Counters(9, 9)))
    assert second.end() == first.end(), "nothing was staged"
    for each in (first, second):
        await each.store.stop()


@scenario
async def test_journal_that_begins_at_run_time(tmp_path: Path) -> None:
    first, second = await pair(tmp_path)
    more = spec(4, 11)
    for each in (first, second):
        each.store.create_queues([more])  # topics are known before their journal is hosted
        each.store.configure(4, LogConfig(flush="commit"))
        each.store.configure(77, LogConfig())
        refused = each.store.append(each.store.queues[4], batch(), -1, wall_ms())
        assert isinstance(refused, Refusal) and refused.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        each.store.host(11)
        each.store.knows_queues(5)
    assert second.store.loops[11].threads is second.store.loops[4].threads
    await first.lead(6, 11)
    await first.put(4)
    await keep_in_step(first, second, 11)
    for each in (first, second):
        await each.split(11)
        assert each.read(4) == 1 and {"written", "synced"} <= {what for what, journal in each.told if journal == 11}
        assert [one.number for one in each.store.stats().journals] == [4, 9, 11]
    pid = second.store.splitter.link.pid
    assert pid is not None
    second.store.splitter.link._process.kill()  # type: ignore[union-attr]
    await until(lambda: second.store.splitter.link.pid not in (None, pid))
    await first.put(4)
    await keep_in_step(first, second, 11)
    await second.split(11)
    assert second.read(4) == 2, "a successor of the splitter knows the journal"
    again = await second.restarted((4, 9, 11))
    assert again.joining[0].stopped_as == 1
    assert again.store.engine.scans[11].start == again.end(11), "all of it was in a checkpoint"
    for each in (first, again):
        await each.store.stop()


@scenario
async def test_queue_that_the_metadata_do_not_know_yet_is_waited_for(tmp_path: Path) -> None:
    first, second = await pair(tmp_path)
    first.store.create_queues([spec(4)])
    first.store.knows_queues(5)
    await first.put(4)
    await keep_in_step(first, second)
    assert await second.store.lead(4, 9) is None
    path = second.store.engine.paths[4]
    assert isinstance(path, FollowPath) and path.splittable() < path.journal.end
    second.store.create_queues([spec(4)])
    second.store.knows_queues(5)
    await second.split()
    assert second.read(4) == 1
    for each in (first, second):
        await each.store.stop()


@scenario
async def test_notes_are_stored_as_far_as_the_own_disk_has_the_journal(tmp_path: Path) -> None:
    first, second = await pair(tmp_path)
    await first.put(1)
    await keep_in_step(first, second)
    end = second.end()
    await first.put(1)
    await second.copy(first)
    synced = second.store.engine.paths[4].journal.synced
    await second.store.note(4, ReplicaNote(second.end(), end, 5))
    assert read_replica_note(RealDisk(str(tmp_path / "2" / "journal")), 4) == ReplicaNote(max(end, synced), end, 5)
    again = await second.restarted()
    assert again.store.queues[1].end == 1 and again.joining[0].stopped_as == 1, "all was synced at the stop"
    for each in (first, again):
        await each.store.stop()
