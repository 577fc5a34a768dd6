"""The splitter as a process of its own: `python -m cairnmq.broker.storage_loop.splitter_process SOCKET_FD PARENT_PID`.

It dies with the broker (parent-death signal), and it holds the data directory's lock through an inherited descriptor,
so a successor of a killed broker cannot begin while this one still writes. Imports stay small: memory and start time.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from cairnmq.broker.clocks import SYSTEM_CLOCKS, Clocks, ExpiryClock
from cairnmq.broker.memory_budget import trim_heap
from cairnmq.broker.storage_loop.broker_link import BrokerGone, BrokerLink, polled
from cairnmq.broker.storage_loop.die_with_parent import follow
from cairnmq.broker.storage_loop.splitter_messages import (
    Advance,
    Begin,
    Begun,
    Checkpointed,
    Compacted,
    Configure,
    Damaged,
    Drop,
    Expiration,
    Finish,
    Finished,
    Host,
    Order,
    Pace,
    Ping,
    Pong,
    Proposals,
    Repair,
    Repaired,
    Seen,
    Split,
    SyncFailed,
    Trouble,
)
from cairnmq.errors import Corrupt, Fault
from cairnmq.os_errors import text_of
from cairnmq.storage.api.splitting import (
    FULL,
    OPEN_FILES_MAX,
    CannotCompact,
    Disk,
    Maintenance,
    RealDisk,
    Repairer,
    Reserve,
    Resume,
    Splitter,
    Unreadable,
    Unreported,
    arm,
    load_checkpoint,
)

NICENESS = 10
ROUND_DELAY_SECONDS = 1.0  # a small backlog waits this long, so that rounds stay large
CHECKPOINT_BYTES = 256 << 20
LOOK_PAUSE = 10  # times as long as the last look took: what makes one due must not keep us looking
RETRY_SECONDS = 1.0
REST_SECONDS = 3.0  # of nothing to do: then memory is given back
AUTOGROUP_TRIES = 5
AUTOGROUP_SECONDS = 0.11  # the kernel's limit is a tenth of a second


class SplitterMachine(Clocks, frozen=True, kw_only=True, eq=False):
    """What the process takes from the machine that it runs on (ADR 0033). `disk`: of a directory."""

    disk: Callable[[str], Disk]
    random_bytes: Callable[[int], bytes]
    set_niceness: Callable[[int], None]
    open_files_max: Callable[[], int]


class FilesToRepair(deque[tuple[int, str]]):
    """Queue and file. Each file is tried once."""

    def __init__(self) -> None:
        super().__init__()
        self._known: set[str] = set()

    def append(self, found: tuple[int, str]) -> None:
        if found[1] not in self._known:
            self._known.add(found[1])
            super().append(found)

    def extend(self, found: Iterable[tuple[int, str]]) -> None:
        for each in found:
            self.append(each)


class SplitterProcess:
    """Blocking loop: orders in, rounds and checkpoints in between, reports out."""

    def __init__(self, broker: BrokerLink, machine: SplitterMachine) -> None:
        self.machine = machine
        self.broker = broker
        self.limits: dict[int, int] = {}
        self.paused = False
        self.urgent = False
        self.finishing = False
        self.backlog_since: float | None = None
        self.uncheckpointed_since: float | None = None
        self.next_retention = 0.0
        self.expiry_clock = ExpiryClock(machine.wall_ms, machine.steady_ms, lambda: self.begin.producer_expiration_ms)
        self.look_seconds = 0.0  # what the last look took
        self.deleted = False  # queues, since the last checkpoint: packs may hold little else
        self.trouble: str | None = None
        self.must_reopen = False  # a round failed: begin again from what is known to be good
        self.to_repair = FilesToRepair()
        self.retry_at = 0.0
        self.rest_at: float | None = 0.0
        self.full = False  # until the reserve is held again
        self.reported = Compacted(0, 0, 0, 0.0)
        # but Begin, which comes first, and Specs, which BrokerLink waits for
        self.actions: dict[type[Order], Callable[[Any], None]] = {
            Advance: self.advance,
            Finish: self.finish,
            Drop: self.drop,
            Configure: lambda order: self.splitter.configure(order.spec),
            Seen: lambda order: self.splitter.seen(order.serial),
            Repair: lambda order: self.to_repair.append((order.queue_id, order.file)),
            Expiration: self.set_expiration,
            Host: self.host,
            Pace: self.set_pace,
            Ping: lambda order: self.broker.send(Pong(order.number)),
        }

    # ------------------------------------------------------------------------------------------------------ life

    def run(self) -> None:
        waiting = self.broker.waiting
        while not waiting:
            self.broker.receive(60.0)
        begin = waiting.popleft()
        assert isinstance(begin, Begin)
        if begin.fault_point:
            arm(begin.fault_point, lambda: os.kill(os.getpid(), signal.SIGKILL))
        self.begin = begin
        self.paused = begin.paused
        self.limits = dict(begin.limits)
        try:
            self.splitter = self.open_splitter(begin.resume)
        except (OSError, Fault) as error:
            sys.exit(
                f"splitter cannot start: {text_of(error)}"
            )  # the broker starts successors, soon and then less often
        self.full = True
        self.next_retention = self.machine.seconds() + begin.retention_check_ms / 1000
        while True:
            while waiting:
                self.obey(waiting.popleft())
            pause = self.work()
            if pause is None:
                return
            self.broker.receive(pause)

    def open_splitter(self, resume: Resume | None) -> Splitter:
        """One that begins after `resume`, up to where queue logs are known to be good."""
        begin = self.begin
        read_disk = self.machine.disk(begin.data_dir)
        self.reserve = Reserve(read_disk, "", begin.reserve_bytes)
        splitter = Splitter(
            self.machine.disk(begin.journal_dir),
            read_disk,
            load_checkpoint(read_disk),
            self.broker.resolve,
            journals=begin.journals,
            resume=resume,
            producer_expiration_ms=begin.producer_expiration_ms,
            open_files_max=self.machine.open_files_max(),
        )
        if resume is not None:
            splitter.replay(self.machine.wall_ms())
            self.broker.send(Begun())
        self.maintenance = Maintenance(splitter, seed=self.machine.random_bytes(16))
        self.repairer = Repairer(splitter)
        self.to_repair.extend((0, place.file) for place in splitter.pack_set.damages())
        return splitter

    # -------------------------------------------------------------------------------------------------- orders

    def obey(self, order: Order) -> None:
        self.actions[type(order)](order)

    def advance(self, order: Advance) -> None:
        self.limits.update(order.limits)

    def finish(self, order: Finish) -> None:
        self.limits.update(order.limits)
        self.finishing = True
        self.machine.set_niceness(0)  # somebody waits for the end; on a busy machine a nice process may take minutes

    def drop(self, order: Drop) -> None:
        self.splitter.drop(order.queues)
        self.deleted = True

    def set_expiration(self, order: Expiration) -> None:
        self.begin = replace(self.begin, producer_expiration_ms=order.producer_ms)
        self.splitter.producer_expiration_ms = order.producer_ms

    def host(self, order: Host) -> None:
        """A splitter that begins again, after a failed round, must know it too."""
        self.begin = replace(self.begin, journals=[*self.begin.journals, order.journal])
        self.splitter.progress.host(order.journal)

    def set_pace(self, order: Pace) -> None:
        self.paused = order.paused
        if order.urgent != self.urgent:
            self.urgent = order.urgent
            self.machine.set_niceness(0 if order.urgent else NICENESS)

    # ---------------------------------------------------------------------------------------------------- work

    def work(self) -> float | None:
        """One step; returns how long to wait for orders before the next one, None when finished."""
        now = self.machine.seconds()
        if now < self.retry_at and not self.finishing:
            return self.retry_at - now
        try:
            if self.must_reopen:
                failed = self.splitter
                failed.close()
                self.splitter = self.open_splitter(failed.resume())
                self.must_reopen = False
            if self.full:
                self.make_room()
            pause = self.step(now)
            if self.trouble is not None:
                self.trouble = None
                self.broker.send(Trouble(None))
            return pause
        except Unreported:
            return None  # the broker takes over what the checkpoint says, and starts a successor behind it
        except (OSError, Fault) as error:
            if isinstance(error, BrokenPipeError | ConnectionError):
                raise BrokerGone from error
            if self.splitter.failed_sync is not None:
                self.broker.send(SyncFailed(str(self.splitter.failed_sync)))
                return None
            # A failed round has moved some queues and not others: begin again from what is known to be good.
            self.must_reopen = True
            reason = f"splitter: {text_of(error)}"
            if isinstance(error, OSError) and error.errno in FULL:
                self.full = True
                self.reserve.release()
                room = self.reserve.size + self.splitter.rounds.round_bytes
                reason += f"; splitting resumes by itself when the read disk has room, at most {room} bytes"
            if reason != self.trouble:
                self.trouble = reason
                self.broker.send(Trouble(reason))
            self.retry_at = self.machine.seconds() + RETRY_SECONDS
            return None if self.finishing else RETRY_SECONDS

    def make_room(self) -> None:
        """A full disk: the checkpoint may use the reserve, and lets files be deleted; rounds wait until it is back."""
        if self.splitter.uncheckpointed:
            self.checkpoint()
        self.reserve.hold(min(self.backlog(), self.splitter.rounds.round_bytes))
        self.full = False

    def backlog(self) -> int:
        return sum(max(0, limit - self.splitter.positions[j]) for j, limit in self.limits.items())

    def step(self, now: float) -> float | None:
        self.maybe_propose(now)
        backlog = self.backlog()
        if backlog and (not self.paused or self.finishing):
            if self.backlog_since is None:
                self.backlog_since = now
            waited = now - self.backlog_since
            if (
                self.finishing
                or self.urgent
                or backlog >= self.splitter.rounds.round_bytes
                or waited >= ROUND_DELAY_SECONDS
            ):
                self.round()
                if backlog <= self.splitter.rounds.round_bytes:
                    self.backlog_since = None
                self.maybe_checkpoint(self.machine.seconds())
                if not self.urgent and not self.finishing:
                    self.tidy()
                return 0.0
            self.maybe_checkpoint(now)
            return 0.0 if self.tidy() else ROUND_DELAY_SECONDS - waited
        self.backlog_since = None
        if self.finishing:
            self.checkpoint()
            self.broker.send(Finished())
            return None
        self.maybe_checkpoint(now)
        if not self.paused and self.tidy():
            self.rest_at = now + REST_SECONDS
            return 0.0
        self.maybe_checkpoint(now)  # a merge that ended just now waits for one, and the next merge for that
        self.rest(now)
        waits = [60.0]
        if self.rest_at is not None:
            waits.append(self.rest_at - now)
        if self.uncheckpointed_since is not None:
            waits.append(self.uncheckpointed_since + self.begin.checkpoint_ms / 1000 - now)
        if not self.paused:  # else neither is done until an order goes on with it
            waits.append(self.next_retention - now)
            waits.append((self.maintenance.compactor.next_look_ms - self.machine.wall_ms()) / 1000)
        return max(0.0, min(waits))

    def rest(self, now: float) -> None:
        """What the work (or the start) has used is free, but the heap keeps it. Using it again costs faults, so not
        between one round and the next."""
        if self.rest_at is not None and now >= self.rest_at:
            self.rest_at = None
            self.splitter.rounds.split_buffer.empty()
            trim_heap()

    def maybe_propose(self, now: float) -> None:
        """Retention has its turn under load too."""
        if now >= self.next_retention and not self.paused and not self.finishing:
            self.next_retention = now + self.begin.retention_check_ms / 1000
            starts = self.maintenance.look(self.machine.wall_ms())
            self.look_seconds = self.machine.seconds() - now
            if starts:
                self.broker.send(Proposals(starts))
            if self.maintenance.demote():
                self.checkpoint()

    def tidy(self) -> bool:
        """A step of merging; True if there is more. Damage found there stops neither splitting nor checkpoints."""
        self.repair()
        try:
            more = self.maintenance.step()
            if self.maintenance.look_due:
                self.look_soon()
            if more:
                return True
        except (Corrupt, Unreadable) as error:
            self.broker.send(Damaged(f"{error}; packs that contain it are no longer merged"))
        except CannotCompact as error:
            self.report(error)
        return self.compact()

    def compact(self) -> bool:
        """A slice of compaction; True if there is more."""
        try:
            more = self.maintenance.compact(self.machine.wall_ms())
        except Corrupt as error:
            self.broker.send(Damaged(f"{error}; its partition is not compacted"))
            return False
        except CannotCompact as error:
            self.report(error)
            return True
        compactor = self.maintenance.compactor
        tally = compactor.tally
        report = Compacted(tally.passes, tally.read_bytes, tally.written_bytes, round(compactor.dirty_ratio, 3))
        if report != self.reported:
            self.reported = report
            self.broker.send(report)
        return more

    def report(self, error: CannotCompact) -> None:
        if error.__cause__ is not None and not isinstance(error.__cause__, CannotCompact):
            sys.excepthook(type(error), error, error.__traceback__)  # a defect: where it is, for a bug report
        self.broker.send(Damaged(str(error)))

    def repair(self) -> None:
        """Damage that was found since, here or by the broker's reads."""
        self.report_damages()
        while self.to_repair and not self.splitter.has_merge and not self.maintenance.is_merging:
            queue_id, file = self.to_repair.popleft()
            try:
                if self.repairer.repair(queue_id, file):
                    self.checkpoint()
                self.report_damages()  # first: the broker lists damage until it hears of the repair
                self.broker.send(Repaired(queue_id, file))
            except (Corrupt, Unreadable) as error:
                self.broker.send(Damaged(f"{file} cannot be repaired: {error}"))

    def report_damages(self) -> None:
        for queue_id, place in self.splitter.damages:
            self.broker.send(Damaged(str(place), place))
            self.to_repair.append((queue_id, place.file))
        self.splitter.damages.clear()

    def round(self) -> None:
        self.rest_at = self.machine.seconds() + REST_SECONDS
        for journal, limit in self.limits.items():
            done = self.splitter.split(journal, limit, self.machine.wall_ms())
            if done is not None:
                self.broker.send(Split(done))
        if self.uncheckpointed_since is None:
            self.uncheckpointed_since = self.machine.seconds()

    def maybe_checkpoint(self, now: float) -> None:
        if self.uncheckpointed_since is None:
            if self.splitter.uncheckpointed:
                self.uncheckpointed_since = now
            return
        uncheckpointed = self.splitter.progress.uncheckpointed_bytes
        if uncheckpointed >= CHECKPOINT_BYTES or now - self.uncheckpointed_since >= self.begin.checkpoint_ms / 1000:
            self.checkpoint()

    def checkpoint(self) -> None:
        started = self.machine.seconds()
        published = self.splitter.checkpoint(self.machine.wall_ms(), expiry_ms=self.expiry_clock())
        self.uncheckpointed_since = None
        self.broker.send(Checkpointed(published, self.machine.seconds() - started))
        if self.deleted:
            # From this checkpoint on a merge leaves them behind; a look finds the packs that are worth it.
            self.deleted = False
            self.look_soon()

    def look_soon(self) -> None:
        self.next_retention = min(self.next_retention, self.machine.seconds() + LOOK_PAUSE * self.look_seconds)


