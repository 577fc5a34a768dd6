"""The write path of one journal: batches in, offsets given, groups written and synced, acknowledgements released.

Requests wait in a line for each level of the ack table (ack_policy.py, ack_lines.py): written, replicated, durable. An
entry counts once it is replicated; then the tail of its queue knows it. It becomes visible then, or once it is durable
if it must be, and when every earlier record of its queue is visible. Until it is replicated it can be undone.

With one replica the second level follows the first in the same turn, and the third the own sync. With several, whoever
drives the path tells it (`replicated_to`, `durable_to`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from cairnmq.codec.batch import (
    CONTROL_BIT,
    EMPTY_DELTA_MAX,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    empty_batch,
    read_header,
    set_append_time,
)
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.kernels import pick
from cairnmq.storage.batches import admission
from cairnmq.storage.batches.admission import Span
from cairnmq.storage.batches.markers import Marker, check_marker, marker_batch
from cairnmq.storage.files.fault_point import reach
from cairnmq.storage.files.format import DURABLE_FLAG, ENTRY_SIZE, Fact, StartMoved, encode_fact
from cairnmq.storage.journal.journal import Group, Journal
from cairnmq.storage.live.ack_lines import AckLines
from cairnmq.storage.live.ack_policy import (
    ACKS_ALL,
    BATCH,
    DURABLE,
    MARKER,
    START,
    AckLevel,
    AckPoint,
    durability,
    sync_within_ms,
)
from cairnmq.storage.live.journal_path import JournalPath
from cairnmq.storage.live.queue import Queue, Waiting
from cairnmq.storage.live.unreplicated import Keyeds, Staged, Write, count, take_below, undo
from cairnmq.storage.queue.producers import check

admit = pick(admission.admit)


class Placed(AckPoint, frozen=True, gc=False):
    """A batch has its offset, and is acknowledged as the `AckPoint` says. `append_time` is -1 for CreateTime, and for a
    duplicate: that one was stored before."""

    base_offset: int
    append_time: int
    is_duplicate: bool = False


class WritePath(JournalPath):
    """Owned by one thread, except for what only touches files (`write`, and what `JournalPath` says).

    `keyed`: of a journal with several replicas, the keyed facts in it up to the replicated end, kept up to date. None:
    it has one replica (`alone`). `epoch_start`: where the epoch begins under which it is led."""

    leads = True

    def __init__(self, journal: Journal, *, keyed: Keyeds | None = None, waiting: Waiting | None = None) -> None:
        super().__init__(journal, waiting)
        self.keyed = keyed
        self.alone = keyed is None
        self.lines = AckLines(journal, alone=self.alone)
        self._staged_sync_by_ms: int | None = None
        self._staged: list[Staged] = []
        self._facts: list[tuple[Queue | None, Fact, int]] = []
        self._opened: list[tuple[Queue, int, int]] = []
        self._unreplicated: deque[Write] = deque()  # written; always empty with one replica
        self._moved_end = 0  # behind the last fact that moved a log start, of whatever queue
        self.epoch_start = journal.end
        self._elected_ms: int | None = None
        self._epoch_before = journal.epoch  # of the entry before

    @classmethod
    def elected(
        cls,
        journal: Journal,
        epoch: int,
        keyed: Keyeds,
        waiting: Waiting,
        *,
        unsplit_entries: int,
        unreplicated: Write,
        now_ms: int,
    ) -> WritePath:
        """Goes on where a follower was. `unreplicated`: what it has above the replicated end, and what its state has
        too."""
        assert epoch > journal.epoch
        path = cls(journal, keyed=keyed, waiting=waiting)
        path.unsplit_entries = unsplit_entries
        path._unreplicated.append(unreplicated)
        path._moved_end = journal.end  # by earlier leaders: whoever asks again waits until all of theirs is durable
        journal.begin_epoch(epoch, now_ms)
        path._elected_ms = now_ms
        path._sync_by(now_ms)
        return path

    # -------------------------------------------------------------------------------------------------- staging

    def stage(
        self, queue: Queue, batch: memoryview, acks: int, now_ms: int, *, in_transaction: bool = False
    ) -> Placed | Refusal:
        """Gives the batch its offset and queues it for the next group. Patches `batch` in place.

        A duplicate waits for everything that was staged so far: the batch that it repeats is among it.

        `in_transaction`: its producer may write to this queue in a transaction, by the coordinator's word.
        """
        if self.stopped is not None:
            return self._refusal()
        spec, state, journal = queue.spec, queue.state, self.journal
        config = spec.config
        admitted = admit(batch, config, now_ms)
        if isinstance(admitted, Refusal):
            return admitted
        attributes, max_timestamp, pid, producer_epoch, sequence, count = admitted
        known = None
        transactional = bool(attributes & TRANSACTIONAL_BIT)
        if transactional and not in_transaction:
            return Refusal(ErrorCode.INVALID_TXN_STATE, "batch does not belong to an open transaction")
        if pid >= 0:
            known = state.producers.get(pid)
            verdict = check(known, producer_epoch, sequence, count, transactional)
            if isinstance(verdict, Refusal):
                return verdict
            if verdict is not None:
                level = durability(BATCH, config.flush, acks).acknowledged
                return Placed(journal.number, level, journal.staged_end, verdict.base_offset, -1, True)
        append_time = -1
        if config.append_time:
            append_time = max_timestamp = now_ms
            set_append_time(batch, attributes, now_ms)
        offset, epoch, epochs = state.end, journal.epoch, state.epochs
        epochs_before = epochs.copy() if not epochs or epochs[-1][0] != epoch else None
        end = offset + count
        rule = durability(BATCH, config.flush, acks)
        flags = DURABLE_FLAG if rule.visible is DURABLE else 0
        position = journal.stage_batch(spec.queue_id, batch, offset, now_ms, flags)  # fails before anything has moved
        state.apply(offset, end - 1, epoch, pid, producer_epoch, sequence, now_ms, attributes)
        size = len(batch)
        self._staged.append(
            Staged(queue, offset, end, position, size, max_timestamp, rule.visible, pid, known, epochs_before)
        )
        self._plan_sync(queue, count, acks, rule.acknowledged, now_ms)
        return Placed(journal.number, rule.acknowledged, position + size, offset, append_time)

    def stage_marker(self, queue: Queue, marker: Marker, now_ms: int, journals: int = 1) -> AckPoint | Refusal:
        """Ends a transaction on one queue. A repeated one is not stored again. `journals`: how many there are."""
        if self.stopped is not None:
            return self._refusal()
        known = queue.state.producers.get(marker.producer_id)
        verdict = check_marker(known, marker, self.journal.epoch if self.alone else None)
        if isinstance(verdict, Refusal):
            return verdict
        journal = self.journal
        rule = durability(MARKER, queue.config.flush, journals=journals, alone=self.alone)
        level = rule.acknowledged
        if verdict is False:
            # Visible, it has reached the level at which it is; else it is among what is staged.
            end = journal.staged_end if queue.high_watermark < queue.state.end else _reached(journal, rule.visible)
            return AckPoint(journal.number, level, end)
        batch = memoryview(marker_batch(marker, now_ms))
        header = read_header(batch)
        if queue.config.append_time:
            set_append_time(batch, header.attributes, now_ms)
        end = self._stage_at_end(queue, batch, header, now_ms, rule.visible)
        self._plan_sync(queue, 1, ACKS_ALL, level, now_ms)
        return AckPoint(journal.number, level, end)

    def stage_kept(self, queue: Queue, batches: Sequence[memoryview], span: Span, now_ms: int) -> AckPoint | Refusal:
        """Batches that have their offsets already, and keep them.

        All of `span` is taken or nothing. What no batch covers becomes empty batches, as Kafka's own compaction leaves
        them: offsets of a queue stay dense. Patches the leader epoch in place.
        """
        if self.stopped is not None:
            return self._refusal()
        headers = admission.admit_kept(batches, span, queue.state.end)
        if isinstance(headers, Refusal):
            return headers
        state, journal = queue.state, self.journal
        end = journal.staged_end
        if span.start != state.end:
            # The fact is that of a moved log start: a fold over it alone opens the queue at `start` too.
            end = self._moved_end = journal.stage_facts(queue.queue_id, [StartMoved(span.start)], now_ms)
            self._opened.append((queue, span.start, end))
            state.end = span.start
        for header, batch in zip(headers, batches, strict=True):
            self._stage_gap(queue, header.base_offset, header.max_timestamp, now_ms)
            end = self._stage_at_end(queue, batch, header, now_ms)
        end = self._stage_gap(queue, span.end, NO_TIMESTAMP, now_ms) or end
        self._staged_sync_by_ms = now_ms
        return AckPoint(journal.number, durability(START, queue.config.flush).acknowledged, end)

    def _stage_gap(self, queue: Queue, end: int, timestamp: int, now_ms: int) -> int:
        """Empty batches bear the time of what follows, so that a segment rolls before them and not behind: some clients
        (kafkajs) go no further when a fetch gives them empty batches and nothing else."""
        position = 0
        while queue.state.end < end:
            start = queue.state.end
            batch = memoryview(empty_batch(start, min(end - 1, start + EMPTY_DELTA_MAX), timestamp))
            position = self._stage_at_end(queue, batch, read_header(batch), now_ms)
        return position

    def _stage_at_end(
        self, queue: Queue, batch: memoryview, header: BatchHeader, now_ms: int, visible_at: AckLevel = DURABLE
    ) -> int:
        state, epoch, pid, bits = queue.state, self.journal.epoch, header.producer_id, header.attributes
        known = state.producers.get(pid)
        epochs_before = state.epochs.copy() if not state.epochs or state.epochs[-1][0] != epoch else None
        offset, last, size = state.end, state.end + header.last_offset_delta, len(batch)
        flags = DURABLE_FLAG if visible_at is DURABLE or bits & CONTROL_BIT else 0
        position = self.journal.stage_batch(queue.queue_id, batch, offset, now_ms, flags)
        state.apply(offset, last, epoch, pid, header.producer_epoch, header.base_sequence, now_ms, bits, batch)
        if known is not None and known.txn_start >= 0 and bits & CONTROL_BIT:
            state.ends(known.txn_start, last)
        self._staged.append(
            Staged(queue, offset, last + 1, position, size, header.max_timestamp, visible_at, pid, known, epochs_before)
        )
        return position + size

    def stage_fact(self, queue: Queue | None, fact: Fact, now_ms: int) -> int | Refusal:
        """Queues a fact; returns the journal position behind it. Facts of queues count once they are replicated."""
        if queue is None:
            return self.stage_keyed([fact], now_ms)
        if self.stopped is not None:
            return self._refusal()
        end = self.journal.stage_facts(queue.queue_id, [fact], now_ms)
        if isinstance(fact, StartMoved):
            self._moved_end = end
        self._facts.append((queue, fact, end))
        self._sync_by(now_ms)
        return end

    def stage_start(self, queue: Queue, offset: int, now_ms: int) -> AckPoint | Refusal:
        """Moves the log start to `offset`, unless it is there already. Then too the response waits: another request has
        moved it, and that may not be on disk yet."""
        if offset > queue.log_start:
            end = self.stage_fact(queue, StartMoved(offset), now_ms)
            if isinstance(end, Refusal):
                return end
        elif self.stopped is not None and self._moved_end > self.journal.durable_end:
            return self._refusal()
        level = durability(START, queue.config.flush).acknowledged
        return AckPoint(self.journal.number, level, self._moved_end)

    def stage_keyed(self, facts: Sequence[Fact], now_ms: int, within_ms: int = 0, queue_id: int = 0) -> int | Refusal:
        """Queues keyed facts, all or none; returns the journal position behind them.

        `within_ms`: when they must be synced at the latest. `queue_id`: of their slot; 0 for facts of the node.
        """
        if self.stopped is not None:
            return self._refusal()
        end = self.journal.stage_facts(queue_id, facts, now_ms, DURABLE_FLAG if queue_id else 0)
        if self.keyed is not None:
            at = end - sum(ENTRY_SIZE + len(encode_fact(fact)) for fact in facts)
            for fact in facts:
                at += ENTRY_SIZE + len(encode_fact(fact))
                self._facts.append((None, fact, at))
        self._sync_by(now_ms + within_ms)
        return end

    def _plan_sync(self, queue: Queue, count: int, acks: int, level: AckLevel, now_ms: int) -> None:
        """`level` is that of the response, which must not wait for a sync that nobody has asked for."""
        config = queue.spec.config
        by = now_ms + sync_within_ms(level, config, acks)
        if config.flush == "interval":
            queue.unsynced_messages += count
            if queue.unsynced_messages >= config.flush_messages:
                queue.unsynced_messages = 0
                by = now_ms
        self._sync_by(by)

    def _sync_by(self, by_ms: int) -> None:
        if self._staged_sync_by_ms is None or by_ms < self._staged_sync_by_ms:
            self._staged_sync_by_ms = by_ms

    def take(self) -> Write | None:
        group = self.journal.take()
        if group is None:
            return None
        return self._unstage(group)

    def _unstage(self, group: Group) -> Write:
        write = Write(group, self._staged, self._facts, self._staged_sync_by_ms, self._opened)
        self._staged, self._facts, self._staged_sync_by_ms, self._opened = [], [], None, []
        return write

    # ------------------------------------------------------------------------------------------------------ I/O

    def write(self, write: Write) -> None:
        if write.group.rolls:
            reach("journal-roll")
        self.journal.write(write.group)
        reach("journal-write")

    # --------------------------------------------------------------------------------------------------- results

    def written(self, write: Write) -> list[Queue]:
        """The group is in the page cache. With one replica it counts at once: returns queues that have more to show."""
        journal = self.journal
        journal.written(write.group)
        advanced: list[Queue] = []
        if self.alone:
            journal.replicated_end = journal.end
            advanced = self._count(write)
        else:
            self._unreplicated.append(write)
        self._sync_due(write.sync_by_ms)
        self.lines.written_to(journal.end)
        return advanced

    def replicated_to(self, position: int) -> list[Queue]:
        """Every in-sync replica has written everything before `position`. Returns queues that have more to show."""
        journal, unreplicated = self.journal, self._unreplicated
        assert journal.replicated_end <= position <= journal.end  # invariant 4
        journal.replicated_end = position
        advanced: list[Queue] = []
        while unreplicated and unreplicated[0].group.end <= position:
            advanced += self._count(unreplicated.popleft())
        if unreplicated and unreplicated[0].group.start < position:
            advanced += self._count(take_below(unreplicated[0], position))
        self.lines.replicated_to(position)
        return advanced

    def _count(self, write: Write) -> list[Queue]:
        self.unsplit_entries += len(write.staged) + len(write.deleted)
        return count(write, self.waiting, self.keyed)

    def durable_to(self, position: int) -> list[Queue]:
        """Every in-sync replica has synced everything before `position`. Returns queues that have more to show."""
        advanced = self._show_durable(position)
        self.lines.durable_to(position)
        return advanced

    def synced_to(self, position: int) -> list[Queue]:
        """Everything before `position` is on the own disk. Returns queues that have more to show."""
        self.journal.synced_to(position)
        return self.durable_to(position) if self.alone else []

    def rewritten(self, position: int) -> list[Queue]:
        self.journal.begin_segment()
        return self.synced_to(position)

    def failed(self, write: Write, reason: str) -> None:
        """The write did not happen: offsets and sequences given to it, and to what was staged since, are taken back."""
        journal = self.journal
        journal.taken_back(write.group)
        journal.names_first = not self.alone
        self._moved_end = min(self._moved_end, write.group.start)
        undo([self._unstage(write.group), write])
        self.lines.taken_back(write.group.start)
        if self._elected_ms is not None and journal.end == self.epoch_start:
            journal.begin_epoch(journal.epoch, self._elected_ms)

    def stop(self, reason: str) -> None:
        """Nothing more is staged, and what was is taken back; whoever waits for a sync is told that it will not come.
        What is written stays: a `rewrite_unsynced` that succeeds later makes it durable, and visible, after all."""
        write = self.take()
        if write is not None:
            self.failed(write, reason)
        self.stopped = reason
        self.lines.give_up()

    def step_down(self, reason: str) -> None:
        """This broker does not lead any more (R16). The live state goes back to the replicated end; what is written
        behind it stays in the journal, for the next leader to say whether it counts. So nobody who waits is told what
        became of his entry, but who may know. Not while a write is under way."""
        self.stopped, self.stop_code = reason, ErrorCode.NOT_LEADER_OR_FOLLOWER
        journal = self.journal
        staged = self.take()
        if staged is not None:
            journal.taken_back(staged.group)
            undo([staged])
        assert journal.staged_end == journal.end
        undo(reversed(self._unreplicated))
        self._unreplicated.clear()
        self.lines.led_elsewhere()
        if journal.end == self.epoch_start:  # the disk did not take the head: nothing of this epoch is here
            journal.epoch = journal.synced_file.epoch = self._epoch_before


def _reached(journal: Journal, level: AckLevel) -> int:
    """The position up to which everything has reached a level."""
    return journal.durable_end if level is DURABLE else journal.replicated_end
