"""What every metadata store must do. A store's own test file subclasses this and says how to open one.

The cases allow what ZooKeeper cannot help: a watch may skip values that were replaced before it looked, and history
before a restart may be gone (Compacted), but then it must be said.
"""

from __future__ import annotations

from typing import Protocol

import pytest

from cairnmq.metadata.store import (
    ABSENT,
    Change,
    Check,
    Compacted,
    Conflict,
    Delete,
    MetadataStore,
    Put,
    Session,
    Watch,
    leader_key,
)

TIMEOUT_MS = 6000


class Harness(Protocol):
    """How the suite opens stores and lets time pass."""

    def open(self) -> MetadataStore:
        """An empty store."""

    def reopen(self, store: MetadataStore) -> MetadataStore:
        """The same data seen by a new process; the old one is gone."""

    def session(self, store: MetadataStore) -> Session:
        """A new live session."""

    def lapse(self, store: MetadataStore, session: Session) -> None:
        """Let a session's time pass without a renewal; sessions renewed meanwhile stay."""


def done(answer: int | Conflict) -> int:
    assert isinstance(answer, int), answer
    return answer


def drained(watch: Watch) -> list[Change]:
    changes = watch.poll()
    assert not isinstance(changes, Compacted)
    return changes


def last_values(changes: list[Change]) -> dict[str, bytes | None]:
    return {change.key: change.value for change in changes}


