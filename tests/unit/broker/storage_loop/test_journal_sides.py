"""Stores of a cluster on real files: journals led, followed and hosted at run time, split by real splitters."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path

from cairnmq.broker.clocks import wall_ms
from cairnmq.broker.machine import MACHINE
from cairnmq.broker.storage_loop.splitter_messages import Proposals
from cairnmq.broker.storage_loop.store import Store
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.groups.offsets import Committed, OffsetKey, put
from cairnmq.settings.broker import broker_config
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.checkpoint.split_report import StartProposal
from cairnmq.storage.engine import Engine, EngineConfig, Joining
from cairnmq.storage.files.buffers import LARGE, Chunks, ResponseArena
from cairnmq.storage.files.disk import RealDisk
from cairnmq.storage.files.format import Leader
from cairnmq.storage.journal.replica_note import ReplicaNote, read_replica_note
from cairnmq.storage.live.follow_path import FollowPath
from cairnmq.storage.live.reads import Batches
from cairnmq.storage.live.write_path import Placed, WritePath
from cairnmq.storage.recovery.witness import witness_fact
from cairnmq.types import Counters, Slots
from unit.broker.rig import scenario, until
from unit.storage.cluster_harness import content, spec
from unit.storage.replica_harness import batch

SPECS = [spec(1), spec(2), spec(3, 9)]


class Broker:
    """One of a cluster: storage, and a splitter process. Hears what its journals tell."""

    def __init__(self, node: int, data: Path, life: int = 1, journals: Collection[int] = (4, 9)) -> None:
        self.node, self.data, self.life = node, data, life
        self.joining: list[Joining] = []
        self.told: set[tuple[str, int]] = set()

        def begin(joining: Joining) -> Leader:
            self.joining.append(joining)
            return Leader(node, life)

        journal_dir = str(data / "journal")
        for directory in (data, data / "journal"):
            directory.mkdir(exist_ok=True)
        engine = Engine.join(
            RealDisk(journal_dir),
            RealDisk(str(data)),
            SPECS,
            journals=journals,
            floor=lambda journal, note: note.replicated,
            next_queue=4,
            begin=begin,
            seed=70 + node,
            config=EngineConfig(node_id=node),
            now_ms=wall_ms(),
        )
        config = broker_config({"cairn.reserve.bytes": "65536"})
        assert not isinstance(config, Refusal)
        self.store = Store(
            engine,
            lock_fds=[],
            journal_dir=journal_dir,
            data_dir=str(data),
            config=config,
            slots=Slots(3, 1, (4,)),
            runtime=MACHINE,
        )
        self.store.observe(self)
        self.store.start()

    def written(self, journal: int) -> None:
        self.told.add(("written", journal))

    def synced(self, journal: int, end: int) -> None:
        self.told.add(("synced", journal))

    def end(self, journal: int = 4) -> int:
        return self.store.engine.paths[journal].journal.end

    async def lead(self, epoch: int, journal: int = 4) -> WritePath:
        path = await self.store.lead(journal, epoch)
        assert path is not None
        await until(lambda: self.end(journal) > path.epoch_start)
        return path

    async def put(self, number: int = 1) -> Placed:
        """Written here."""
        placed = self.store.append(self.store.queues[number], batch(), -1, wall_ms())
        assert isinstance(placed, Placed)
        await until(lambda: self.end(placed.journal) >= placed.end)
        return placed

    async def copy(self, leader: Broker, journal: int = 4) -> None:
        path = self.store.engine.paths[journal]
        assert isinstance(path, FollowPath)
        data = content(leader.store.engine, journal, self.end(journal))
        copy = path.take(memoryview(data), 99, wall_ms())
        assert copy is not None and await self.store.loops[journal].append(copy)

    async def sync(self, journal: int = 4) -> int:
        held = self.store.engine.paths[journal].journal
        self.store.loops[journal].sync()
        await until(lambda: held.synced == held.end)
        return held.end

    def counts(self, end: int, journal: int = 4) -> None:
        """All replicas have synced so much."""
        path = self.store.engine.paths[journal]
        if isinstance(path, FollowPath):
            self.store.advanced(path.replicated_to(end, end, wall_ms()))
        else:
            self.store.advanced([*path.replicated_to(end), *path.durable_to(end)])

    async def split(self, journal: int = 4) -> None:
        engine = self.store.engine
        await until(lambda: engine.split[journal] == engine.splittable(journal) == self.end(journal))

    def read(self, number: int = 1) -> int:
        """Batches that readers see from the first one on, in one read."""
        arena = ResponseArena(Chunks(kept_small=0, kept_large=1))
        queue = self.store.queues[number]
        found = self.store.engine.reads.read(queue, queue.log_start, LARGE, whole=True, cached=False, arena=arena)
        assert isinstance(found, Batches)
        return found.next_offset

    async def restarted(self, journals: Collection[int] = (4, 9)) -> Broker:
        await self.store.stop()
        return Broker(self.node, self.data, self.life + 1, journals)


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
    retention = Proposals([StartProposal(1, 1)])
    second.store.splitter.reports.take(retention)
    await asyncio.sleep(0)
    assert second.end() == first.end(), "nothing was staged"
    first.store.splitter.reports.take(retention)
    await until(lambda: first.end() > second.end())
    await keep_in_step(first, second)
    assert [each.store.queues[1].log_start for each in (first, second)] == [1, 1], "the leader's word"
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
