"""Files of a later version are refused, not cut, put aside or read as something else: who goes back loses nothing."""

from __future__ import annotations

import msgspec
import pytest

from cairnmq.errors import Corrupt, TooNew
from cairnmq.storage.check.finding import Finding
from cairnmq.storage.check.verify import check
from cairnmq.storage.checkpoint.checkpoint import checkpoint_name, load_checkpoint
from cairnmq.storage.files import checkpoint_frame
from cairnmq.storage.files import format as layout
from cairnmq.storage.files.format import (
    FACT,
    ArchivedTo,
    JournalMark,
    Keyed,
    Leader,
    encode_fact,
    segment_entry,
    whole_frame,
)
from cairnmq.storage.recovery.lost_disk import find_loss
from cairnmq.storage.recovery.owner import OWNER_FILE, Owner, write_owner
from cairnmq.testing.sim_disk import SimDisk
from unit.storage.splitter_harness import NOW, Broker

SEED = 5


def later_fact(patch: pytest.MonkeyPatch, synced: int = 0) -> bytes:
    payload = encode_fact(Keyed("later", b"k", b"v" * 50))
    with patch.context() as during:
        during.setattr(layout, "ENTRY_VERSION", 3)
        return whole_frame(FACT, 1, 0, synced, payload, SEED) + payload


@pytest.fixture
def broker() -> Broker:
    broker = Broker("shared")
    broker.put(1, 1, 2)
    return broker


def append(broker: Broker, data: bytes) -> str:
    """To the last file of the journal; its name."""
    name = f"0/{max(n for n in broker.journal_disk.list('0') if n.endswith('.jnl'))}"
    file = broker.journal_disk.open(name, write=True)
    file.append([data])
    file.sync()
    return name


def is_refused(broker: Broker, words: str) -> list[Finding]:
    """And nothing is changed; what verify says of it."""
    disks: tuple[SimDisk, SimDisk] = broker.journal_disk, broker.read_disk
    before = [disk.operations for disk in disks]
    for _ in range(2):
        with pytest.raises(TooNew, match=words):
            broker.start(9)
    assert [disk.operations for disk in disks] == before
    return [finding for finding in check(disks[1], disks[0]) if not finding.is_note]


@pytest.mark.parametrize("left", [1000, 40, 3], ids=["whole", "torn", "hardly begun"])
def test_an_entry_of_a_later_version_is_no_torn_tail(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    append(broker, later_fact(monkeypatch)[:left])
    (finding,) = is_refused(broker, "journal 0 at position .* newer version of CairnMQ, or is damaged")
    assert "newer version" in str(finding)


UNKNOWN = 0x40  # a flag that must be understood


def flagged(flags: int, synced: int = 0) -> bytes:
    payload = encode_fact(Keyed("later", b"k", b"v" * 50))
    return whole_frame(FACT, 1, 0, synced, payload, SEED, flags) + payload


def test_an_entry_with_an_unknown_required_flag_is_no_torn_tail(broker: Broker) -> None:
    append(broker, flagged(UNKNOWN))
    (finding,) = is_refused(broker, "journal 0 at position .* newer version of CairnMQ")
    assert "newer version" in str(finding)


def test_one_behind_damage_is_no_torn_tail_either(broker: Broker) -> None:
    append(broker, b"x" * 50 + flagged(UNKNOWN))
    with pytest.raises(TooNew, match="newer version of CairnMQ"):
        broker.start(2)
    with pytest.raises(TooNew):
        find_loss(broker.journal_disk, broker.read_disk, broker.specs.values())


def test_a_torn_one_is_a_torn_tail(broker: Broker) -> None:
    """Nobody was promised anything of it."""
    end = broker.engine.paths[0].journal.end
    append(broker, flagged(UNKNOWN)[:-5])
    broker.start(2)
    assert broker.engine.scans[0].end == end


def test_flags_that_may_be_ignored_are(broker: Broker) -> None:
    end = broker.engine.paths[0].journal.end
    append(broker, data := flagged(0x8001))
    broker.start(2)
    assert broker.engine.scans[0].end == end + len(data)
    assert broker.engine.keyed["later", b"k"] == b"v" * 50


def test_a_queue_that_is_archived_is_read_as_ever(broker: Broker) -> None:
    payload = encode_fact(ArchivedTo(1))
    append(broker, whole_frame(FACT, 1, 1, 0, payload, SEED) + payload)
    before = broker.engine.queues[1].log_start
    broker.start(2)
    broker.split()
    broker.checkpoint()
    assert broker.engine.queues[1].log_start == before


def test_a_segment_of_a_later_version(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    end = broker.engine.paths[0].journal.end
    with monkeypatch.context() as during:
        during.setattr(layout, "ENTRY_VERSION", 3)
        head = segment_entry(0, SEED, 2, end, NOW, Leader(1, 2))
    file = broker.journal_disk.create(layout.journal_segment(0, end))
    file.append([head])
    is_refused(broker, "newer version of CairnMQ")


@pytest.mark.parametrize("bit", range(8))
def test_a_damaged_version_is_damage(broker: Broker, bit: int) -> None:
    """All other bytes of the entry are right for this version: then it is one."""
    end = broker.engine.paths[0].journal.end
    payload = encode_fact(Keyed("offset", b"k", b"v"))
    data = bytearray(whole_frame(FACT, 1, 0, 0, payload, SEED) + payload)
    data[2] ^= 1 << bit
    append(broker, bytes(data))
    broker.start(2)
    assert broker.engine.scans[0].end == end and broker.engine.scans[0].cut_bytes == len(data)


def test_a_fact_of_a_later_version(broker: Broker) -> None:
    payload = msgspec.msgpack.encode([99, "?"])
    append(broker, whole_frame(FACT, 1, 0, 0, payload, SEED) + payload)
    (finding,) = is_refused(broker, "a fact was written by a newer version of CairnMQ")
    assert "newer version" in str(finding)


@pytest.mark.parametrize("is_first", [False, True])
def test_a_checkpoint_of_a_later_version(broker: Broker, monkeypatch: pytest.MonkeyPatch, is_first: bool) -> None:
    broker.split()
    broker.checkpoint()
    image = load_checkpoint(broker.read_disk)
    with monkeypatch.context() as during:
        during.setattr(checkpoint_frame, "CHECKPOINT_VERSION", 3)
        rows = layout.CheckpointRows(marks=[JournalMark(0, 1, 1, 1, SEED)])
        frame = checkpoint_frame.checkpoint_frame(layout.COMMIT, rows)
    file = broker.read_disk.open(checkpoint_name(image.file_number), write=True)
    if is_first:
        file.truncate(0)
    file.append([frame])
    (finding,) = is_refused(broker, "checkpoint file .* newer version of CairnMQ, or is damaged")
    assert "newer version" in str(finding)
    with pytest.raises(TooNew):  # and nobody can accept that it is lost
        find_loss(broker.journal_disk, broker.read_disk, broker.specs.values())


@pytest.mark.parametrize("bit", range(8))
def test_a_damaged_version_of_a_checkpoint_is_damage(broker: Broker, bit: int) -> None:
    broker.split()
    broker.checkpoint()
    name = checkpoint_name(load_checkpoint(broker.read_disk).file_number)
    broker.read_disk.damage(name, 2, 1 << bit)
    with pytest.raises(Corrupt):
        load_checkpoint(broker.read_disk)


def test_directories_of_a_later_format(broker: Broker) -> None:
    write_owner(broker.journal_disk, Owner("c", 3))
    (finding,) = is_refused(broker, "format is 3, this version knows 2")
    assert OWNER_FILE in str(finding) and "format is 3" in str(finding)
