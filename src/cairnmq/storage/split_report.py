"""What the splitter says of its work, to the broker and to its successor."""

from __future__ import annotations

from msgspec import Struct

from cairnmq.storage.format import Aborted, RowSum


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
    """What a successor must know of rounds that no checkpoint names yet: their files are good, and are read."""

    positions: dict[int, int] = {}
    packs: list[int] = []
    segments_from: dict[int, int] = {}  # of queues promoted since

    def copy(self) -> Resume:
        return Resume(dict(self.positions), list(self.packs), dict(self.segments_from))


class Published(Struct, frozen=True, array_like=True):
    """A checkpoint that counts. Whoever reads packs and segments says when it goes by this one (`Splitter.seen`)."""

    serial: int
    positions: dict[int, int]
    packs: list[int]
    demoted: list[int] = []  # queues whose segments were put into a pack
    aborted: dict[int, list[Aborted]] = {}  # of those, what their segments knew
    # queues with segments that have taken the place of others, or of packs; and where all their segments begin
    compacted: dict[int, int] = {}
