"""A broker's process on a machine that has too little room: a splitter that is slow, a disk that is small."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from cairnmq.replication.follower_room import BACKLOG_MAX_PERCENT, FULL_PERCENT
from cairnmq.replication.leader import LeaderSettings
from cairnmq.replication.messages import ENDLESS, FetchPosition, FetchReply, Gone, Room
from cairnmq.replication.records import ClusterView
from cairnmq.testing.replicas.broker_process import LAG_MAX_MS, BrokerProcess, Hosted, Shared
from cairnmq.testing.replicas.judge import Acks, Broken
from cairnmq.testing.replicas.machine import Machine, ModelEntry

SEGMENT_BYTES = 30
FREE_BYTES_MIN = 2 * SEGMENT_BYTES
AT_ONCE_BYTES = 1_000  # split in one step, unless the splitter is slow
HELD_MAX_MS = LAG_MAX_MS + 3_000  # a store that is there takes a change, and everybody hears of it


class Narrow(Struct):
    """What one machine has left, and what all machines of a world are allowed."""

    backlog_max: int
    retention: int  # of journals, for replicas that are away
    split_bytes: int = AT_ONCE_BYTES  # in one step
    free_bytes: int = ENDLESS
    out: set[int] = set()  # journals of which this replica was told that its position is gone
    given_up: set[int] = set()  # journals whose leader keeps less than this replica may need
    passed: set[tuple[int, int]] = set()  # (journal, replica): that one keeps less than this one may need


class NarrowProcess(BrokerProcess):
    """Splits, makes checkpoints, removes what nobody needs, and asks producers to wait."""

    def __init__(self, machine: Machine, shared: Shared, narrow: Narrow, *, is_calm: bool) -> None:
        super().__init__(machine, shared)
        self.narrow = narrow
        self.is_calm = is_calm  # nothing but room is ever short
        self.held_since_ms: dict[int, int] = {}
        self.short_since_ms: dict[int, int] = {}

    def settings(self) -> LeaderSettings:
        return LeaderSettings(LAG_MAX_MS, prompt=self.shared.prompt, free_bytes_min=FREE_BYTES_MIN)

    def look_after(self, hosted: Hosted, view: ClusterView) -> None:
        super().look_after(hosted, view)
        disk, leader = hosted.disk, hosted.leader
        ends = hosted.known
        disk.split = max(disk.split, min(disk.split + self.narrow.split_bytes, ends.durable, disk.synced))
        if leader is not None:
            leader.room.checkpointed = disk.checkpointed
            disk.keep_from = leader.room.keep_from(leader.record.replicas, self.id, disk.first)
        if self.shared.schedule.random.random() < 0.2:
            disk.checkpointed = disk.split
            kept = max(min(disk.keep_from, disk.checkpointed), disk.checkpointed - self.narrow.retention)
            disk.remove_below(kept, SEGMENT_BYTES)
        self.check_removed(hosted)
        if leader is not None:
            leader.first = disk.first
        self.short_for_ms(hosted)

    def short_for_ms(self, hosted: Hosted) -> int:
        """For how long this replica has had too little room."""
        room, now_ms = self.room(hosted), self.shared.schedule.now_ms
        if room.backlog_percent >= BACKLOG_MAX_PERCENT or room.free_bytes < FREE_BYTES_MIN:
            return now_ms - self.short_since_ms.setdefault(hosted.number, now_ms)
        self.short_since_ms.pop(hosted.number, None)
        return 0

    def check_removed(self, hosted: Hosted) -> None:
        """Only the limit, or that a leader keeps no more either, allows to remove what another replica may need."""
        record = self.shared.store.journals[hosted.number].record
        allowed = hosted.disk.first <= hosted.disk.checkpointed - self.narrow.retention
        for process in map(self.shared.processes.__getitem__, record.replicas):
            assert isinstance(process, NarrowProcess)
            disk, passed = process.hosted[hosted.number].disk, process.narrow.passed
            place = hosted.number, self.id
            if hosted.disk.first < disk.checkpointed or not hosted.disk.first:
                passed.discard(place)
                continue
            if place not in passed and not allowed and hosted.number not in process.narrow.given_up:
                raise Broken(
                    f"broker {self.id} keeps journal {hosted.number} from {hosted.disk.first}; broker {process.id}"
                    f" may need it from {disk.checkpointed}, and it is kept for {self.narrow.retention}"
                )
            passed.add(place)
            if hosted.leader is not None:
                process.narrow.given_up.add(hosted.number)

    def room(self, hosted: Hosted) -> Room:
        disk = hosted.disk
        percent = (disk.end - disk.split) * 100 // self.narrow.backlog_max
        return Room(disk.checkpointed, percent, self.narrow.free_bytes)

    def entries_for(self, hosted: Hosted, asked: FetchPosition) -> list[ModelEntry]:
        return [] if asked.room.backlog_percent >= FULL_PERCENT else super().entries_for(hosted, asked)

    def take(self, hosted: Hosted, entries: list[ModelEntry]) -> None:
        if self.narrow.free_bytes > 0:
            super().take(hosted, entries)

    def produce(self, journal: int, payload: int, acks: Acks, told: Callable[[bool], None]) -> None:
        hosted = self.hosted[journal]
        leader, now_ms = hosted.leader, self.shared.schedule.now_ms
        if leader is None or self.narrow.free_bytes <= 0:
            told(False)
            return
        short = leader.room.short(leader.members())
        leader.room.producers_wait = bool(short)
        if not short:
            self.held_since_ms.pop(journal, None)
            if hosted.disk.end - hosted.disk.split < self.narrow.backlog_max:
                super().produce(journal, payload, acks, told)
            else:
                told(False)
            return
        since = self.held_since_ms.setdefault(journal, now_ms)
        if self.is_calm and now_ms - since > HELD_MAX_MS:
            raise Broken(f"producers of journal {journal} wait for {short} since {now_ms - since} ms")
        told(False)

    def stop_leading(self, hosted: Hosted) -> None:
        self.held_since_ms.pop(hosted.number, None)
        super().stop_leading(hosted)

    def stays_out(self, hosted: Hosted, reply: FetchReply, reason: str) -> None:
        """Right only if its leader was allowed to remove what this replica needs."""
        record = self.shared.store.journals[hosted.number].record
        if not isinstance(reply, Gone):
            super().stays_out(hosted, reply, reason)
        if record.member(self.id) is not None:
            raise Broken(f"broker {self.id}, in the ISR of journal {hosted.number}: {reason}")
        if record.leader is not None and hosted.number not in self.narrow.out:
            if (hosted.number, record.leader.broker) not in self.narrow.passed:
                raise Broken(f"broker {self.id}, journal {hosted.number}, is not gone: {reason}")
        self.narrow.out.add(hosted.number)
        hosted.follower = None
