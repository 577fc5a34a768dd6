"""A journal that is damaged behind the checkpoint, made anew of what can be read: what is lost is listed exactly, all
else is where it was, and a machine that stops in between goes on."""

from __future__ import annotations

import errno
from random import Random

import pytest

from cairnmq.codec.batch import only_empty, read_header
from cairnmq.codec.records import Record, build_batch
from cairnmq.errors import Corrupt
from cairnmq.storage.batches.admission import Span
from cairnmq.storage.check.verify import check
from cairnmq.storage.engine import Engine, EngineConfig
from cairnmq.storage.files.format import BATCH, ENTRY_SIZE, FACT, Entry, Keyed, StartMoved
from cairnmq.storage.journal.journal import JournalReader
from cairnmq.storage.live.ack_policy import AckPoint
from cairnmq.storage.live.reads import Batches
from cairnmq.storage.recovery.journal_search import entries_behind
from cairnmq.storage.recovery.lost_disk import Loss, accept, accepted, find_loss
from cairnmq.testing.sim_checks import check_verify
from cairnmq.testing.sim_disk import SimCrash, SimDisk
from unit.storage.splitter_harness import NOW, Broker

HEAD, BODY = 5, ENTRY_SIZE + 80  # of a batch's entry


def stocked(model: str = "shared") -> Broker:
    """Of queues 1 and 2 four records are checkpointed and six lie behind, of two starts; queue 3 is empty."""
    broker = Broker(model)
    for _ in range(4):
        broker.put(1, 2)
    broker.split()
    broker.checkpoint()
    for _ in range(3):
        broker.put(1, 2)
    broker.start(2)
    for number in range(3):
        broker.put(1, 2)
        broker.engine.paths[0].stage_keyed([Keyed("offset", b"g", b"%d" % number)], NOW)
        broker.flush()
    return broker


def entries(broker: Broker) -> list[Entry]:
    """Behind the checkpoint; what is damaged already is left out."""
    return list(entries_behind(JournalReader(broker.journal_disk, 0), broker.splitter.progress.checkpointed[0]))


def batch_of(broker: Broker, queue_id: int, offset: int) -> Entry:
    found = [e for e in entries(broker) if e.kind == BATCH and (e.queue_id, e.base_offset) == (queue_id, offset)]
    return found[0]


def hurt(broker: Broker, position: int) -> None:
    base = max(base for base in JournalReader(broker.journal_disk, 0).bases if base <= position)
    broker.journal_disk.damage(f"0/{base:020d}.jnl", position - base)


def lose_end(broker: Broker, position: int) -> None:
    for base in JournalReader(broker.journal_disk, 0).bases:
        if base >= position:
            broker.journal_disk.remove(f"0/{base:020d}.jnl")
    base = max(base for base in JournalReader(broker.journal_disk, 0).bases if base <= position)
    broker.journal_disk.open(f"0/{base:020d}.jnl", write=True).truncate(position - base)


def content(broker: Broker, queue_id: int) -> dict[int, bytes]:
    """Offset -> batch, without those that only stand for what is gone."""
    queue = broker.engine.queues[queue_id]
    offset, found = queue.log_start, {}
    while offset < queue.high_watermark:
        fetched = broker.engine.reads.read_batch(queue, offset, cached=False)
        assert isinstance(fetched, Batches) and fetched.size
        data = bytes(fetched.buffers[0])
        assert read_header(data).base_offset == offset, "offsets are dense"
        if not only_empty(data):
            found[offset] = data
        offset = fetched.next_offset
    return found


def everything(broker: Broker) -> dict[int, dict[int, bytes]]:
    return {queue_id: content(broker, queue_id) for queue_id in broker.specs}


def found(broker: Broker) -> Loss:
    loss = find_loss(broker.journal_disk, broker.read_disk, broker.specs.values())
    assert loss is not None
    return loss


