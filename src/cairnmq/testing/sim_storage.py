"""Storage under one seed: a random workload on a simulated machine, with failing disks and dying splitters.

One thread plays broker, journal threads and splitter in turn, in any order the real ones could take.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from random import Random

from cairnmq.errors import Corrupt, Refusal
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.files.format import Keyed, StartMoved
from cairnmq.storage.journal.journal import Journal
from cairnmq.storage.live.ack_policy import DURABLE, AckPoint
from cairnmq.storage.live.queue import Queue
from cairnmq.storage.splitter.splitter import Splitter
from cairnmq.testing.oracle import JournalModel, QueueModel, batch_key, demand, entries_of
from cairnmq.testing.sim_checks import check_state, name
from cairnmq.testing.sim_clients import Sender, plain_batch, trim
from cairnmq.testing.sim_damage import PACK, UNDONE, hurt_something
from cairnmq.testing.sim_imports import bring
from cairnmq.testing.sim_machine import EVENTS, Lane, Struck, Tally, after_event
from cairnmq.testing.sim_metadata import new_producer_id
from cairnmq.testing.sim_readers import look_up, read
from cairnmq.testing.sim_splitter import SplitterMachine
from cairnmq.testing.sim_topics import administer, draw_config, new_topic

SLACK_MS = 20  # threads get their turn within this time


class World(SplitterMachine):
    """`run` plays a number of steps; raises Violation when storage breaks a promise."""

    def __init__(self, seed: int, *, branch_share: float = 0.25, trace: Callable[[str], None] | None = None) -> None:
        super().__init__(seed, branch_share=branch_share, trace=trace)
        for _ in range(self.rng.randint(1, 3)):
            new_topic(self, at_once=True)

    # ------------------------------------------------------------------------------------------------- the steps

    def run(self, steps: int) -> Tally:
        actions = self._actions()
        weights = [weight for weight, _ in actions]
        for _ in range(steps):
            action = self.rng.choices(actions, weights)[0][1]
            self.tally.steps += 1
            self.now += self.rng.choice((0, 0, 1, 2))
            try:
                self._meet_deadlines()
                action()
                self._check()
            except Struck:
                self.splitter_strike_in = 0
                self._strike(self._event())
            self.kills = True
        return self.tally

    def _actions(self) -> list[tuple[int, Callable[[], None]]]:
        return [
            (30, self._produce),
            (20, self._send),
            (4, self._trim),
            (5, self._put_key),
            (30, self._write),
            (12, self._sync),
            (16, self._split),
            (5, self._checkpoint),
            (10, self._deliver),
            (5, self._retain),
            (4, self._tidy),
            (6, self._acknowledge),
            (2, self._wait),
            (12, self._read),
            (4, self._look_up),
            (7, lambda: administer(self)),
            (2, self._kill_splitter),
            (1, self._stop),
            (9, self._import),
            (4, self._damage),
        ]

    def draw_config(self) -> LogConfig:
        return draw_config(self.rng)

    def topic_dropped(self, topic_id: bytes) -> None:
        """A topic was deleted a moment ago."""

    def any_queue(self) -> Queue | None:
        queues = list(self.engine.queues.values())
        return self.rng.choice(queues) if queues else None

    # the clients

    def _produce(self) -> None:
        queue = self.any_queue()
        if queue is None:
            return
        self.serial += 1
        self._stage(queue, plain_batch(self.rng, self.serial, self.now, self.keys), self.rng.choice((0, 1, -1)), None)

    def _send(self) -> None:
        self.senders = [sender for sender in self.senders if sender.queue_id in self.specs]
        if len(self.senders) < 3 and self.specs and self.rng.random() < 0.3:
            if (pid := new_producer_id(self)) is not None:
                self.senders.append(Sender(pid, self.rng.choice(list(self.specs)), self.keys))
        if not self.senders:
            return
        sender = self.rng.choice(self.senders)
        queue = self.engine.queues[sender.queue_id]
        batch = sender.next_batch(self.rng, self.now)
        if batch is None:
            return
        verdict = self._stage(queue, batch.data, -1, sender.answer(batch, self.rng))
        if isinstance(verdict, Refusal) and self.engine.path_of(queue).stopped is None:
            demand(sender.power_lost, "producer", sender.pid, "refused:", verdict.message)
            sender.refused(batch)

    def _stage(self, queue: Queue, data: bytes, acks: int, answer: Callable[[bool], None] | None) -> Refusal | None:
        lane = self.lanes[queue.journal]
        batch = memoryview(bytearray(data))
        placed = self.engine.appends.append(queue, batch, acks, self.now)
        if isinstance(placed, Refusal):
            return placed
        held = self.live.setdefault(queue.queue_id, QueueModel())
        if not placed.is_duplicate:
            demand(placed.base_offset == held.end, name(queue), "gave offset", placed.base_offset, "after", held.end)
            held.add(bytes(batch), name(queue))
            lane.bounds[placed.end] = None if queue.config.flush == "none" else queue.config.flush_ms
            if placed.level is DURABLE:
                lane.visible_by.setdefault(queue.queue_id, []).append((held.end, placed.end))
            self.tally.batches += 1
        else:
            key = batch_key(data)
            known = [base for base, _, kept in held.batches if batch_key(kept) == key]
            demand(known == [placed.base_offset], name(queue), "calls", key, "a duplicate of", placed, "not", known)
        if acks:
            self.wait_for(placed, answer)
        return None

    def wait_for(self, point: AckPoint, answer: Callable[[bool], None] | None) -> None:
        self.waiting += 1
        model, end = self.models[point.journal], point.end

        def released(met: bool) -> None:
            self.waiting -= 1
            if met and point.level is DURABLE:
                model.promise(end)
            elif met:
                demand(end <= model.written, "acknowledged", end, "but only", model.written, "is written")
            if answer is not None:
                answer(met)

        self.engine.appends.when(point, released)

    def _import(self) -> None:
        """Mostly into queues that hold nothing yet, as people do it."""
        queue = self.any_queue()
        empty = [each for each in self.engine.queues.values() if not each.state.end]
        if queue is not None:
            bring(self, self.rng.choice(empty) if empty and self.rng.random() < 0.7 else queue)

    def _trim(self) -> None:
        queue = self.any_queue()
        if queue is not None:
            trim(self, queue)

    def _put_key(self) -> None:
        key = b"group%d" % self.rng.randrange(4)
        self.serial += 1
        value = None if self.rng.random() < 0.1 else b"%d" % self.serial
        self._put(self.engine.appends.facts_in, None, Keyed("offsets", key, value))

    def _put(self, number: int, queue: Queue | None, fact: StartMoved | Keyed) -> None:
        path = self.lanes[number].path
        end = path.stage_fact(queue, fact, self.now)
        if not isinstance(end, Refusal):
            self.wait_for(AckPoint(number, DURABLE, end), None)

    # the journals

    def _lane(self) -> tuple[Lane, JournalModel]:
        return self.rng.choice(self.pairs)

    def _write(self) -> None:
        lane, model = self._lane()
        if lane.put is not None:
            self._finish_write(lane)
            return
        if lane.taken is None:
            lane.taken = lane.path.take()
            if lane.taken is not None and self.rng.random() < 0.3:
                return
        if lane.taken is not None:
            stored = self._do_write(lane, model, self.rng.random() < 0.05)
            if stored and self.rng.random() < 0.7:
                self._finish_write(lane)

    def _do_write(self, lane: Lane, model: JournalModel, faulty: bool) -> bool:
        write = lane.taken
        assert write is not None
        lane.taken = None
        group = write.group
        model.hand(entries_of(b"".join(group.buffers), group.start, lane.path.journal.seed))
        disk = self.journal_disk
        if faulty:
            at = disk.operations + 1 + (group.rolls and self.rng.random() < 0.7)
            disk.faults[at] = self.rng.choice((errno.ENOSPC, errno.EIO))
        try:
            lane.path.write(write)
        except OSError as error:
            self.tally.failed_writes += 1
            model.took_back()
            for line in lane.visible_by.values():
                line[:] = [due for due in line if due[1] <= model.written]
            lane.path.failed(write, str(error))
            self._relive([model])
            return False
        finally:
            disk.faults.clear()
        model.wrote()
        lane.put, lane.put_at = write, self.now
        for staged in write.staged:
            end = staged.position + staged.size
            lane.batch_ends.append(end)
            bound = lane.bounds.pop(end, 0)  # what an import brings is due at once
            if bound is not None:
                model.promise_by(end, self.now + bound + SLACK_MS)
        return True

    def _finish_write(self, lane: Lane) -> None:
        write, lane.put = lane.put, None
        assert write is not None
        lane.path.written(write)

    def _sync(self) -> None:
        lane, model = self._lane()
        if lane.synced is None:
            self._do_sync(lane)
        self._prepare(lane.path.journal)
        if lane.synced is not None and self.rng.random() < 0.7:
            self._finish_sync(lane, model)

    def _prepare(self, journal: Journal) -> None:
        """Sometimes in vain, and sometimes the room is needed for something else."""
        dice, disk = Random(self.now + journal.end), self.journal_disk
        if dice.random() < 0.02:
            disk.faults[disk.operations + dice.randint(1, 2)] = errno.ENOSPC
        with suppress(OSError):
            if dice.random() < 0.1:
                journal.prepare()
        disk.faults.clear()
        if dice.random() < 0.02 and (file := journal.unprepare()) is not None:
            journal.remove_next(file)

    def _do_sync(self, lane: Lane) -> None:
        lane.path.sync_begins()
        disk = self.journal_disk
        if self.rng.random() < 0.03:
            disk.faults[disk.operations + 1] = errno.EIO
            self.kills = False  # until the failure is noted down, only a power loss leaves an honest disk
        try:
            lane.synced = lane.path.sync()
        except OSError:
            self.kills = True
            self.tally.failed_syncs += 1
            lane.synced = self._rewrite_unsynced(lane)
        finally:
            disk.faults.clear()

    def _rewrite_unsynced(self, lane: Lane) -> int:
        """As the broker does it: the write that is under way ends, then all that is in doubt is written again, until
        the disk takes it."""
        disk, model = self.journal_disk, self.models[lane.path.journal.number]
        if lane.put is not None:
            self._finish_write(lane)
        if lane.taken is not None and self._do_write(lane, model, False):
            self._finish_write(lane)
        if self.rng.random() < 0.6:
            disk.faults[disk.operations + self.rng.randint(1, 4)] = errno.EIO
        try:
            end = lane.path.rewrite_unsynced()
        except OSError as error:
            self._stop_journal(lane, model, str(error))
            if self.rng.random() < 0.2:
                raise Struck from None
            disk.faults.clear()
            end = lane.path.rewrite_unsynced()
            lane.path.resume()
            self.tally.resumes += 1
        lane.path.rewritten(end)
        self.tally.rewrites += 1
        return end

    def _stop_journal(self, lane: Lane, model: JournalModel, reason: str) -> None:
        """What was staged is taken back; what was written may turn out to be there."""
        lane.path.stop(reason)
        for line in lane.visible_by.values():
            line[:] = [due for due in line if due[1] <= model.written]
        self._relive([model])

    def _finish_sync(self, lane: Lane, model: JournalModel) -> None:
        position, lane.synced = lane.synced, None
        assert position is not None
        model.promise(position)
        lane.path.synced_to(position)

    def _meet_deadlines(self) -> None:
        for lane, model in self.pairs:
            if lane.put is not None and lane.put_at + SLACK_MS // 2 < self.now:
                self._finish_write(lane)
            by = lane.path.sync_by_ms
            if by is not None and by + SLACK_MS // 2 < self.now:
                self._sync_all(lane, model)

    def _sync_all(self, lane: Lane, model: JournalModel) -> None:
        if lane.synced is not None:
            self._finish_sync(lane, model)
        self._do_sync(lane)
        self._finish_sync(lane, model)

    def _write_all(self, lane: Lane, model: JournalModel) -> None:
        if lane.put is not None:
            self._finish_write(lane)
        while lane.taken is not None or (taken := lane.path.take()) is not None:
            lane.taken = lane.taken or taken
            if self._do_write(lane, model, False):
                self._finish_write(lane)

    def _wait(self) -> None:
        """Time goes by; whatever must be synced on its way is."""
        until = self.now + self.rng.choice((10, 60, 300, 1500, 20_000))
        while True:
            for lane, model in self.pairs:
                self._write_all(lane, model)
            due = [(lane.path.sync_by_ms, number) for number, lane in self.lanes.items()]
            soonest = min(((by, number) for by, number in due if by is not None), default=(until + 1, 0))
            if soonest[0] > until:
                break
            self.now = max(self.now, soonest[0])
            self._sync_all(self.lanes[soonest[1]], self.models[soonest[1]])
        self.now = until
        if self.rng.random() < 0.2:
            raise Struck  # now, when all that was due must be on the disk

    # the splitter

    def _retain(self) -> None:
        def act(splitter: Splitter) -> None:
            assert self.maintenance is not None
            if self.rng.random() < 0.5:
                self.maintenance.look(self.now)  # with the next look, whatever nobody writes to is known to be idle
            for proposal in self.maintenance.look(self.now):
                queue = self.engine.queues.get(proposal.queue_id)
                if queue is None or not queue.log_start < proposal.offset <= queue.high_watermark:
                    continue
                self._put(queue.journal, queue, StartMoved(proposal.offset))
            if self.maintenance.demote():
                self.tally.demotions += 1
                self._publish(splitter)

        self.with_splitter(act)

    def _damage(self) -> None:
        """A file is damaged, which readers notice, and the splitter mends it, or its successor does."""

        def act(splitter: Splitter) -> None:
            if self.hurt is None:
                self.hurt = hurt_something(self.rng, splitter, self.engine.pack_set.numbers)
            for queue in self.engine.queues.values() if self.hurt is not None else ():
                with suppress(Corrupt):  # never something else than was written
                    self._read_in(queue)
            done = self._repair_with(splitter, self.hurt) if self.hurt is not None else ""
            if done == PACK:
                self._publish(splitter)
            while self.reports:
                self._deliver()
            if self.hurt is not None:
                self.engine.repaired(self.hurt.queue_id, self.hurt.file)
            self.hurt = None
            if done == UNDONE:
                self._splitter_gone()

        self.with_splitter(act, faulty=0.2)
        while self.hurt is not None:
            self.with_splitter(act)

    # readers

    def _read(self) -> None:
        queue = self.any_queue()
        if queue is not None:
            self._read_in(queue)

    def _read_in(self, queue: Queue) -> None:
        read(self, queue)

    def _look_up(self) -> None:
        queue = self.any_queue()
        if queue is not None:
            self._look_up_in(queue)

    def _look_up_in(self, queue: Queue) -> None:
        look_up(self, queue)

    # the end of a life

    def _stop(self) -> None:
        """A clean stop: the next start scans nothing."""
        for lane, model in self.pairs:
            self._write_all(lane, model)
            self._sync_all(lane, model)
        demand(self.waiting == 0, self.waiting, "requests were never answered")
        splitter = self.splitter = self.splitter or self._successor()
        if splitter.failed_sync is not None:
            raise Struck  # it refuses to finish: the stop is no clean one
        for number in self.lanes:
            while done := splitter.split(number, self.engine.splittable(number), self.now):
                self.reports.append(done)
        self.reports.append(splitter.checkpoint(self.now))
        while self.reports:
            self._deliver()
        self.engine.end()
        self.tally.clean_stops += 1
        event = self.rng.choice(EVENTS)
        haunted = {model.number for model in self.models.values() if model.ghosts}
        self.journal_disk, self.read_disk = after_event((self.journal_disk, self.read_disk), event, self.rng)
        before = self.tally.recoveries_struck, self.tally.fall_backs
        self._open(event)
        # A start that was struck has given out an epoch, and one that was tried in vain may have.
        is_first = before == (self.tally.recoveries_struck, self.tally.fall_backs)
        demand(
            self.engine.was_clean or bool(haunted) or not is_first,
            "the stop was clean, but the next start does not know",
        )
        for scan in self.engine.scans.values():
            found = scan.end > scan.start
            demand(not found or scan.number in haunted, "journal", scan.number, "was scanned after a clean stop")

    # --------------------------------------------------------------------------------------------- after each step

    def _check(self) -> None:
        engine = self.engine
        for lane, model in self.pairs:
            journal = lane.path.journal
            number = journal.number
            limit = min(journal.synced, journal.replicated_end)
            demand(
                engine.checkpointed[number] <= engine.split[number] <= limit <= journal.end <= journal.staged_end,
                "journal", number, "positions are out of order",
            )  # fmt: skip
            if self.splitter is not None:
                demand(engine.split[number] <= self.splitter.positions[number] <= limit, "split beyond synced")
            if lane.put is None:
                split = bisect_right(lane.batch_ends, engine.split[number])
                demand(
                    lane.path.unsplit_entries == len(lane.batch_ends) - split,
                    "journal", number, "counts", lane.path.unsplit_entries, "unsplit", len(lane.batch_ends) - split,
                )  # fmt: skip
            for queue_id, line in lane.visible_by.items():
                while line and line[0][0] <= engine.queues[queue_id].high_watermark:
                    model.promise(line.pop(0)[1])
        for queue_id, queue in engine.queues.items():
            demand(
                queue.split_end <= queue.high_watermark <= queue.end <= queue.state.end
                and queue.log_start <= queue.end,
                name(queue), "offsets are out of order",
            )  # fmt: skip
            start, visible = self.seen.get(queue_id, (0, 0))
            demand(queue.log_start >= start, name(queue), "log start fell from", start)
            demand(queue.high_watermark >= visible, name(queue), "end fell from", visible)
            self.seen[queue_id] = (queue.log_start, queue.high_watermark)
        if self.rng.random() < 0.1:
            self._check_live()

    def _check_live(self) -> None:
        """The live state is the one that a replay of the journal would give."""
        for lane, model in self.pairs:
            journal = lane.path.journal
            if journal.staged_end != journal.end:
                continue
            queues = model.tip().queues
            for queue in self.engine.queues.values():
                if queue.journal == model.number:
                    check_state(queue, queues.get(queue.queue_id) or QueueModel())
