"""The journals that a broker of a cluster hosts: it leads some, follows the others, and gets new ones at run time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cairnmq.storage.files.disk import Disk
from cairnmq.storage.files.format import JOURNAL_SUFFIX, Leader, numbered
from cairnmq.storage.journal.journal import Journal
from cairnmq.storage.journal.replica_note import ReplicaNoteFile
from cairnmq.storage.live.follow_path import FollowPath, JournalRole, MustReopen, demoted
from cairnmq.storage.live.journal_fold import JournalFold
from cairnmq.storage.live.queue import Queue
from cairnmq.storage.live.unreplicated import Keyeds
from cairnmq.storage.live.write_path import WritePath

SEGMENTS_LEFT = 2  # of journals: with less room on its disk a follower makes producers wait


class Hosting:
    """`paths` are the engine's, and change here. `member`: this broker, in the life in which it leads next.
    `next_queue`: the metadata have given out all queue ids below, and those that exist are among the engine's queues.
    """

    def __init__(
        self,
        disk: Disk,
        paths: dict[int, JournalRole],
        queues: dict[int, Queue],
        keyed: Keyeds,
        notes: dict[int, ReplicaNoteFile],
        *,
        member: Leader,
        next_queue: int,
        seed: int,
        segment_bytes: int,
        installed: Sequence[int] = (),
    ) -> None:
        self.installed = installed  # journals that this start has put in place
        self.pins: dict[int, int] = {}  # by journal: another replica needs it from here on, for now
        self._replaced: dict[int, int] = {}  # how often the segments of a queue were
        self._packs_replaced = 0
        self.member = member
        self.next_queue = next_queue
        self.notes = notes
        self.disk = disk
        self._paths = paths
        self._queues = queues
        self._keyed = keyed
        self._seed = seed
        self._segment_bytes = segment_bytes
        self._keep_from: dict[int, int] = {}  # by journal: as its leader said last

    def registered(self, member: Leader) -> None:
        """This process has another life in the metadata from here on: its session had ended."""
        self.member = member
        for path in self._paths.values():
            path.journal.leader = member

    def host(self, number: int) -> FollowPath:
        """A new journal, to which nobody has written. Its directory is there, durably, when this returns."""
        assert number not in self._paths
        directory = str(number)
        self.disk.make_dir(directory)
        if numbered(self.disk.list(directory), JOURNAL_SUFFIX):
            raise MustReopen(number, "is new here by the metadata, and has files")
        self.disk.sync_dir("")
        self.notes[number] = ReplicaNoteFile(self.disk, number)
        journal = Journal(
            self.disk,
            number,
            epoch=0,
            leader=self.member,
            seed=self._seed,
            segments=[],
            end=0,
            segment_bytes=self._segment_bytes,
        )
        fold = JournalFold(number, self._queues, self._keyed, 0, next_queue=self.next_queue)
        path = self._paths[number] = FollowPath(journal, fold, note=self.notes[number])
        return path

    def lead(self, number: int, epoch: int, now_ms: int) -> WritePath | None:
        """This broker is elected. None: `FollowPath.promoted` says why not yet."""
        path = self._paths[number]
        assert isinstance(path, FollowPath)
        promoted = path.promoted(epoch, now_ms)
        if promoted is not None:
            self._paths[number] = promoted
        return promoted

    def follow(self, number: int, reason: str) -> FollowPath:
        """Another broker leads, or nobody. Not while a write is under way."""
        path = self._paths[number]
        if isinstance(path, FollowPath):
            return path
        follows = demoted(path, self._queues, self.next_queue, reason, self.notes[number])
        self._paths[number] = follows
        return follows

    def knows_queues(self, next_queue: int, now_ms: int) -> list[Queue]:
        """The metadata have given out all ids below; those that exist were added before. Returns queues that have more
        to show."""
        self.next_queue = max(self.next_queue, next_queue)
        follows = [path for path in self._paths.values() if isinstance(path, FollowPath)]
        return [queue for path in follows for queue in path.knows_queues(self.next_queue, now_ms)]

    def replaced(self, queue_ids: Iterable[int], *, are_packs: bool) -> None:
        """A checkpoint has other files in the place of some that were read."""
        self._packs_replaced += are_packs
        for queue_id in queue_ids:
            self._replaced[queue_id] = self._replaced.get(queue_id, 0) + 1

    def rewrites(self, queue: Queue) -> int:
        """Of a compacted queue: grows whenever stored records of it may have gone. 0: none ever do before the log start
        moves."""
        return 1 + self._replaced.get(queue.queue_id, 0) + self._packs_replaced if queue.config.compact else 0

    def keep(self, number: int, position: int, split: int, retain_bytes: int) -> None:
        """Other replicas may need the journal from this position on; before the first call, all that is kept for them.
        `split`: of the checkpoint. OSError: as in `Engine.on_checkpoint`."""
        before, self._keep_from[number] = self._keep_from.get(number, 0), position
        if position > before:
            self.remove_segments(number, split, retain_bytes)

    def remove_segments(self, number: int, split: int, retain_bytes: int) -> None:
        """`retain_bytes` below the checkpoint are the most that is kept for replicas that are away. The byte before the
        position of each replica stays, which tells the epoch there. A disk that is nearly full keeps nothing for
        others: soon producers would wait for its room. An install that is under way then begins again."""
        kept = split
        if self.disk.free_bytes() >= (SEGMENTS_LEFT + 1) * self._segment_bytes:
            kept = max(split - retain_bytes, min(split, self._keep_from.get(number, 0)))
            kept = min(kept, self.pins.get(number, kept))
        self._paths[number].journal.remove_below(kept - 1)

    def ends(self) -> dict[int, int]:
        """Where the journals end; empty unless all that was ever taken is on the disk."""
        journals = [path.journal for path in self._paths.values()]
        if any(path.stopped is not None for path in self._paths.values()):
            return {}
        if not all(one.synced == one.end == one.staged_end for one in journals):
            return {}
        return {one.number: one.end for one in journals}
