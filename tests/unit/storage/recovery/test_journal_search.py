"""Entries behind damage: all of them are found, and bytes that clients chose cost no more than others."""

from __future__ import annotations

from random import Random

import pytest

from cairnmq.codec.records import Record, build_batch
from cairnmq.storage.files.format import (
    BATCH,
    ENTRY_HEAD,
    ENTRY_MAGIC,
    ENTRY_SIZE,
    FACT,
    SEGMENT,
    SEGMENT_ENTRY_SIZE,
    Keyed,
    Leader,
)
from cairnmq.storage.journal import entries
from cairnmq.storage.journal.journal import Journal, JournalReader
from cairnmq.storage.recovery import journal_search
from cairnmq.storage.recovery.journal_search import entries_behind, look_behind
from cairnmq.testing.sim_disk import SimDisk, SimFile
from cairnmq.types import Buffer

SEED = 9
FIRST = "0/00000000000000000000.jnl"


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk(Random(3))
    disk.make_dir("0")
    return disk


def journal_on(disk: SimDisk, segment_bytes: int = 1 << 30) -> Journal:
    return Journal(disk, 0, epoch=1, leader=Leader(1, 1), seed=SEED, segments=[], end=0, segment_bytes=segment_bytes)


def put(journal: Journal, *what: bytes | Keyed) -> None:
    for each in what:
        if isinstance(each, Keyed):
            journal.stage_facts(0, [each], 1000)
        else:
            batch = memoryview(bytearray(build_batch([Record(offset=0, timestamp=1, key=None, value=each)])))
            journal.stage_batch(5, batch, 0, 1000)
    group = journal.take()
    assert group is not None
    journal.write(group)
    journal.written(group)
    journal.synced_to(journal.sync())


