"""Bugs of transactions over brokers, planted one at a time: the simulation must find each within a hundred seeds."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest

from cairnmq.errors import ErrorCode
from cairnmq.groups.pending import EndLimit
from cairnmq.testing.replicas.transaction_desk import OffsetsEnd, TransactionDesk
from cairnmq.testing.replicas.transaction_links import ControlLinks
from cairnmq.testing.replicas.transaction_process import Entered, TransactionProcess
from cairnmq.transactions.ending import Ending
from cairnmq.transactions.guards import Guards
from cairnmq.transactions.messages import Add

Codes = Collection[ErrorCode]


def coordinator_acts_before_its_epoch_is_durable(patch: pytest.MonkeyPatch) -> None:
    """R24."""
    patch.setattr(TransactionProcess, "may_load", lambda process, hosted: hosted.leader is not None)


def complete_before_all_markers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ending, "is_done", property(lambda ending: True))


def marker_without_a_leader_counts_as_written(patch: pytest.MonkeyPatch) -> None:
    """Whatever the answer is."""

    def told(ending: Ending, told: Collection[tuple[int, ErrorCode]]) -> None:
        for queue, _ in told:
            ending.queues.discard(queue)

    patch.setattr(Ending, "told_of_queues", told)


def late_end_of_offsets_ends_the_next_transaction(patch: pytest.MonkeyPatch) -> None:
    """R26: pending offsets without epochs."""
    patch.setattr(EndLimit, "takes", lambda limit, value: True)
    patch.setattr(EndLimit, "is_fenced_by", lambda limit, value: False)


def link_without_a_number(patch: pytest.MonkeyPatch) -> None:
    """R26: what comes by an older link is served too."""
    patch.setattr(ControlLinks, "counts", lambda links, sender, name: True)


def guard_is_not_closed_by_a_marker(patch: pytest.MonkeyPatch) -> None:
    """R27."""
    patch.setattr(Guards, "ended", lambda guards, place, producer, *, raised: None)


def nobody_is_asked(patch: pytest.MonkeyPatch) -> None:
    """Batches of transactions are staged without a question to the coordinator."""

    def enter(process: TransactionProcess, asked: Add, adds: bool, tell: Callable[[Entered], None]) -> None:
        desk = process.desk_of(asked.transactional_id)
        tell(Entered(ErrorCode.NONE, coordinator_epoch=-1 if desk is None else desk.epoch))

    patch.setattr(TransactionProcess, "enter", enter)


def decision_is_told_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    """Facts are applied when they are written."""

    def put(desk: TransactionDesk, facts: object, stored: Callable[[object], None]) -> None:
        real(desk, facts, lambda fault: None)  # type: ignore[arg-type]
        desk.process.later(0, lambda: stored(None))

    real = TransactionDesk._put
    patch.setattr(TransactionDesk, "_put", put)


def offsets_are_ended_without_waiting(patch: pytest.MonkeyPatch) -> None:
    """Those that are on their way to the journal are not waited for, and no guard is closed."""

    def end(
        desk: TransactionDesk, end: OffsetsEnd, is_open: Callable[[], bool], told: Callable[[ErrorCode], None]
    ) -> None:
        decision = desk.groups.commits.end(
            end.group, end.producer.producer_id, lambda errors: told(ErrorCode.NONE), commit=end.commit, limit=end.limit
        )
        desk.offset_writes.submit(end.group, decision)

    patch.setattr(TransactionDesk, "end_offsets", end)


def coordinator_forgets_what_was_prepared(patch: pytest.MonkeyPatch) -> None:
    """A load does not write the markers again."""
    from cairnmq.transactions.transactions import Transactions

    patch.setattr(Transactions, "resume", lambda transactions: [])
