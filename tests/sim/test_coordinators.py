"""Groups, transactions and compaction with storage on the simulated machine: seeds that must stay clean, and planted
bugs that must be found."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from cairnmq.broker.coordination import cores
from cairnmq.broker.coordination.fact_log import FactLog, Stored
from cairnmq.broker.coordination.ordered_writes import OrderedWrites
from cairnmq.decision import Decision, KeyedRecord
from cairnmq.errors import ErrorCode
from cairnmq.groups.classic import ClassicGroup
from cairnmq.groups.consumer_group import ConsumerGroup
from cairnmq.groups.offsets import Offsets
from cairnmq.groups.pending import SPACE as PENDING_SPACE
from cairnmq.groups.pending import EndLimit, PendingOffsets
from cairnmq.storage.batches.markers import Marker
from cairnmq.storage.live.ack_lines import AckLines
from cairnmq.storage.live.appends import Appends, StagedMarkers
from cairnmq.testing.sim_coordinators import CoordinatorWorld
from cairnmq.testing.sim_machine import Tally
from cairnmq.transactions.messages import Producer
from cairnmq.transactions.transactions import Transactions
from sim.planted import find
from sim.test_compaction import BUGS as COMPACTION_BUGS

Plant = Callable[[pytest.MonkeyPatch], None]
SEEDS = 60
BETWEEN_JOURNALS = ("complete_outlives_a_marker", "a_queue_counts_before_it_is_stored")  # within one, order is enough


@pytest.mark.parametrize("first", range(2000, 2020, 10))
def test_no_crash_breaks_a_promise(first: int) -> None:
    total, moves = Tally(), 0
    for seed in range(first, first + 10):
        try:
            world = CoordinatorWorld(seed)
            total.add(world.run(400))
            moves += world.moves
        except Exception as error:
            error.add_note(f"seed {seed} of CoordinatorWorld")
            raise
    assert total.crash_points > 1000
    assert min(total.compactions, total.commits, total.rebalances, total.ended_transactions, moves) > 0, total


def responses_before_their_records_are_stored(patch: pytest.MonkeyPatch) -> None:
    def submit(self: OrderedWrites[object, object], key: str, decision: Decision[object, object]) -> None:
        for deliver, response in decision.responses:
            if callable(deliver):
                deliver(response)
        for effect in decision.effects:
            self._carry_out(effect)
        if decision.records:
            self._facts.submit(decision.records, lambda fault: None)

    patch.setattr(OrderedWrites, "submit", submit)


def records_count_before_they_are_stored(patch: pytest.MonkeyPatch) -> None:
    submit = FactLog.submit

    def hasty(log: FactLog, facts: Sequence[KeyedRecord], stored: Stored) -> None:
        for fact in facts:
            log._apply(fact)
        submit(log, facts, stored)

    patch.setattr(FactLog, "submit", hasty)


def commits_are_acknowledged_when_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AckLines, "when_durable_for_certain", AckLines.when_written)


def what_a_failed_sync_left_is_called_gone(patch: pytest.MonkeyPatch) -> None:
    """It is in the journal, and comes back with the next start."""
    patch.setattr(AckLines, "when_durable_for_certain", AckLines.when_durable)


def complete_outlives_a_marker(patch: pytest.MonkeyPatch) -> None:
    append = Appends.append_markers

    def hasty(appends: Appends, markers: Sequence[Marker], now_ms: int) -> StagedMarkers:
        return replace(append(appends, markers, now_ms), waits=[])

    patch.setattr(Appends, "append_markers", hasty)


def a_queue_counts_before_it_is_stored(patch: pytest.MonkeyPatch) -> None:
    def verify(
        core: Transactions,
        transactional_id: str,
        producer: Producer,
        *,
        queue: int | None = None,
        group: str | None = None,
    ) -> ErrorCode:
        live = core._live.get(transactional_id)
        own = live is not None and (live.producer_id, live.epoch) == (producer.producer_id, producer.epoch)
        return ErrorCode.NONE if own else ErrorCode.PRODUCER_FENCED

    patch.setattr(Transactions, "verify", verify)


def pending_offsets_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PendingOffsets, "end", lambda pending, group, producer_id, **rest: [])


def pending_offsets_count_at_once(patch: pytest.MonkeyPatch) -> None:
    end = PendingOffsets.end

    def always(
        pending: PendingOffsets,
        group: str,
        producer_id: int,
        *,
        commit: bool,
        offsets: Offsets,
        limit: EndLimit | None = None,
    ) -> list[KeyedRecord]:
        return end(pending, group, producer_id, commit=True, offsets=offsets, limit=limit)

    patch.setattr(PendingOffsets, "end", always)


def a_loaded_group_begins_anew(patch: pytest.MonkeyPatch) -> None:
    record = ClassicGroup.record
    patch.setattr(ClassicGroup, "record", lambda group: replace(record(group), generation=group.generation % 3))


def epochs_are_not_stored(patch: pytest.MonkeyPatch) -> None:
    record = ConsumerGroup.record
    patch.setattr(ConsumerGroup, "record", lambda group: replace(record(group), epoch=1, target_epoch=1))


def a_load_finds_no_pending_offsets(patch: pytest.MonkeyPatch) -> None:
    found = cores._facts_in
    patch.setattr(cores, "_facts_in", lambda *of: [fact for fact in found(*of) if fact[0][0] != PENDING_SPACE])


def a_load_comes_before_what_was_on_its_way(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CoordinatorWorld, "still", lambda world, journal: True)


BUGS: dict[str, Plant] = {
    plant.__name__: plant
    for plant in (
        responses_before_their_records_are_stored,
        records_count_before_they_are_stored,
        commits_are_acknowledged_when_written,
        what_a_failed_sync_left_is_called_gone,
        complete_outlives_a_marker,
        a_queue_counts_before_it_is_stored,
        pending_offsets_are_forgotten,
        pending_offsets_count_at_once,
        a_loaded_group_begins_anew,
        epochs_are_not_stored,
        a_load_finds_no_pending_offsets,
        a_load_comes_before_what_was_on_its_way,
    )
} | {
    bug: COMPACTION_BUGS[bug]
    for bug in ("swapped_before_the_checkpoint", "the_map_forgets_keys", "compacted_files_are_not_synced")
}


KNOWN = {
    "a_load_finds_no_pending_offsets": 3,
    "a_queue_counts_before_it_is_stored": 17,
    "compacted_files_are_not_synced": 3,
    "complete_outlives_a_marker": 6,
    "pending_offsets_are_forgotten": 4,
    "pending_offsets_count_at_once": 3,
    "records_count_before_they_are_stored": 5,
    "swapped_before_the_checkpoint": 3,
    "the_map_forgets_keys": 3,
    "what_a_failed_sync_left_is_called_gone": 4,
}
"""Which seed finds a bug, where it is not one of the first."""


@pytest.mark.parametrize("bug", BUGS)
def test_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS[bug](monkeypatch)

    def run(seed: int) -> None:
        world = CoordinatorWorld(seed)
        if bug not in BETWEEN_JOURNALS or len(world.shape.journals) > 1:
            world.run(400)

    find(run, SEEDS, KNOWN.get(bug))
