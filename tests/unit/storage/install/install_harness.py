"""An install from one machine's storage to another one's, carried by hand."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from msgspec.structs import replace

from cairnmq.settings.topic import Model
from cairnmq.storage.files.format import JournalMark
from cairnmq.storage.install.installed import Replaced
from cairnmq.storage.install.snapshot import Snapshot, newest_checkpoint, take_snapshot
from cairnmq.storage.install.snapshot_reads import Run, read_run
from cairnmq.storage.install.staged_install import StagedInstall
from cairnmq.testing.sim_disk import SimDisk
from unit.storage.cluster_harness import JOURNALS, Cluster, Machine

SLOTS = (1,)  # `Machine.fact` puts facts there


def hosted_by(machine: Machine) -> dict[int, Replaced]:
    return {
        journal: Replaced([spec for spec in machine.specs.values() if spec.journal == journal], SLOTS)
        for journal in JOURNALS
    }


def snapshot_of(leader: Machine, journal: int = 4) -> Snapshot:
    queues = {spec.queue_id for spec in leader.specs.values() if spec.journal == journal}
    return take_snapshot(newest_checkpoint(leader.disks[1]), journal, queues, SLOTS)


def stage(
    leader: Machine, target: Machine, snapshot: Snapshot, *, piece: int = 1, pack_bytes: int = 1 << 20
) -> StagedInstall:
    """All but the last step."""
    engine = leader.engine
    staged = StagedInstall(target.disks[1], snapshot.mark.journal, target.engine.serial, pack_bytes=pack_bytes)
    for frame in snapshot.pieces:
        staged.add_rows(frame)
    for queue_id in snapshot.queues_from(0):
        offset, is_last = snapshot.rows[queue_id].log_start, False
        while not is_last:
            run = read_run(
                engine.reads,
                engine.queues[queue_id],
                snapshot.rows[queue_id],
                offset,
                piece,
                cached=False,
                rewrites=engine.hosting.rewrites(engine.queues[queue_id]),
            )
            assert isinstance(run, Run)
            if run.size:
                data = b"".join(map(bytes, run.buffers))
                offset = staged.add_run(queue_id, run.offset, data, rewritable=run.rewrites > 0)
                assert offset == run.next_offset
            is_last = run.is_last
            if is_last:
                staged.end_queue(queue_id, run.log_start, run.aborted)
    return staged


def installed_mark(mark: JournalMark) -> JournalMark:
    return replace(mark, replicated_end=mark.split)


def install(leader: Machine, target: Machine, journal: int = 4) -> Snapshot:
    """Whole, but for the start that puts it in place."""
    snapshot = snapshot_of(leader, journal)
    epoch = leader.engine.paths[journal].journal.epoch
    stage(leader, target, snapshot).complete(installed_mark(snapshot.mark), epoch)
    return snapshot


def busy_cluster(rounds: int = 12, model: Model = "auto") -> Cluster:
    """Machine 1 leads, and keeps only what it has not split; machine 3 was away all the time."""
    cluster = Cluster()
    for machine in cluster.machines.values():
        for spec in machine.specs.values():
            configured = replace(spec, config=replace(spec.config, model=model))
            machine.specs[spec.queue_id] = configured
            machine.engine.configure(configured)
    for number in range(rounds):
        for queue in (1, 2, 3):
            cluster.leader.put(queue)
        cluster.leader.fact(b"%d" % number)
        advance(cluster)
        if number % 4 == 3:
            cluster.leader.split()
            cluster.leader.checkpoint()
    return cluster


def advance(cluster: Cluster) -> None:
    """Machines 1 and 2 have everything; that is the ISR."""
    for journal in JOURNALS:
        follower = cluster.machines[2]
        while follower.copy(cluster.leader, journal):
            pass
        for machine in (cluster.leader, follower):
            machine.sync(journal)
        end = cluster.leader.end(journal)
        path = cluster.leader.leading(journal)
        path.replicated_to(end)
        path.durable_to(end)


def wipe(machine: Machine, *, journals: bool, data: bool) -> None:
    """Its process has died, and a disk with it."""
    fresh = (SimDisk(Random(90)), SimDisk(Random(91)))
    machine.disks = (
        fresh[0] if journals else machine.disks[0].kill(),
        fresh[1] if data else machine.disks[1].kill(),
    )


def left_at_each_step(machine: Machine, act: Callable[[], object], is_power: bool) -> list[tuple[SimDisk, SimDisk]]:
    """The disks as they are found after a kill, or a loss of power, in the middle of each operation of `act`."""
    found: list[tuple[SimDisk, SimDisk]] = []
    disks, random = machine.disks, Random(7)

    def stop(_: SimDisk) -> None:
        if is_power:
            found.append((disks[0].crash(random), disks[1].crash(random)))
        else:
            found.append((disks[0].kill(), disks[1].kill()))

    for disk in disks:
        disk.observe = stop
    act()
    for disk in disks:
        disk.observe = None
    return found
