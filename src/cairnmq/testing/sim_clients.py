"""Clients for the simulator: what producers send, how an idempotent one behaves when answers are lost, and what those
who delete records were told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING

from msgspec import Struct

from cairnmq.codec.records import Record, build_batch
from cairnmq.errors import Refusal
from cairnmq.storage.live.queue import Queue
from cairnmq.testing.oracle import SERIAL_DIGITS, demand
from cairnmq.testing.sim_checks import name

if TYPE_CHECKING:
    from cairnmq.testing.sim_storage import World

IN_FLIGHT_MAX = 5


def plain_batch(rng: Random, serial: int, now_ms: int, keys: Sequence[bytes] = ()) -> bytes:
    return build_batch(records_of(rng, serial, now_ms, keys))


def records_of(rng: Random, serial: int, now_ms: int, keys: Sequence[bytes] = ()) -> list[Record]:
    """`keys`: what records may be about; then some of them are tombstones. The last one bears the serial number."""
    sizes = rng.choice(((3,), (3, 30, 200), (40, 600)))
    number = str(serial).zfill(SERIAL_DIGITS).encode()
    count = rng.randint(1, 4)
    records = []
    for left in reversed(range(count)):
        timestamp = now_ms - rng.randint(0, 300)
        value = rng.randbytes(rng.choice(sizes)) + number
        key = rng.choice(keys) if keys else None
        gone = left and key is not None and rng.random() < 0.3
        records.append(Record(offset=0, timestamp=timestamp, key=key, value=None if gone else value))
    return records


class Batch(Struct):
    """One batch on its way; `sent`: an answer is still to come."""

    serial: int
    sequence: int
    records: list[Record]
    data: bytes
    sent: bool = False


class Sender:
    """An idempotent producer on one queue. What it has no answer for it sends again, in order."""

    def __init__(self, pid: int, queue_id: int, keys: Sequence[bytes] = ()) -> None:
        self.pid = pid
        self.keys = keys
        self.queue_id = queue_id
        self.epoch = 0
        self.power_lost = False  # records it believes stored may be gone, so its sequence may no longer fit
        self._refused = False
        self._serial = 0
        self._sequence = 0
        self._window: list[Batch] = []

    def next_batch(self, rng: Random, now_ms: int) -> Batch | None:
        if self._refused:
            if any(batch.sent for batch in self._window):
                return None  # a new epoch begins only when nothing of the old one is under way
            self._begin_epoch()
        for batch in self._window:
            if not batch.sent:
                batch.sent = True
                return batch
        if self._window and self._serial - self._window[0].serial >= IN_FLIGHT_MAX - 1:
            return None  # the broker remembers no more batches than this
        self._serial += 1
        batch = Batch(self._serial, 0, records_of(rng, self._serial, now_ms, self.keys), b"", True)
        self._number(batch)
        self._window.append(batch)
        return batch

    def _number(self, batch: Batch) -> None:
        batch.sequence = self._sequence
        self._sequence += len(batch.records)
        batch.data = build_batch(
            batch.records, producer_id=self.pid, producer_epoch=self.epoch, base_sequence=batch.sequence
        )

    def answer(self, batch: Batch, rng: Random) -> Callable[[bool], None]:
        lost = rng.random() < 0.1

        def answered(stored: bool) -> None:
            batch.sent = False
            if stored and not lost and batch in self._window:
                self._window.remove(batch)

        return answered

    def forget(self, *, power_lost: bool) -> None:
        """The broker went away: whatever was under way has to be sent again."""
        self.power_lost = self.power_lost or power_lost
        for batch in self._window:
            batch.sent = False

    def refused(self, batch: Batch) -> None:
        """Its sequence does not fit any more: numbers begin again, as a client does after a fatal answer."""
        batch.sent = False
        self._refused = True

    def _begin_epoch(self) -> None:
        self.epoch += 1
        self.power_lost = self._refused = False
        self._sequence = 0
        for batch in self._window:
            self._number(batch)


def trim(world: World, queue: Queue) -> None:
    """DeleteRecords; sometimes of what is deleted already, by somebody who may not have been told yet."""
    rng = world.rng
    offset = rng.choice((queue.high_watermark, rng.randint(queue.log_start, queue.high_watermark), queue.log_start))
    point = world.engine.appends.move_start(queue, offset, world.now)
    if isinstance(point, Refusal):
        return

    def told(met: bool) -> None:
        if met and offset:
            held = world.models[queue.journal].settled.queues.get(queue.queue_id)
            start = held.log_start if held is not None else 0
            demand(start >= offset, name(queue), "was said to start at", offset, "but may come back at", start)

    world.wait_for(point, told)
