"""The packs as the splitter holds them: those that count, those that it writes, and those that no checkpoint names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cairnmq.storage.checkpoint.checkpoint import CheckpointLog
from cairnmq.storage.files.disk import Disk, File
from cairnmq.storage.files.format import Entry, PackLabel, pack_name
from cairnmq.storage.packs.pack import PackWriter
from cairnmq.storage.packs.pack_set import PackSet
from cairnmq.storage.packs.spare_packs import SparePacks


class SplitPacks:
    """`split_since`: packs that a predecessor wrote and reported, and no checkpoint names yet."""

    def __init__(self, disk: Disk, checkpoints: CheckpointLog, split_since: Sequence[int]) -> None:
        self.disk = disk
        self.checkpoints = checkpoints
        self.unsynced: list[File] = []  # written since the last checkpoint
        known = checkpoints.image.packs
        counted = [*known, *(number for number in split_since if number not in known)]
        self.spares = SparePacks(disk, counted)
        if self.spares.numbers:
            checkpoints.settle()
        if not self.spares.are_wanted:
            self.spares.remove()
        self.pack_set = PackSet(disk, counted)
        self._next_number = max([0, *counted, *self.spares.numbers]) + 1

    def take_label(self) -> PackLabel:
        """For a new pack. It says that there is a checkpoint with this serial, so that one must be durable."""
        self.checkpoints.settle()
        self._next_number += 1
        return PackLabel(self._next_number - 1, self.checkpoints.image.serial)

    def write(self, runs: Iterable[tuple[int, Sequence[Entry]]]) -> int:
        """A pack of these batches, by queue id; it counts from now on."""
        writer = PackWriter(self.disk, self.take_label())
        try:
            for queue_id, batches in runs:
                writer.add_batches(queue_id, batches)
            writer.finish()
        except OSError:
            writer.abandon()
            raise
        self.pack_set.add(writer.number)
        self.unsynced.append(writer.file)
        return writer.number

    def sync_again(self, numbers: Iterable[int]) -> None:
        """The next checkpoint syncs what a predecessor wrote."""
        self.unsynced.extend(self.disk.open(pack_name(number), write=True) for number in numbers)
