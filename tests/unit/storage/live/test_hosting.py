"""A broker of a cluster leads some journals and follows others: elected, demoted, killed, cut, with new ones."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from cairnmq.errors import ErrorCode, Fault, Refusal
from cairnmq.replication.messages import ENDLESS
from cairnmq.storage.files.format import Leader
from cairnmq.storage.journal.journal import JournalReader
from cairnmq.storage.journal.replica_note import ReplicaNote
from cairnmq.storage.live.follow_path import FollowPath, MustReopen
from cairnmq.storage.live.write_path import WritePath
from cairnmq.storage.recovery.clean_stop import CLEAN_STOP
from unit.storage.cluster_harness import Cluster, Machine, content, durable, spec
from unit.storage.replica_harness import NOW, batch


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_replicas_are_equal_in_all_journals(cluster: Cluster) -> None:
    for number in (1, 2, 3, 1):
        cluster.leader.put(number)
    cluster.leader.fact(b"1")
    cluster.spread()
    for follower in cluster.followers:
        for journal in (4, 9):
            assert content(follower.engine, journal, 0) == content(cluster.leader.engine, journal, 0)
        assert [len(follower.offsets(number)) for number in (1, 2, 3)] == [2, 1, 1]
        assert follower.engine.keyed == {("offsets", b"g"): b"1"} == cluster.leader.engine.keyed


def test_a_follower_splits_what_is_durable_and_is_split_again_after_a_kill(cluster: Cluster) -> None:
    follower = cluster.machines[2]
    for _ in range(6):
        cluster.leader.put(1, count=3)
    cluster.spread()
    cluster.leader.put(2)
    cluster.spread(sync=False)
    follower.split()
    assert follower.engine.split[4] == follower.engine.splittable(4) < follower.end()
    follower.checkpoint()
    assert follower.engine.checkpointed[4] == follower.engine.split[4] > 0
    assert follower.offsets(1) == [0, 3, 6, 9, 12, 15]
    follower.killed()
    assert follower.offsets(1) == [0, 3, 6, 9, 12, 15] and follower.engine.queues[2].high_watermark == 0
    cluster.spread()
    follower.split()
    follower.checkpoint()
    assert follower.offsets(2) == [0]


def test_journal_segments_go_on_all_replicas_as_each_has_split_them(cluster: Cluster) -> None:
    for _ in range(12):
        cluster.leader.put(1, count=3)
        cluster.spread()
    cluster.machines[3].split()
    cluster.machines[3].checkpoint()
    starts = [machine.engine.paths[4].journal.start for machine in cluster.machines.values()]
    assert starts[0] == starts[1] == 0 < starts[2]


def test_another_one_leads_where_the_killed_one_was(cluster: Cluster) -> None:
    old = cluster.leader
    old.put(1)
    old.put(1)
    cluster.spread()
    old.put(1)  # nobody else has it
    cluster.elect(2, 6)
    old.killed()
    new = cluster.leader
    assert new.put(1).base_offset == 2
    assert old.engine.queues[1].end == 2, "what is not replicated is not folded"
    end = new.leading().epoch_start
    assert old.end() > end
    old.following().cut(end, 5, 6)
    cluster.spread()
    assert content(old.engine, 4, 0) == content(new.engine, 4, 0)
    assert [machine.offsets(1) for machine in cluster.machines.values()] == [[0, 1, 2]] * 3
    assert old.engine.histories(4) == new.engine.histories(4) == ([(5, 0), (6, end)], new.end())


def test_who_was_demoted_hears_nothing_and_shows_nothing_of_what_was_not_replicated(cluster: Cluster) -> None:
    old, heard = cluster.leader, list[bool]()
    old.put(1)
    cluster.spread()
    placed = old.put(1)
    old.engine.appends.when(placed, heard.append)
    old.fact(b"lost")
    path = old.engine.follow(4, "broker 2 leads")
    assert heard == [False] and old.engine.paths[4] is path and isinstance(path, FollowPath)
    assert old.engine.queues[1].state.end == 1 and not old.engine.keyed
    assert old.engine.follow(4, "again") is path
    refusal = old.engine.appends.append(old.engine.queues[1], batch(), -1, NOW)
    assert isinstance(refusal, Refusal) and refusal.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not old.engine.full(path)


def test_elected_again_in_the_same_life(cluster: Cluster) -> None:
    first = cluster.leader
    first.put(1)
    cluster.spread()
    cluster.elect(2, 6)
    cluster.leader.put(1)
    cluster.spread()
    cluster.elect(1, 7)
    assert cluster.leader is first and first.put(1).base_offset == 2
    cluster.spread()
    assert [machine.offsets(1) for machine in cluster.machines.values()] == [[0, 1, 2]] * 3
    assert [epoch for epoch, _ in first.engine.histories(4)[0]] == [5, 6, 7]


def test_facts_of_a_follower_survive_its_kill_as_far_as_they_count(cluster: Cluster) -> None:
    follower = cluster.machines[2]
    cluster.leader.fact(b"1")
    cluster.spread()
    follower.split()
    follower.checkpoint()
    cluster.leader.fact(b"2")
    cluster.spread()
    cluster.leader.fact(b"3")
    follower.copy(cluster.leader)
    follower.killed()
    assert follower.engine.keyed == {("offsets", b"g"): b"2"}
    cluster.elect(2, 6)
    assert follower.engine.keyed == {("offsets", b"g"): b"2"}, "an election does not make it count"
    cluster.machines[3].copy(cluster.leader)
    cluster.leader.leading().replicated_to(cluster.leader.end())
    assert follower.engine.keyed == {("offsets", b"g"): b"3"}


def test_new_journal_at_run_time(cluster: Cluster) -> None:
    for machine in cluster.machines.values():
        machine.engine.host(11)
        machine.splitter.progress.host(11)
        machine.engine.add_queues([spec(4, 11)])
    leader = cluster.leader
    path = leader.engine.lead(11, 6, NOW)
    assert isinstance(path, WritePath)
    leader.put(4)
    for follower in cluster.followers:
        hosting = follower.engine.hosting
        assert hosting is not None
        follower.copy(leader, 11)
        follower.sync(11)
        follower.following(11).replicated_to(follower.end(11), follower.end(11), NOW)
        assert follower.offsets(4) == [], "the metadata here do not know queue 4"
        (shown,) = hosting.knows_queues(5, NOW)
        assert shown.queue_id == 4 and follower.offsets(4) == [0]
        follower.split()
        follower.checkpoint()
        assert follower.engine.checkpointed[11] == follower.end(11) > 0
        resumed = follower.engine.resume()
        assert resumed.positions[11] == follower.end(11), "a successor of the splitter knows it"
        follower.specs[4] = spec(4, 11)
        follower.disks = (follower.disks[0].kill(), follower.disks[1].kill())
        follower.start(journals=(4, 9, 11))
        assert follower.offsets(4) == [0] and follower.engine.scans[11].start == follower.end(11)


def test_new_journal_with_files_is_not_begun_anew(cluster: Cluster) -> None:
    follower = cluster.machines[2]
    follower.disks = (follower.disks[0].kill(), follower.disks[1].kill())
    follower.start(journals=(9,))
    assert list(follower.engine.paths) == [9], "files of others are left alone"
    with pytest.raises(MustReopen, match="journal 4 is new here by the metadata, and has files"):
        follower.engine.host(4)


def test_queue_of_a_journal_that_is_elsewhere_is_refused(cluster: Cluster) -> None:
    engine = cluster.leader.engine
    engine.add_queues([spec(7, 77)])
    queue = engine.queues[7]
    heard: list[bool] = []
    refused = engine.appends.append(queue, batch(), -1, NOW)
    assert isinstance(refused, Refusal) and refused.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert isinstance(engine.appends.move_start(queue, 1, NOW), Refusal)
    placed = cluster.leader.put(1)
    engine.follow(4, "broker 2 leads")
    engine.appends.when(placed, heard.append)
    assert heard == [False] and engine.epoch_end(queue, 3) is not None


def test_a_cut_below_what_is_folded_is_noted_and_done_by_the_next_start(cluster: Cluster) -> None:
    """All lost power, and who leads now has not all that was replicated."""
    follower = cluster.machines[3]
    cluster.leader.put(1)
    cluster.spread()
    kept = follower.end()
    cluster.leader.put(1)
    cluster.spread(sync=False)
    for journal in (4, 9):
        follower.sync(journal)
    end = follower.end()
    follower.engine.note(4, ReplicaNote(end, kept, 5))
    with pytest.raises(MustReopen, match=f"cannot be cut at {kept}: it is replicated up to {end}"):
        follower.following().cut(kept, 5, 8)
    assert follower.end() == end
    follower.killed()
    assert follower.engine.queues[1].end == 1, "what was noted first says how much counts"
    follower.following().cut(kept, 5, 8)
    assert follower.end() == kept


def test_a_start_folds_what_the_metadata_let_it(cluster: Cluster) -> None:
    follower = cluster.machines[3]
    cluster.leader.put(1)
    cluster.spread()
    cluster.leader.put(1)
    cluster.spread(sync=False)
    follower.sync()
    follower.engine.note(4, ReplicaNote(follower.end(), cluster.leader.leading().journal.durable_end, 5))
    follower.killed(durable)
    assert follower.engine.queues[1].end == 1
    follower.killed()
    assert follower.engine.queues[1].end == 2


def test_a_journal_cannot_be_cut_below_what_is_split(cluster: Cluster) -> None:
    """An unclean election may ask for it; the process would start again for ever."""
    follower = cluster.machines[3]
    cluster.leader.put(1)
    cluster.spread()
    follower.split()
    follower.checkpoint()
    with pytest.raises(MustReopen):
        follower.following().cut(0, 0, 8)
    follower.killed()
    with pytest.raises(Fault, match="is split up to") as refused:
        follower.following().cut(0, 0, 8)
    assert not isinstance(refused.value, MustReopen)


def test_clean_stop_names_the_life_and_is_gone_before_the_first_append(cluster: Cluster) -> None:
    follower = cluster.machines[2]
    cluster.leader.put(1)
    cluster.spread()
    cluster.leader.put(1)
    follower.copy(cluster.leader)
    follower.engine.end()
    assert not follower.disks[1].exists(CLEAN_STOP), "something is not on disk"
    follower.sync()
    follower.engine.end()
    follower.crashed()
    assert follower.joinings[-1].stopped_as == 10 and follower.engine.was_clean, "unsplit, and not even replicated"
    assert not follower.disks[1].exists(CLEAN_STOP)
    assert not follower.disks[1].crash().exists(CLEAN_STOP)
    follower.killed()
    assert follower.joinings[-1].stopped_as == 0
    hosting = follower.engine.hosting
    assert hosting is not None
    hosting.registered(Leader(2, 77))
    follower.engine.end()
    follower.killed()
    assert follower.joinings[-1].stopped_as == 77, "the life that stopped"


def test_clean_stop_counts_only_if_all_is_there(cluster: Cluster) -> None:
    follower = cluster.machines[2]
    cluster.leader.put(1)
    cluster.spread()
    follower.engine.end()
    disk = follower.disks[0]
    name = f"4/{0:020d}.jnl"
    disk.open(name, write=True).truncate(disk.open(name).size() - 1)
    follower.killed()
    assert follower.joinings[-1].stopped_as == 0
    assert follower.joinings[-1].damaged == {4}
    assert follower.following().stopped is not None
    assert follower.engine.lead(4, 9, NOW) is None, "it takes nothing"


def test_another_life_of_the_same_process_writes_other_heads(cluster: Cluster) -> None:
    hosting = cluster.leader.engine.hosting
    assert hosting is not None
    cluster.leader.engine.follow(4, "the session is over")
    hosting.registered(Leader(1, 55))
    cluster.leader.lead(9)
    reader = JournalReader(cluster.leader.disks[0], 4)
    head = reader.head(reader.bases[-1])
    assert head is not None and head.leader == Leader(1, 55)


def test_torn_copies_are_no_damage_and_own_claims_are_believed() -> None:
    """Copied entries say what their leader's disk had."""
    for seed in range(30):
        cluster = Cluster(flush="interval")
        follower = cluster.machines[2]
        for _ in range(4):
            cluster.leader.put(1, count=2)
            cluster.leader.sync()
        follower.copy(cluster.leader)
        follower.crashed(seed=seed)
        assert not follower.joinings[-1].damaged
        cluster.spread()
        assert follower.end() == cluster.leader.end()


