"""What coordinates the groups and transactional ids of one journal of the simulated machine, from its load to its drop.

The cores and the order of facts and answers are the real ones; what the event loop does between them is played.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Never

from cairnmq.broker.coordination.cores import Cores
from cairnmq.broker.coordination.fact_log import Put
from cairnmq.broker.coordination.ordered_writes import OrderedWrites
from cairnmq.codec.crc32c import crc32c
from cairnmq.decision import Decision
from cairnmq.groups.messages import ConsumerLimits, GroupDecision, Limits
from cairnmq.groups.messages import Response as GroupResponse
from cairnmq.groups.offset_messages import OffsetDecision, OffsetErrors
from cairnmq.storage.batches.markers import Marker
from cairnmq.testing.sim_members import SESSION_MS
from cairnmq.transactions.messages import Limits as TransactionLimits
from cairnmq.transactions.messages import Response, TransactionDecision, WriteMarkers
from cairnmq.transactions.record import TransactionRecord
from cairnmq.types import Slots

if TYPE_CHECKING:
    from cairnmq.testing.sim_coordinators import CoordinatorWorld

LIMITS = Limits(initial_delay_ms=0, new_member_ms=10_000, consumer=ConsumerLimits(session_ms=SESSION_MS))
TRANSACTION_LIMITS = TransactionLimits()


class Desk:
    """`unfinished`: transactions whose markers could not be written. `is_closed`: another desk does its work."""

    def __init__(self, world: CoordinatorWorld, journal: int, keyed: Mapping[tuple[str, bytes], bytes]) -> None:
        self._world = world
        cores = loaded(keyed, world.put_facts, world.metadata.slots, world.epoch, journal)
        self.groups, self.transactions, self.facts = cores.groups, cores.transactions, cores.facts
        self.is_closed = False
        self.unfinished: list[WriteMarkers] = []
        self.group_writes: OrderedWrites[GroupResponse, Never] = OrderedWrites(
            "group", self.facts, self._put_group_back
        )
        self.transaction_writes: OrderedWrites[Response, WriteMarkers] = OrderedWrites(
            "transactional id", self.facts, self._put_transaction_back, self._begin
        )
        self.offset_writes: OrderedWrites[OffsetErrors, Never] = OrderedWrites("offsets of group", self.facts)

    def open(self) -> None:
        """What a load begins with."""
        world = self._world
        for some in self.facts.by_slot(self.groups.orphaned(world.topic_ids())):
            self.facts.submit(some, lambda fault: None)
        self.groups.resume(world.now)
        for ending in self.transactions.resume():
            self.end(ending)

    def close(self) -> None:
        """Another broker leads the journal: whatever is on its way may still reach the disk."""
        self.is_closed = True
        self.facts.drop()

    # ----------------------------------------------------------------------------------------------------- groups

    def carry_out_group(self, group: str, decision: GroupDecision) -> None:
        self.group_writes.submit(group, decision)

    def _put_group_back(self, group: str) -> None:
        if not self.is_closed:
            self._world.ledger.taken_back(group, self.groups._stored.get(group))
            self.carry_out_group(group, self.groups.reload(group, self._world.now))

    # ----------------------------------------------------------------------------------------------- transactions

    def carry_out_transaction(self, transactional_id: str, decision: TransactionDecision) -> None:
        self.transaction_writes.submit(transactional_id, decision)

    def _put_transaction_back(self, transactional_id: str) -> None:
        if not self.is_closed:
            self.carry_out_transaction(transactional_id, self.transactions.reload(transactional_id))

    def _begin(self, ending: WriteMarkers) -> None:
        self._world.later.append(partial(self.end, ending))

    def retry_endings(self) -> None:
        unfinished, self.unfinished = self.unfinished, []
        for ending in unfinished:
            self.end(ending)

    def end(self, ending: WriteMarkers) -> None:
        """Markers and offsets under way at the same time; when all are stored the transaction is complete."""
        if self.is_closed:
            return
        world, groups = self._world, sorted(ending.groups)
        desks = [world.desks.of(group) for group in groups]
        if None in desks:
            self.unfinished.append(ending)
            return
        producer, version = ending.producer, 2 if ending.raised else 1
        markers = [
            Marker(queue_id, producer.producer_id, producer.epoch, ending.commit, world.epoch, version)
            for queue_id in sorted(ending.queues)
        ]
        staged = world.stage_markers(markers)
        left, failed = len(staged.waits) + len(groups) + 1, bool(staged.stopped)

        def done(met: bool) -> None:
            nonlocal left, failed
            left, failed = left - 1, failed or not met
            if left or self.is_closed:
                return
            if failed:
                self.unfinished.append(ending)
                return
            world.tally.ended_transactions += 1
            self.carry_out_transaction(ending.transactional_id, self.transactions.written(ending, world.now))

        for point in staged.waits:
            world.wait_for(point, done)
        for group, desk in zip(groups, desks, strict=True):
            assert desk is not None
            desk.end_offsets(group, ending, lambda: self.is_closed, done)
        done(True)

    def end_offsets(
        self, group: str, ending: WriteMarkers, given_up: Callable[[], bool], done: Callable[[bool], None]
    ) -> None:
        """Of a transaction that may be another desk's; after offsets that are on their way."""

        def end(_: object) -> None:
            if self.is_closed or given_up():
                done(False)
                return
            ended = self.groups.commits.end(
                group, ending.producer.producer_id, lambda told: done(told is not None), commit=ending.commit
            )
            self.offset_writes.submit(group, ended)

        behind_all: OffsetDecision = Decision()
        behind_all.respond(end, OffsetErrors([]))
        self.offset_writes.submit(group, behind_all)


