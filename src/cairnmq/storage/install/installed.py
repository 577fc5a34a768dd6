"""A whole install is put in place: the first step of a start, before anything else looks at either disk.

The journal and what this replica had of its queues go; packs, rows and facts of the install take their place with one
checkpoint. Whole is whole: whenever this stops, the next start does it again, until the rows are removed as the last
step. So no order of the steps before matters to a crash, but that the checkpoint comes before what it replaces goes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct

from cairnmq.storage.checkpoint.checkpoint import CheckpointImage, CheckpointLog, load_checkpoint
from cairnmq.storage.files.disk import Disk
from cairnmq.storage.files.failed_sync import unsynced_name
from cairnmq.storage.files.fault_point import reach
from cairnmq.storage.files.format import (
    JOURNAL_SUFFIX,
    PACK_SUFFIX,
    PACKS,
    QUEUES,
    UNFINISHED,
    CheckpointRows,
    KeyedRow,
    PackLabel,
    numbered,
    pack_name,
)
from cairnmq.storage.install.install_files import found_installs, install_directory, read_install, remove_install
from cairnmq.storage.journal.replica_note import ReplicaNoteFile, read_replica_note
from cairnmq.storage.journal.synced_end import synced_name
from cairnmq.storage.packs.pack import PackReader, PackWriter
from cairnmq.storage.packs.pack_set import PackSet
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.recovery.clean_stop import CleanStop, read_clean_stop, write_clean_stop


class Replaced(Struct, frozen=True):
    """What of this broker's storage belongs to a journal: its queues that exist, and its slots."""

    queues: Collection[QueueSpec]
    slots: Collection[int]


def put_in_place(journal_disk: Disk, read_disk: Disk, hosted: Mapping[int, Replaced]) -> list[int]:
    """The journals that were installed. What is left of an install that was not completed, or of a journal that is not
    hosted any more, is removed. So is one that is older than what the replica noted: it has followed or led in a later
    epoch, and its journal may hold what was acknowledged since."""
    done = []
    for journal in found_installs(read_disk):
        staged, belongs = read_install(read_disk, journal), hosted.get(journal)
        if staged is not None and read_replica_note(journal_disk, journal).epoch > staged.serial:
            staged = None
        if staged is not None and belongs is not None:
            if _Installed(journal_disk, read_disk, journal, staged, belongs).put():
                done.append(journal)
        remove_install(read_disk, journal)
    return done


class _Installed:
    def __init__(
        self, journal_disk: Disk, read_disk: Disk, journal: int, staged: CheckpointImage, belongs: Replaced
    ) -> None:
        self._journal_disk = journal_disk
        self._disk = read_disk
        self._journal = journal
        self._staged = staged
        self._belongs = belongs
        self._image = load_checkpoint(read_disk)
        self._queue_ids = {spec.queue_id for spec in belongs.queues} | set(staged.queues)

    def put(self) -> bool:
        """False: its packs have names that are in use."""
        staged, image = self._staged, self._image
        if not staged.packs or not set(image.packs).issuperset(staged.packs):
            if not self._move_packs():
                return False
            reach("install-packs-moved")
            kept = self._packs_without_queues()
            self._remove_journal()
            reach("install-journal-removed")
            self._keep_clean()
            self._publish(kept)
        reach("install-published")
        self._tidy()
        reach("install-tidied")
        return True

    def _move_packs(self) -> bool:
        directory, disk = install_directory(self._journal), self._disk
        moves = [(pack_name(number, directory), pack_name(number)) for number in self._staged.packs]
        if any(disk.exists(old) and disk.exists(new) for old, new in moves):
            return False
        disk.make_dir(PACKS)
        disk.sync_dir("")  # before anything is moved into it: it may be new
        for old, new in moves:
            if disk.exists(old):
                disk.rename(old, new)
        disk.sync_dir(PACKS)
        return True

    def _packs_without_queues(self) -> list[int]:
        """The packs that count, without what they hold of the journal's queues: a pack may not hold offsets that a
        later one holds too."""
        held = set(numbered(self._disk.list(PACKS), PACK_SUFFIX))
        kept, following = [], max([0, *held, *self._image.packs]) + 1
        packs = PackSet(self._disk, self._image.packs)
        readable = {pack.number: pack for pack in packs.packs}
        for number in self._image.packs:
            pack = readable.get(number)  # of one that cannot be read others' records may be mended
            if pack is None or not any(extent.queue_id in self._queue_ids for extent in pack):
                kept.append(number)
            elif self._copy(pack, following):
                kept.append(following)
                following += 1
        for pack in packs.packs:
            pack.close()
        self._disk.sync_dir(PACKS)
        return kept

    def _copy(self, pack: PackReader, number: int) -> bool:
        """False: nothing is left of it."""
        others = [extent for extent in pack if extent.queue_id not in self._queue_ids]
        if not others:
            return False
        writer = PackWriter(self._disk, PackLabel(number, self._image.serial))
        for extent in others:
            # with its checksum of before: what is damaged stays known as that
            writer.add_extent(extent, pack.file.read(extent.position, extent.size))
        writer.finish()
        writer.file.sync()
        writer.file.close()
        return True

    def _remove_journal(self) -> None:
        """Its end comes from the checkpoint. What this broker wrote as a leader is copied again, perhaps, so no claim
        in it about this disk holds (R5)."""
        disk, directory = self._journal_disk, str(self._journal)
        disk.make_dir(directory)
        ReplicaNoteFile(disk, self._journal).cut(0, self._staged.serial)
        for name in disk.list(directory):
            if name.endswith((JOURNAL_SUFFIX, UNFINISHED)):
                disk.remove(f"{directory}/{name}")
        for name in (synced_name(self._journal), unsynced_name(directory)):
            if disk.exists(name):
                disk.remove(name)
        disk.sync_dir(directory)
        disk.sync_dir("")

    def _keep_clean(self) -> None:
        """The process before may have stopped in order, to come back with this. Nothing of other journals is missing,
        and of this one this replica was no member."""
        stop = read_clean_stop(self._disk)
        if stop is not None and self._journal in stop.ends:
            ends = {**stop.ends, self._journal: self._staged.marks[self._journal].split}
            write_clean_stop(self._disk, CleanStop(stop.epoch, ends))

    def _publish(self, kept: list[int]) -> None:
        staged, image = self._staged, self._image
        slots = set(self._belongs.slots)
        gone_facts = [
            KeyedRow(row.queue_id, row.space, row.key, None)
            for place, row in image.keyed.items()
            if row.queue_id in slots and place not in staged.keyed
        ]
        checkpoints = CheckpointLog(self._disk, image)
        checkpoints.publish(
            CheckpointRows(
                queues=list(staged.queues.values()),
                gone=[each for each in self._queue_ids if each in image.queues and each not in staged.queues],
                keyed=[*gone_facts, *staged.keyed.values()],
                marks=list(staged.marks.values()),
                time_ms=image.time_ms,
                packs=[*kept, *staged.packs],
            )
        )
        checkpoints.close()

    def _tidy(self) -> None:
        """Segments of the queues, which the checkpoint does not name any more; packs are removed by the splitter.
        Durably: these queues may get segments again under the same names."""
        held = set(self._disk.list(QUEUES))
        for spec in self._belongs.queues:
            if spec.directory.removeprefix(f"{QUEUES}/") in held:
                self._disk.remove_tree(spec.directory)
        if held:
            self._disk.sync_dir(QUEUES)
