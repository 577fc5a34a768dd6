"""What the splitter says of its work, to the broker and to its successor. How it all fits: ADR 0015."""

from __future__ import annotations

from msgspec import Struct

from cairnmq.storage.files.format import NO_SEGMENTS, Aborted, QueueRow, RowSum


class QueueSplit(Struct, frozen=True, gc=False, array_like=True):
    """What a round did to one queue: offsets below `end` are in its queue log.

    `segments_from`: where its own segments begin, the last of them `last_segment`; what lies before is in packs.
    """

    queue_id: int
    end: int
    segments_from: int
    last_segment: int
    # of segments to which rows of aborted transactions were written
    row_sums: tuple[tuple[int, RowSum], ...] = ()


class Round(Struct, frozen=True, array_like=True):
    """The result of one round over one journal. `pack`: the one it wrote; 0 if all went into segments."""

    journal: int
    position: int
    batches: int
    queues: list[QueueSplit]
    pack: int = 0


class Resume(Struct, array_like=True):
    """What a successor must know of rounds that no checkpoint names yet: their files are good, and are read.

    It holds only behind the checkpoint with this serial.
    """

    positions: dict[int, int] = {}
    packs: list[int] = []
    segments_from: dict[int, int] = {}  # of queues whose segments took records since
    serial: int = 0

    def copy(self) -> Resume:
        return Resume(dict(self.positions), list(self.packs), dict(self.segments_from), self.serial)


class QueuePlace(Struct, frozen=True, array_like=True):
    """Where the records of a queue below `end` are, as a checkpoint says: see the fields of `QueueRow`."""

    queue_id: int
    end: int = 0
    segments_from: int = NO_SEGMENTS
    aborted: tuple[Aborted, ...] = ()
    row_sums: tuple[tuple[int, RowSum], ...] = ()

    @classmethod
    def of(cls, row: QueueRow) -> QueuePlace:
        # while segments are swapped the sums are those of the new files, and readers may still meet the old ones
        sums = row.row_sums if not row.compaction.swaps else ()
        return cls(row.queue_id, row.end, row.segments_from, row.aborted, sums)


class Published(Struct, frozen=True, array_like=True):
    """A checkpoint that counts. Whoever reads packs and segments says when it goes by this one (`Splitter.seen`)."""

    serial: int
    positions: dict[int, int]
    packs: list[int]
    # queues whose records lie elsewhere now: in a pack instead of segments, or in segments that have taken the place
    # of others or of packs
    moved: list[QueuePlace] = []


class StartProposal(Struct, frozen=True, gc=False, array_like=True):
    """Retention wants the log start here; the broker decides, by writing the fact."""

    queue_id: int
    offset: int
