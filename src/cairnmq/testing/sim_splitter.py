"""The splitter on the simulated machine, and what it and the broker tell each other: it dies, fails, tries again, and
its reports are late or lost."""

from __future__ import annotations

import errno
from collections.abc import Callable

from cairnmq.errors import Fault
from cairnmq.storage.checkpoint.checkpoint import load_checkpoint
from cairnmq.storage.checkpoint.split_report import Published, Resume, Round
from cairnmq.storage.files.fault_point import arm as arm_point
from cairnmq.storage.files.format import UNSYNCED
from cairnmq.storage.journal.journal import JournalReader
from cairnmq.storage.maintenance.maintenance import Maintenance
from cairnmq.storage.splitter.progress import Unreported
from cairnmq.storage.splitter.splitter import Splitter
from cairnmq.testing.oracle import demand
from cairnmq.testing.sim_checks import check_logs, check_report
from cairnmq.testing.sim_machine import Machine, SplitterDied, Struck


def _refuse() -> None:
    raise OSError(errno.EPERM, "a file cannot be removed")


class SplitterMachine(Machine):
    """What the broker and its splitter do besides the clients' work; in any order the real ones could take."""

    def with_splitter(self, act: Callable[[Splitter], None], faulty: float = 0.03) -> None:
        """Runs the splitter; it may die alone, or its disk may refuse, and then a successor goes on."""
        disk = self.read_disk
        if self.rng.random() < 0.04:
            self.splitter_strike_in = self.rng.randint(1, 12)
        elif (fate := self.rng.random()) < faulty * 2 / 3:
            disk.sync_fault = errno.EIO
        elif fate < faulty:
            disk.faults[disk.operations + self.rng.randint(1, 6)] = errno.ENOSPC
        again = False
        try:
            if self.splitter is None:
                self.splitter = self._successor()
            act(self.splitter)
        except SplitterDied:
            self._splitter_gone()
        except OSError:
            failed = self.splitter
            disk.faults.clear()
            disk.sync_fault = None
            if failed is not None and failed.failed_sync is None and self.rng.random() < 0.5:
                self._try_again(failed)
            else:
                self._splitter_gone()
                if failed is not None and failed.failed_sync is not None:
                    self.tally.failed_syncs += 1
                    again = self.rng.random() < 0.5  # its successor runs before anything else happens
        except Fault:
            # after a failed sync every successor refuses, until the broker has gone back to the checkpoint
            if self.splitter is None or self.splitter.failed_sync is None:
                raise
            if self.rng.random() < 0.3:
                raise Struck from None
            disk.faults.clear()
            disk.sync_fault = None
            self._splitter_gone()
            self._go_by_the_checkpoint(is_suspect=True)
            self.read_disk.remove(UNSYNCED)
            self.tally.unsplits += 1
        finally:
            self.splitter_strike_in = 0
            disk.faults.clear()
            disk.sync_fault = None
        if again:
            self.with_splitter(act, faulty=0)

    def _go_by_the_checkpoint(self, *, is_suspect: bool = False) -> None:
        stored = self.engine.scan_split(is_suspect=is_suspect)
        if stored is not None:
            self.engine.unsplit(stored)

    def _successor(self) -> Splitter:
        self._go_by_the_checkpoint()
        return self._replayed(self.engine.resume())

    def _replayed(self, resume: Resume) -> Splitter:
        splitter = self._splitter(self.journal_disk, self.read_disk, self.lanes, resume)
        splitter.replay(self.now)
        self.maintenance = Maintenance(splitter, self.shape.fanout)
        return splitter

    def _try_again(self, failed: Splitter) -> None:
        """The process of a splitter that failed begins again with what it has reported, while that may still be on its
        way; it ends if there is a checkpoint that it has not reported."""
        self.tally.tries += 1
        try:
            self.splitter = self._replayed(failed.resume())
        except Unreported:
            self.tally.lost_reports += 1
            self._splitter_gone()
            return
        told = [report.serial for report in self.reports if isinstance(report, Published)]
        known = load_checkpoint(self.read_disk).serial
        demand(known == max([self.engine.serial, *told]), "a splitter begins at checkpoint", known, "unreported")

    def _publish(self, splitter: Splitter) -> None:
        """A checkpoint, and its report; in between the splitter may die, or fail."""
        fate = self.rng.random()
        if fate < 0.15:
            arm_point("checkpoint-report", _refuse)
        try:
            published = splitter.checkpoint(self.now)
        finally:
            arm_point("", _refuse)
        check_report(self.engine, published)
        if fate > 0.85:
            self.tally.lost_reports += 1
            raise SplitterDied
        self.reports.append(published)

    def _splitter_gone(self) -> None:
        self.trace("the splitter is gone")
        self.splitter_strike_in = 0
        self.tally.splitter_deaths += 1
        self.splitter = None
        self.acks.clear()
        while self.reports:  # what it had sent still arrives
            self._deliver()

    def _kill_splitter(self) -> None:
        self._splitter_gone()

    def _split(self) -> None:
        def act(splitter: Splitter) -> None:
            number = self.rng.choice(list(self.lanes))
            done = splitter.split(number, self.engine.splittable(number), self.now)
            if done is not None:
                self.tally.rounds += 1
                check_logs(self.read_disk, done, self.specs)
                self.reports.append(done)

        self.with_splitter(act)

    def _checkpoint(self) -> None:
        def act(splitter: Splitter) -> None:
            self._publish(splitter)
            self.tally.checkpoints += 1

        self.with_splitter(act, faulty=0.35)

    def _tidy(self) -> None:
        def act(splitter: Splitter) -> None:
            assert self.maintenance is not None
            had = splitter.has_merge
            self.maintenance.step()
            self.tally.merges += splitter.has_merge and not had

        self.with_splitter(act)

    def _acknowledge(self) -> None:
        """The splitter hears that the broker goes by a checkpoint."""

        def act(splitter: Splitter) -> None:
            if self.acks:
                splitter.seen(self.acks.pop(0))

        self.with_splitter(act)

    def _deliver(self) -> None:
        if not self.reports:
            return
        report = self.reports.pop(0)
        if isinstance(report, Round):
            self.engine.on_round(report)
            return
        self.engine.on_checkpoint(report)
        if self.splitter is not None:
            self.acks.append(report.serial)
        marks = load_checkpoint(self.read_disk).marks
        for number in report.positions:
            bases = JournalReader(self.journal_disk, number).bases
            if bases:
                demand(bases[0] <= marks[number].split, "a journal segment above the checkpoint was deleted")
