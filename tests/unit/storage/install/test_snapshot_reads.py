"""Batches of a snapshot, while the queue lives on."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from cairnmq.errors import Corrupt
from cairnmq.storage.batches.batch_run import NotCached
from cairnmq.storage.checkpoint.split_report import Published, QueuePlace
from cairnmq.storage.install.snapshot import Snapshot
from cairnmq.storage.install.snapshot_reads import Run, read_run
from unit.storage.cluster_harness import Machine
from unit.storage.install.install_harness import busy_cluster, snapshot_of


@pytest.fixture
def leader() -> Machine:
    return busy_cluster().leader


def run_of(leader: Machine, snapshot: Snapshot, offset: int, size: int = 1 << 20) -> Run:
    engine = leader.engine
    run = read_run(
        engine.reads,
        engine.queues[1],
        snapshot.rows[1],
        offset,
        size,
        cached=False,
        rewrites=engine.hosting.rewrites(engine.queues[1]),
    )
    assert isinstance(run, Run)
    return run


def test_all_of_a_queue_comes_with_its_last_run(leader: Machine) -> None:
    snapshot = snapshot_of(leader)
    first = run_of(leader, snapshot, 0, 1)
    assert (first.offset, first.next_offset, first.is_last) == (0, 1, False)
    rest = run_of(leader, snapshot, 1)
    assert (rest.next_offset, rest.is_last, rest.rewrites) == (12, True, 0)
    assert sum(len(buffer) for buffer in rest.buffers) == rest.size > 0


def test_it_ends_where_the_snapshot_ends(leader: Machine) -> None:
    snapshot = snapshot_of(leader)
    leader.put(1)
    path = leader.leading()
    leader.sync()
    path.replicated_to(leader.end())
    path.durable_to(leader.end())
    assert run_of(leader, snapshot, 0).next_offset == 12


def test_a_log_start_that_moves_moves_the_next_run(leader: Machine) -> None:
    snapshot = snapshot_of(leader)
    queue = leader.engine.queues[1]
    queue.move_start(5)
    run = run_of(leader, snapshot, 2)
    assert (run.offset, run.log_start) == (5, 5)
    queue.move_start(12)
    run = run_of(leader, snapshot, 6)
    assert (run.size, run.next_offset, run.is_last, run.log_start) == (0, 12, True, 12)


def test_a_read_that_would_wait_says_so(leader: Machine) -> None:
    snapshot = snapshot_of(leader)
    leader.engine.read_disk.cold = 1.0  # type: ignore[attr-defined]  # a simulated one
    found = read_run(
        leader.engine.reads, leader.engine.queues[1], snapshot.rows[1], 0, 1 << 20, cached=True, rewrites=0
    )
    assert isinstance(found, NotCached)


def test_records_that_are_lost_are_no_end(leader: Machine) -> None:
    snapshot = snapshot_of(leader)
    queue = leader.engine.queues[1]
    row = replace(snapshot.rows[1], end=queue.end + 3)
    with pytest.raises(Corrupt):
        read_run(leader.engine.reads, queue, row, queue.end, 100, cached=False, rewrites=0)


def test_a_compacted_queue_tells_when_records_may_have_gone(leader: Machine) -> None:
    engine, snapshot = leader.engine, snapshot_of(leader)
    spec = engine.queues[1].spec
    engine.configure(replace(spec, config=replace(spec.config, compact=True)))
    before = run_of(leader, snapshot, 0).rewrites
    place = QueuePlace(1, 12, engine.queues[1].segments_from)
    engine.on_checkpoint(Published(engine.serial + 1, dict(engine.checkpointed), engine.pack_set.numbers, [place]))
    assert run_of(leader, snapshot, 0).rewrites > before > 0