def accepts(broker: Broker, epoch: int = 5) -> list[str]:
    """As a start with --accept-loss does it; returns what it says of the queues."""
    with pytest.raises(Corrupt, match="damaged at position|lost its end"):
        strict(broker, epoch)
    loss = found(broker)
    accept(broker.journal_disk, broker.read_disk, loss, epoch=epoch, seed=6, now_ms=NOW)
    strict(broker, epoch)  # nothing more to accept
    broker.start(epoch + 1)
    return [str(queue) for queue in loss.queues]


def strict(broker: Broker, epoch: int) -> None:
    Engine.open(
        broker.journal_disk,
        broker.read_disk,
        broker.specs.values(),
        begin=lambda _: epoch,
        seed=5,
        config=EngineConfig(segment_bytes=400),
        now_ms=NOW,
        refuse_damage=True,
    )


def is_whole(broker: Broker, expected: dict[int, dict[int, bytes]]) -> None:
    """It holds this, takes records, splits, checkpoints, starts again, and verify finds nothing."""
    assert everything(broker) == expected
    ends = {number: queue.end for number, queue in broker.engine.queues.items()}
    check_verify(broker.journal_disk, broker.read_disk, broker.specs)
    broker.put(1, 2, 3)
    for epoch in (18, 19):
        broker.split()
        broker.checkpoint()
        for number, held in everything(broker).items():
            assert held.pop(ends[number]) and held == expected[number]
        check_verify(broker.journal_disk, broker.read_disk, broker.specs)
        broker.start(epoch)


@pytest.mark.parametrize("model", ["shared", "dedicated"])
def test_what_is_lost_is_listed_exactly_where_heads_can_be_read(model: str) -> None:
    broker = stocked(model)
    before = everything(broker)
    hurt(broker, batch_of(broker, 1, 5).position + BODY)
    assert accepts(broker) == ["t-1: offsets 5 to 5"], "nothing of any other queue, which the head proves"
    del before[1][5]
    (remembered,) = accepted(broker.engine.keyed.items())
    assert remembered["queues"] == ["t-1: offsets 5 to 5"] and remembered["epoch"] == 5
    assert not any("facts" in line for line in remembered["what"])  # type: ignore[union-attr]
    assert broker.engine.keyed["offset", b"g"] == b"2"
    assert any(name.endswith(".jnl") for name in broker.journal_disk.list("lost/5/0")), "nothing is deleted"
    is_whole(broker, before)


def test_the_head_of_a_segment_holds_nothing_that_could_be_lost() -> None:
    """Committed offsets and the ends of idle queues were listed as lost."""
    broker = stocked()
    before = everything(broker)
    base = next(
        base for base in JournalReader(broker.journal_disk, 0).bases if base > broker.splitter.progress.checkpointed[0]
    )
    hurt(broker, base + HEAD)
    loss = found(broker)
    assert loss.queues == [] and not any("is lost" in line for line in loss.what), loss.what
    assert accepts(broker) == []
    is_whole(broker, before)


def test_what_may_be_lost_is_listed_where_they_cannot() -> None:
    broker = stocked()
    before = everything(broker)
    entry = batch_of(broker, 1, 5)
    hurt(broker, entry.position + HEAD)
    assert accepts(broker) == ["t-1: offsets 5 to 5", "t-3: offsets 0 on, as many as there were"]
    del before[1][5]
    (remembered,) = accepted(broker.engine.keyed.items())
    (where, facts) = remembered["what"]  # type: ignore[misc]
    size = entry.end - entry.position
    assert f"journal 0: {size} bytes at" in where and "are damaged" in where
    assert f"of {size} bytes of that are lost, also facts: committed offsets" in facts
    is_whole(broker, before)


def test_a_lost_end() -> None:
    broker = stocked()
    before = everything(broker)
    lose_end(broker, batch_of(broker, 2, 8).position + 3)
    assert accepts(broker) == [
        "t-1: offsets 9 on, as many as there were",
        "t-2: offsets 8 on, as many as there were",
        "t-3: offsets 0 on, as many as there were",
    ]
    del before[1][9], before[2][8], before[2][9]
    assert broker.engine.keyed["offset", b"g"] == b"0"
    is_whole(broker, before)


