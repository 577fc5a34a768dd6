"""Everything that is written: each call stages one thing and returns what to wait for, or why it was refused.

The broker and the simulator call the same object. A journal's next write takes what was staged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from cairnmq.errors import ErrorCode, Refusal
from cairnmq.storage.batches.admission import Span
from cairnmq.storage.batches.markers import Marker
from cairnmq.storage.files.format import Keyed
from cairnmq.storage.journal.directories import facts_journal
from cairnmq.storage.live.ack_lines import Released
from cairnmq.storage.live.ack_policy import (
    DURABLE,
    KEYED,
    KEYED_FLUSH_MS,
    WITNESS,
    AckLevel,
    AckPoint,
    EntryKind,
    durability,
)
from cairnmq.storage.live.follow_path import JournalRole
from cairnmq.storage.live.led_elsewhere import NOT_HOSTED
from cairnmq.storage.live.queue import Queue
from cairnmq.storage.live.write_path import Placed
from cairnmq.types import SlotPlace


class StagedMarkers(Struct):
    """What became of markers. `codes`: an error for each (0: done once it is stored). `ends`: where each one's entry
    ends (0: nothing was to be stored). `waits`: all that must come true before all of them are done. `stopped`: why a
    journal could not take some of them."""

    codes: list[ErrorCode]
    ends: list[int]
    waits: list[AckPoint]
    stopped: str = ""


class Appends:
    """One storage's."""

    def __init__(self, queues: Mapping[int, Queue], paths: Mapping[int, JournalRole]) -> None:
        self._queues = queues
        self._paths = paths

    @property
    def facts_in(self) -> int:
        """The journal with facts of the node itself."""
        return facts_journal(self._paths)

    def append(
        self, queue: Queue, batch: memoryview, acks: int, now_ms: int, *, in_transaction: bool = False
    ) -> Placed | Refusal:
        """A batch of a producer. `in_transaction`: the coordinator says that its transaction has this queue."""
        return self._paths.get(queue.journal, NOT_HOSTED).stage(
            queue, batch, acks, now_ms, in_transaction=in_transaction
        )

    @staticmethod
    def syncs_first(queue: Queue) -> bool:
        """Whether acks=all waits for syncs of this queue's records."""
        return durability(EntryKind.BATCH, queue.config.flush).acknowledged is DURABLE

    def append_kept(self, queue: Queue, batches: Sequence[memoryview], span: Span, now_ms: int) -> AckPoint | Refusal:
        """Batches of an import, which keep their offsets: all of `span` or nothing."""
        return self._paths.get(queue.journal, NOT_HOSTED).stage_kept(queue, batches, span, now_ms)

    def append_markers(self, markers: Sequence[Marker], now_ms: int) -> StagedMarkers:
        """Ends transactions. A queue that is deleted has nothing to end."""
        staged = StagedMarkers([], [], [])
        waits: dict[tuple[int, AckLevel], AckPoint] = {}
        for marker in markers:
            queue = self._queues.get(marker.queue_id)
            point = None
            if queue is not None:
                point = self._paths.get(queue.journal, NOT_HOSTED).stage_marker(queue, marker, now_ms, len(self._paths))
            if point is None:
                staged.codes.append(ErrorCode.NONE)
                staged.ends.append(0)
            elif isinstance(point, Refusal):
                staged.codes.append(point.code)
                staged.ends.append(0)
                if point.code == ErrorCode.KAFKA_STORAGE_ERROR:
                    staged.stopped = point.message
            else:
                staged.codes.append(ErrorCode.NONE)
                staged.ends.append(point.end)
                known = waits.get((point.journal, point.level))
                if known is None or known.end < point.end:
                    waits[point.journal, point.level] = point
        staged.waits = list(waits.values())
        return staged

    def move_start(self, queue: Queue, offset: int, now_ms: int) -> AckPoint | Refusal:
        """The log start moves to `offset`, if it is not there or further already."""
        return self._paths.get(queue.journal, NOT_HOSTED).stage_start(queue, offset, now_ms)

    def put_keyed(self, slot: SlotPlace, facts: Sequence[Keyed], flush: str, now_ms: int) -> AckPoint | Refusal:
        """Facts of the groups, or transactional ids, of one slot: all in one journal, so that replay keeps order."""
        return self._put(KEYED, slot, facts, flush, now_ms)

    def put_witness(self, fact: Keyed, flush: str, now_ms: int) -> AckPoint | Refusal:
        """The metadata's numbers (storage/recovery/witness.py)."""
        return self._put(WITNESS, SlotPlace(0, self.facts_in), [fact], flush, now_ms)

    def _put(
        self, kind: EntryKind, slot: SlotPlace, facts: Sequence[Keyed], flush: str, now_ms: int
    ) -> AckPoint | Refusal:
        path = self._paths.get(slot.journal, NOT_HOSTED)
        level = durability(kind, flush, journals=len(self._paths), alone=path.alone).acknowledged
        within_ms = 0 if level is DURABLE else KEYED_FLUSH_MS
        end = path.stage_keyed(facts, now_ms, within_ms, slot.queue_id)
        return end if isinstance(end, Refusal) else AckPoint(slot.journal, level, end)

    def when(self, point: AckPoint, released: Released) -> None:
        """Call it in the turn in which it was staged: a write that fails tells only those who wait already."""
        self._paths.get(point.journal, NOT_HOSTED).lines.when(point.level, point.end, released)

    def when_certain(self, point: AckPoint, released: Released) -> None:
        """Like `when`, but False says that the entry is not in the journal, and never will be. What is written when a
        sync fails may turn out to be there, so that is waited for."""
        self._paths.get(point.journal, NOT_HOSTED).lines.when_certain(point.level, point.end, released)
