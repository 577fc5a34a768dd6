"""What a directory says that it has, and who says something else than the others."""

from __future__ import annotations

from msgspec.structs import replace

from cairnmq.storage.check.replica import names, odd_ones
from cairnmq.storage.files import sealed_json
from cairnmq.storage.journal.replica_note import ReplicaNote, replica_name
from cairnmq.storage.recovery.owner import is_replica
from unit.storage.comparison_harness import filled, replica_of, restate


def test_the_odd_ones() -> None:
    assert odd_ones(["a", "a", "a"]) == ([0, 1, 2], [])
    assert odd_ones(["a", "b", "b"]) == ([1, 2], [0])
    assert odd_ones(["a", "b"]) == ([0], [1])
    assert odd_ones(["a", "b", "c"]) == ([0], [1, 2])
    assert odd_ones([]) == ([], [])


def test_names() -> None:
    replicas = [replica_of(filled(turns=1), name) for name in "abc"]
    assert names(replicas, [1]) == "b"
    assert names(replicas, [0, 2]) == "a and c"
    assert names(replicas, [0, 1, 2]) == "a, b and c"


def test_what_is_in_it() -> None:
    room = filled()
    replica = replica_of(room, "a")
    assert replica.open()
    assert list(replica.journals) == [0] and replica.homes == {1: 0}
    assert replica.directories == {1: "queues/t-1"}
    assert replica.replicated_end(0) == replica.split(0) == room.engine.paths[0].journal.end
    replica.close()


def test_one_that_cannot_be_read() -> None:
    room = filled()
    name = room.read_disk.list("checkpoints")[0]
    room.read_disk.damage(f"checkpoints/{name}", 4)
    assert not replica_of(room, "a").open()


def test_a_note_beside_the_journal_makes_it_one_of_a_cluster() -> None:
    room = filled()
    assert not is_replica(room.journal_disk)
    room.journal_disk.replace(replica_name(0), sealed_json.seal(ReplicaNote(100)))
    assert is_replica(room.journal_disk)
    restate(room, lambda image: image.marks.update({0: replace(image.marks[0], split=50)}))
    replica = replica_of(room, "a")
    assert replica.open() and replica.replicated_end(0) == 100
    replica.close()