def planted(kind: int, length: int, spacing: int, size: int) -> bytes:
    """Heads as a client would plant them: right in all it can know, wrong in their checksum."""
    head = ENTRY_HEAD.pack(ENTRY_MAGIC, 1, kind, length, 1, 5, 0) + bytes(4)
    if kind == BATCH:
        head += bytes(8) + (length - 12).to_bytes(4, "big")
    else:
        head += b"\x94\x02"
    one = head[:spacing].ljust(spacing, b"x")
    return (one * (size // spacing + 1))[:size]


WAYS = [
    (kind, length, spacing)
    for kind in (BATCH, FACT, SEGMENT)
    for length in (16, 40, 256, 300, 5000, 60_000, 1 << 20)
    for spacing in (8, 34, 44, 500)
]


@pytest.mark.parametrize("kind, length, spacing", WAYS)
def test_the_work_follows_the_bytes(kind: int, length: int, spacing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted, not timed. Before, each planted fact was summed to its end, in all the square of the bytes."""
    summed = 0
    crc32c = entries.crc32c

    def counting(data: Buffer, value: int = 0) -> int:
        nonlocal summed
        summed += len(data)
        return crc32c(data, value)

    monkeypatch.setattr(entries, "crc32c", counting)
    monkeypatch.setattr(journal_search, "find_entry", entries.find_entry)
    monkeypatch.setattr(journal_search, "CREDIT", 0)
    work = []
    for size in (50_000, 200_000):
        disk = SimDisk(Random(3))
        disk.make_dir("0")
        journal = journal_on(disk)
        put(journal, planted(kind, length, spacing, size))
        disk.damage(FIRST, SEGMENT_ENTRY_SIZE)
        summed = 0
        assert not list(entries_behind(JournalReader(disk, 0), SEGMENT_ENTRY_SIZE))
        work.append(summed)
        assert summed < 150 * size
    assert work[1] < 5 * work[0] or not work[0], work


def test_planted_heads_hide_no_entry(disk: SimDisk) -> None:
    journal = journal_on(disk)
    put(journal, planted(FACT, 60_000, 44, 300_000), Keyed("s", b"k", b"v" * 30), b"behind")
    synced = journal.synced
    put(journal, Keyed("s", b"k", b"w" * 200))
    disk.remove("0/synced")
    disk.damage(FIRST, SEGMENT_ENTRY_SIZE)
    reader = JournalReader(disk, 0)
    assert [entry.kind for entry in entries_behind(reader, SEGMENT_ENTRY_SIZE)] == [FACT, BATCH, FACT]
    assert look_behind(reader, SEGMENT_ENTRY_SIZE).synced == synced


def test_all_entries_behind_each_damage_are_found(disk: SimDisk) -> None:
    journal = journal_on(disk, segment_bytes=3000)
    random = Random(1)
    for number in range(60):
        put(journal, random.randbytes(random.randint(1, 300)), Keyed("s", b"%d" % number, random.randbytes(40)))
    whole = list(JournalReader(disk, 0).entries(0, journal.end))
    assert len(JournalReader(disk, 0).bases) > 5
    for _ in range(30):
        hurt = disk.kill()
        bad = sorted(random.sample(range(len(whole)), 4))
        for index in bad:
            entry = whole[index]
            base = max(base for base in JournalReader(hurt, 0).bases if base <= entry.position)
            at = random.randrange(entry.position, entry.end)
            hurt.damage(f"0/{base:020d}.jnl", at - base, 1 << random.randrange(8))
        reader = JournalReader(hurt, 0)
        reader.seed = SEED
        found = [entry.position for entry in entries_behind(reader, whole[bad[0]].position)]
        assert found == [entry.position for index, entry in enumerate(whole) if index > bad[0] and index not in bad]


def test_entries_across_the_border_of_two_pieces(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_search, "LOOSE_FACT_MAX", 500)
    journal = journal_on(disk)
    for number in range(40):
        put(journal, Keyed("s", b"%d" % number, b"v" * 300), b"w" * 700)
    whole = [entry.position for entry in JournalReader(disk, 0).entries(0, journal.end)]
    for piece in (600, 601, 733, 1000, 1499):
        monkeypatch.setattr(journal_search, "PIECE_BYTES", piece)
        reader = JournalReader(disk, 0)
        for position in (49, 300, 777, 1500):
            found = [entry.position for entry in entries_behind(reader, position)]
            assert found == [start for start in whole if start >= position]


def test_a_long_fact_is_found_behind_another_entry(disk: SimDisk) -> None:
    journal = journal_on(disk)
    put(journal, b"damaged", b"sound", Keyed("s", b"k", bytes(300_000)), b"last")
    disk.damage(FIRST, SEGMENT_ENTRY_SIZE + 5)
    found = [entry.kind for entry in entries_behind(JournalReader(disk, 0), SEGMENT_ENTRY_SIZE)]
    assert found == [BATCH, FACT, BATCH]


def test_segment_heads_that_are_not_ours_do_not_count(disk: SimDisk) -> None:
    journal = journal_on(disk)
    other = Journal(
        SimDisk(Random(4)), 0, epoch=9, leader=Leader(1, 9), seed=SEED + 1, segments=[], end=0, segment_bytes=1
    )
    other._begin(1000)
    put(journal, b"", bytes(other._buffers[0]))
    disk.damage(FIRST, SEGMENT_ENTRY_SIZE)
    disk.damage(FIRST, journal.end - 100)
    assert not list(entries_behind(JournalReader(disk, 0), SEGMENT_ENTRY_SIZE))


@pytest.mark.parametrize("kind", [BATCH, FACT])
def test_a_wrong_length_makes_nobody_read_more(kind: int, disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The length of an entry said how much to read into memory, up to a whole segment."""
    journal = journal_on(disk)
    put(journal, b"before")
    at = journal.end
    put(journal, b"x" if kind == BATCH else Keyed("s", b"k", b"v"))
    put(journal, *(bytes(1 << 20) for _ in range(12)))
    disk.damage(FIRST, at + 4, 0x00)
    disk.damage(FIRST, at + 5, 0x80)  # 8 MiB more
    largest = 0
    read = SimFile.read

    def watched(file: SimFile, position: int, size: int) -> bytes:
        nonlocal largest
        largest = max(largest, size)
        return read(file, position, size)

    monkeypatch.setattr(SimFile, "read", watched)
    reader = JournalReader(disk, 0)
    assert [entry.end for entry in reader.entries(0, journal.end)][-1] == at
    assert len(list(entries_behind(reader, at))) == 12
    assert largest <= 4 << 20


def test_an_entry_larger_than_a_chunk_is_read_whole(disk: SimDisk) -> None:
    journal = journal_on(disk)
    put(journal, b"a", b"b" * 5000, Keyed("s", b"k", b"v" * 3000), b"c")
    reader = JournalReader(disk, 0)
    kinds = [entry.kind for entry in reader.entries(0, journal.end, chunk_bytes=ENTRY_SIZE + 32)]
    assert kinds == [SEGMENT, BATCH, BATCH, FACT, BATCH]