class StoreConformance:
    """Fixture `harness` comes from the subclass's module."""

    @pytest.fixture
    def store(self, harness: Harness) -> MetadataStore:
        return harness.open()

    # -- values

    def test_a_missing_key_is_none(self, store: MetadataStore) -> None:
        assert store.get("topics/none") is None

    @pytest.mark.parametrize("value", [b"", b"x", bytes(range(256)), b"z" * 100_000], ids=len)
    def test_values_come_back_byte_for_byte(self, store: MetadataStore, value: bytes) -> None:
        revision = done(store.put("topics/a", value))
        entry = store.get("topics/a")
        assert entry is not None and (entry.key, entry.value, entry.revision) == ("topics/a", value, revision)

    @pytest.mark.parametrize("name", ["a.b_c-D9", "0" * 249, "..."])
    def test_every_topic_name_can_be_a_key(self, store: MetadataStore, name: str) -> None:
        done(store.put(f"topics/{name}", b"1"))
        assert [entry.key for entry in store.list("topics/")] == [f"topics/{name}"]

    def test_every_change_raises_the_revision(self, store: MetadataStore) -> None:
        seen = [
            store.revision,
            done(store.put("k/a", b"1")),
            done(store.put("k/b", b"1")),
            done(store.put("k/a", b"2")),
        ]
        assert seen == sorted(set(seen))
        assert store.revision == seen[-1]
        entry = store.get("k/b")
        assert entry is not None and entry.revision == seen[2]

    def test_list_gives_one_level_in_order(self, store: MetadataStore) -> None:
        for key in ("t/b", "t/a", "t/c/deep", "tt/x", "t.x/y", "s/z", "t/-", "t/Z"):
            done(store.put(key, key.encode()))
        found = store.list("t/")
        assert [entry.key for entry in found] == ["t/-", "t/Z", "t/a", "t/b"]
        assert all(entry.value == entry.key.encode() for entry in found)
        assert store.list("nothing/") == []

    # -- expected revisions

    def test_put_if_absent_lets_one_through(self, store: MetadataStore) -> None:
        first = done(store.put("k/a", b"1", ABSENT))
        assert store.put("k/a", b"2", ABSENT) == Conflict("k/a", ABSENT, first)
        entry = store.get("k/a")
        assert entry is not None and entry.value == b"1"

    def test_put_at_the_known_revision(self, store: MetadataStore) -> None:
        first = done(store.put("k/a", b"1"))
        second = done(store.put("k/a", b"2", first))
        assert store.put("k/a", b"3", first) == Conflict("k/a", first, second)
        entry = store.get("k/a")
        assert entry is not None and (entry.value, entry.revision) == (b"2", second)

    def test_a_deleted_key_is_absent_for_expectations(self, store: MetadataStore) -> None:
        first = done(store.put("k/a", b"1"))
        done(store.transact([Delete("k/a")]))
        assert store.put("k/a", b"2", first) == Conflict("k/a", first, ABSENT)
        again = done(store.put("k/a", b"2", ABSENT))
        assert again > first
        assert store.put("k/a", b"3", first) == Conflict("k/a", first, again)

    def test_delete_takes_an_expectation_too(self, store: MetadataStore) -> None:
        first = done(store.put("k/a", b"1"))
        second = done(store.put("k/a", b"2"))
        assert store.transact([Delete("k/a", first)]) == Conflict("k/a", first, second)
        done(store.transact([Delete("k/a", second)]))
        assert store.get("k/a") is None

    def test_deleting_nothing_changes_nothing(self, store: MetadataStore) -> None:
        before = done(store.put("k/a", b"1"))
        done(store.transact([Delete("k/none")]))
        assert store.revision == before

    # -- transactions

    def test_a_transaction_gives_all_its_keys_one_revision(self, store: MetadataStore) -> None:
        done(store.put("k/old", b"1"))
        revision = done(store.transact([Put("k/a", b"1"), Put("k/b", b"2", ABSENT), Delete("k/old")]))
        assert {entry.key: entry.revision for entry in store.list("k/")} == {"k/a": revision, "k/b": revision}

    @pytest.mark.parametrize("at", [0, 1, 2])
    def test_a_failed_transaction_changes_nothing(self, store: MetadataStore, at: int) -> None:
        done(store.put("k/old", b"1"))
        before, listed = store.revision, store.list("k/")
        ops = [Put("k/a", b"1"), Delete("k/old")]
        ops.insert(at, Put("k/guard", b"1", expect=999))
        assert store.transact(ops) == Conflict("k/guard", 999, ABSENT)
        assert (store.revision, store.list("k/")) == (before, listed)

    def test_a_check_guards_without_changing(self, store: MetadataStore) -> None:
        guard = done(store.put("k/guard", b"1"))
        done(store.transact([Check("k/guard", guard), Put("k/a", b"1")]))
        entry = store.get("k/guard")
        assert entry is not None and entry.revision == guard
        moved = done(store.put("k/guard", b"2"))
        assert store.transact([Check("k/guard", guard), Put("k/a", b"2")]) == Conflict("k/guard", guard, moved)
        assert store.transact([Check("k/guard", ABSENT), Put("k/a", b"2")]) == Conflict("k/guard", ABSENT, moved)
        entry = store.get("k/a")
        assert entry is not None and entry.value == b"1"

    # -- watches

    def test_a_watch_gives_what_came_after_its_revision(self, store: MetadataStore) -> None:
        done(store.put("k/before", b"1"))
        watch = store.watch(store.revision)
        assert drained(watch) == []
        first = done(store.put("k/a", b"1"))
        second = done(store.transact([Put("k/b", b"2"), Delete("k/before")]))
        changes = drained(watch)
        assert sorted(changes, key=lambda change: (change.revision, change.key)) == [
            Change("k/a", b"1", first),
            Change("k/b", b"2", second),
            Change("k/before", None, second),
        ]
        assert [change.revision for change in changes] == sorted(change.revision for change in changes)
        assert drained(watch) == []

    def test_watches_are_independent(self, store: MetadataStore) -> None:
        one, two = store.watch(store.revision), store.watch(store.revision)
        done(store.put("k/a", b"1"))
        assert last_values(drained(one)) == {"k/a": b"1"}
        done(store.put("k/a", b"2"))
        assert last_values(drained(two)) == {"k/a": b"2"}
        assert last_values(drained(one)) == {"k/a": b"2"}

    def test_a_watch_wakes_its_owner_until_closed(self, store: MetadataStore) -> None:
        woken: list[str] = []
        watch = store.watch(store.revision, lambda: woken.append("now"))
        assert woken == []
        done(store.put("k/a", b"1"))
        assert woken
        drained(watch)
        watch.close()
        count = len(woken)
        done(store.put("k/a", b"2"))
        assert len(woken) == count

    def test_a_conflict_wakes_nobody(self, store: MetadataStore) -> None:
        done(store.put("k/a", b"1"))
        woken: list[str] = []
        store.watch(store.revision, lambda: woken.append("now"))
        assert isinstance(store.put("k/a", b"2", ABSENT), Conflict)
        assert woken == []

    def test_a_watch_after_a_restart_says_the_last_state_or_that_it_cannot(self, harness: Harness) -> None:
        store = harness.open()
        done(store.put("k/gone", b"1"))
        seen = store.revision
        done(store.put("k/a", b"1"))
        done(store.put("k/a", b"2"))
        done(store.transact([Delete("k/gone")]))
        store = harness.reopen(store)
        changes = store.watch(seen).poll()
        assert isinstance(changes, Compacted) or last_values(changes) == {"k/a": b"2", "k/gone": None}

    # -- durability

    def test_everything_is_there_after_a_restart(self, harness: Harness) -> None:
        store = harness.open()
        done(store.transact([Put("k/a", b"1"), Put("k/b", b"2"), Put("k/c", b"3")]))
        done(store.transact([Delete("k/b")]))
        listed, revision = store.list("k/"), store.revision
        store = harness.reopen(store)
        assert store.list("k/") == listed
        assert store.revision >= revision
        assert done(store.put("k/d", b"4")) > revision

    # -- sessions

    def test_what_a_session_registers_ends_with_it(self, harness: Harness, store: MetadataStore) -> None:
        session, other = harness.session(store), harness.session(store)
        done(session.register("brokers/1", b"here"))
        done(other.register("brokers/2", b"there"))
        assert [entry.value for entry in store.list("brokers/")] == [b"here", b"there"]
        watch = store.watch(store.revision)
        session.close()
        assert [entry.key for entry in store.list("brokers/")] == ["brokers/2"]
        assert last_values(drained(watch)) == {"brokers/1": None}
        assert not session.live and other.live

    def test_a_session_that_is_not_renewed_ends(self, harness: Harness, store: MetadataStore) -> None:
        session = harness.session(store)
        done(session.register("brokers/1", b"here"))
        harness.lapse(store, session)
        assert not session.live
        assert store.get("brokers/1") is None
        assert not session.renew(0)
        assert not session.live

    def test_an_ended_session_registers_nothing(self, harness: Harness, store: MetadataStore) -> None:
        session = harness.session(store)
        session.close()
        assert isinstance(session.register("brokers/1", b"here"), Conflict)
        assert isinstance(session.elect("controller", b"1"), Conflict)
        assert store.list("brokers/") == [] and store.list("leaders/") == []

    def test_a_session_does_not_take_a_key_that_exists(self, harness: Harness, store: MetadataStore) -> None:
        mine, yours = harness.session(store), harness.session(store)
        held = done(mine.register("brokers/1", b"mine"))
        assert yours.register("brokers/1", b"yours") == Conflict("brokers/1", ABSENT, held)
        fixed = done(store.put("k/fixed", b"1"))
        assert yours.register("k/fixed", b"2") == Conflict("k/fixed", ABSENT, fixed)
        mine.close()
        done(yours.register("brokers/1", b"yours"))
        yours.close()
        assert store.get("brokers/1") is None and store.get("k/fixed") is not None

    def test_sessions_end_with_their_process(self, harness: Harness) -> None:
        store = harness.open()
        done(store.put("k/fixed", b"1"))
        done(harness.session(store).register("brokers/1", b"here"))
        store = harness.reopen(store)
        assert store.get("brokers/1") is None and store.list("brokers/") == []
        assert store.get("k/fixed") is not None
        session = harness.session(store)
        done(session.register("brokers/1", b"again"))
        assert store.get("brokers/1") is not None
        session.close()
        assert store.get("brokers/1") is None
        store = harness.reopen(store)
        assert store.get("brokers/1") is None and store.get("k/fixed") is not None

    def test_to_open_it_is_no_change(self, harness: Harness) -> None:
        store = harness.open()
        done(harness.session(store).register("brokers/1", b"here"))
        store.next_epoch()
        before = store.revision, store.epoch
        for _ in range(3):
            store = harness.reopen(store)
            assert (store.revision, store.epoch) == before

    def test_the_revision_can_be_raised(self, harness: Harness) -> None:
        store = harness.open()
        first = done(store.put("k/a", b"1"))
        watch = store.watch(store.revision)
        store.raise_revision(first + 1000)
        store.raise_revision(first)
        assert store.revision == first + 1000
        second = done(store.put("k/a", b"2", first))
        assert second > first + 1000 and last_values(drained(watch)) == {"k/a": b"2"}
        store = harness.reopen(store)
        assert store.revision == second

    # -- elections and epochs

    def test_one_candidate_wins_and_the_next_has_a_higher_epoch(self, harness: Harness, store: MetadataStore) -> None:
        mine, yours = harness.session(store), harness.session(store)
        won = mine.elect("controller", b"1")
        assert not isinstance(won, Conflict)
        assert isinstance(yours.elect("controller", b"2"), Conflict)
        entry = store.get(leader_key("controller"))
        assert entry is not None and (entry.value, entry.revision) == (b"1", won.revision)
        watch = store.watch(store.revision)
        mine.close()
        assert last_values(drained(watch)) == {leader_key("controller"): None}
        next_won = yours.elect("controller", b"2")
        assert not isinstance(next_won, Conflict)
        assert next_won.epoch > won.epoch

    def test_a_deposed_leader_changes_nothing(self, harness: Harness, store: MetadataStore) -> None:
        mine, yours = harness.session(store), harness.session(store)
        won = mine.elect("controller", b"1")
        assert not isinstance(won, Conflict)
        done(store.transact([Check(won.key, won.revision), Put("k/a", b"by one")]))
        harness.lapse(store, mine)
        assert isinstance(store.transact([Check(won.key, won.revision), Put("k/a", b"late")]), Conflict)
        assert not isinstance(yours.elect("controller", b"2"), Conflict)
        assert isinstance(store.transact([Check(won.key, won.revision), Put("k/a", b"late")]), Conflict)
        entry = store.get("k/a")
        assert entry is not None and entry.value == b"by one"

    def test_elections_of_different_names_do_not_meet(self, harness: Harness, store: MetadataStore) -> None:
        one, two = harness.session(store).elect("j-1", b"1"), harness.session(store).elect("j-2", b"1")
        assert not isinstance(one, Conflict) and not isinstance(two, Conflict)
        assert one.epoch != two.epoch

    def test_epochs_grow_through_elections_and_restarts(self, harness: Harness) -> None:
        store = harness.open()
        epochs = [store.next_epoch()]
        won = harness.session(store).elect("controller", b"1")
        assert not isinstance(won, Conflict)
        epochs += [won.epoch, store.next_epoch()]
        store = harness.reopen(store)
        epochs += [store.next_epoch(), store.next_epoch()]
        assert epochs == sorted(set(epochs))