def lost_after_a_cut(cluster: Cluster, seed: int, cut_noted: bool) -> frozenset[int]:
    """Machine 1 led, synced and said so; it was cut, copied the same again and lost power before it was synced."""
    first = cluster.leader
    end = first.end()
    for _ in range(20):
        first.put(1)
        first.sync()
    copied = content(first.engine, 4, end)
    first.engine.follow(4, "nobody leads")
    path = first.following()
    if not cut_noted:
        path.note = None
    path.cut(end, 5, 6)
    copy = path.take(memoryview(copied), 6, NOW)
    assert copy is not None
    path.write(copy)
    path.written(copy)
    first.crashed(seed=seed)
    return first.joinings[-1].damaged


def test_claims_from_before_a_cut_do_not_count() -> None:
    assert not any(lost_after_a_cut(Cluster(), seed, True) for seed in range(40))
    assert any(lost_after_a_cut(Cluster(), seed, False) for seed in range(40)), "else this shows nothing"


def test_lost_bytes_of_an_own_epoch_are_damage() -> None:
    cluster = Cluster()
    for _ in range(4):
        cluster.leader.put(1)
        cluster.leader.sync()
    cluster.leader.disks[0].damage(f"4/{0:020d}.jnl", cluster.leader.end() // 2)
    machine: Machine = cluster.leader
    machine.killed()
    assert machine.joinings[-1].damaged == {4}


@pytest.mark.parametrize("place", [0.3, 0.6, 0.9])
def test_damaged_journal_is_cut_there_and_copied_again(cluster: Cluster, place: float) -> None:
    """All that was there, from replicas that have it; a power loss meanwhile finds no damage in what is not synced."""
    first = cluster.leader
    for _ in range(12):
        first.put(1)
        cluster.spread()
    cluster.elect(2, 6)
    cluster.spread()
    bases = [segment.base for segment in first.engine.paths[4].journal.segments]
    at = int(first.end() * place)
    base = max(base for base in bases if base <= at)
    first.disks[0].damage(f"4/{base:020d}.jnl", at - base)
    first.killed(has_others=True)
    path = first.following()
    assert first.joinings[-1].damaged == {4} and path.stopped is None and first.end() <= at
    first.copy(cluster.leader)
    assert first.end() == cluster.leader.end()
    for seed in range(10):
        disks, life = first.disks, first.life
        first.disks = (disks[0].crash(Random(seed)), disks[1].crash(Random(seed)))
        first.start()
        assert not first.joinings[-1].damaged, "claims from before the cut are void"
        first.disks, first.life = disks, life
    first.killed()
    cluster.spread()
    assert content(first.engine, 4, 0) == content(cluster.leader.engine, 4, 0)
    assert first.offsets(1) == list(range(12))
    first.split()
    first.checkpoint()
    assert first.engine.checkpointed[4] == first.end()


def test_the_journal_is_kept_for_the_slowest_replica_and_no_further_than_the_limit(cluster: Cluster) -> None:
    machine = cluster.leader
    journal = machine.engine.paths[4].journal

    def keep(position: int) -> None:
        engine = machine.engine
        assert engine.hosting is not None
        engine.hosting.keep(4, position, engine.checkpointed[4], engine.config.retain_bytes)

    def more() -> int:
        for _ in range(30):
            machine.put(1, count=3)
        cluster.spread()
        machine.split()
        machine.checkpoint()
        return machine.engine.checkpointed[4]

    machine.engine.config = replace(machine.engine.config, retain_bytes=1 << 20)
    first = more()
    assert journal.start == 0, "nobody has said that it is not needed"
    keep(first)
    assert 0 < journal.start < first <= journal.segments[0].end, "the byte before it stays"
    kept, second = journal.start, more()
    assert journal.start == kept
    keep(ENDLESS)
    assert kept < journal.start < second <= machine.engine.checkpointed[4]
    keep(0)
    machine.engine.config = replace(machine.engine.config, retain_bytes=700)
    third = more()
    assert third - 700 - 2 * 600 < journal.start <= third - 700