def _open_files_max() -> int:
    """The limit that the broker has raised before it started us."""
    limit = os.sysconf("SC_OPEN_MAX")
    return limit if limit > 0 else OPEN_FILES_MAX


def _set_niceness(value: int) -> None:
    if os.getsid(0) == os.getpid():  # else it would be the broker's too
        _set_session_niceness(value)
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, value)  # only root may become less nice


def _set_session_niceness(value: int) -> None:
    """Linux may share the CPU between sessions first (autogroup); niceness then only counts within one."""
    for _ in range(AUTOGROUP_TRIES):
        try:
            with open("/proc/self/autogroup", "w") as group:
                group.write(str(value))
            return
        except BlockingIOError:
            SYSTEM_CLOCKS.sleep(AUTOGROUP_SECONDS)  # one change at a time, whoever makes it
        except OSError:
            return


def this_machine() -> SplitterMachine:
    """The one that it really runs on."""
    return SplitterMachine(
        wall_ms=SYSTEM_CLOCKS.wall_ms,
        steady_ms=SYSTEM_CLOCKS.steady_ms,
        seconds=SYSTEM_CLOCKS.seconds,
        sleep=SYSTEM_CLOCKS.sleep,
        disk=RealDisk,
        random_bytes=os.urandom,
        set_niceness=_set_niceness,
        open_files_max=_open_files_max,
    )


def main() -> None:
    link = socket.socket(fileno=int(sys.argv[1]))
    if not follow(int(sys.argv[2]), signal.SIGKILL):
        return
    with contextlib.suppress(PermissionError):
        os.setsid()  # a session of its own can be nice as a whole
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the broker's business; it tells us to finish
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _set_niceness(NICENESS)
    try:
        SplitterProcess(BrokerLink(link, polled(link)), this_machine()).run()
    except BrokerGone:
        return


if __name__ == "__main__":
    main()
