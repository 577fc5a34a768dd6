"""A replica that lost its place gets all of a journal from another one, and a start puts it there."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cairnmq.settings.topic import Model
from cairnmq.storage.check.journal_check import JournalCheck
from cairnmq.storage.checkpoint.checkpoint import load_checkpoint
from cairnmq.storage.files.format import INSTALLS, PACK_SUFFIX, PACKS, SyncedEnd, numbered, pack_name
from cairnmq.storage.install.install_files import found_installs, install_directory, rows_name
from cairnmq.storage.install.installed import put_in_place
from cairnmq.storage.journal.replica_note import ReplicaNote, read_replica_note
from cairnmq.storage.journal.synced_end import synced_name
from cairnmq.storage.packs.pack_set import PackSet
from unit.storage.cluster_harness import JOURNALS, Cluster, Machine
from unit.storage.install.install_harness import (
    advance,
    busy_cluster,
    hosted_by,
    install,
    left_at_each_step,
    snapshot_of,
    stage,
    wipe,
)
from unit.storage.replica_harness import NOW


def put(machine: Machine) -> list[int]:
    return put_in_place(*machine.disks, hosted_by(machine))


def test_a_wiped_replica_gets_all_of_a_journal() -> None:
    cluster = busy_cluster()
    leader, away = cluster.leader, cluster.machines[3]
    wipe(away, journals=True, data=True)
    away.start()
    for journal in JOURNALS:
        assert leader.engine.paths[journal].journal.start > away.end(journal)
        install(leader, away, journal)
    assert put(away) == list(JOURNALS)
    away.start()
    for journal in JOURNALS:
        mark = load_checkpoint(away.disks[1]).marks[journal]
        assert away.end(journal) == mark.split == leader.engine.checkpointed[journal]
    cluster.spread()
    for queue in (1, 2, 3):
        assert away.offsets(queue) == leader.offsets(queue) == list(range(12))
        assert away.engine.queues[queue].state == leader.engine.queues[queue].state
    assert away.engine.keyed == leader.engine.keyed
    assert found_installs(away.disks[1]) == [] and away.disks[1].list(INSTALLS) == []


def catch_up(cluster: Cluster, machine: Machine) -> None:
    """It has everything, and all of it counts."""
    for journal in JOURNALS:
        while machine.copy(cluster.leader, journal):
            pass
        machine.sync(journal)
        machine.following(journal).replicated_to(machine.end(journal), machine.end(journal), NOW)


def lagging(model: Model = "auto") -> tuple[Cluster, Machine]:
    """Machine 3 had split half of it, and was away then. What it lacks of journal 9 is still there."""
    cluster = busy_cluster(3, model)
    cluster.leader.engine.hosting.pins[9] = 0
    cluster.spread()
    away = cluster.machines[3]
    away.split()
    away.checkpoint()
    for number in range(3, 14):
        for queue in (1, 2, 3):
            cluster.leader.put(queue)
        cluster.leader.fact(b"%d" % number)
        advance(cluster)
    cluster.leader.split()
    cluster.leader.checkpoint()
    return cluster, away


def same(cluster: Cluster, away: Machine, queues: Sequence[int] = (1, 2, 3)) -> None:
    """All that readers, coordinators and producers are told."""
    leader = cluster.leader
    for queue in queues:
        assert away.offsets(queue) == leader.offsets(queue)
        assert away.engine.queues[queue].state == leader.engine.queues[queue].state
    assert away.engine.keyed == leader.engine.keyed


def followed_again(cluster: Cluster, away: Machine) -> None:
    away.start()
    cluster.spread()
    same(cluster, away)
    away.split()
    away.checkpoint()
    away.killed()
    same(cluster, away)


def test_a_replica_that_was_away_for_too_long() -> None:
    cluster, away = lagging()
    wipe(away, journals=False, data=False)
    away.start()
    install(cluster.leader, away)
    assert put(away) == [4]
    followed_again(cluster, away)


def test_other_journals_keep_what_they_have_in_packs_of_both() -> None:
    cluster, away = lagging("shared")
    wipe(away, journals=False, data=False)
    away.start()
    before = away.offsets(3)
    install(cluster.leader, away)
    assert put(away) == [4]
    away.start()
    assert away.offsets(3) == before != []
    image = load_checkpoint(away.disks[1])
    held = [{extent.queue_id for extent in pack} for pack in PackSet(away.disks[1], image.packs).packs]
    assert held[-1] == {1, 2} and all(queues == {3} for queues in held[:-1]) and len(held) > 1


def test_a_wiped_directory_of_journals() -> None:
    cluster, away = lagging()
    wipe(away, journals=True, data=False)
    away.start()
    assert away.end() == load_checkpoint(away.disks[1]).marks[4].split
    for journal in JOURNALS:
        install(cluster.leader, away, journal)
    assert put(away) == list(JOURNALS)
    followed_again(cluster, away)


def test_the_journal_goes_on_in_the_epoch_that_the_checkpoint_names() -> None:
    cluster, away = lagging()
    install(cluster.leader, away)
    put(away)
    away.start()
    assert away.engine.histories(4) == ([(5, away.end() - 1)], away.end())


def test_no_claim_of_an_earlier_leadership_counts() -> None:
    cluster, away = lagging()
    install(cluster.leader, away)
    put(away)
    assert read_replica_note(away.disks[0], 4).cut_in == 5


def test_an_install_that_is_not_whole_is_removed() -> None:
    cluster, away = lagging()
    wipe(away, journals=False, data=False)
    away.start()
    stage(cluster.leader, away, snapshot_of(cluster.leader))
    before = away.offsets(1)
    assert put(away) == [] and found_installs(away.disks[1]) == []
    away.start()
    assert away.offsets(1) == before


def test_one_whose_rows_are_damaged_is_removed() -> None:
    cluster, away = lagging()
    wipe(away, journals=False, data=False)
    away.start()
    install(cluster.leader, away)
    before = away.offsets(1)
    away.disks[1].damage(rows_name(4), 30)
    assert put(away) == []
    away.start()
    assert away.offsets(1) == before


def test_packs_whose_names_are_in_use_are_not_moved() -> None:
    cluster, away = lagging()
    wipe(away, journals=False, data=False)
    away.start()
    install(cluster.leader, away)
    (number,) = numbered(away.disks[1].list(install_directory(4)), PACK_SUFFIX)
    away.disks[1].make_dir(PACKS)
    away.disks[1].create(pack_name(number)).close()
    assert put(away) == [] and found_installs(away.disks[1]) == []


@pytest.mark.parametrize("is_power", [False, True])
@pytest.mark.parametrize("journals", [False, True])
@pytest.mark.parametrize("model", ["auto", "shared"])
def test_a_stop_at_any_step_is_made_good_by_the_next_start(is_power: bool, journals: bool, model: Model) -> None:
    cluster, away = lagging(model)
    wipe(away, journals=journals, data=False)
    away.start()
    install(cluster.leader, away)
    found = left_at_each_step(away, lambda: put(away), is_power)
    assert len(found) > 20
    for disks in found:
        away.disks = disks
        put(away)
        away.start()
        assert away.end() == load_checkpoint(away.disks[1]).marks[4].split == cluster.leader.engine.checkpointed[4]
        catch_up(cluster, away)
        same(cluster, away, (1, 2))


@pytest.mark.parametrize("is_power", [False, True])
def test_a_stop_while_it_is_received_leaves_all_of_it_or_nothing(is_power: bool) -> None:
    cluster, away = lagging()
    wipe(away, journals=False, data=False)
    away.start()
    before, old_end = away.offsets(1), away.end()
    outcomes = set()
    for disks in left_at_each_step(away, lambda: install(cluster.leader, away), is_power):
        away.disks = disks
        done = put(away)
        outcomes.add(tuple(done))
        away.start()
        if done:
            assert away.end() == cluster.leader.engine.checkpointed[4]
        else:
            assert away.offsets(1) == before and away.end() == old_end
            install(cluster.leader, away)
            assert put(away) == [4]
            away.start()
    assert outcomes == {(), (4,)}


def test_a_journal_that_is_not_hosted_any_more_is_not_installed() -> None:
    cluster, away = lagging()
    install(cluster.leader, away)
    before = load_checkpoint(away.disks[1]).marks
    assert put_in_place(*away.disks, {}) == [] and found_installs(away.disks[1]) == []
    assert load_checkpoint(away.disks[1]).marks == before


@pytest.mark.parametrize(("epoch", "installed"), [(4, [4]), (5, [4]), (6, [])])
def test_a_journal_of_a_later_epoch_is_not_replaced(epoch: int, installed: list[int]) -> None:
    """The replica has followed or led since: what is in its journal may have been acknowledged."""
    cluster, away = lagging()
    install(cluster.leader, away)
    away.engine.note(4, ReplicaNote(0, 0, epoch))
    before = away.disks[0].list("4")
    assert put(away) == installed and found_installs(away.disks[1]) == []
    if not installed:
        assert away.disks[0].list("4") == before


def test_a_stop_in_order_before_it_still_counts() -> None:
    cluster, away = lagging()
    for journal in JOURNALS:
        away.sync(journal)
    install(cluster.leader, away)
    away.engine.end()
    away.disks = (away.disks[0].kill(), away.disks[1].kill())
    away.start()
    assert away.engine.hosting.installed == [4] and away.engine.was_clean
    assert away.joinings[-1].stopped_as == away.life - 10


def test_a_wiped_data_directory() -> None:
    cluster = busy_cluster()
    cluster.leader.engine.hosting.pins.clear()
    away = cluster.machines[2]  # has followed all the time, and removed what it has split
    catch_up(cluster, away)
    away.split()
    away.checkpoint()
    assert away.engine.paths[4].journal.start > 0
    wipe(away, journals=False, data=True)
    away.start(has_others=True)
    assert away.joinings[-1].damaged == {4, 9} and [away.end(journal) for journal in JOURNALS] == [0, 0]
    for journal in JOURNALS:
        install(cluster.leader, away, journal)
    assert put(away) == list(JOURNALS)
    away.start(has_others=True)
    assert not away.joinings[-1].damaged
    catch_up(cluster, away)
    same(cluster, away)


def test_a_wiped_data_directory_without_other_replicas_takes_nothing() -> None:
    cluster = busy_cluster()
    away = cluster.machines[2]
    catch_up(cluster, away)
    away.split()
    away.checkpoint()
    held = away.disks[0].list("4")
    wipe(away, journals=False, data=True)
    away.start()
    assert away.joinings[-1].damaged == {4, 9}
    assert "segments or checkpoints are missing" in (away.following().stopped or "")
    assert set(away.disks[0].list("4")) >= set(held)


def test_a_journal_without_files_is_no_damage_to_verify() -> None:
    cluster, away = lagging()
    install(cluster.leader, away)
    assert put(away) == [4]
    mark = load_checkpoint(away.disks[1]).marks[4]
    told = list(JournalCheck(away.disks[0], 4, mark, "j").findings())
    assert [each.is_note for each in told] == [True] and f"continues at position {mark.split}" in told[0].text
    away.disks[0].open_in_place(synced_name(4)).write_at(0, SyncedEnd(4, 5, mark.seed, mark.split + 1).sealed())
    told = list(JournalCheck(away.disks[0], 4, mark, "j").findings())
    assert not told[0].is_note, "its disk had more"


@pytest.mark.parametrize("seed", range(8))
def test_segments_that_were_replaced_do_not_come_back(seed: int) -> None:
    """Nothing that a start does later makes their removal durable."""
    cluster, away = lagging("dedicated")
    wipe(away, journals=False, data=False)
    away.start()
    names = [away.specs[queue].directory for queue in (1, 2)]
    assert all(map(away.disks[1].list, names))
    install(cluster.leader, away)
    assert put(away) == [4]
    away.crashed(seed=seed)
    assert not any(map(away.disks[1].list, names))


def test_a_wiped_data_directory_is_noticed_by_what_the_replica_noted() -> None:
    """The file `synced` is not synced itself, and this broker has never led: nothing else says what was on its disk."""
    cluster = busy_cluster()
    away = cluster.machines[2]
    catch_up(cluster, away)
    away.split()
    away.checkpoint()
    end = away.end()
    away.engine.note(4, ReplicaNote(end, end, 5))
    wipe(away, journals=False, data=True)
    away.disks[0].remove(synced_name(4))
    away.start(has_others=True)
    assert 4 in away.joinings[-1].damaged
