"""dump: every kind of file as text, and damage as a line with its position."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairnmq.codec.records import Record, build_batch
from cairnmq.errors import Fault
from cairnmq.metadata.inspection import dump_metadata, is_metadata
from cairnmq.storage.check.dump import dump_file
from cairnmq.storage.files.disk import RealDisk
from cairnmq.storage.files.format import BATCH, Entry, PackLabel
from cairnmq.storage.packs.pack import PackWriter
from unit.storage.data_directory import DataDirectory, worn


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return worn(tmp_path_factory.mktemp("worn") / "data")


def dump(file: Path, *, records: bool = False) -> list[str]:
    return list(dump_file(str(file), records))


def first(root: Path, pattern: str) -> Path:
    return sorted(root.glob(pattern))[0]


def damaged(file: Path, tmp_path: Path, at: int) -> Path:
    copy = tmp_path / file.name
    data = bytearray(file.read_bytes())
    data[at] ^= 0xFF
    copy.write_bytes(bytes(data))
    return copy


def test_every_file_of_a_data_directory_can_be_dumped(data: Path) -> None:
    files = [file for file in data.rglob("*") if file.is_file() and file.name != "lock"]
    kinds = set()
    for file in files:
        text = list(dump_metadata(str(file))) if is_metadata(str(file)) else dump(file)
        assert len(text) > 1, file
        assert not any("BAD" in line for line in text), file
        kinds.add(file.suffix or file.name)
    assert kinds == {".jnl", "synced", ".log", ".index", ".timeindex", ".ckpt", ".previous", ".json", ".db"}


def test_a_journal_shows_each_entry(data: Path) -> None:
    file = first(data, "journal/0/*.jnl")
    head, segment, *entries = dump(file)
    assert head.startswith(f"{file.name}: .jnl")
    assert segment.startswith("at 0 position 0 segment epoch=1 queue=0 synced=0 journal=0 seed=0x0000004d")
    assert entries[0].startswith("at 60 position 60 batch epoch=1 queue=1 synced=0 durable offsets=0..2 size=")
    assert "producer=9/0 sequence=0" in entries[0] and entries[0].endswith("crc=ok")
    assert any("fact epoch=1 queue=0" in line and "offsets" in line for line in entries)
    assert any("StartMoved(offset=10)" in line for line in entries)


def test_positions_count_from_the_name_of_the_segment(data: Path) -> None:
    file = sorted(data.glob("journal/0/*.jnl"))[-1]
    base = int(file.stem)
    assert base > 0
    assert dump(file)[1].startswith(f"at 0 position {base} segment")


def test_records_are_shown_on_demand(data: Path) -> None:
    for pattern in ("journal/0/*.jnl", "queues/t-0/*.log"):
        file = first(data, pattern)
        assert not any("key=b'k1'" in line for line in dump(file))
        assert any("key=b'k1'" in line and "value=b'value " in line for line in dump(file, records=True))


def test_a_damaged_entry_is_shown_and_the_next_one_found(data: Path, tmp_path: Path) -> None:
    file = first(data, "journal/0/*.jnl")
    sound = dump(file)
    text = dump(damaged(file, tmp_path, 60 + 100))
    assert text[2].startswith("at 60 position 60 BAD: batch") and "crc=bad" in text[2]
    assert text[3:] == sound[3:]


def test_a_damaged_segment_head_takes_the_seed_from_a_neighbour(data: Path, tmp_path: Path) -> None:
    one, two = sorted(data.glob("journal/0/*.jnl"))[:2]
    copy = damaged(one, tmp_path, 40)
    assert any("seed is unknown" in line for line in dump(copy))
    (tmp_path / two.name).write_bytes(two.read_bytes())
    text = dump(copy)
    assert text[1].startswith("at 0 position 0 BAD: segment") and text[2:] == dump(one)[2:]


def test_a_cut_journal_says_where_it_ends(data: Path, tmp_path: Path) -> None:
    file = first(data, "journal/0/*.jnl")
    copy = tmp_path / file.name
    copy.write_bytes(file.read_bytes()[:72])
    assert dump(copy)[-1] == "at 60 position 60 BAD: the file ends inside an entry's frame; 12 bytes to 72"


def test_a_damaged_batch_and_what_is_no_batch(data: Path, tmp_path: Path) -> None:
    file = first(data, "queues/t-0/*.log")
    assert dump(damaged(file, tmp_path, 70))[1].endswith("crc=BAD")
    text = dump(damaged(file, tmp_path, 16))
    assert len(text) == 2 and text[1].startswith("at 0 BAD: record format")


def test_records_that_cannot_be_decoded_are_a_line(tmp_path: Path) -> None:
    file = tmp_path / "00000000000000000000.log"
    batch = bytearray(build_batch([Record(0, 5, None, b"v")]))
    batch[57:61] = (3).to_bytes(4, "big")  # three records claimed
    from cairnmq.codec.crc32c import crc32c

    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    file.write_bytes(batch)
    assert any(line.startswith("  records BAD") for line in dump(file, records=True))


def test_index_entries(data: Path, tmp_path: Path) -> None:
    index = first(data, "queues/t-1/*.index")
    assert dump(index)[1].startswith("at 0 offset=")
    assert any("BAD" in line for line in dump(damaged(index, tmp_path, 0)))
    times = first(data, "queues/t-1/*.timeindex")
    assert dump(times)[1].startswith("at 0 time=1000")
    copy = tmp_path / times.name
    copy.write_bytes(times.read_bytes() + b"abc")
    assert dump(copy)[-1].endswith("BAD: 3 bytes, an entry has 12")


def test_an_index_that_kafka_made_at_full_size(tmp_path: Path) -> None:
    file = tmp_path / "00000000000000000100.index"
    file.write_bytes(b"\0\0\0\x07\0\0\x10\0" + bytes(80))
    assert dump(file)[1:] == ["at 0 offset=107 position=4096", "at 8 80 bytes, all zero: unused"]


def test_an_index_of_aborted_transactions(tmp_path: Path) -> None:
    file = tmp_path / "00000000000000000100.txnindex"
    numbers = (4000, 100, 109, 110)
    file.write_bytes(b"\0\0" + b"".join(number.to_bytes(8, "big") for number in numbers))
    assert dump(file)[1:] == ["at 0 aborted producer=4000 offsets=100..109 last-stable=110"]


def test_a_checkpoint_shows_marks_rows_and_facts(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "data")
    directory.produce(2)
    directory.commit_offset(b"g", b"1")
    directory.split()
    directory.checkpoint()
    directory.produce(2)
    directory.split()
    directory.checkpoint()
    file = first(directory.stop(), "checkpoints/*.ckpt")
    text = dump(file)
    commits = [line for line in text if " commit " in line]
    assert [line.split()[-2] for line in commits] == ["time=1000006", "time=1000012"]
    for piece in (
        "JournalMark(journal=0",
        "QueueRow(queue_id=1",
        "ProducerRow(producer_id=9",
        "KeyedRow(queue_id=0, space='offsets'",
    ):
        assert any(piece in line for line in text), piece
    assert dump(damaged(file, tmp_path, 20))[1].startswith("at 0 BAD: no whole frame")


def test_identity(data: Path, tmp_path: Path) -> None:
    file = first(data, "queues/t-1/queue.json")
    assert "topic='t', partition=1" in dump(file)[1]
    assert dump(damaged(file, tmp_path, 15))[1].startswith("at 0 BAD:")


def test_metadata(data: Path, tmp_path: Path) -> None:
    text = list(dump_metadata(str(data / "meta.db")))
    assert any("key='topics/t'" in line for line in text)
    assert text[-1] == "checksums ok, 3 queues"
    copy = damaged(data / "meta.db", tmp_path, (data / "meta.db").read_bytes().index(b'"name":"t"'))
    assert any("BAD" in line for line in dump_metadata(str(copy)))


def test_no_byte_makes_dump_raise(data: Path, tmp_path: Path) -> None:
    for pattern in (
        "journal/0/*.jnl",
        "queues/t-0/*.log",
        "queues/t-1/*.index",
        "checkpoints/*.ckpt",
        "queues/t-1/*.json",
    ):
        file = first(data, pattern)
        for at in range(0, min(file.stat().st_size, 1500), 7):
            assert dump(damaged(file, tmp_path, at), records=True)


def test_an_unknown_file_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(Fault, match="notes.txt"):
        dump(tmp_path / "notes.txt")
    with pytest.raises(FileNotFoundError):
        dump(tmp_path / "missing" / "00000000000000000000.log")
    assert not (tmp_path / "missing").exists()


def test_a_pack_shows_each_extent(tmp_path: Path) -> None:
    data = memoryview(bytearray(build_batch([Record(0, 7, b"k", b"hello")])))
    writer = PackWriter(RealDisk(str(tmp_path)), PackLabel(3, 7))
    writer.add_batches(9, [Entry(0, 0, BATCH, 1, 9, 0, data, 0, 0, max_timestamp=7)])
    writer.finish()
    file = tmp_path / "packs" / "00000000000000000003.pack"
    head, pack, extent, batch, record = dump(file, records=True)
    assert head.startswith("00000000000000000003.pack: .pack")
    assert pack == "at 0 pack 3 after checkpoint=7 extents=1 crc=ok"
    assert extent == f"at 28 extent queue=9 offsets=0..0 batches=1 size={len(data)} time=..7"
    assert batch.startswith("at 28 offsets=0..0") and "value=b'hello'" in record
    for at in range(file.stat().st_size):
        assert any("BAD" in line for line in dump(damaged(file, tmp_path, at)))
