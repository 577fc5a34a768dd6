"""Disks that are gone: what the other one tells of them, what is accepted, and a machine that stops while it is."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from cairnmq.errors import Corrupt
from cairnmq.storage.check.verify import check
from cairnmq.storage.files.format import CHECKPOINTS, PACKS, QUEUES, journal_segment
from cairnmq.storage.journal.journal import JournalReader
from cairnmq.storage.recovery.lost_disk import Loss, accept, accepted, find_loss, find_metadata_loss
from cairnmq.storage.recovery.owner import Owner, write_owner
from cairnmq.testing.sim_checks import check_verify
from cairnmq.testing.sim_disk import SimCrash, SimDisk
from cairnmq.types import Counters
from unit.storage.splitter_harness import NOW, Broker

Lose = Callable[[SimDisk, SimDisk], None]


def stocked(model: str = "shared") -> Broker:
    """Six records of queue 1 and three of queue 2 are checkpointed, four of each lie behind; queue 3 is empty."""
    broker = Broker(model)
    for _ in range(3):
        broker.put(1, 1, 2)
    broker.split()
    broker.checkpoint()
    for _ in range(4):
        broker.put(1)
        broker.put(2)
    return broker


def lose_write_disk(journals: SimDisk, read: SimDisk) -> None:
    journals.remove_tree("0")
    journals.sync_dir("")


def lose_read_disk(journals: SimDisk, read: SimDisk) -> None:
    for name in (QUEUES, PACKS, CHECKPOINTS):
        read.remove_tree(name)
    read.sync_dir("")


def lose_a_segment(journals: SimDisk, read: SimDisk) -> None:
    """All but the last ones."""
    names = [name for name in journals.list("0") if name.endswith(".jnl")]
    assert len(names) > 3
    for name in names[:-2]:
        journals.remove(f"0/{name}")
    journals.sync_dir("0")


def found(broker: Broker) -> Loss:
    loss = find_loss(broker.journal_disk, broker.read_disk, broker.specs.values())
    assert loss is not None
    return loss


def go_on(broker: Broker, loss: Loss, epoch: int) -> None:
    accept(broker.journal_disk, broker.read_disk, loss, epoch=epoch, seed=6, now_ms=NOW)
    broker.start(epoch)


def is_whole(broker: Broker) -> None:
    """It takes records, splits, checkpoints, starts again, and verify finds nothing."""
    ends = {number: queue.end for number, queue in broker.engine.queues.items()}
    before = {number: broker.offsets(number) for number in ends}
    broker.put(1, 2, 3)
    for epoch in (8, 9):
        broker.split()
        broker.checkpoint()
        assert {n: broker.offsets(n) for n in ends} == {n: [*before[n], ends[n]] for n in ends}
        check_verify(broker.journal_disk, broker.read_disk, broker.specs)
        broker.start(epoch)


def test_nothing_is_lost_of_disks_that_agree() -> None:
    broker = stocked()
    assert find_loss(broker.journal_disk, broker.read_disk, broker.specs.values()) is None
    fresh = Broker("shared")
    assert find_loss(fresh.journal_disk, fresh.read_disk, fresh.specs.values()) is None
    assert find_metadata_loss(SimDisk(Random(1)), SimDisk(Random(2))) is None


def test_write_disk() -> None:
    broker = stocked()
    lose_write_disk(broker.journal_disk, broker.read_disk)
    with pytest.raises(Corrupt):
        broker.start(2)
    loss = found(broker)
    assert [str(queue) for queue in loss.queues] == [
        "t-1: offsets 6 on, as many as there were",
        "t-2: offsets 3 on, as many as there were",
        "t-3: offsets 0 on, as many as there were",
    ]
    go_on(broker, loss, 3)
    assert [broker.offsets(number) for number in (1, 2, 3)] == [list(range(6)), list(range(3)), []]
    (remembered,) = accepted(broker.engine.keyed.items())
    assert remembered["epoch"] == 3 and remembered["queues"] == [str(queue) for queue in loss.queues]
    is_whole(broker)


def test_an_older_copy_of_the_journals() -> None:
    """What lies behind the checkpoint is lost. It was said that nothing is."""
    broker = stocked()
    older = broker.journal_disk.kill()
    broker.put(*[2] * 20)
    broker.split()
    broker.checkpoint()
    split, end = broker.engine.split[0], broker.engine.queues[2].end
    broker.put(2, 2)
    broker.journal_disk, broker.read_disk = older, broker.read_disk.kill()
    names = [f"0/{name}" for name in older.list("0")]
    before = [older.open(name).size() for name in names]
    with pytest.raises(Corrupt, match=f"is older than the checkpoint, which is at position {split}"):
        broker.start(2)
    assert [older.open(name).size() for name in names] == before
    text = "an older copy, and what was written after the checkpoint is lost"
    assert any(text in str(finding) for finding in check(broker.read_disk, older))
    loss = found(broker)
    assert f"journal 0 is an older copy and ends at {JournalReader(older, 0).end()}" in loss.what[0]
    assert f"t-2: offsets {end} on, as many as there were" in map(str, loss.queues)
    go_on(broker, loss, 7)
    assert older.list("lost/7/0"), "nothing is deleted"
    is_whole(broker)


def test_journals_of_another_broker_are_refused_and_stay() -> None:
    """Not one of their entries would read back: all of them were taken for a torn tail and cut."""
    broker, other = stocked(), Broker()
    other.journal_disk, other.read_disk = SimDisk(Random(3)), SimDisk(Random(4))
    other.start(1, seed=6)
    other.put(*[1] * 30)
    before = {name: other.journal_disk.open(f"0/{name}").size() for name in other.journal_disk.list("0")}
    broker.journal_disk = other.journal_disk
    for refused in (lambda: broker.start(3), lambda: found(broker)):
        with pytest.raises(Corrupt, match="journal 0: file 0/0+.jnl is of another cluster"):
            refused()
    assert {name: other.journal_disk.open(f"0/{name}").size() for name in other.journal_disk.list("0")} == before


def test_read_disk() -> None:
    broker = stocked()
    lose_read_disk(broker.journal_disk, broker.read_disk)
    with pytest.raises(Corrupt):
        broker.start(2)
    loss = found(broker)
    lost = {queue.partition: (queue.start, queue.end) for queue in loss.queues}
    go_on(broker, loss, 3)
    for number, everything in ((1, range(10)), (2, range(7))):
        start, end = lost[number]
        assert start == 0 and end is not None
        assert broker.offsets(number) == list(everything)[end:], "what the journal holds, where it was"
    assert lost[3] == (0, None)
    is_whole(broker)


def test_a_checkpoint_that_cannot_be_read_beside_whole_journals() -> None:
    """They begin at 0, so that none of them needs to go on elsewhere; the next checkpoint must be readable all the
    same, and it is not without a mark of each."""
    broker = Broker("shared")
    for _ in range(3):
        broker.put(1, 2)
    broker.checkpoint()
    assert all(broker.journal_disk.exists(f"{number}/{0:020d}.jnl") for number in range(len(broker.engine.paths)))
    (name,) = (name for name in broker.read_disk.list(CHECKPOINTS) if name.endswith(".ckpt"))
    broker.read_disk.open(f"{CHECKPOINTS}/{name}", write=True).truncate(0)
    with pytest.raises(Corrupt):
        broker.start(2)
    go_on(broker, found(broker), 3)
    assert [broker.offsets(number) for number in (1, 2)] == [[0, 1, 2]] * 2
    is_whole(broker)


def test_a_piece_of_the_journal() -> None:
    """Records before the gap are given up too: offsets of a queue are dense."""
    broker = stocked()
    lose_a_segment(broker.journal_disk, broker.read_disk)
    with pytest.raises(Corrupt):
        broker.start(2)
    loss = found(broker)
    assert "bytes before it are lost" in loss.what[0]
    go_on(broker, loss, 3)
    assert broker.offsets(1)[-1] == 9, "offsets do not go back"
    is_whole(broker)


def test_metadata() -> None:
    broker = stocked()
    loss = find_metadata_loss(broker.journal_disk, broker.read_disk)
    assert loss is not None and loss.known.floor == Counters(1, 3)
    kept = {name for name in broker.journal_disk.list("0") if name.endswith(".jnl")}
    end = broker.engine.paths[0].journal.end
    broker.specs = {}
    go_on(broker, loss, 2)
    assert kept <= set(broker.journal_disk.list("lost/2/0")), "nothing is deleted"
    assert broker.journal_disk.list("0") == [journal_segment(0, end).partition("/")[2], "synced"]
    check_verify(broker.journal_disk, broker.read_disk, broker.specs)


@pytest.mark.parametrize("lose", [lose_write_disk, lose_read_disk, lose_a_segment])
def test_stopped_anywhere_in_between_the_next_start_does_it_again(lose: Lose) -> None:
    at, finished = 0, False
    while not finished:
        broker = stocked()
        lose(broker.journal_disk, broker.read_disk)
        loss = found(broker)
        disks = (broker.journal_disk, broker.read_disk)
        which, at = at % 2, at + 1
        disks[which].crash_at = disks[which].operations + at // 2 + 1
        try:
            accept(*disks, loss, epoch=3, seed=6, now_ms=NOW)
            finished = which == 1
        except SimCrash:
            pass
        broker.journal_disk, broker.read_disk = (disk.crash(Random(at)) for disk in disks)
        again = find_loss(broker.journal_disk, broker.read_disk, broker.specs.values())
        if again is None:
            broker.start(4)
        else:
            go_on(broker, again, 4)
        is_whole(broker)
    assert at > 4


# --------------------------------------------------------------------------------- metadata older than the records

OLD = Counters(epoch=1, next_queue_id=4, revision=5)
WITNESS = Counters(epoch=2, next_queue_id=9, next_producer_id=1 << 41, revision=8)


def outdated(broker: Broker, known: Counters = WITNESS) -> Loss:
    write_owner(broker.journal_disk, Owner("c", 1, known))
    loss = find_loss(broker.journal_disk, broker.read_disk, broker.specs.values(), OLD)
    assert loss is not None and loss.is_outdated and loss.known.stored == known
    return loss


def drop(broker: Broker, number: int, *, checkpoint: bool = True) -> None:
    """As a broker does it whose metadata are then put back to before that."""
    broker.splitter.drop([(number, broker.specs[number].directory)])
    if checkpoint:
        broker.checkpoint()


def test_metadata_that_know_everything_are_no_loss() -> None:
    broker = stocked()
    write_owner(broker.journal_disk, Owner("c", 1, OLD))
    assert find_loss(broker.journal_disk, broker.read_disk, broker.specs.values(), OLD) is None


def test_older_metadata_lose_no_record() -> None:
    broker = stocked()
    before = {number: broker.offsets(number) for number in broker.specs}
    loss = outdated(broker)
    assert not loss.queues and "3 changes are missing" in loss.what[0]
    go_on(broker, loss, 3)
    assert {number: broker.offsets(number) for number in broker.specs} == before
    (remembered,) = accepted(broker.engine.keyed.items())
    assert remembered["what"] == loss.what
    is_whole(broker)


@pytest.mark.parametrize("records", [True, False])
def test_older_metadata_before_the_first_checkpoint(records: bool) -> None:
    """What is accepted is stored in a checkpoint, and one without marks could not be read."""
    broker = Broker("shared")
    if records:
        broker.put(1, 2)
    go_on(broker, outdated(broker), 3)
    assert broker.offsets(1) == ([0] if records else [])
    is_whole(broker)


@pytest.mark.parametrize("model", ["shared", "dedicated"])
def test_a_deleted_topic_comes_back_with_what_the_journal_holds(model: str) -> None:
    """Offsets that were given out are not given again."""
    broker = stocked(model)
    drop(broker, 1)
    with pytest.raises(Corrupt, match="continues at offset 6 instead of 0"):
        broker.start(2)
    loss = outdated(broker)
    assert [str(queue) for queue in loss.queues] == ["t-1: offsets 0 to 5"]
    go_on(broker, loss, 3)
    assert broker.offsets(1) == [6, 7, 8, 9] and broker.offsets(2) == list(range(7))
    is_whole(broker)


def test_a_deleted_topic_comes_back_behind_what_packs_still_hold() -> None:
    """Else a reader of a new record would be given an old one with the same offset."""
    broker = stocked("shared")
    broker.split()
    broker.checkpoint()
    drop(broker, 1)
    loss = outdated(broker)
    assert [str(queue) for queue in loss.queues] == ["t-1: offsets 0 to 9"]
    go_on(broker, loss, 3)
    assert broker.offsets(1) == [] and broker.engine.queues[1].end == 10
    is_whole(broker)


def test_a_deleted_topic_comes_back_whose_files_are_gone_already() -> None:
    """The checkpoint that would have said so was never made."""
    broker = stocked("dedicated")
    drop(broker, 1, checkpoint=False)
    broker.read_disk.remove_tree(broker.specs[1].directory)
    loss = outdated(broker)
    assert [str(queue) for queue in loss.queues] == ["t-1: offsets 0 to 5"]
    go_on(broker, loss, 3)
    assert broker.offsets(1) == [6, 7, 8, 9]
    is_whole(broker)


def test_what_no_topic_claims_is_named_and_its_files_are_kept() -> None:
    broker = stocked("dedicated")
    del broker.specs[1]
    loss = outdated(broker)
    assert "no topic claims queue 1:" in loss.what[1]
    go_on(broker, loss, 3)
    assert broker.read_disk.list("lost/3/queues/t-1") and not broker.read_disk.list("queues/t-1")
    assert broker.offsets(2) == list(range(7))


def test_the_read_disk_is_lost_and_the_metadata_are_an_older_copy() -> None:
    broker = stocked()
    lose_read_disk(broker.journal_disk, broker.read_disk)
    loss = outdated(broker)
    assert "the read disk holds no checkpoint" in loss.what[0] and "older than the records" in " ".join(loss.what)
    go_on(broker, loss, 3)
    is_whole(broker)


def test_all_metadata_are_lost_but_the_witness_is_there() -> None:
    broker = stocked()
    write_owner(broker.journal_disk, Owner("c", 1, WITNESS))
    loss = find_metadata_loss(broker.journal_disk, broker.read_disk)
    assert loss is not None and loss.known.floor == WITNESS
