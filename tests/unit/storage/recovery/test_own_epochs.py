"""Whose claims about a synced end are about this disk."""

from __future__ import annotations

from cairnmq.storage.journal.replica_note import ReplicaNote
from cairnmq.storage.recovery.own_epochs import led_here
from unit.storage.replica_harness import Following, Leading


def journal_of_two() -> Following:
    """Epoch 4 is node 1's, epoch 7 is this one's, node 2; in between this one started again."""
    leading, following = Leading(), Following()
    leading.put()
    following.copy(leading.content())
    following.restarted(following.disk.kill(), replicated=0)
    leading.put()
    following.copy(leading.content(following.end))
    following.path.journal.leader = following.path.journal.leader._replace(node_id=2)
    path = following.path.promoted(7, 1)
    assert path is not None
    write = path.take()
    assert write is not None
    path.write(write)
    path.written(write)
    return following


def test_epochs_are_those_of_heads_with_an_own_name() -> None:
    disk = journal_of_two().disk
    led = led_here(disk, 0, {2}, ReplicaNote())
    assert [epoch for epoch in range(10) if led(epoch)] == [7], "a copied file without a head is nobody's"
    led = led_here(disk, 0, {1, 2}, ReplicaNote())
    assert [epoch for epoch in range(10) if led(epoch)] == [4, 7], "former names count too"


def test_none_up_to_a_cut() -> None:
    disk = journal_of_two().disk
    assert led_here(disk, 0, {2}, ReplicaNote(cut_in=6))(7)
    assert not led_here(disk, 0, {2}, ReplicaNote(cut_in=7))(7)
    assert not led_here(disk, 0, {2}, ReplicaNote(cut_in=9))(7)
