"""Lost files after a kill cost their own records; a checkpoint that is older than the files is refused."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from cairnmq.codec.crc32c import crc32c
from cairnmq.errors import Corrupt
from cairnmq.storage.check.verify import check
from cairnmq.storage.checkpoint.checkpoint import checkpoint_name, load_checkpoint
from cairnmq.storage.files.damage import Damage
from cairnmq.storage.files.format import (
    CHECKPOINTS,
    PACK_CRC,
    PACK_HEAD,
    PACK_HEAD_1,
    PACK_HEAD_SIZE,
    PACK_MAGIC,
    UNKNOWN_SERIAL,
    QueueIdentity,
    pack_end,
    pack_name,
)
from cairnmq.storage.maintenance.repair import Repairer
from cairnmq.storage.packs.pack import PackReader, read_label
from cairnmq.testing.sim_disk import SimCrash, SimDisk
from unit.storage.splitter_harness import NOW, Broker


def killed(broker: Broker) -> None:
    broker.journal_disk, broker.read_disk = broker.journal_disk.kill(), broker.read_disk.kill()


def packs(broker: Broker) -> list[str]:
    return broker.read_disk.list("packs")


def findings(broker: Broker) -> list[str]:
    queues = {
        spec.queue_id: QueueIdentity(spec.queue_id, spec.topic, spec.partition, spec.topic_id.hex())
        for spec in broker.specs.values()
    }
    return [str(f) for f in check(broker.read_disk, broker.journal_disk, queues) if not f.is_note]


def put_back(broker: Broker, old: SimDisk) -> None:
    """The checkpoint as it was on that disk."""
    for name in broker.read_disk.list(CHECKPOINTS):
        broker.read_disk.remove(f"{CHECKPOINTS}/{name}")
    for name in old.list(CHECKPOINTS):
        file = old.open(f"{CHECKPOINTS}/{name}")
        broker.read_disk.replace(f"{CHECKPOINTS}/{name}", file.read(0, file.size()))


def rounds(broker: Broker, *queue_ids: int) -> None:
    broker.put(*queue_ids)
    broker.split()


def half_split() -> Broker:
    """Queues 1 and 2 in packs, 3 in segments; journals were deleted up to the checkpoint, and a round follows it."""
    broker = Broker("shared")
    broker.configure(3, model="dedicated")
    rounds(broker, 1)
    rounds(broker, 2)
    rounds(broker, 3)
    for _ in range(5):
        rounds(broker, 2, 3)
    broker.checkpoint()
    rounds(broker, 1, 2, 3)
    return broker


def test_a_kill_and_a_lost_pack_cost_the_records_in_it() -> None:
    broker = half_split()
    assert len(packs(broker)) > len(load_checkpoint(broker.read_disk).packs)
    broker.read_disk.remove(pack_name(1))
    killed(broker)
    assert any("00000000000000000001.pack" in finding for finding in findings(broker))
    broker.start(2)
    assert [place.file for place in broker.engine.damages.places.values()] == [pack_name(1)]
    assert broker.offsets(2) == broker.offsets(3) == list(range(7))
    queue = broker.engine.queues[1]
    with pytest.raises(Damage, match="offset 0"):
        broker.engine.reads.read(queue, 0, 100, whole=True, cached=False)
    broker.split()
    assert len(broker.engine.reads.read(queue, 1, 100, whole=True, cached=False).buffers) == 1  # type: ignore[union-attr]
    with pytest.raises(Corrupt, match="no journal holds"):
        Repairer(broker.splitter).repair(0, pack_name(1))
    broker.checkpoint()
    assert broker.offsets(2) == broker.offsets(3) == list(range(7))


def test_a_kill_and_a_lost_directory_cost_the_records_in_it() -> None:
    broker = half_split()
    broker.read_disk.remove_tree("queues/t-3")
    killed(broker)
    broker.start(2)
    assert broker.offsets(1) == [0, 1] and broker.offsets(2) == list(range(7))
    with pytest.raises(Damage, match="queues/t-3 is lost"):
        broker.engine.reads.read(broker.engine.queues[3], 0, 100, whole=True, cached=False)
    broker.split()
    broker.checkpoint()
    assert [place.file for _, place in broker.splitter.damages] == ["queues/t-3/queue.json", "queues/t-3"]
    assert len(broker.engine.reads.read(broker.engine.queues[3], 6, 100, whole=True, cached=False).buffers) == 1  # type: ignore[union-attr]


def test_an_old_copy_of_the_checkpoint_is_refused() -> None:
    broker = half_split()
    old = broker.read_disk.kill()
    broker.checkpoint()
    rounds(broker, 1)
    put_back(broker, old)
    killed(broker)
    before = packs(broker)
    assert any("is number 1, and packs/" in finding for finding in findings(broker))
    for epoch in (2, 3):
        with pytest.raises(Corrupt, match="is number 1, and packs/.* when there was a number 2: .*old copy"):
            broker.start(epoch)
    assert packs(broker) == before


def merge(broker: Broker) -> None:
    while broker.maintenance.step():
        pass
    assert broker.splitter.has_merge


def test_the_only_copy_of_merged_records_is_not_removed() -> None:
    """Of the last checkpoint the frame is damaged: it has named a merged pack, and let the old ones go."""
    broker = Broker("shared")
    rounds(broker, 1)
    rounds(broker, 2)
    broker.checkpoint()
    merge(broker)
    old = broker.read_disk.kill()
    broker.checkpoint()
    assert packs(broker) == ["00000000000000000003.pack"]
    put_back(broker, old)
    killed(broker)
    assert any("alone holds offsets 0 to 0 of queue 1" in finding for finding in findings(broker))
    with pytest.raises(Corrupt, match="names packs/0*1.pack, which is gone.* alone holds offsets 0 to 0 of queue 1"):
        broker.start(2)
    assert packs(broker) == ["00000000000000000003.pack"]


def test_a_pack_that_was_about_to_be_merged_is_made_again_from_the_merged_one() -> None:
    """A kill came between the merge and the checkpoint that counts it; then one of the merged packs is lost."""
    broker = Broker("shared")
    rounds(broker, 1)
    rounds(broker, 1, 2)
    broker.checkpoint()
    for _ in range(5):
        rounds(broker, 3)  # so that no journal holds what was in them
    broker.checkpoint()
    expected = {number: broker.offsets(number) for number in (1, 2, 3)}
    merge(broker)
    broker.read_disk.remove(pack_name(1))
    killed(broker)
    assert any("00000000000000000001.pack" in finding for finding in findings(broker))
    broker.start(2)
    with pytest.raises(Damage):
        broker.offsets(1)
    Repairer(broker.splitter).repair(0, pack_name(1))
    broker.checkpoint()
    broker.start(3)
    assert {number: broker.offsets(number) for number in (1, 2, 3)} == expected
    assert findings(broker) == []


def test_a_pack_that_cannot_be_made_again_leaves_the_others_where_a_person_finds_them() -> None:
    broker = half_split()
    broker.read_disk.remove(pack_name(1))
    killed(broker)
    (spare,) = set(packs(broker)) - {pack_name(n).rpartition("/")[2] for n in load_checkpoint(broker.read_disk).packs}
    broker.start(2)
    with pytest.raises(Corrupt, match="no journal holds"):
        Repairer(broker.splitter).repair(0, pack_name(1))
    assert spare in broker.read_disk.list("lost/1/packs")
    assert broker.offsets(2) == broker.offsets(3) == list(range(7))


def test_a_merge_that_no_checkpoint_counts_beside_something_else_that_is_lost() -> None:
    broker = Broker("shared")
    broker.configure(3, model="dedicated")
    rounds(broker, 1)
    rounds(broker, 2)
    rounds(broker, 3)
    broker.checkpoint()
    merge(broker)
    broker.read_disk.remove_tree("queues/t-3")
    killed(broker)
    broker.start(2)
    assert broker.offsets(1) == broker.offsets(2) == [0]
    with pytest.raises(Damage):
        broker.offsets(3)


def test_the_only_copy_of_demoted_records_is_not_removed() -> None:
    broker = Broker("dedicated")
    rounds(broker, 1)
    broker.checkpoint()
    old = broker.read_disk.kill()
    broker.configure(1, model="shared")
    broker.maintenance.look(NOW)
    broker.maintenance.look(NOW)
    assert broker.maintenance.demote()
    broker.checkpoint()
    assert broker.read_disk.list("queues") == []
    put_back(broker, old)
    killed(broker)
    with pytest.raises(Corrupt, match="names queues/t-1, which is gone.* alone holds offsets 0 to 0 of queue 1"):
        broker.start(2)


def of_version_1(disk: SimDisk, number: int) -> None:
    """A pack as it was written before checkpoints had a serial."""
    pack = PackReader.open(disk, number)
    less = PACK_HEAD.size - PACK_HEAD_1.size
    head = PACK_HEAD_1.pack(PACK_MAGIC, 1, 0, number)
    moved = [replace(extent, position=extent.position - less) for extent in pack]
    data = pack.file.read(PACK_HEAD_SIZE, pack.table - PACK_HEAD_SIZE)
    parts = [head, PACK_CRC.pack(crc32c(head)), data, *pack_end(pack.table - less, moved)]
    disk.replace(pack_name(number), b"".join(parts))


def test_packs_of_version_1_are_read() -> None:
    broker = Broker("shared")
    rounds(broker, 1, 2)
    rounds(broker, 2)
    broker.checkpoint()
    for number in load_checkpoint(broker.read_disk).packs:
        of_version_1(broker.read_disk, number)
    broker.start(2)
    assert broker.offsets(1) == [0] and broker.offsets(2) == [0, 1] and findings(broker) == []
    merge(broker)
    broker.checkpoint()
    assert broker.offsets(1) == [0] and broker.offsets(2) == [0, 1] and findings(broker) == []


def test_a_pack_of_version_1_beside_a_lost_one_is_taken_for_a_later_checkpoint_s() -> None:
    """Nobody can tell; so nothing is removed."""
    broker = half_split()
    unnamed = max(broker.engine.pack_set.numbers)
    of_version_1(broker.read_disk, unnamed)
    killed(broker)
    broker.start(2)
    broker = half_split()
    of_version_1(broker.read_disk, unnamed)
    broker.read_disk.remove(pack_name(1))
    killed(broker)
    with pytest.raises(Corrupt, match="older version"):
        broker.start(2)


def test_a_pack_names_the_last_checkpoint_when_it_was_begun() -> None:
    broker = Broker("shared")
    rounds(broker, 1)
    broker.checkpoint()
    rounds(broker, 1)
    assert [read_label(broker.read_disk, number) for number in (1, 2, 3)] == [(1, 0), (2, 1), None]
    broker.read_disk.open(pack_name(2), write=True).truncate(PACK_HEAD_SIZE)
    assert read_label(broker.read_disk, 2) == (2, 1), "it may be unfinished"
    broker.read_disk.open(pack_name(2), write=True).truncate(PACK_HEAD_SIZE - 1)
    assert read_label(broker.read_disk, 2) is None
    of_version_1(broker.read_disk, 1)
    assert read_label(broker.read_disk, 1) == (1, UNKNOWN_SERIAL)


def stop_in_checkpoint_sync(disk: SimDisk) -> None:
    if disk.last_operation.startswith("sync checkpoints/"):
        raise SimCrash


def test_a_power_loss_brings_back_no_checkpoint_before_one_that_a_pack_names() -> None:
    """Killed between a checkpoint's write and its sync, started again, a round, and then the power goes."""
    for seed in range(40):
        broker = Broker("shared")
        rounds(broker, 1)
        broker.checkpoint()
        rounds(broker, 1)
        broker.read_disk.observe = stop_in_checkpoint_sync
        with pytest.raises(SimCrash):
            broker.checkpoint()
        broker.read_disk.observe = None
        killed(broker)
        broker.start(2)
        rounds(broker, 1)
        rng = Random(seed)
        broker.journal_disk, broker.read_disk = broker.journal_disk.crash(rng), broker.read_disk.crash(rng)
        broker.start(3)
        broker.split()
        assert broker.offsets(1) == [0, 1, 2]


def test_without_any_checkpoint_all_is_split_again() -> None:
    """Every journal begins at its beginning, so nothing is missing."""
    broker = Broker("shared")
    broker.engine.paths[0].journal.segment_bytes = 1 << 20
    rounds(broker, 1)
    broker.checkpoint()
    rounds(broker, 1)
    broker.read_disk.remove(checkpoint_name(load_checkpoint(broker.read_disk).file_number))
    killed(broker)
    broker.start(2)
    broker.split()
    assert broker.offsets(1) == [0, 1]
