"""verify: silent on what a broker leaves, and a finding that names the file for each way to damage one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from cairnmq.metadata.catalog import Catalog
from cairnmq.metadata.inspection import read_cluster, read_counters, read_queues
from cairnmq.metadata.sqlite import SqliteStore
from cairnmq.storage.check.verify import verify
from cairnmq.storage.files import sealed_json
from cairnmq.storage.files.disk import RealDisk, lock
from cairnmq.storage.files.format import Keyed
from cairnmq.storage.journal.journal import JournalReader
from cairnmq.storage.journal.replica_note import ReplicaNote
from cairnmq.storage.recovery.owner import Owner, write_owner
from cairnmq.storage.recovery.witness import witness_fact
from unit.storage.data_directory import NOW, DataDirectory, worn


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return worn(tmp_path_factory.mktemp("worn") / "data")


@pytest.fixture
def data(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "data"))


def lines(root: Path, journal_dir: Path | None = None) -> list[str]:
    return list(verify([str(root)], str(journal_dir) if journal_dir else None, read_queues))


def findings(root: Path) -> list[str]:
    return [line for line in lines(root) if not line.startswith("note: ")]


def files(root: Path, pattern: str) -> list[Path]:
    found = sorted(root.glob(pattern))
    assert found, pattern
    return found


def flip(file: Path, at: int, mask: int = 0xFF) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= mask
    file.write_bytes(bytes(data))


def cut(file: Path, size: int) -> None:
    data = file.read_bytes()
    file.write_bytes(data[:size] if size >= 0 else data[: len(data) + size])


def test_a_directory_of_a_killed_broker_has_no_findings(data: Path) -> None:
    assert lines(data) == []


def test_a_directory_after_a_clean_stop_has_no_findings(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "data")
    directory.produce(30)
    directory.split()
    directory.checkpoint()
    assert lines(directory.stop()) == []


def test_a_directory_without_a_checkpoint_has_no_findings(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "data")
    directory.produce(10)
    directory.split()
    assert findings(directory.stop()) == []


def test_journals_elsewhere_are_found(data: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "journals"
    (data / "journal").rename(elsewhere)
    assert lines(data, elsewhere) == []
    assert any("journal" in line and "is missing" in line for line in findings(data))


def test_the_data_is_rich_enough_for_what_follows(data: Path) -> None:
    """Each of the damages below needs something to damage."""
    assert len(files(data, "journal/0/*.jnl")) >= 2
    for suffix in ("log", "index", "timeindex"):
        assert len(files(data, f"queues/t-1/*.{suffix}")) >= 3


def every_byte_matters(data: Path, file: Path, step: int) -> None:
    """Flipping any byte of a file gives a finding that names it."""
    content = file.read_bytes()
    silent = []
    for at in range(0, len(content), step):
        flip(file, at)
        if not any(file.name in line or file.parent.name in line for line in findings(data)):
            silent.append(at)
        file.write_bytes(content)
    assert silent == []


def test_every_byte_of_a_closed_segment_matters(data: Path) -> None:
    every_byte_matters(data, files(data, "queues/t-1/*.log")[0], 97)


def test_every_byte_of_the_indexes_of_a_closed_segment_matters(data: Path) -> None:
    every_byte_matters(data, files(data, "queues/t-1/*.index")[0], 1)
    every_byte_matters(data, files(data, "queues/t-1/*.timeindex")[0], 1)


def test_every_byte_of_an_identity_matters(data: Path) -> None:
    every_byte_matters(data, files(data, "queues/t-1/queue.json")[0], 1)


def test_every_byte_of_a_journal_below_the_split_position_matters(data: Path) -> None:
    every_byte_matters(data, files(data, "journal/0/*.jnl")[0], 211)


Damage = Callable[[Path], None]
DAMAGES: dict[str, tuple[str, int, Damage]] = {
    "journal cut below the split position": ("journal/0/*.jnl", 0, lambda file: cut(file, 300)),
    "journal segment gone": ("journal/0/*.jnl", -1, lambda file: file.unlink()),
    "journal byte that a later entry calls synced": ("journal/0/*.jnl", -1, lambda file: flip(file, 2000)),
    "batch header in the first segment": ("queues/t-1/*.log", 0, lambda file: flip(file, 5)),
    "leader epoch, which no CRC covers": ("queues/t-1/*.log", 0, lambda file: flip(file, 15)),
    "segment cut": ("queues/t-2/*.log", 1, lambda file: cut(file, -5)),
    "segment gone": ("queues/t-2/*.log", 1, lambda file: file.unlink()),
    "first segment gone": ("queues/t-2/*.log", 0, lambda file: file.unlink()),
    "index cut inside an entry": ("queues/t-1/*.index", 0, lambda file: cut(file, -3)),
    "time index of a closed segment cut": ("queues/t-1/*.timeindex", 0, lambda file: cut(file, -12)),
    "time index of a closed segment gone": ("queues/t-1/*.timeindex", 0, lambda file: file.unlink()),
    "identity cut": ("queues/t-1/queue.json", 0, lambda file: cut(file, 10)),
    "identity gone": ("queues/t-1/queue.json", 0, lambda file: file.unlink()),
    "identity of another queue": (
        "queues/t-1/queue.json",
        0,
        lambda file: file.write_bytes((file.parent.parent / "t-2" / "queue.json").read_bytes()),
    ),
    "checkpoint's first frame": ("checkpoints/*.ckpt", 0, lambda file: flip(file, 30)),
    "checkpoint cut": ("checkpoints/*.ckpt", 0, lambda file: cut(file, 40)),
    "a topic in the metadata": ("meta.db", 0, lambda file: flip(file, file.read_bytes().index(b'"name":"t"') + 9)),
    "its history": ("meta.db", 0, lambda file: flip(file, file.read_bytes().rindex(b'"name":"t"') + 9)),
    "metadata cut": ("meta.db", 0, lambda file: cut(file, 5000)),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_found_and_named(data: Path, name: str) -> None:
    pattern, index, damage = DAMAGES[name]
    file = files(data, pattern)[index]
    damage(file)
    found = findings(data)
    place = str(file.parent) if not file.exists() else str(file)
    assert any(line.startswith(place) for line in found), found


def test_a_lost_queue_directory_is_found(data: Path) -> None:
    shutil.rmtree(data / "queues" / "t-2")
    assert any("no directory for queue" in line for line in findings(data))


def test_a_torn_journal_tail_is_a_note(data: Path) -> None:
    last = files(data, "journal/0/*.jnl")[-1]
    with last.open("ab") as file:
        file.write(b"\xca\x1a" + bytes(500))
    found = lines(data)
    assert found and all(line.startswith(f"note: {last}") for line in found), found


def test_a_torn_queue_log_behind_the_checkpoint_is_a_note(data: Path) -> None:
    last = files(data, "queues/t-1/*.log")[-1]
    cut(last, -7)
    found = lines(data)
    assert found and all(line.startswith("note: ") for line in found), found
    assert any(str(last) in line for line in found), found


def test_a_torn_checkpoint_is_a_note(data: Path) -> None:
    last = files(data, "checkpoints/*.ckpt")[-1]
    with last.open("ab") as file:
        file.write(last.read_bytes()[:50])
    found = lines(data)
    assert found and all(line.startswith(f"note: {last}") for line in found), found


def test_damage_before_a_later_checkpoint_is_a_finding(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "data")
    for _ in range(3):
        directory.produce(2)
        directory.split()
        directory.checkpoint()
    file = files(directory.stop(), "checkpoints/*.ckpt")[0]
    sizes = file.stat().st_size
    flip(file, sizes // 2)
    assert any(line.startswith(str(file)) for line in findings(tmp_path / "data"))


def test_a_batch_that_the_journal_does_not_hold_is_a_finding(data: Path) -> None:
    """Whole and with a good CRC, but behind the checkpoint and not what was split."""
    last = files(data, "queues/t-1/*.log")[-1]
    other = files(data, "queues/t-2/*.log")[-1]
    assert last.name == other.name and last.read_bytes() != other.read_bytes()
    shutil.copy(other, last)
    assert any(line.startswith(str(last)) and "journal" in line for line in findings(data))


def test_an_end_that_the_checkpoint_does_not_know_is_a_finding(data: Path) -> None:
    """The log of a queue that had nothing since the checkpoint may not be longer than the checkpoint says."""
    directory = DataDirectory(data.parent / "quiet")
    directory.produce(3)
    directory.split()
    directory.checkpoint()
    root = directory.stop()
    log = files(root, "queues/t-0/*.log")[0]
    with log.open("ab") as file:
        file.write(bytes(100))
    assert any(line.startswith(str(log)) for line in findings(root))


def test_a_topic_under_another_name_is_found(data: Path) -> None:
    (data / "queues" / "t-1").rename(data / "queues" / "u-1")
    assert any("u-1/queue.json" in line for line in findings(data))


def test_metadata_that_knows_another_topic_is_found(data: Path) -> None:
    def renamed(path: str) -> list[tuple[int, str, int, str]]:
        return [(queue_id, "other", partition, topic_id) for queue_id, _, partition, topic_id in read_queues(path)]

    found = list(verify([str(data)], None, renamed))
    assert any("the metadata says other-1" in line for line in found), found


@pytest.mark.parametrize("directory", ["", "journal"])
def test_a_running_broker_is_a_finding(data: Path, directory: str) -> None:
    held = lock(data / directory)
    try:
        found = findings(data)
    finally:
        held.close()
    assert len(found) == 1 and "in use" in found[0]
    assert findings(data) == []


def test_what_is_no_data_directory_is_a_finding_and_stays_as_it_was(tmp_path: Path) -> None:
    assert findings(tmp_path / "missing") == [f"{tmp_path}/missing: not a CairnMQ data directory"]
    assert findings(tmp_path) == [f"{tmp_path}: not a CairnMQ data directory"]
    assert list(tmp_path.iterdir()) == []


def test_verify_changes_nothing(data: Path) -> None:
    def content() -> dict[Path, bytes]:
        return {file: file.read_bytes() for file in data.rglob("*") if file.is_file() and file.name != "lock"}

    before = content()
    lines(data)
    assert content() == before


def test_notes_of_failed_syncs_are_mentioned(data: Path) -> None:
    (data / "doubt").touch()
    (data / "journal" / "0" / "doubt").touch()
    assert [line.partition(": a sync failed")[0] for line in lines(data)] == [
        f"note: {data}/doubt",
        f"note: {data}/journal/0/doubt",
    ]


def compared(root: Path) -> list[str]:
    return [line for line in verify([str(root)], None, read_queues, read_counters) if not line.startswith("note: ")]


def test_missing_metadata_are_a_finding_where_a_broker_has_written(data: Path, tmp_path: Path) -> None:
    (data / "meta.db").unlink()
    (finding,) = compared(data)
    assert finding.startswith(f"{data}/meta.db: is missing")
    new = tmp_path / "new"
    (new / "journal").mkdir(parents=True)
    (new / "lock").touch()
    assert compared(new) == []


def test_metadata_older_than_the_witness_are_a_finding(data: Path) -> None:
    assert compared(data) == []
    now = read_counters(str(data / "meta.db"))
    journals = RealDisk(data / "journal")
    write_owner(journals, Owner("c", 1, now))
    assert compared(data) == []
    write_owner(journals, Owner("c", 1, msgspec.structs.replace(now, revision=now.revision + 2)))
    (finding,) = compared(data)
    assert "meta.db: is older than the records: 2 changes are missing" in finding


def test_metadata_older_than_a_fact_or_a_record_are_a_finding(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "data")
    directory.produce(3)
    root = tmp_path / "data"
    now = read_counters(str(root / "meta.db"))
    space, key, value = witness_fact(msgspec.structs.replace(now, next_producer_id=1 << 41))
    directory.engine.paths[0].stage_fact(None, Keyed(space, key, value), NOW)
    directory._flush()
    directory._sync()
    directory.stop()
    (finding,) = compared(root)
    assert f"meta.db: is older than the records: its next producer id is {1 << 40}, and" in finding
    (root / "meta.db").unlink()
    with closing(SqliteStore(str(root / "meta.db"))) as store, closing(Catalog(store)) as catalog:
        catalog.load()
    findings = compared(root)
    assert any("epochs up to 0, and epoch 1 was in use" in line and "queue id is 1," in line for line in findings)


def test_a_damaged_owner_file_is_a_note(data: Path) -> None:
    (data / "journal" / "owner.json").write_bytes(b"{")
    assert compared(data) == []
    assert any("owner.json: is damaged; the next start rewrites it" in line for line in lines(data))


def whose(root: Path, journals: Path) -> list[str]:
    said = verify([str(root)], str(journals), read_queues, read_counters, read_cluster)
    return [line for line in said if not line.startswith("note: ")]


def test_journals_that_a_start_refuses_are_a_finding(tmp_path: Path) -> None:
    """The records of a directory that was never checkpointed are in journals alone; it was said that all is well."""
    directory = DataDirectory(tmp_path / "data")
    directory.produce(3)
    directory.stop()
    data = tmp_path / "data"
    with closing(SqliteStore(str(data / "meta.db"))) as store, closing(Catalog(store)) as catalog:
        catalog.load()
        catalog.name_cluster("ours")
    journals, empty, gone = data / "journal", tmp_path / "empty", tmp_path / "gone"
    empty.mkdir()
    write_owner(RealDisk(journals), Owner("ours"))
    assert whose(data, journals) == []
    (finding,) = whose(data, empty)
    assert finding.startswith(f"{empty}: {empty} holds no journals")
    (finding,) = whose(data, gone)
    assert finding == f"{gone}: is missing, and all records of this data directory are in it"
    write_owner(RealDisk(journals), Owner("another"))
    (finding,) = whose(data, journals)
    assert f"{journals}: the journals in {journals} belong to the cluster another" in finding


# ------------------------------------------------------------------------------------------- several directories


NOTHING_COMPARED = "note: replicas: nothing was compared: no two of these directories hold the same journal"


def test_several_directories_are_checked_each_and_compared(data: Path, original: Path, tmp_path: Path) -> None:
    (compared,) = verify([str(original), str(data)], None, read_queues)
    assert compared.startswith("note: replicas: compared 1 journal of 2 replicas, ")
    hurt = Path(shutil.copytree(original, tmp_path / "hurt"))
    file = files(hurt, "queues/t-1/*.log")[0]
    flip(file, 100)
    found = list(verify([f"{original}/", str(data), str(hurt)], None, read_queues))
    alone = findings(hurt)
    assert alone and set(alone) < set(found)
    assert any(f"differs from {original} and {data} at offset" in line for line in found)


def test_a_replica_has_its_metadata_elsewhere(data: Path, tmp_path: Path) -> None:
    shared = tmp_path / "cluster.db"
    (data / "meta.db").rename(shared)
    assert any("meta.db: is missing" in line for line in lines(data))
    RealDisk(f"{data}/journal").replace("0/replica.json", sealed_json.seal(ReplicaNote()))
    assert lines(data) == [
        f"note: {data}: shares its metadata with other brokers; --metadata names the file, for checks against it"
    ]
    assert list(verify([str(data)], None, read_queues, read_counters, read_cluster, str(shared))) == []
    shared.unlink()
    missing = list(verify([str(data)], None, read_queues, metadata=str(shared)))
    assert [line for line in missing if line.startswith(f"{shared}: is missing")]


def test_a_directory_of_another_cluster_is_not_held_against_the_metadata(data: Path, tmp_path: Path) -> None:
    shared = tmp_path / "cluster.db"
    with closing(SqliteStore(str(shared))) as store, closing(Catalog(store)) as catalog:
        catalog.load()
        catalog.name_cluster("ours")
    (data / "meta.db").unlink()
    write_owner(RealDisk(f"{data}/journal"), Owner("another"))
    (said,) = verify([str(data)], None, read_queues, read_counters, read_cluster, str(shared))
    assert "belong to the cluster another" in said


def test_one_that_went_on_is_compared_over_what_both_have(original: Path, data: Path) -> None:
    more = DataDirectory(data)
    more.produce(3)
    more.split()
    more.checkpoint()
    more.stop()
    (compared,) = verify([str(original), str(data)], None, read_queues)
    assert compared.startswith("note: replicas: compared 1 journal")
    name = files(data, "journal/0/*.jnl")[0]
    flip(name, 700)
    found = list(verify([str(original), str(data)], None, read_queues))
    assert any(line.startswith(f"{name}: differs from {original} at journal position 700,") for line in found)


def test_a_directory_that_a_broker_has_is_not_compared(original: Path, data: Path) -> None:
    with closing(lock(str(data))):
        found = list(verify([str(original), str(data)], None, read_queues))
    assert len(found) == 2 and found[0].startswith(f"{data}: ") and found[1] == NOTHING_COMPARED


def test_what_one_says_of_itself_is_not_said_twice(original: Path, tmp_path: Path) -> None:
    assert list(verify([str(original), str(tmp_path)], None, read_queues)) == [
        f"{tmp_path}: not a CairnMQ data directory",
        NOTHING_COMPARED,
    ]


def test_a_followers_file_may_go_on_without_a_head(data: Path) -> None:
    """Where it was stopped or cut; a leader begins each with one."""
    disk = RealDisk(f"{data}/journal")
    first, *_ = files(data, "journal/0/*.jnl")
    with closing(JournalReader(disk, 0)) as reader:
        ends = [entry.end for entry in reader.entries(0, reader.segment_end(0))]
    content, middle = first.read_bytes(), ends[len(ends) // 2]
    cut(first, middle)
    (first.parent / f"{middle:020d}.jnl").write_bytes(content[middle:])
    assert [line for line in findings(data) if "no segment head" in line]
    (data / "meta.db").rename(shared := data.parent / "cluster.db")
    told = list(verify([str(data)], None, read_queues, metadata=str(shared)))
    assert not [line for line in told if "no segment head" in line], "a journal that is young has no note yet"
    shared.rename(data / "meta.db")
    disk.replace("0/replica.json", sealed_json.seal(ReplicaNote()))
    assert findings(data) == []