def test_a_lost_end_that_only_the_checkpoint_knows_of_is_not_forgotten() -> None:
    """A start that reports it splits what is left, and its checkpoint named the end that is left: the next start took
    that for all there ever was."""
    broker = Broker("shared")
    for _ in range(6):
        broker.put(1, 2)
    broker.splitter.split(0, broker.engine.splittable(0), NOW)  # a round, not all
    broker.splitter.checkpoint(NOW)
    position = entries(broker)[2].position
    lose_end(broker, position)
    broker.journal_disk.remove("0/synced")
    for epoch in (2, 3, 4):
        broker.start(epoch)
        damage = broker.engine.scans[0].damage
        assert damage is not None and f"lost its end at {position}" in broker.engine.scans[0].damage_text
        broker.split()
        broker.checkpoint()


def test_behind_an_end_that_only_the_checkpoint_knows_of_anything_may_be_lost() -> None:
    """What the mark knew of was listed as all that is lost, if the head of the batch there still read back."""
    broker = Broker("shared")
    for _ in range(3):
        broker.put(1, 2)
    broker.splitter.split(0, broker.engine.splittable(0), NOW)  # a round, not all
    broker.splitter.checkpoint(NOW)
    broker.put(1)  # of which the mark does not know
    lose_end(broker, batch_of(broker, 2, 2).end - 1)
    broker.journal_disk.remove("0/synced")
    assert accepts(broker) == [f"t-{n}: offsets {o} on, as many as there were" for n, o in ((1, 3), (2, 2), (3, 0))]


def test_several_places() -> None:
    broker = stocked()
    before = everything(broker)
    for queue_id, offset, at in ((1, 4, BODY), (2, 6, HEAD), (1, 7, BODY), (2, 9, BODY)):
        hurt(broker, batch_of(broker, queue_id, offset).position + at)
        del before[queue_id][offset]
    assert accepts(broker) == [
        "t-1: offsets 4 to 4",
        "t-1: offsets 7 to 7",
        "t-2: offsets 6 to 6",
        "t-2: offsets 9 on, as many as there were",
        "t-3: offsets 0 on, as many as there were",
    ]
    is_whole(broker, before)


def test_a_lost_fact_and_those_behind_it() -> None:
    broker = stocked()
    before = everything(broker)
    facts = [entry for entry in entries(broker) if entry.kind == FACT]
    hurt(broker, facts[0].position + ENTRY_SIZE + 3)
    assert accepts(broker) == ["t-3: offsets 0 on, as many as there were"]
    assert broker.engine.keyed["offset", b"g"] == b"2"
    is_whole(broker, before)


def test_a_deletion_behind_lost_records_still_holds() -> None:
    """Records up to there are deleted, so nobody misses those that are lost among them."""
    broker = stocked()
    before = everything(broker)
    broker.engine.paths[0].stage_fact(broker.engine.queues[1], StartMoved(9), NOW)
    broker.flush()
    for offset in (7, 8, 9):
        hurt(broker, batch_of(broker, 1, offset).position + BODY)
    assert accepts(broker) == ["t-1: offsets 9 on, as many as there were"]
    assert broker.engine.queues[1].log_start == broker.engine.queues[1].end == 9
    before[1] = {}
    is_whole(broker, before)


def test_the_end_of_a_transaction() -> None:
    broker = stocked()
    broker.send(1, 70)
    broker.mark(1, 70, commit=True)
    broker.send(2, 71)
    broker.mark(2, 71, commit=False)
    broker.put(2)
    marker = batch_of(broker, 1, 11)
    hurt(broker, marker.position + BODY - 10)
    loss = found(broker)
    assert "t-1: the end of the transaction that producer 70 began at offset 10 may be lost" in loss.what
    assert not any("producer 71" in line for line in loss.what)
    assert accepts(broker) == ["t-1: offsets 11 on, as many as there were"]
    queue = broker.engine.queues[1]
    assert queue.open_transactions == {70: 10} and queue.last_stable == 10
    broker.mark(1, 70, commit=True)
    assert broker.engine.queues[1].last_stable == 12


