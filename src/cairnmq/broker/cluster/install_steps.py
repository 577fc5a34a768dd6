"""The receiving side of an install, step by step: what is asked next, and what a response means.

Rows come first, in pieces; then the batches of all queues, in the order of their ids. A response is about the request
that it follows, so one that was lost is asked for again. Nothing here waits: the shell asks, and calls on a thread what
writes.
"""

from __future__ import annotations

from typing import TypeAlias

from cairnmq.errors import Fault
from cairnmq.replication.records import Member
from cairnmq.storage.api.installing import JournalMark, StagedInstall, read_aborted
from cairnmq.wire.internal import (
    InstallAsk,
    InstallBegun,
    InstallPiece,
    InstallRefused,
    InstallRun,
    InstallRuns,
)

PIECE_BYTES = 1 << 20  # of batches, at once: the leader reads them between other requests

Told: TypeAlias = InstallBegun | InstallPiece | InstallRuns | InstallRefused


class Refused(Fault):
    """The leader does not go on with this install: it is begun again."""


class InstallSteps:
    """Of one journal, from the leader of one epoch. `staged`: where it is written. `beyond`: it has to be as it is
    behind this position."""

    def __init__(self, journal: int, me: Member, epoch: int, staged: StagedInstall, beyond: int = -1) -> None:
        self.staged = staged
        self.journal = journal
        self.epoch = epoch
        self.records = 0  # of all queues; taken so far:
        self.taken = 0
        self._me = me
        self._beyond = beyond
        self._begun: InstallBegun | None = None
        self._piece = 0  # that have come
        self._queue = 0  # whose batches come next, from this offset on
        self._offset = 0
        self._rewrites = -1  # of that queue, when its first batches came
        self._is_last = False

    @property
    def share(self) -> float:
        """Of the records, those that are there: 0 to 1."""
        return self.taken / self.records if self.records else 0.0

    def ask(self) -> InstallAsk | None:
        """The next request; None: all is there, and `complete` is next."""
        begun = self._begun
        if begun is None:
            return self._request(0)
        if self._piece < begun.pieces:
            return self._request(begun.install, piece=self._piece + 1)
        if self._is_last:
            return None
        return self._request(begun.install, queue=self._queue, offset=self._offset, max_bytes=PIECE_BYTES)

    def _request(
        self, install: int, *, piece: int = 0, queue: int = 0, offset: int = 0, max_bytes: int = 0
    ) -> InstallAsk:
        me = self._me
        return InstallAsk(
            self.journal, me.broker, me.broker_epoch, self.epoch, install, piece, queue, offset, max_bytes
        )

    def took(self, told: Told, data: memoryview) -> None:
        """The response to `ask`. Writes, so it blocks."""
        if isinstance(told, InstallRefused):
            raise Refused(told.reason)
        if isinstance(told, InstallBegun):
            if told.split <= self._beyond:
                raise Refused(f"the checkpoint of the leader is at {told.split}, not behind {self._beyond}")
            self._begun, self.records = told, told.records
        elif isinstance(told, InstallPiece):
            self.staged.add_rows(data)
            self._piece += 1
        else:
            self._take_runs(told, data)

    def _take_runs(self, told: InstallRuns, data: memoryview) -> None:
        at = 0
        for run in told.runs:
            batches = data[at : at + run.size]
            at += run.size
            aborted = data[at : at + run.aborted_size]
            at += run.aborted_size
            if not self._take_run(run, batches, aborted):
                return  # what follows comes again
        self._is_last = told.is_last

    def _take_run(self, run: InstallRun, batches: memoryview, aborted: memoryview) -> bool:
        """False: the queue begins again."""
        staged = self.staged
        row = staged.image.queues.get(run.queue)
        if row is None:
            raise Fault(f"queue {run.queue} came without a row")
        if run.is_gone:
            staged.drop_queue(run.queue)
            self._queue, self._offset, self._rewrites = run.queue + 1, 0, -1
            return True
        is_first = run.queue != self._queue or self._rewrites < 0
        if not is_first and run.rewrites != self._rewrites:
            staged.restart(run.queue)
            self._queue, self._offset, self._rewrites = run.queue, row.log_start, -1
            return False
        end = run.next_offset
        if run.size:
            end = staged.add_run(run.queue, run.offset, batches, rewritable=run.rewrites > 0)
        if end != run.next_offset:
            raise Fault(f"queue {run.queue}: batches up to {run.next_offset} were told, and came up to {end}")
        self.taken += max(0, end - run.offset)
        self._queue, self._offset, self._rewrites = run.queue, end, run.rewrites
        if run.is_last:
            staged.end_queue(run.queue, run.log_start, read_aborted(bytes(aborted), f"queue {run.queue}"))
            self._queue, self._offset, self._rewrites = run.queue + 1, 0, -1
        return True

    def complete(self) -> None:
        """The next start puts it in place. Blocks."""
        begun = self._begun
        assert begun is not None and self._is_last
        mark = JournalMark(self.journal, begun.split, begun.split, begun.epoch, begun.seed)
        self.staged.complete(mark, self.epoch)
