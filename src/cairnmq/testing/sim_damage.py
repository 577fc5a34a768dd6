"""Damage on the simulated machine: a flipped bit in a file, and its mending from what journals hold; a lost end."""

from __future__ import annotations

from collections.abc import Collection
from random import Random
from typing import NamedTuple

from cairnmq.errors import Corrupt
from cairnmq.storage.files.format import PACK_SUFFIX, journal_segment
from cairnmq.storage.journal.journal import JournalReader
from cairnmq.storage.journal.synced_end import read_synced_end
from cairnmq.storage.maintenance.repair import Repairer
from cairnmq.storage.segments.index_rebuild import indexes_lie, rebuild_indexes
from cairnmq.storage.segments.segment import INDEX, LOG, TIME_INDEX, segment_name
from cairnmq.storage.splitter.splitter import Splitter
from cairnmq.testing.oracle import demand
from cairnmq.testing.sim_disk import SimDisk

SEGMENT, PACK, INDEXES, UNDONE, NOTHING = "segment", "pack", "indexes", "undone", ""


class Hurt(NamedTuple):
    """A flipped bit in a file of the read disk; `bad` is the byte as it is now."""

    queue_id: int
    file: str
    position: int
    flip: int
    bad: bytes


def hurt_something(rng: Random, splitter: Splitter, read: Collection[int]) -> Hurt | None:
    """Flips a bit in a file whose bytes are all synced, if there is any. `read`: packs that the broker has opened."""
    disk = splitter.read_disk
    assert isinstance(disk, SimDisk)
    packs = splitter.pack_set.packs if not splitter.has_merge else []
    named = splitter.image.packs
    found = [(0, pack.name) for pack in packs if pack.number in named and pack.number in read]
    for queue in splitter.queues.values():
        bases = queue.log.bases if queue.log is not None else []
        names = [segment_name(queue.spec.directory, base, LOG) for base in bases]
        names += [segment_name(queue.spec.directory, base, kind) for base in bases[:-1] for kind in (INDEX, TIME_INDEX)]
        found += [(queue.spec.queue_id, file) for file in names]
    found = [(queue_id, file) for queue_id, file in found if disk.is_synced(file) and disk.open(file).size()]
    if not found:
        return None
    queue_id, file = rng.choice(found)
    position, flip = rng.randrange(disk.open(file).size()), 1 << rng.randrange(8)
    disk.damage(file, position, flip)
    return Hurt(queue_id, file, position, flip, disk.open(file).read(position, 1))


def lose_end(rng: Random, disk: SimDisk, number: int) -> bool:
    """Cuts a journal off, or zeroes it, from a place on that was synced; False: it does not say that any was."""
    reader = JournalReader(disk, number)
    synced, bases, end = read_synced_end(disk, number), reader.bases, reader.end()
    reader.close()
    if synced is None or not bases or not bases[0] < synced.position <= end:
        return False
    # Near the end as often as anywhere.
    place = rng.choice((rng.randrange(bases[0], synced.position), max(bases[0], synced.position - rng.randint(1, 100))))
    zeroed = rng.random() < 0.3
    for base in bases:
        file = disk.open(journal_segment(number, base), write=True)
        size = file.size()
        if base + size > place:
            file.truncate(max(place - base, 0))
            if zeroed:
                file.append([bytes(size - file.size())])
        if base > place and not zeroed:
            disk.remove(journal_segment(number, base))
    return True


def repair(splitter: Splitter, hurt: Hurt) -> str:
    """As the splitter process does it; says what was made good. A pack counts from the next checkpoint on.

    If no journal holds the records any more the bit is turned back, and what was opened meanwhile should be opened
    again: what happens then is not the subject here.
    """
    disk = splitter.read_disk
    assert isinstance(disk, SimDisk)
    if not disk.exists(hurt.file) or disk.open(hurt.file).read(hurt.position, 1) != hurt.bad:
        # Mended already, by someone who may have been killed before the new file's name was synced. That the power
        # fails before the file system has written it by itself, and the old file comes back, is not played.
        directory = hurt.file.rpartition("/")[0]
        if disk.exists(directory):  # else its queue is in packs now, or a power loss took all of it
            disk.sync_dir(directory)
        return NOTHING
    if not hurt.file.endswith((LOG, PACK_SUFFIX)):
        return INDEXES if _repair_indexes(splitter, disk, hurt) else NOTHING
    try:
        if Repairer(splitter).repair(hurt.queue_id, hurt.file):
            return PACK
        if not disk.exists(hurt.file):
            return NOTHING  # made after the checkpoint: opening the log removed it, and its records are split again
        if disk.open(hurt.file).read(hurt.position, 1) != hurt.bad:
            return SEGMENT
        # The leader epoch of a record that was deleted since the checkpoint: nobody knows it any more, or asks.
    except Corrupt:
        pass
    disk.damage(hurt.file, hurt.position, hurt.flip)
    return UNDONE


def _repair_indexes(splitter: Splitter, disk: SimDisk, hurt: Hurt) -> bool:
    """As maintenance does it, of a closed segment; False: nothing was wrong, or retention has deleted it."""
    queue = splitter.learn(hurt.queue_id)
    if queue is None:
        return False
    log = queue.log or splitter.open_log(queue)
    base = int(hurt.file.rpartition("/")[2].partition(".")[0])
    interval = queue.spec.config.index_interval_bytes
    if base not in log.bases[:-1] or not indexes_lie(disk, log.directory, base, interval, closed=True):
        return False
    rebuild_indexes(disk, log.directory, base, interval)
    demand(not indexes_lie(disk, log.directory, base, interval, closed=True), hurt.file, "lies")
    return True