def test_an_import_keeps_its_offsets() -> None:
    broker = stocked()
    batch = bytearray(build_batch([Record(offset=0, timestamp=NOW, key=None, value=b"i" * 40)], base_offset=500))
    path, queue = broker.engine.paths[0], broker.engine.queues[3]
    assert isinstance(path.stage_kept(queue, [memoryview(batch)], Span(500, 501), NOW), AckPoint)
    broker.flush()
    broker.put(3)
    before = everything(broker)
    hurt(broker, batch_of(broker, 1, 6).position + BODY)
    del before[1][6]
    assert accepts(broker) == ["t-1: offsets 6 to 6"]
    assert sorted(before[3]) == [500, 501]
    is_whole(broker, before)


def test_epochs_stay_and_every_segment_has_one() -> None:
    broker = stocked()
    epochs = list(broker.engine.queues[1].state.epochs)
    hurt(broker, batch_of(broker, 1, 5).position + BODY)
    accepts(broker)
    assert broker.engine.queues[1].state.epochs == epochs
    reader = JournalReader(broker.journal_disk, 0)
    assert reader.bases[0] == broker.engine.scans[0].start
    assert sorted({entry.epoch for entry in reader.entries(reader.bases[0], reader.end())}) == [1, 2]


def test_entries_from_before_a_cut_do_not_come_back() -> None:
    """What leads below what a queue has is older than that."""
    broker = stocked()
    before = everything(broker)
    stale = batch_of(broker, 1, 6)
    bases = JournalReader(broker.journal_disk, 0).bases
    base = max(base for base in bases if base <= stale.position)
    data = broker.journal_disk.open(f"0/{base:020d}.jnl").read(stale.position - base, stale.end - stale.position)
    broker.journal_disk.open(f"0/{bases[-1]:020d}.jnl", write=True).append([b"torn", data])
    hurt(broker, batch_of(broker, 1, 7).position + BODY)
    assert accepts(broker) == ["t-1: offsets 7 to 7"]
    del before[1][7]
    is_whole(broker, before)


