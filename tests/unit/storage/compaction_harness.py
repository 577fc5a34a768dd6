"""A compacted queue with small segments, on simulated disks; and a machine that stops while it is compacted."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from cairnmq.codec.records import Record, build_batch, decode_batch
from cairnmq.storage.check.verify import check
from cairnmq.storage.live.reads import Batches
from unit.storage.splitter_harness import NOW, Broker

DAY = 24 * 3600 * 1000


class Room(Broker):
    """One compacted queue with small segments."""

    def __init__(self, model: str = "dedicated", **config: object) -> None:
        settings = {"segment_bytes": 500, "dirty_ratio_min": 0.0, "retention_ms": -1, "compact": True, **config}
        super().__init__(model, **settings)  # type: ignore[arg-type]
        self.now = NOW

    def send(self, *pairs: tuple[str, str | None], timestamp: int = NOW, **options: object) -> None:
        """A batch for queue 1."""
        records = [
            Record(0, timestamp, key.encode(), value.encode() if value is not None else None) for key, value in pairs
        ]
        batch = memoryview(bytearray(build_batch(records, **options)))  # type: ignore[arg-type]
        placed = self.engine.paths[0].stage(self.engine.queues[1], batch, -1, timestamp)
        assert not hasattr(placed, "code"), placed
        self.flush()

    def fill(self, turns: int, keys: int = 5, pad: int = 12) -> None:
        for turn in range(turns):
            self.send(*((f"k{key}", f"{turn}" + "." * pad) for key in range(keys)))
        self.split()
        self.checkpoint()

    def compact(self) -> None:
        self.maintenance.look(self.now)
        while self.maintenance.compact(self.now):
            pass
        self.checkpoint()
        self.checkpoint()  # the one that forgets the swaps

    def tend(self) -> None:
        """What the splitter's process does between two looks."""
        while self.maintenance.compact(self.now):
            pass
        self.checkpoint()

    def batches(self, start: int | None = None) -> list[bytes]:
        queue = self.engine.queues[1]
        offset, found = queue.log_start if start is None else start, []
        while offset < queue.high_watermark:
            fetched = self.engine.reads.read_batch(queue, offset, cached=False)
            assert isinstance(fetched, Batches)
            found.append(bytes(fetched.buffers[0]))
            offset = fetched.next_offset
        return found

    def records(self) -> list[tuple[int, str, str | None]]:
        return [
            (r.offset, (r.key or b"").decode(), r.value.decode().rstrip(".") if r.value is not None else None)
            for batch in self.batches()
            for r in decode_batch(batch)
        ]

    def state(self) -> dict[str, str]:
        """What a reader who starts at the beginning ends up with."""
        found: dict[str, str] = {}
        for _, key, value in self.records():
            if value is None:
                found.pop(key, None)
            else:
                found[key] = value
        return found

    def closed(self) -> list[tuple[int, str, str | None]]:
        """Records outside of the segment that is written to."""
        log = self.splitter.queues[1].log
        assert log is not None
        return [row for row in self.records() if row[0] < log.bases[-1]]

    def segments(self) -> list[str]:
        return [name for name in self.read_disk.list("queues/t-1") if name.endswith(".log")]

    def stop(self, rng: Random, *, power: bool) -> None:
        """By a kill, which leaves what was written, or by a loss of power, which leaves any part of the unsynced."""
        for name in ("journal_disk", "read_disk"):
            disk = getattr(self, name)
            setattr(self, name, disk.crash(rng) if power else disk.kill(rng))

    def findings(self) -> list[str]:
        return [str(f) for f in check(self.read_disk, self.journal_disk) if not f.is_note]


class Stop(BaseException):
    """The machine stops."""


def finish(room: Room) -> None:
    room.compact()
    room.checkpoint()


def strikes(room: Room, countdown: int, act: Callable[[Room], None] = finish) -> bool:
    left = countdown

    def observe(_: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Stop

    room.read_disk.observe = observe
    try:
        act(room)
    except Stop:
        return True
    finally:
        room.read_disk.observe = None
    return False


def settle(room: Room) -> None:
    room.maintenance.look(room.now)
    while room.maintenance.step():
        pass
    room.checkpoint()
