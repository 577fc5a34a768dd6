"""Kafka's directories as import reads them: what is kept, what is cut with a note, what is refused with its place."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from cairnmq.codec.batch import empty_batch, read_header
from cairnmq.codec.records import Record, build_batch
from cairnmq.storage.batches.batch_scan import StoredBatch
from cairnmq.storage.kafka_import.kafka_directory import by_topic, open_directory
from cairnmq.storage.kafka_import.kafka_log import KafkaLog, Unimportable

ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"
OLD = bytes.fromhex("0000000000000000" "0000000e" "00000000" "01" "00" "ffffffff" "ffffffff")  # fmt: skip
OLD_LONG = OLD[:8] + (100).to_bytes(4, "big") + OLD[12:] + bytes(86)


def batch(offset: int, count: int = 3, **fields: object) -> bytes:
    records = [Record(0, 1000 + n, None, b"value %d" % n) for n in range(count)]
    return build_batch(records, base_offset=offset, **fields)  # type: ignore[arg-type]


def data(offset: int, producer: int, count: int = 3) -> bytes:
    return batch(offset, count, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)


def marker(offset: int, producer: int, key: bytes) -> bytes:
    record = Record(0, 1000, key, bytes(6), control=True)
    return build_batch([record], base_offset=offset, producer_id=producer, producer_epoch=0, transactional=True)


class Directory:
    """A log directory with topic `t`, one partition."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.partition = root / "t-0"
        self.partition.mkdir(parents=True)
        (root / "meta.properties").write_text("version=1\nnode.id=7\ncluster.id=abc\n")
        self.stopped_in_order()

    def segment(self, base: int, *batches: bytes) -> Path:
        file = self.partition / f"{base:020d}.log"
        file.write_bytes(b"".join(batches))
        return file

    def checkpoint(self, name: str, offset: int) -> None:
        (self.root / f"{name}-offset-checkpoint").write_text(f"0\n1\nt 0 {offset}\n")

    def stopped_in_order(self) -> None:
        (self.root / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":10}')

    def killed(self) -> None:
        (self.root / ".kafka_cleanshutdown").unlink()

    def check(self, *, abort_open: bool = False) -> KafkaLog:
        return by_topic([open_directory(str(self.root))])["t"][0].check(abort_open=abort_open)


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(tmp_path / "logs")


def offsets(log: KafkaLog, start: int = 0) -> list[int]:
    return [found.header.base_offset for found in log.read(start)]


def test_all_segments_in_order(directory: Directory) -> None:
    directory.segment(0, batch(0), batch(3))
    directory.segment(6, batch(6))
    log = directory.check()
    assert (log.start, log.opens_at, log.end, log.batches, log.records) == (0, 0, 9, 3, 9)
    assert offsets(log) == [0, 3, 6]
    assert offsets(log, 4) == [3, 6]
    assert offsets(log, 6) == [6]
    assert not log.notes


def test_a_log_start_inside_a_batch(directory: Directory) -> None:
    directory.segment(0, batch(0), batch(3))
    directory.segment(6, batch(6), batch(9))
    directory.checkpoint("log-start", 7)
    log = directory.check()
    assert (log.start, log.opens_at, log.end) == (7, 6, 12)
    assert offsets(log) == [6, 9]


@pytest.mark.parametrize(("log_start", "opens_at", "kept"), [(0, 0, [4, 9]), (2, 2, [4, 9]), (7, 7, [9]), (12, 12, [])])
def test_gaps(directory: Directory, log_start: int, opens_at: int, kept: list[int]) -> None:
    directory.segment(0, batch(4))
    directory.segment(7, batch(9))
    directory.checkpoint("log-start", log_start)
    log = directory.check()
    assert (log.start, log.opens_at, log.end) == (log_start, opens_at, 12)
    assert offsets(log) == kept


def test_everything_is_deleted(directory: Directory) -> None:
    directory.segment(50)
    log = directory.check()
    assert (log.start, log.opens_at, log.end, offsets(log)) == (50, 50, 50, [])


def test_an_empty_last_segment_keeps_the_end(directory: Directory) -> None:
    directory.segment(0, batch(0))
    directory.segment(20)
    assert directory.check().end == 20


def test_aborted_records_are_left_out(directory: Directory) -> None:
    directory.segment(0, data(0, 5), data(3, 6), data(6, 5), marker(9, 5, ABORT), marker(10, 6, COMMIT))
    directory.segment(11, data(11, 5), marker(14, 5, COMMIT), batch(15))
    log = directory.check()
    assert offsets(log) == [3, 9, 10, 11, 14, 15]
    assert log.records == 3 + 3 + 3
    assert "1 aborted transactions" in log.notes[0]


def test_a_transaction_without_an_end(directory: Directory) -> None:
    directory.segment(0, batch(0), data(3, 5), batch(6))
    with pytest.raises(Unimportable, match="producer 5 at offset 3 did not complete"):
        directory.check()
    assert offsets(directory.check(abort_open=True)) == [0, 6]


@pytest.mark.parametrize("tail", [batch(3)[:40], batch(3)[:-1], bytes(200), batch(3)[:-1] + b"\xff"])
def test_a_torn_tail(directory: Directory, tail: bytes) -> None:
    """Where Kafka was stopped in order, or below its recovery point, it is damage; else Kafka would cut it too."""
    file = directory.segment(0, batch(0), tail)
    with pytest.raises(Unimportable, match=f"{file} at {len(batch(0))}: .*damaged"):
        directory.check()
    directory.killed()
    log = directory.check()
    assert (log.end, offsets(log)) == (3, [0])
    assert log.notes[0].startswith(f"{file} at {len(batch(0))}: ")
    directory.checkpoint("recovery-point", 5)
    with pytest.raises(Unimportable, match="damaged"):
        directory.check()


def test_damage_before_the_last_segment(directory: Directory) -> None:
    bad = bytearray(batch(3))
    bad[70] ^= 1
    file = directory.segment(0, batch(0), bytes(bad))
    directory.segment(6, batch(6))
    directory.killed()
    with pytest.raises(Unimportable, match=f"{file} at {len(batch(0))}: the CRC of the batch at offset 3"):
        directory.check()


@pytest.mark.parametrize("killed", [False, True])
def test_a_flipped_bit_in_an_offset(directory: Directory, killed: bool) -> None:
    """No CRC covers it, and what it seems to skip would be filled with empty batches."""
    bad = bytearray(batch(3))
    bad[0] ^= 0x40
    file = directory.segment(0, batch(0), bytes(bad))
    if killed:
        directory.killed()
    with pytest.raises(
        Unimportable, match=f"{file} at {len(batch(0))}: offset {2**62 + 5} is too far from 0; .*damaged"
    ):
        directory.check()


def test_the_last_offset_that_a_segment_of_kafka_holds(directory: Directory) -> None:
    directory.segment(7, batch(7), batch(7 + 0x7FFFFFFF - 2))
    assert directory.check().end == 7 + 0x80000000
    directory.segment(7, batch(7), batch(7 + 0x7FFFFFFF - 1))
    with pytest.raises(Unimportable, match="too far"):
        directory.check()


def test_offsets_that_fall(directory: Directory) -> None:
    directory.segment(0, batch(0), batch(2))
    with pytest.raises(Unimportable, match="offset 2, but 3"):
        directory.check()
    directory.segment(0, batch(0))
    directory.segment(2, batch(2))
    with pytest.raises(Unimportable, match="the segment before it ends at 2"):
        directory.check()


@pytest.mark.parametrize("old", [OLD, OLD_LONG])
def test_old_formats(directory: Directory, old: bytes) -> None:
    file = directory.segment(0, batch(0), old)
    directory.killed()  # never taken for a torn tail
    with pytest.raises(Unimportable, match=f"{file} at {len(batch(0))}: .*before Kafka 0.11"):
        directory.check()


def test_an_interrupted_compaction(directory: Directory) -> None:
    directory.segment(0, batch(0))
    (directory.partition / f"{0:020d}.log.swap").touch()
    with pytest.raises(Unimportable, match=r"\.swap: a compaction was interrupted"):
        directory.check()


def test_what_lies_behind_the_high_watermark_is_told(directory: Directory) -> None:
    directory.segment(0, batch(0))
    directory.checkpoint("replication", 2)
    assert "1 offsets from 2 on" in directory.check().notes[0]


def as_stored(found: StoredBatch | bytes) -> memoryview:
    """As our broker gives it back: with another leader epoch."""
    stored = bytearray(found.data if isinstance(found, StoredBatch) else found)
    stored[12:16] = (77).to_bytes(4, "big")
    return memoryview(stored)


class TestGoingOn:
    @pytest.fixture
    def log(self, directory: Directory) -> KafkaLog:
        directory.segment(0, batch(2), batch(9))
        directory.segment(12, batch(12))
        return directory.check()

    def test_an_empty_partition_begins(self, log: KafkaLog) -> None:
        assert log.goes_on_at(0, 0, None) == 0

    @pytest.mark.parametrize("end", [5, 12, 15])
    def test_behind_a_batch_of_the_log(self, log: KafkaLog, end: int) -> None:
        last = next(found for found in log.read(end - 1))
        assert log.goes_on_at(0, end, as_stored(last)) == end

    def test_behind_a_filled_gap(self, log: KafkaLog) -> None:
        assert log.goes_on_at(0, 2, as_stored(bytes(empty_batch(0, 1, -1)))) == 2
        assert log.goes_on_at(0, 9, as_stored(bytes(empty_batch(5, 8, -1)))) == 9

    @pytest.mark.parametrize(
        "last", [batch(9, 2), batch(8, 4), build_batch([Record(0, 1, None, b"x")], base_offset=7), batch(15)]
    )
    def test_other_records_are_refused(self, log: KafkaLog, last: bytes) -> None:
        with pytest.raises(Unimportable, match="t-0 is not empty"):
            log.goes_on_at(0, read_header(last).last_offset + 1, as_stored(last))

    def test_a_filler_where_the_log_has_records_is_refused(self, log: KafkaLog) -> None:
        with pytest.raises(Unimportable, match="its last batch is not the one"):
            log.goes_on_at(0, 12, as_stored(bytes(empty_batch(9, 11, -1))))

    def test_deleted_records_are_refused(self, log: KafkaLog) -> None:
        with pytest.raises(Unimportable, match="all of them deleted"):
            log.goes_on_at(7, 7, None)

    def test_all_was_imported_and_retention_took_it(self, log: KafkaLog) -> None:
        assert log.goes_on_at(15, 15, None) == 15

    def test_a_log_that_begins_later(self, directory: Directory) -> None:
        directory.segment(40, batch(40))
        log = directory.check()
        assert log.goes_on_at(0, 0, None) == 40
        assert log.goes_on_at(40, 40, None) == 40
        with pytest.raises(Unimportable, match="it holds offsets 0 to 40"):
            log.goes_on_at(0, 40, as_stored(batch(37)))


class TestDirectories:
    def test_what_is_no_partition_is_told(self, directory: Directory) -> None:
        directory.segment(0, batch(0))
        (directory.root / ("t-0." + "ab" * 16 + "-delete")).mkdir()
        (directory.root / ("t-1." + "ab" * 16 + "-future")).mkdir()
        found = open_directory(str(directory.root))
        assert (found.node_id, found.cluster_id) == ("7", "abc")
        assert [str(partition.place) for partition in found.partitions] == ["t-0"]
        assert len(found.notes) == 2

    def test_names_with_dashes_and_numbers(self, directory: Directory) -> None:
        (directory.root / "a-1-b-2-12").mkdir()
        (directory.root / "a-1-b-2-12" / f"{0:020d}.log").touch()
        assert set(by_topic([open_directory(str(directory.root))])) == {"t", "a-1-b-2"}

    def test_the_same_partition_twice(self, directory: Directory, tmp_path: Path) -> None:
        twin = Directory(tmp_path / "twin")
        with pytest.raises(Unimportable, match="t-0 lies in .* and in "):
            by_topic([open_directory(str(directory.root)), open_directory(str(twin.root))])

    def test_two_topics_of_one_name(self, directory: Directory) -> None:
        (directory.root / "t-1").mkdir()
        (directory.partition / "partition.metadata").write_text("version: 0\ntopic_id: TPxO8Z8ARdq8nou0bbqLPA")
        (directory.root / "t-1" / "partition.metadata").write_text("version: 0\ntopic_id: TPxO8Z8ARdq8nou0bbqKPA")
        with pytest.raises(Unimportable, match="different topics"):
            by_topic([open_directory(str(directory.root))])

    def test_no_directory_of_kafka(self, tmp_path: Path) -> None:
        for root in (tmp_path, tmp_path / "missing"):
            with pytest.raises(Unimportable, match=str(root)):
                open_directory(str(root))
        assert not (tmp_path / "missing").exists()

    def test_a_damaged_checkpoint_is_named(self, directory: Directory) -> None:
        (directory.root / "log-start-offset-checkpoint").write_text("0\n2\nt 0 1\n")
        with pytest.raises(Unimportable, match="log-start-offset-checkpoint: 1 lines"):
            open_directory(str(directory.root))

    def test_a_running_kafka(self, directory: Directory) -> None:
        lock = directory.root / ".lock"
        lock.touch()
        open_directory(str(directory.root))
        holder = (
            "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"
        )
        with subprocess.Popen(
            [sys.executable, "-c", holder, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            process.stdout.readline()
            with pytest.raises(Unimportable, match="locked by a running Kafka"):
                open_directory(str(directory.root))
            process.stdin.close()
        with lock.open("r+") as free:
            fcntl.lockf(free, fcntl.LOCK_EX | fcntl.LOCK_NB)