class Desks:
    """Those of the journals that somebody leads."""

    def __init__(self, world: CoordinatorWorld) -> None:
        self._world = world
        self.journals = tuple(dict.fromkeys(world.metadata.slots.cycle))
        self.by_journal: dict[int, Desk] = {}

    def add(self, journal: int, keyed: Mapping[tuple[str, bytes], bytes]) -> Desk:
        desk = self.by_journal[journal] = Desk(self._world, journal, keyed)
        desk.groups.view = self._world.view
        self._world.ledger.recovered(desk.groups._stored, self.kept_in(journal))
        return desk

    def drop(self, rng: Random) -> int | None:
        """Any of them."""
        if not self.by_journal:
            return None
        journal = rng.choice(list(self.by_journal))
        self.by_journal.pop(journal).close()
        return journal

    def all(self) -> list[Desk]:
        return list(self.by_journal.values())

    def unled(self) -> list[int]:
        return [journal for journal in self.journals if journal not in self.by_journal]

    def of(self, key: str) -> Desk | None:
        """Of a group or transactional id; None: its journal is led by nobody at the moment."""
        return self.by_journal.get(self.journal_of(key))

    def journal_of(self, key: str) -> int:
        return self._world.metadata.slots.of(crc32c(key.encode())).journal

    def kept_in(self, journal: int) -> Callable[[str], bool]:
        return lambda group: self.journal_of(group) == journal

    def is_still(self, journal: int) -> bool:
        """Nothing is on its way to the journal."""
        lane = self._world.lanes[journal]
        return lane.put is None and lane.path.journal.staged_end == lane.path.journal.end


def loaded(keyed: Mapping[tuple[str, bytes], bytes], put: Put, slots: Slots, epoch: int, journal: int) -> Cores:
    """By the function of the broker, with the simulator's limits."""
    return Cores.load(
        keyed,
        put,
        slots=slots,
        journal=journal,
        epoch=epoch,
        group_limits=LIMITS,
        transaction_limits=TRANSACTION_LIMITS,
    )


def stored_of(cores: Cores | Desk) -> tuple[object, ...]:
    groups = cores.groups
    stored = groups._stored, groups._stored_members, groups.offsets._groups, groups.pending._groups
    return *stored, cores.transactions._stored


def records_of_all(several: Iterable[Cores | Desk]) -> dict[int, TransactionRecord]:
    """By producer id."""
    return {one.producer_id: one for each in several for one in each.transactions._stored.values()}