@pytest.mark.parametrize("seed", range(60))
def test_random_damage(seed: int) -> None:
    """What is served is what was stored; what is not is listed; nothing else is listed as lost between others."""
    random = Random(seed)
    broker = stocked(random.choice(("shared", "dedicated")))
    before = everything(broker)
    whole = entries(broker)
    for entry in random.sample(whole, random.randint(1, 4)):
        hurt(broker, random.randrange(entry.position, entry.end))
    if random.random() < 0.3:
        lose_end(broker, random.randrange(whole[len(whole) // 2].position, whole[-1].end))
    loss = find_loss(broker.journal_disk, broker.read_disk, broker.specs.values())
    if loss is None:  # only the head of a segment was hurt: a start reads on
        broker.start(9)
        assert everything(broker) == before
        return
    assert [finding for finding in check(broker.read_disk, broker.journal_disk) if not finding.is_note]
    accepts(broker)
    after = everything(broker)
    listed = {(queue.partition, queue.start, queue.end) for queue in loss.queues}
    for number, held in before.items():
        assert after[number].items() <= held.items()
        end = broker.engine.queues[number].end
        gone = [offset for offset in held if offset not in after[number]]
        for offset in gone:
            assert any(
                partition == number and start <= offset and (stop is None or offset < stop)
                for partition, start, stop in listed
            ), f"queue {number}: {offset} is gone and not listed"
        for partition, start, stop in listed:
            if partition == number:
                assert start == end if stop is None else all(offset in gone for offset in range(start, stop))
    is_whole(broker, after)


# --------------------------------------------------------------------------------------------------- stopped in between


def test_a_plain_start_refuses_what_is_unfinished() -> None:
    broker = stocked()
    hurt(broker, batch_of(broker, 1, 5).position + BODY)
    loss = found(broker)
    broker.read_disk.crash_at = broker.read_disk.operations + 1
    with pytest.raises(SimCrash):
        accept(broker.journal_disk, broker.read_disk, loss, epoch=5, seed=6, now_ms=NOW)
    broker.read_disk = broker.read_disk.kill()
    with pytest.raises(Corrupt, match="start with --accept-loss did not finish"):
        broker.start(6)
    texts = [finding.text for finding in check(broker.read_disk, broker.journal_disk) if not finding.is_note]
    assert any("--accept-loss did not finish" in text for text in texts), texts
    again = found(broker)
    assert again.text().splitlines()[0].startswith("a start with --accept-loss did not finish")
    assert (again.what, again.queues) == (loss.what, loss.queues)


@pytest.mark.parametrize("event", ["kill", "power"])
@pytest.mark.parametrize("which", [0, 1])
def test_stopped_anywhere_the_same_start_does_it_again(which: int, event: str) -> None:
    at = 0
    while True:
        at += 1
        broker = stocked()
        before = everything(broker)
        hurt(broker, batch_of(broker, 1, 5).position + BODY)
        hurt(broker, batch_of(broker, 2, 8).position + BODY)
        del before[1][5]
        del before[2][8]
        loss = found(broker)
        disks = (broker.journal_disk, broker.read_disk)
        disks[which].crash_at = disks[which].operations + at
        try:
            accept(*disks, loss, epoch=5, seed=6, now_ms=NOW)
        except SimCrash:
            finished = False
        else:
            finished = True
        broker.journal_disk, broker.read_disk = (
            disk.kill(Random(at)) if event == "kill" else disk.crash(Random(at)) for disk in disks
        )
        plain_start_is_honest(broker, before)
        again = find_loss(broker.journal_disk, broker.read_disk, broker.specs.values())
        if again is not None:
            assert [str(queue) for queue in again.queues] == ["t-1: offsets 5 to 5", "t-2: offsets 8 to 8"], at
            accept(broker.journal_disk, broker.read_disk, again, epoch=7, seed=6, now_ms=NOW)
        assert find_loss(broker.journal_disk, broker.read_disk, broker.specs.values()) is None
        broker.start(8)
        assert len(accepted(broker.engine.keyed.items())) == 1
        assert not [name for name in broker.journal_disk.list("") if name.endswith(".new")]
        assert "loss.json" not in broker.journal_disk.list("0")
        is_whole(broker, before)
        if finished:
            break
    assert at > (20 if which == 0 else 5)


def plain_start_is_honest(broker: Broker, after: dict[int, dict[int, bytes]]) -> None:
    """Without --accept-loss: refused, or stopped at the damage, or it was done already."""
    other = Broker("shared")
    other.journal_disk, other.read_disk = broker.journal_disk.kill(Random(1)), broker.read_disk.kill(Random(1))
    try:
        other.start(6)
    except Corrupt:
        return
    if other.engine.scans[0].damage is None:
        assert everything(other) == after
    else:
        assert all(queue.cut_short for queue in other.engine.queues.values())


def test_a_disk_without_room_changes_nothing() -> None:
    broker = stocked()
    hurt(broker, batch_of(broker, 1, 5).position + BODY)
    names = broker.journal_disk.list("0")
    broker.journal_disk.faults[broker.journal_disk.operations + 3] = errno.ENOSPC
    with pytest.raises(OSError, match="No space left"):
        accept(broker.journal_disk, broker.read_disk, found(broker), epoch=5, seed=6, now_ms=NOW)
    broker.journal_disk.faults.clear()
    assert broker.journal_disk.list("0") == names and broker.journal_disk.list("") == ["0"]
    assert accepts(broker, 6) == ["t-1: offsets 5 to 5"]


def test_damaged_again_before_the_next_start() -> None:
    """The note of what was accepted first is still there."""
    for stop in range(1, 40):
        broker = stocked()
        before = everything(broker)
        hurt(broker, batch_of(broker, 1, 5).position + BODY)
        accept(broker.journal_disk, broker.read_disk, found(broker), epoch=5, seed=6, now_ms=NOW)
        hurt(broker, batch_of(broker, 2, 8).position + BODY)
        broker.journal_disk.crash_at = broker.journal_disk.operations + stop
        try:
            accept(broker.journal_disk, broker.read_disk, found(broker), epoch=6, seed=6, now_ms=NOW)
        except SimCrash:
            pass
        broker.journal_disk = broker.journal_disk.kill()
        if (loss := find_loss(broker.journal_disk, broker.read_disk, broker.specs.values())) is not None:
            assert [str(queue) for queue in loss.queues] == ["t-2: offsets 8 to 8"]
            accept(broker.journal_disk, broker.read_disk, loss, epoch=7, seed=6, now_ms=NOW)
        broker.start(8)
        del before[1][5], before[2][8]
        is_whole(broker, before)
        assert len(accepted(broker.engine.keyed.items())) == 2


def test_a_lost_read_disk_and_damage_one_after_the_other() -> None:
    """As a start with --accept-loss does it: the damage shows when the other loss is out of the way."""
    broker = stocked()
    before = everything(broker)
    hurt(broker, batch_of(broker, 1, 8).position + BODY)
    broker.read_disk = SimDisk(Random(1))
    said = []
    for epoch in (5, 6):
        with pytest.raises(Corrupt):
            strict(broker, epoch)
        loss = found(broker)
        said.append([str(queue) for queue in loss.queues])
        accept(broker.journal_disk, broker.read_disk, loss, epoch=epoch, seed=6, now_ms=NOW)
    broker.start(7)
    assert said[1] == ["t-1: offsets 8 to 8"] and len(accepted(broker.engine.keyed.items())) == 2
    del before[1][8]
    starts = {number: queue.log_start for number, queue in broker.engine.queues.items()}
    kept = {n: {at: batch for at, batch in held.items() if at >= starts[n]} for n, held in before.items()}
    assert len(kept[1]) > 3
    is_whole(broker, kept)


def test_what_was_begun_in_vain_goes() -> None:
    broker = stocked()
    before = everything(broker)
    broker.journal_disk.make_dir("0.new")
    broker.journal_disk.create("0.new/half")
    assert any(finding.file == "journal/0.new" for finding in check(broker.read_disk, broker.journal_disk))
    broker.start(5)
    assert broker.journal_disk.list("") == ["0"]
    is_whole(broker, before)


def test_a_deletion_behind_the_damage_holds_before_anything_is_accepted() -> None:
    broker = stocked()
    broker.engine.paths[0].stage_fact(broker.engine.queues[1], StartMoved(6), NOW)
    broker.flush()
    broker.put(2)
    hurt(broker, batch_of(broker, 2, 9).position + BODY)
    broker.start(5)
    queue = broker.engine.queues[1]
    assert queue.cut_short and queue.log_start == 6 and sorted(content(broker, 1)) == [6, 7, 8, 9]


def test_what_was_done_is_not_taken_for_unfinished_when_the_read_disk_is_lost_then() -> None:
    broker = stocked()
    hurt(broker, batch_of(broker, 1, 5).position + BODY)
    accept(broker.journal_disk, broker.read_disk, found(broker), epoch=5, seed=6, now_ms=NOW)
    assert "loss.json" in broker.journal_disk.list("0"), "the next start removes it"
    broker.read_disk = SimDisk(Random(1))
    loss = found(broker)
    assert not loss.unfinished and loss.jumps
