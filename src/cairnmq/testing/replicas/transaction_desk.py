"""What coordinates the transactional ids and groups of one journal of the simulation, from its load to its drop.

The cores and the order of facts and answers are the real ones; what shells do between them is played.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Never

from cairnmq.broker.coordination.cores import Cores
from cairnmq.broker.coordination.fact_log import Stored
from cairnmq.broker.coordination.ordered_writes import OrderedWrites
from cairnmq.decision import Decision, KeyedRecord
from cairnmq.errors import ErrorCode, Fault
from cairnmq.groups.messages import ConsumerLimits, Limits
from cairnmq.groups.offset_messages import OffsetDecision, OffsetErrors
from cairnmq.groups.pending import EndLimit
from cairnmq.storage.batches.markers import Marker
from cairnmq.testing.replicas.transaction_model import Facts
from cairnmq.transactions.ending import Ending
from cairnmq.transactions.messages import Limits as TransactionLimits
from cairnmq.transactions.messages import Producer, Response, TransactionDecision, WriteMarkers

if TYPE_CHECKING:
    from cairnmq.testing.replicas.transaction_process import TransactionProcess

GROUP_LIMITS = Limits(initial_delay_ms=0, new_member_ms=10_000, consumer=ConsumerLimits(session_ms=10_000))
RETRY_MS = 100

Told = Callable[[Sequence[ErrorCode] | None], None]  # None: the link is closed, and nothing is known


class OffsetsEnd:
    """The end of a transaction in one group."""

    def __init__(self, group: str, producer_id: int, commit: bool, limit: EndLimit) -> None:
        self.group = group
        self.producer = Producer(producer_id, limit.producer_epoch)
        self.commit = commit
        self.limit = limit


class TransactionDesk:
    """Of one journal in one epoch."""

    def __init__(self, process: TransactionProcess, journal: int, epoch: int) -> None:
        self.process = process
        self.journal = journal
        self.epoch = epoch
        cores = Cores.load(
            process.states[journal].keyed,
            self._put,
            slots=process.shared.slots,
            journal=journal,
            epoch=epoch,
            group_limits=GROUP_LIMITS,
            transaction_limits=TransactionLimits(),
        )
        self.transactions, self.groups, self.facts = cores.transactions, cores.groups, cores.facts
        self.is_closed = False
        self.writes: OrderedWrites[Response, WriteMarkers] = OrderedWrites(
            "transactional id", self.facts, self._put_back, self._begin
        )
        self.offset_writes: OrderedWrites[OffsetErrors, Never] = OrderedWrites("offsets", self.facts)
        for markers in self.transactions.resume():
            self._begin(markers)

    def close(self) -> None:
        """Another broker leads the journal."""
        self.is_closed = True
        self.facts.drop()

    def _put(self, facts: Sequence[KeyedRecord], stored: Stored) -> None:
        def told(met: bool) -> None:
            stored(None if met else Fault("the journal is led elsewhere"))

        if not self.process.stage(self.journal, Facts(tuple(facts)), told):
            self.process.later(0, lambda: told(False))

    def carry_out(self, transactional_id: str, decision: TransactionDecision) -> None:
        """Stores it, then answers and writes markers."""
        self.writes.submit(transactional_id, decision)

    def _put_back(self, transactional_id: str) -> None:
        if not self.is_closed:
            self.carry_out(transactional_id, self.transactions.reload(transactional_id))

    def time_limits(self, now_ms: int) -> None:
        """Ends what was open for too long."""
        for transactional_id, decision in self.transactions.advance(now_ms, now_ms):
            self.carry_out(transactional_id, decision)

    # ------------------------------------------------------------------------------------------------------- an end

    def _begin(self, markers: WriteMarkers) -> None:
        self.process.later(0, partial(self._ask_all, Ending(markers)))

    def _ask_all(self, ending: Ending) -> None:
        """Every place that has not said that it is done; a broker is sent all that it leads at once."""
        if self.is_closed:
            return
        shared = self.process.shared
        markers: dict[int, list[Marker]] = {}
        ends: dict[int, list[OffsetsEnd]] = {}
        for queue in sorted(ending.queues):
            markers.setdefault(shared.journal_of_queue(queue), []).append(self._marker(ending.markers, queue))
        for group in sorted(ending.groups):
            ends.setdefault(shared.journal_of_key(group), []).append(self._end(ending.markers, group))
        left = len(markers) + len(ends)

        def answered() -> None:
            nonlocal left
            left -= 1
            if not left:
                self._look(ending)

        for journal, some in markers.items():
            self.process.ask_markers(journal, some, partial(self._told_of_queues, ending, some, answered))
        for journal, several in ends.items():
            self.process.ask_ends(journal, several, partial(self._told_of_groups, ending, several, answered))

    def _marker(self, what: WriteMarkers, queue: int) -> Marker:
        producer, version = what.producer, 2 if what.raised else 1
        return Marker(queue, producer.producer_id, producer.epoch, what.commit, self.epoch, version)

    def _end(self, what: WriteMarkers, group: str) -> OffsetsEnd:
        limit = EndLimit(what.producer.epoch, what.raised, self.epoch)
        return OffsetsEnd(group, what.producer.producer_id, what.commit, limit)

    def _told_of_queues(
        self, ending: Ending, asked: list[Marker], answered: Callable[[], None], codes: Sequence[ErrorCode] | None
    ) -> None:
        if codes is not None:
            ending.told_of_queues((marker.queue_id, code) for marker, code in zip(asked, codes, strict=True))
        answered()

    def _told_of_groups(
        self, ending: Ending, asked: list[OffsetsEnd], answered: Callable[[], None], codes: Sequence[ErrorCode] | None
    ) -> None:
        if codes is not None:
            ending.told_of_groups((end.group, code) for end, code in zip(asked, codes, strict=True))
        answered()

    def _look(self, ending: Ending) -> None:
        if self.is_closed:
            return
        if not ending.is_done:
            self.process.later(RETRY_MS, partial(self._ask_all, ending))
            return
        what = ending.markers
        self.carry_out(what.transactional_id, self.transactions.written(what, self.process.shared.schedule.now_ms))

    # -------------------------------------------------------------------------------------------- offsets of groups

    def end_offsets(self, end: OffsetsEnd, is_open: Callable[[], bool], told: Callable[[ErrorCode], None]) -> None:
        """After offsets that are on their way. `is_open`: whether the link by which this came still counts."""

        def known(_: object) -> None:
            if self.is_closed or not is_open():
                told(ErrorCode.NOT_COORDINATOR)
                return

            def ended(errors: OffsetErrors | None) -> None:
                told(ErrorCode.NOT_COORDINATOR if errors is None else errors.errors[0])

            decision = self.groups.commits.end(
                end.group, end.producer.producer_id, ended, commit=end.commit, limit=end.limit
            )
            self.offset_writes.submit(end.group, decision)

        behind_all: OffsetDecision = Decision()
        behind_all.respond(known, OffsetErrors([]))
        self.offset_writes.submit(end.group, behind_all)
