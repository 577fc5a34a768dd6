"""What a start finds before it changes anything, alone and in a cluster: the checkpoint, and all hosted journals
scanned behind it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from cairnmq.storage.checkpoint.checkpoint import CheckpointImage
from cairnmq.storage.files.disk import Disk
from cairnmq.storage.files.failed_sync import unsynced_name
from cairnmq.storage.journal.journal import JournalReader
from cairnmq.storage.journal.replica_note import ReplicaNote, ReplicaNoteFile
from cairnmq.storage.journal.synced_end import SyncedEndFile
from cairnmq.storage.live.queue import Queue
from cairnmq.storage.recovery.clean_stop import forget_clean_stop, read_clean_stop
from cairnmq.storage.recovery.cut_bytes import is_being_cut, keep_aside, will_cut
from cairnmq.storage.recovery.own_epochs import led_here
from cairnmq.storage.recovery.owner import Homes
from cairnmq.storage.recovery.replay import (
    ALONE,
    Progress,
    Replicated,
    Scan,
    cut_short,
    known_by,
    scan_journal,
)
from cairnmq.storage.recovery.salvage import tidy
from cairnmq.storage.recovery.stale_checkpoint import refuse_stale_checkpoint
from cairnmq.storage.recovery.witness import Known

Tell = Callable[[Collection[Scan]], None]


def alone(number: int) -> Replicated:
    return ALONE


def in_cluster(
    disk: Disk,
    notes: Mapping[int, ReplicaNoteFile],
    nodes: Collection[int],
    floor: Callable[[int, ReplicaNote], int],
    next_queue: int,
    had: Callable[[int], int],
) -> Callable[[int], Replicated]:
    """What is known of each journal before it is read. `floor`: what still counts of what its note calls replicated.
    `had`: up to where an earlier start knew that this disk has had the journal, when it found it damaged."""

    def rule(number: int) -> Replicated:
        note = notes[number].kept
        return Replicated(
            replicated_end=floor(number, note),
            durable_end=note.durable,
            next_queue=next_queue,
            led=led_here(disk, number, nodes, note),
            had=had(number),
        )

    return rule


class FoundStorage:
    """Made of both disks; then `begin` and `done` around the opening of journals are its only changes."""

    def __init__(
        self,
        journal_disk: Disk,
        read_disk: Disk,
        image: CheckpointImage,
        queues: dict[int, Queue],
        numbers: Iterable[int],
        *,
        now_ms: int,
        progress: Progress | None,
        rule: Callable[[int], Replicated] = alone,
    ) -> None:
        refuse_stale_checkpoint(read_disk, image, (queue.spec for queue in queues.values()))
        self.journal_disk = journal_disk
        self.read_disk = read_disk
        self.image = image
        self.queues = queues
        self.keyed = image.keyed_values()
        self.stop = read_clean_stop(read_disk)
        self.journals: dict[int, tuple[Scan, JournalReader]] = {
            number: scan_journal(
                journal_disk,
                number,
                image,
                queues,
                self.keyed,
                now_ms=now_ms,
                progress=progress,
                replicated=rule(number),
            )
            for number in numbers
        }
        self.scans = {number: scan for number, (scan, _) in self.journals.items()}
        self.damaged = [scan for scan in self.scans.values() if scan.damage is not None]

    def cut_queues_short(self) -> None:
        """Those that may have entries behind damage."""
        for scan in self.damaged:
            cut_short(self.queues.values(), scan, Homes(self.journal_disk))

    def lacking(
        self, has_others: Callable[[int], bool], had: Callable[[int], int], given_up: Collection[int]
    ) -> tuple[frozenset[int], dict[int, int], frozenset[int]]:
        """Journals that are damaged. Of those that no other replica has, up to where this disk has had each: they stay
        as they are, so that a later start can tell whether they were restored. And those that were damaged, and lack
        nothing now, or nothing that is not `given_up`."""
        damaged = frozenset(scan.number for scan in self.damaged).difference(given_up)
        uncut = {scan.number: scan.had for scan in self.damaged if scan.number in damaged}
        whole = frozenset(number for number in self.scans if had(number) or number in given_up) - damaged
        return damaged, {number: end for number, end in uncut.items() if not has_others(number)}, whole

    def cut_damaged(self, notes: Mapping[int, ReplicaNoteFile], uncut: Collection[int], epoch: int) -> None:
        """Those that other replicas have, too (R6). What is behind the damage is kept in `lost/EPOCH`, also if a start
        before this one was stopped on the way."""
        for number, (scan, reader) in self.journals.items():
            if scan.damage is None and is_being_cut(self.journal_disk, number):
                keep_aside(self.journal_disk, reader, scan.end, epoch)
        for scan in [scan for scan in self.damaged if scan.number not in uncut]:
            self._cut_at_damage(scan, notes[scan.number], epoch)

    def _cut_at_damage(self, scan: Scan, note: ReplicaNoteFile, epoch: int) -> None:
        """What says that this disk had the bytes goes before they do, durably: they are copied again, and may not be
        synced then."""
        reader = self.journals[scan.number][1]
        will_cut(self.journal_disk, scan.number)
        note.cut(scan.end, scan.last_epoch)
        synced = SyncedEndFile(self.journal_disk, scan.number, scan.epoch, reader.find_seed())
        synced.lower(scan.end)
        synced.close()
        keep_aside(self.journal_disk, reader, scan.end, epoch)
        scan.damage, scan.behind = None, None
        self.damaged.remove(scan)

    def known(self) -> Known:
        return known_by(self.image, self.keyed, self.scans.values(), self.journal_disk, self.read_disk)

    def begin(self, tell: Tell | None) -> dict[int, int]:
        """The start is decided: files may change from here on. Returns where the journals end."""
        for gap in (gap for scan in self.scans.values() for gap in scan.gaps.values()):
            raise gap
        if tell is not None:
            tell(self.scans.values())
        forget_clean_stop(self.read_disk)
        tidy(self.journal_disk, self.scans)
        return {number: scan.end for number, scan in self.scans.items()}

    def done(self) -> None:
        """All journals are open."""
        self.journal_disk.sync_dir("")
        # The splitter that starts now makes everything behind the checkpoint again.
        self.read_disk.remove(unsynced_name(""))
