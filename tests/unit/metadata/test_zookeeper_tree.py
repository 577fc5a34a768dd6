"""Transactions as nodes: what is written, what stands in the way, what is remembered."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from cairnmq.errors import Corrupt, Fault, TooNew
from cairnmq.metadata import zookeeper_tree as tree
from cairnmq.metadata.store import ABSENT, EPOCH, Change, Check, Compacted, Conflict, Delete, Entry, NextEpoch, Op, Put
from cairnmq.metadata.zookeeper_tree import Changed, Found, Held, Plan, Root, Write, Written
from cairnmq.types import Epoch

ROOT = Root(revision=7, epoch=3)
HELD = replace(ROOT, held={"live/1": Held(5, "s1"), "live/2": Held(6, "s2")})
NODES = {"k/a": 4, "live/1": 5, "live/2": 6}


def found(root: Root = ROOT, live: Sequence[str] = ("s1", "s2")) -> Found:
    return Found(root, frozenset(live), NODES)


def planned(ops: Sequence[Op | NextEpoch], seen: Found | None = None, hold: tuple[str, str] | None = None) -> Plan:
    made = tree.plan(seen or found(), ops, hold)
    assert isinstance(made, Plan), made
    return made


def test_all_keys_of_a_transaction_have_the_next_revision() -> None:
    made = planned([Put("k/new", b"1", ABSENT), Put("k/a", b"2", 4), Check("k/none", ABSENT)])
    assert made.root.revision == 8 and made.root.changes == [Changed(8, ["k/a", "k/new"])]
    assert set(made.writes) == {
        Write("k/new", b"8 \n1", exists=False),
        Write("k/a", b"8 \n2", exists=True),
    }
    assert not made.same and made.needs == frozenset()


@pytest.mark.parametrize(
    ("op", "conflict"),
    [
        (Put("k/a", b"", ABSENT), Conflict("k/a", ABSENT, 4)),
        (Put("k/a", b"", 3), Conflict("k/a", 3, 4)),
        (Delete("k/b", 9), Conflict("k/b", 9, ABSENT)),
        (Check("k/a", 5), Conflict("k/a", 5, 4)),
        (NextEpoch(Epoch(3)), Conflict(EPOCH, 2, 3)),
        (NextEpoch(Epoch(5)), Conflict(EPOCH, 4, 3)),
    ],
)
def test_what_stands_in_the_way(op: Op | NextEpoch, conflict: Conflict) -> None:
    assert tree.plan(found(), [Put("k/other", b""), op]) == conflict


@pytest.mark.parametrize("ops", [[], [Delete("k/none")], [Check("k/a", 4)]])
def test_what_changes_nothing_writes_nothing(ops: Sequence[Op]) -> None:
    assert planned(ops) == Plan(ROOT, same=True)


def test_an_epoch_alone_is_a_change_without_a_revision() -> None:
    made = planned([NextEpoch(Epoch(4))])
    assert (made.root.epoch, made.root.revision, made.same) == (4, 7, False)


def test_a_key_of_a_session_that_lives_keeps_it() -> None:
    made = planned([Put("live/1", b"x", 5)], found(HELD))
    assert made.root.held["live/1"] == Held(8, "s1") and made.needs == {"s1"}
    assert made.writes == (Write("live/1", b"8 s1\nx", exists=True),)


def test_a_check_of_such_a_key_needs_its_session() -> None:
    assert planned([Check("live/2", 6), Put("k/a", b"")], found(HELD)).needs == {"s2"}
    assert planned([Put("k/a", b"")], found(HELD)).needs == frozenset()


def test_keys_of_ended_sessions_are_removed_first() -> None:
    made = planned([Put("k/a", b"", 4)], found(HELD, live=["s1"]))
    assert made.root.revision == 9 and made.root.held == {"live/1": Held(5, "s1")}
    assert made.root.changes == [Changed(8, ["live/2"]), Changed(9, ["k/a"])]
    assert Write("live/2", None, exists=True) in made.writes
    alone = planned([], found(HELD, live=[]))
    assert (alone.root.revision, alone.root.held, alone.same) == (8, {}, False)


def test_such_a_key_is_absent() -> None:
    seen = found(HELD, live=["s1"])
    assert tree.plan(seen, [Check("live/2", 6)]) == Conflict("live/2", 6, ABSENT)
    made = planned([Put("live/2", b"new", ABSENT)], seen)
    assert "live/2" not in made.root.held
    assert made.writes == (Write("live/2", b"9 \nnew", exists=True),)


def test_a_key_changes_hands() -> None:
    made = planned([Put("live/1", b"new", 5), NextEpoch(Epoch(4))], found(HELD), hold=("live/1", "s2"))
    assert made.root.held["live/1"] == Held(8, "s2") and made.root.epoch == 4
    assert made.needs == {"s1", "s2"} or made.needs == {"s2"}


def test_deleting_a_key_of_a_session() -> None:
    made = planned([Delete("live/1", 5)], found(HELD))
    assert made.root.held == {"live/2": Held(6, "s2")} and made.writes == (Write("live/1", None, exists=True),)


def test_history_is_bounded_and_says_so() -> None:
    root = Root()
    for number in range(tree.HISTORY + 3):
        root = planned([Put(f"k/{number}", b"")], Found(root, frozenset(), {})).root
    assert len(root.changes) == tree.HISTORY and root.compacted == 3
    assert root.changed(2) == Compacted(3)
    assert root.changed(tree.HISTORY + 2) == {f"k/{tree.HISTORY + 2}": tree.HISTORY + 3}
    assert root.changed(root.revision) == {}


def test_a_change_of_very_many_keys_is_no_history() -> None:
    ops = [Put(f"k/{number}", b"") for number in range(tree.HISTORY_KEYS + 1)]
    root = planned(ops).root
    assert root.changes == [] and root.changed(7) == Compacted(8) and root.changed(8) == {}


def test_the_last_change_of_a_key_counts() -> None:
    root = Root(revision=3, changes=[Changed(1, ["a", "b"]), Changed(2, ["a"]), Changed(3, ["c"])])
    assert root.changed(0) == {"a": 2, "b": 1, "c": 3}
    entries = {"a": Entry("a", b"x", 2), "c": Entry("c", b"y", 3)}
    assert tree.news(root.changed(0), entries) == [Change("b", None, 1), Change("a", b"x", 2), Change("c", b"y", 3)]


def test_writers_are_remembered_by_recency() -> None:
    root = tree.signed(ROOT, "first", 9)
    assert root.writers == {"first": Written(9, 7, 3)}
    for number in range(tree.WRITERS):
        root = tree.signed(root, f"w{number}", 1)
    assert "first" not in root.writers and len(root.writers) == tree.WRITERS
    again = tree.signed(tree.signed(root, "w0", 2), "late", 1)
    assert again.writers["w0"].number == 2 and "w1" not in again.writers


def test_nodes_come_back() -> None:
    root = tree.signed(planned([Put("live/1", b"")], found(HELD)).root, "w", 4)
    assert tree.decode_root(tree.encode_root(root)) == root
    for value in (b"", b"\n", b"1 2\n3", bytes(range(256))):
        for session in ("", "abc"):
            assert tree.decode_node("k", tree.encode_node(value, 12, session)) == (Entry("k", value, 12), session)


@pytest.mark.parametrize("data", [b"", b"5", b"x y\n", b"{}", b"5\n"])
def test_nodes_of_others_are_not_read(data: bytes) -> None:
    with pytest.raises(Corrupt, match="k/a"):
        tree.decode_node("k/a", data)


def test_a_later_format_is_not_read() -> None:
    with pytest.raises(TooNew, match="format 2"):
        tree.decode_root(b'{"format":2,"anything":[]}')
    with pytest.raises(Corrupt):
        tree.decode_root(b"")


@pytest.mark.parametrize(
    "key", ["slots", "k/a", "topics/orders", "topics/...", "group-configs/%2E%2E", "a/b/c", "quotas/user=a%2Fb"]
)
def test_every_key_has_a_node_of_its_own(key: str) -> None:
    path = tree.path_of(key)
    assert path.startswith(tree.directory_of(key) + "/") and "//" not in path
    assert not {".", ".."} & set(path.split("/"))
    prefix, slash, _ = key.rpartition("/")
    if slash:
        place, has_buckets = tree.prefix_places(prefix + "/")
        assert tree.directory_of(key).startswith(place) and has_buckets == (tree.directory_of(key) != place)
        assert tree.key_of(prefix + "/", path.rpartition("/")[2]) == key
    assert tree.path_of("(top)/a") != tree.path_of("a") and tree.path_of("a/b/c") != tree.path_of("a%2Fb/c")


def test_too_much_is_refused() -> None:
    assert tree.checked(planned([Put("k/a", b"x" * 100_000)]))
    with pytest.raises(Fault, match="more than ZooKeeper takes"):
        tree.checked(planned([Put(f"k/{number}", b"x" * 100_000) for number in range(9)]))


def test_epochs_grow() -> None:
    assert (tree.next_epoch(ROOT, 0), tree.next_epoch(ROOT, 50)) == (4, 51)
    assert tree.replace_epoch(Plan(ROOT, same=True), 3).same
    assert not tree.replace_epoch(Plan(ROOT, same=True), 4).same


def test_what_is_read_for_a_transaction() -> None:
    assert tree.named([Put("a", b""), NextEpoch(Epoch(1)), Check("b", 1), Delete("c")]) == ["a", "b", "c"]
    assert tree.session_path("x") == "sessions/x"
