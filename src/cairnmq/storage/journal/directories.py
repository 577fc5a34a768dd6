"""Which directories on the disk of the journals are journals. Others may lie beside them: copies, somebody's notes."""

from __future__ import annotations

from collections.abc import Iterable

from cairnmq.errors import Corrupt
from cairnmq.storage.files.disk import Disk, Unreadable
from cairnmq.storage.files.format import (
    JOURNAL_SUFFIX,
    SEGMENT_ENTRY_SIZE,
    JournalMark,
    SegmentHead,
    journal_segment,
    numbered,
    read_segment_head,
)
from cairnmq.storage.journal.journal import JournalReader
from cairnmq.storage.journal.synced_end import read_synced_end

JOURNAL_IDS_END = 1 << 16  # a name with a larger number is somebody's date, or a copy


def facts_journal(numbers: Iterable[int]) -> int:
    """Of the journals of one broker, that which has the facts of groups and transactions, and the witness."""
    return min(numbers)


def find_journals(disk: Disk, named: Iterable[int]) -> list[int]:
    """Numbers of the journals that have files here, and of those `named` by the checkpoint or by settings."""
    possible = (int(name) for name in disk.list("") if _may_be_journal(name))
    return sorted({number for number in possible if _is_journal(disk, number)}.union(named))


def leaders(disk: Disk) -> set[int]:
    """Node ids that the segments here name as those who wrote them."""
    names = (
        journal_segment(number, base)
        for number in find_journals(disk, ())
        for base in numbered(disk.list(str(number)), JOURNAL_SUFFIX)
    )
    heads = (_head(disk, name) for name in names)
    return {head.leader.node_id for head in heads if head is not None and head.leader is not None}


def find_foreign(disk: Disk, journals: Iterable[int]) -> list[str]:
    """Names that are numbers and yet none of these journals, but for empty ones."""
    known = {str(number) for number in journals}
    names = (name for name in disk.list("") if name.isdigit() and name not in known)
    return [name for name in names if not _may_be_journal(name) or _has_segments(disk, name)]


def read_journal(disk: Disk, number: int, mark: JournalMark | None) -> JournalReader:
    """A reader of this journal, of which the checkpoint says `mark`. Raises if a segment is of another journal: none of
    its entries would read back, so all of them would be taken for a torn tail and cut."""
    seed = mark.seed if mark is not None else 0
    _refuse_others(disk, number, seed)
    reader = JournalReader(disk, number)
    reader.seed = seed or None
    return reader


def _refuse_others(disk: Disk, number: int, seed: int) -> None:
    """`seed`: of this journal's checksums; 0 if it is not known."""
    for base in numbered(disk.list(str(number)), JOURNAL_SUFFIX):
        name = journal_segment(number, base)
        head = _head(disk, name)
        if head is None or (head.journal == number and seed in (0, head.seed)):
            continue
        of = (
            f"journal {head.journal}"
            if head.journal != number
            else "another cluster, or of other journals than the checkpoint"
        )
        raise Corrupt(
            f"journal {number}: file {name} is of {of}. Give the --journal-dir that belongs to this data directory. "
            f"Nothing was changed, and --accept-loss does not help: if the right journals are lost, give an empty "
            f"directory."
        )


def _head(disk: Disk, name: str) -> SegmentHead | None:
    """What a segment says of itself; None if its head does not read back."""
    file = disk.open(name)
    try:
        return read_segment_head(file.read(0, SEGMENT_ENTRY_SIZE))
    except Unreadable:
        return None
    finally:
        file.close()


def _may_be_journal(name: str) -> bool:
    return name.isascii() and name.isdigit() and str(int(name)) == name and int(name) < JOURNAL_IDS_END


def _is_journal(disk: Disk, number: int) -> bool:
    """One that lost all its segments still says that it had some."""
    if not _has_segments(disk, str(number)):
        return read_synced_end(disk, number) is not None
    return _names_itself(disk, number)


def _has_segments(disk: Disk, name: str) -> bool:
    try:
        return bool(numbered(disk.list(name), JOURNAL_SUFFIX))
    except NotADirectoryError:
        return False


def _names_itself(disk: Disk, number: int) -> bool:
    """Each segment begins with the number of its journal: a copy under another number is none."""
    for base in numbered(disk.list(str(number)), JOURNAL_SUFFIX):
        head = _head(disk, journal_segment(number, base))
        if head is not None:
            return head.journal == number
    return True  # not one head can be read: that is for recovery to judge
