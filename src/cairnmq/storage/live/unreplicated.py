"""What a leader has staged and other replicas may lack: it counts once it is replicated, or it is undone.

A failed write and the end of a leadership undo alike, newest first.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from cairnmq.storage.files.format import Fact, Keyed, ProducerRow, StartMoved
from cairnmq.storage.journal.journal import Group
from cairnmq.storage.live.ack_policy import DURABLE, AckLevel
from cairnmq.storage.live.queue import Queue, Waiting

Keyeds = dict[tuple[str, bytes], bytes]


class Staged(Struct, gc=False):
    """What must be known of a staged batch until it counts."""

    queue: Queue
    offset: int
    end_offset: int
    position: int
    size: int
    timestamp: int
    visible_at: AckLevel
    producer_id: int
    producer_before: ProducerRow | None
    epochs_before: list[tuple[int, int]] | None

    @property
    def end(self) -> int:
        """The journal position behind it."""
        return self.position + self.size


class Write(Struct):
    """A group on its way to the disk and to other replicas, with what it will mean once it is there."""

    group: Group
    staged: list[Staged]
    facts: list[tuple[Queue | None, Fact, int]]  # of a queue, or keyed; and the position behind it
    sync_by_ms: int | None
    opened: list[tuple[Queue, int, int]]  # queues that begin behind 0, where, and the position behind that fact
    deleted: list[int] = []  # positions behind batches of queues that are gone: the splitter will pass over them

    @property
    def size(self) -> int:
        """In bytes."""
        return self.group.end - self.group.start


def count(write: Write, waiting: Waiting, keyed: Keyeds | None) -> list[Queue]:
    """It is replicated: tails know it. Returns queues that have more to show."""
    advanced: list[Queue] = []
    for queue, start, _ in write.opened:
        queue.move_start(start)
    for staged in write.staged:
        queue = staged.queue
        if queue.add(
            staged.offset,
            staged.end_offset,
            staged.position,
            staged.size,
            staged.timestamp,
            staged.visible_at is DURABLE,
            waiting,
        ):
            advanced.append(queue)
    for each, fact, _ in write.facts:
        if isinstance(fact, StartMoved) and each is not None:
            each.move_start(fact.offset)
        elif isinstance(fact, Keyed) and keyed is not None:
            put_keyed(keyed, fact)
    return advanced


def put_keyed(keyed: Keyeds, fact: Keyed) -> None:
    """A fact without a value removes."""
    if fact.value is None:
        keyed.pop((fact.space, fact.key), None)
    else:
        keyed[fact.space, fact.key] = fact.value


def take_below(write: Write, position: int) -> Write:
    """What of it lies before `position`, taken out: other replicas copy entries, not groups."""
    group = write.group
    part = Write(
        Group(group.start, position, [], group.rolls),
        [staged for staged in write.staged if staged.end <= position],
        [fact for fact in write.facts if fact[-1] <= position],
        None,
        [opened for opened in write.opened if opened[-1] <= position],
        [end for end in write.deleted if end <= position],
    )
    del write.staged[: len(part.staged)], write.facts[: len(part.facts)]
    del write.opened[: len(part.opened)], write.deleted[: len(part.deleted)]
    write.group = Group(position, group.end, [], False)
    return part


def undo(writes: Iterable[Write]) -> None:
    """Gives offsets, sequences, epochs and transactions back as they were before. `writes`: the newest first."""
    opened: list[tuple[Queue, int, int]] = []
    for write in writes:
        for staged in reversed(write.staged):
            state = staged.queue.state
            state.take_back(staged.offset, staged.epochs_before)
            if staged.producer_id >= 0:
                state.restore(staged.producer_id, staged.producer_before)
        opened += write.opened
    for queue, _, _ in opened:
        queue.state.end = queue.end  # only one that never held anything can be opened
