"""Producers and coordinators of replicas on real storage, and what they are told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random

from msgspec import Struct

from cairnmq.codec.records import build_batch
from cairnmq.errors import Refusal
from cairnmq.storage.batches.markers import Marker
from cairnmq.storage.files.format import Keyed
from cairnmq.storage.live.ack_policy import DURABLE, WRITTEN, AckPoint
from cairnmq.storage.live.queue import Queue
from cairnmq.storage.live.write_path import WritePath
from cairnmq.testing.oracle import demand
from cairnmq.testing.replicas.stored_judge import StoredJudge, Told
from cairnmq.testing.replicas.stored_replica import NOW, Life, tip_of
from cairnmq.testing.sim_clients import records_of


class Producer(Struct):
    """An idempotent one on one queue, perhaps transactional: it sends a batch again until it hears that it is there."""

    pid: int
    queue_id: int
    transactional: bool
    epoch: int = 0
    sequence: int = 0
    data: bytes = b""
    count: int = 0
    open: bool = False
    refusals: int = 0


class StoredClients:
    """Those of a world; each method is one step of one of them."""

    def __init__(self, random: Random, lives: dict[int, Life], judge: StoredJudge, counts: Counter[str]) -> None:
        self.random = random
        self.lives = lives
        self.judge = judge
        self.counts = counts
        self.producers: list[Producer] = []
        self.serial = 0

    def leading(self) -> Life | None:
        """Anyone who believes to lead."""
        lives = [life for life in self.lives.values() if life.leader is not None]
        return self.random.choice(lives) if lives else None

    def _queue_of(self, life: Life) -> Queue:
        return self.random.choice(list(life.queues.values()))

    def produce(self) -> None:
        """Without idempotence."""
        life = self.leading()
        if life is None or not life.queues:
            return
        assert isinstance(life.path, WritePath)
        queue, acks = self._queue_of(life), self.random.choice((0, 1, -1))
        self.serial += 1
        data = build_batch(records_of(self.random, self.serial, NOW))
        placed = life.path.stage(queue, memoryview(bytearray(data)), acks, NOW)
        if not isinstance(placed, Refusal):
            self._staged(life, placed, durable=acks == -1 and queue.config.flush == "commit")

    def send(self) -> None:
        """A producer sends what it has no answer for, or something new; a transactional one may end instead."""
        life = self.leading()
        if life is None or not life.queues:
            return
        if len(self.producers) < 4:
            queue_id = self._queue_of(life).queue_id
            self.producers.append(Producer(100 + len(self.producers), queue_id, self.random.random() < 0.5))
        producer = self.random.choice(self.producers)
        queue = life.queues.get(producer.queue_id)
        if queue is None:
            return
        if producer.open and not producer.data and self.random.random() < 0.5:
            self._end_transaction(life, queue, producer)
            return
        assert isinstance(life.path, WritePath)
        if not producer.data:
            self.serial += 1
            records = records_of(self.random, self.serial, NOW)
            producer.count = len(records)
            producer.data = build_batch(
                records,
                producer_id=producer.pid,
                producer_epoch=producer.epoch,
                base_sequence=producer.sequence,
                transactional=producer.transactional,
            )
            producer.open = producer.transactional
        data, batch = producer.data, memoryview(bytearray(producer.data))
        placed = life.path.stage(queue, batch, -1, NOW, in_transaction=producer.transactional)
        if isinstance(placed, Refusal):
            self._refused(producer)
            return
        self.counts["duplicates"] += placed.is_duplicate

        end, is_durable = placed.base_offset + producer.count, queue.config.flush == "commit"

        def answered() -> None:
            stored = queue.high_watermark if is_durable else queue.end
            demand(stored >= end, life.me, "tells", producer, "that it has offset", end, "and counts up to", stored)
            if producer.data is data:
                producer.data, producer.refusals = b"", 0
                producer.sequence += producer.count

        # A repeated one waits for the level of what it repeats, and for all that was staged before.
        self._staged(life, placed, answered, durable=queue.config.flush == "commit" and not placed.is_duplicate)

    def _refused(self, producer: Producer) -> None:
        """By one that leads no more, or because what it was told is gone with the power."""
        producer.refusals += 1
        if producer.refusals > 4:
            producer.epoch, producer.sequence, producer.data, producer.open = producer.epoch + 1, 0, b"", False
            producer.refusals = 0

    def _end_transaction(self, life: Life, queue: Queue, producer: Producer) -> None:
        assert isinstance(life.path, WritePath)
        epoch = life.path.journal.epoch
        marker = Marker(queue.queue_id, producer.pid, producer.epoch, self.random.random() < 0.5, epoch)
        before = queue.state.end
        point = life.path.stage_marker(queue, marker, NOW)
        if isinstance(point, Refusal):
            return

        def answered() -> None:
            producer.open = False

        self.counts["markers"] += queue.state.end > before
        self._staged(life, point, answered, durable=queue.state.end > before)

    def move_start(self) -> None:
        """DeleteRecords; of what is gone already too, as from a client that heard nothing the first time."""
        life = self.leading()
        if life is None or not life.queues:
            return
        queue = self._queue_of(life)
        if queue.high_watermark > queue.log_start:
            offset = self.random.randint(queue.log_start, queue.high_watermark)
            self._move_start_to(life, queue, queue.log_start)
            self._move_start_to(life, queue, offset)

    def _move_start_to(self, life: Life, queue: Queue, offset: int) -> None:
        assert isinstance(life.path, WritePath)
        point = life.path.stage_start(queue, offset, NOW)
        if isinstance(point, Refusal):
            return

        def answered() -> None:
            durable = life.path.journal.durable_end
            start = tip_of(life.entries(), durable, durable, {queue.queue_id}).states[queue.queue_id].log_start
            demand(min(start, queue.log_start) >= offset, life.me, "tells that", queue.queue_id, "begins at", offset)
            self.judge.began_at(queue.queue_id, offset)

        self._staged(life, point, answered, durable=False)

    def put_keyed(self) -> None:
        """Facts of a coordinator."""
        life = self.leading()
        if life is None:
            return
        assert isinstance(life.path, WritePath)
        facts = [Keyed("s", b"%d" % n, self.random.choice([b"v%d" % self.serial, None])) for n in range(2)]
        end = life.path.stage_keyed(facts, NOW)
        if not isinstance(end, Refusal):
            self._staged(life, AckPoint(0, DURABLE, end), durable=False)

    def _staged(
        self, life: Life, point: AckPoint, answered: Callable[[], None] | None = None, *, durable: bool
    ) -> None:
        assert isinstance(life.path, WritePath)
        place = (life.path.journal.epoch, point.end)
        if durable:
            self.judge.durable_entries.add(place)
        else:
            self.judge.durable_entries.discard(place)  # of a batch whose write failed
        life.path.lines.when(point.level, point.end, partial(self._released, life, point, answered))

    def _released(self, life: Life, point: AckPoint, answered: Callable[[], None] | None, met: bool) -> None:
        """What the ack table says of those that must have it now."""
        if not met:
            self.counts["not told"] += 1
            return
        leader, path = life.leader, life.path
        if leader is None:
            return  # it is being promoted or demoted, and nobody asked it
        self.counts[point.level.name] += 1
        keepers = {life.me.broker}
        demand(path.journal.end >= point.end, "told", point, "of what is not written")
        if point.level is not WRITTEN:
            for member in leader.members():
                keepers.add(member.broker)
                other = self.lives.get(member.broker)
                if other is None or other.me != member:
                    continue
                journal = other.path.journal
                demand(journal.end >= point.end, "told", point, "which", member, "has not written")
                if point.level is DURABLE:
                    demand(journal.synced >= point.end, "told", point, "which", member, "has not synced")
        self.judge.told.append(Told(point.end, point.level, leader.epoch, keepers))
        if answered is not None:
            answered()
