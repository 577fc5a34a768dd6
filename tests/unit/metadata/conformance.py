"""What every metadata store must do. A store's own test file subclasses this and says how to open one.

The cases allow what ZooKeeper cannot help: a watch may skip values that were replaced before it looked, and history
before a restart may be gone (Compacted), but then it must be said.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

import pytest

from cairnmq.metadata.store import (
    ABSENT,
    EPOCH,
    Away,
    Change,
    Check,
    Compacted,
    Conflict,
    Delete,
    InDoubt,
    Leadership,
    Made,
    MetadataStore,
    NextEpoch,
    Put,
    Session,
    Watch,
    leader_key,
)
from cairnmq.types import Epoch

TIMEOUT_MS = 6000


class Harness(Protocol):
    """How the suite opens stores and lets time pass."""

    def open(self) -> MetadataStore:
        """An empty store."""

    def reopen(self, store: MetadataStore) -> MetadataStore:
        """The same data seen by a new process; the old one and its sessions are gone."""

    def beside(self, store: MetadataStore) -> MetadataStore:
        """The same data seen by another process at the same time; `store` itself where only one may have it."""

    def session(self, store: MetadataStore) -> Session:
        """A new live session."""

    def pass_ms(self, ms: int, *renewed: Session) -> None:
        """Time goes by in a store that is written meanwhile, by a process that lives on; these sessions are renewed."""

    def stand_still(self, ms: int) -> None:
        """Time goes by in which nobody writes."""

    def away(self, store: MetadataStore) -> AbstractContextManager[None]:
        """Within, the store cannot be written."""

    def in_doubt(self, store: MetadataStore, *, made: bool) -> AbstractContextManager[None]:
        """Within, nobody is told the outcome of a change, which is made or not."""


def done(answer: int | Conflict | Away | InDoubt) -> int:
    assert isinstance(answer, int), answer
    return answer


def won(answer: Leadership | Conflict | Away | InDoubt) -> Leadership:
    assert isinstance(answer, Leadership), answer
    return answer


def given(answer: Epoch | Away) -> Epoch:
    assert not isinstance(answer, Away), answer
    return answer


def doubtful(answer: object) -> InDoubt:
    assert isinstance(answer, InDoubt), answer
    assert answer.reason
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
        harness.pass_ms(TIMEOUT_MS)
        assert not session.live
        assert store.get("brokers/1") is None
        assert session.renew() is False
        assert not session.live

    def test_a_key_tells_until_when_it_is_held(self, harness: Harness, store: MetadataStore) -> None:
        """A store that cannot tell says nothing."""
        session, other = harness.session(store), harness.session(store)
        done(session.register("brokers/1", b"here"))
        done(store.put("topics/a", b"a"))
        before = store.held_until_ms("brokers/1")
        harness.pass_ms(TIMEOUT_MS // 2, other)
        unrenewed = store.held_until_ms("brokers/1")
        assert session.renew() is True
        after = store.held_until_ms("brokers/1")
        assert (before, unrenewed, after) == (None, None, None) or (before == unrenewed and after > unrenewed)  # type: ignore[operator]
        assert store.held_until_ms("topics/a") is None and store.held_until_ms("absent") is None

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
        given(store.next_epoch())
        before = store.revision, store.epoch
        for _ in range(3):
            store = harness.reopen(store)
            assert (store.revision, store.epoch) == before

    def test_the_revision_can_be_raised(self, harness: Harness) -> None:
        store = harness.open()
        first = done(store.put("k/a", b"1"))
        watch = store.watch(store.revision)
        assert store.raise_revision(first + 1000) is None
        assert store.raise_revision(first) is None
        assert store.revision == first + 1000
        second = done(store.put("k/a", b"2", first))
        assert second > first + 1000 and last_values(drained(watch)) == {"k/a": b"2"}
        store = harness.reopen(store)
        assert store.revision == second

    def test_the_end_is_exact(self, harness: Harness, store: MetadataStore) -> None:
        session, other = harness.session(store), harness.session(store)
        harness.pass_ms(TIMEOUT_MS - 1, other)
        assert session.live and session.renew() is True
        harness.pass_ms(TIMEOUT_MS - 1, other)
        assert session.live
        harness.pass_ms(1, other)
        assert not session.live and other.live

    def test_a_renewal_changes_no_revision_and_wakes_nobody(self, harness: Harness, store: MetadataStore) -> None:
        beside = harness.beside(store)
        session, far = harness.session(store), harness.session(beside)
        done(session.register("brokers/1", b"here"))
        woken: list[str] = []
        store.look()
        watch, before, listed = (
            store.watch(store.revision, lambda: woken.append("now")),
            store.revision,
            store.list("k/"),
        )
        for _ in range(5):
            harness.pass_ms(TIMEOUT_MS // 3, session, far)
            store.look()
        assert woken == [] and drained(watch) == []
        assert (store.revision, beside.revision, store.list("k/")) == (before, before, listed)
        assert session.live and far.live

    def test_a_session_knows_when_it_was_confirmed(self, harness: Harness, store: MetadataStore) -> None:
        session = harness.session(store)
        first = session.confirmed_ms
        harness.pass_ms(100, session)
        assert session.confirmed_ms == first + 100
        with harness.away(store):
            harness.stand_still(100)
            assert isinstance(session.renew(), Away)
        assert session.confirmed_ms == first + 100
        assert session.renew() is True
        assert session.confirmed_ms == first + 200

    def test_the_shortest_session_sets_the_pace_of_all(self, store: MetadataStore) -> None:
        long, short = store.session(TIMEOUT_MS), store.session(TIMEOUT_MS // 2)
        assert not isinstance(long, Away) and not isinstance(short, Away)
        assert long.renew() is True
        assert long.pace_ms == short.pace_ms == TIMEOUT_MS // 6
        short.close()
        assert long.renew() is True
        assert long.pace_ms == TIMEOUT_MS // 3

    def test_a_key_keeps_its_session_when_its_value_changes(self, harness: Harness, store: MetadataStore) -> None:
        session = harness.session(store)
        held = done(session.register("brokers/1", b"here"))
        done(store.put("brokers/1", b"there", held))
        session.close()
        assert store.get("brokers/1") is None

    def test_a_key_of_an_ended_life_changes_hands(self, harness: Harness, store: MetadataStore) -> None:
        """A process that starts again does not wait for its former session to end."""
        beside = harness.beside(store)
        old, new = harness.session(beside), harness.session(store)
        held = done(old.register("live/1", b"first"))
        assert isinstance(new.register("live/1", b"second", expect=held + 1), Conflict)
        taken = done(new.register("live/1", b"second", expect=held))
        harness.pass_ms(TIMEOUT_MS, new)
        assert not old.live
        entry = store.get("live/1")
        assert entry is not None and (entry.value, entry.revision) == (b"second", taken)
        new.close()
        assert store.get("live/1") is None

    def test_a_registration_is_one_transaction_with_more(self, harness: Harness, store: MetadataStore) -> None:
        session, epoch = harness.session(store), Epoch(store.epoch + 1)
        also = [Put("brokers/1", b"epoch 1", ABSENT), NextEpoch(epoch)]
        revision = done(session.register("live/1", b"1", also=also))
        assert [entry.revision for entry in (*store.list("live/"), *store.list("brokers/"))] == [revision] * 2
        assert store.epoch == epoch
        assert isinstance(session.register("live/2", b"1", also=also), Conflict)
        assert store.get("live/2") is None and store.epoch == epoch
        session.close()
        assert store.get("live/1") is None and store.get("brokers/1") is not None

    # -- elections and epochs

    def test_one_candidate_wins_and_the_next_has_a_higher_epoch(self, harness: Harness, store: MetadataStore) -> None:
        mine, yours = harness.session(store), harness.session(harness.beside(store))
        first = won(mine.elect("controller", b"1"))
        assert isinstance(yours.elect("controller", b"2"), Conflict)
        entry = store.get(leader_key("controller"))
        assert entry is not None and (entry.value, entry.revision) == (b"1", first.revision)
        watch = store.watch(store.revision)
        mine.close()
        assert last_values(drained(watch)) == {leader_key("controller"): None}
        assert won(yours.elect("controller", b"2")).epoch > first.epoch

    def test_a_leader_that_lost_its_session_and_does_not_know_it_changes_nothing(
        self, harness: Harness, store: MetadataStore
    ) -> None:
        beside = harness.beside(store)
        zombie, other = harness.session(beside), harness.session(store)
        first = won(zombie.elect("controller", b"1"))
        fence = Check(first.key, first.revision)
        done(beside.transact([fence, Put("k/a", b"by one")]))
        harness.pass_ms(TIMEOUT_MS, other)
        assert beside.transact([fence, Put("k/a", b"late")]) == Conflict(first.key, first.revision, ABSENT)
        second = won(other.elect("controller", b"2"))
        assert beside.transact([fence, Put("k/a", b"late")]) == Conflict(first.key, first.revision, second.revision)
        done(store.transact([Check(second.key, second.revision), Put("k/b", b"by two")]))
        assert zombie.renew() is False
        assert isinstance(zombie.elect("controller", b"1"), Conflict)
        assert [entry.value for entry in store.list("k/")] == [b"by one", b"by two"]

    def test_a_key_made_again_is_another_one(self, harness: Harness, store: MetadataStore) -> None:
        """Revisions are those of the store, never of a key: no number comes back with the key."""
        beside = harness.beside(store)
        first = done(store.put("k/a", b"same"))
        done(beside.transact([Delete("k/a")]))
        second = done(beside.put("k/a", b"same", ABSENT))
        for op in (Check("k/a", first), Put("k/a", b"late", first), Delete("k/a", first)):
            assert store.transact([op, Put("k/b", b"late")]) == Conflict("k/a", first, second)
        assert store.get("k/b") is None

    def test_elections_of_different_names_do_not_meet(self, harness: Harness, store: MetadataStore) -> None:
        one, two = harness.session(store).elect("j-1", b"1"), harness.session(store).elect("j-2", b"1")
        assert won(one).epoch != won(two).epoch

    def test_epochs_grow_through_elections_and_restarts(self, harness: Harness) -> None:
        store = harness.open()
        epochs = [given(store.next_epoch())]
        epochs += [won(harness.session(store).elect("controller", b"1")).epoch, given(store.next_epoch())]
        store = harness.reopen(store)
        epochs += [given(store.next_epoch()), given(harness.beside(store).next_epoch()), given(store.next_epoch(1000))]
        assert epochs == sorted(set(epochs)) and epochs[-1] == store.epoch == 1001

    def test_an_epoch_is_given_once_also_within_a_transaction(self, harness: Harness, store: MetadataStore) -> None:
        beside = harness.beside(store)
        mine = Epoch(store.epoch + 1)
        done(store.transact([NextEpoch(mine), Put("j/1", b"1")]))
        assert beside.transact([NextEpoch(mine), Put("j/1", b"2")]) == Conflict(EPOCH, mine - 1, mine)
        assert beside.epoch == mine
        done(beside.transact([NextEpoch(Epoch(mine + 1)), Put("j/1", b"2")]))
        assert given(store.next_epoch()) == mine + 2

    # -- several processes

    def test_two_processes_watch_each_other(self, harness: Harness, store: MetadataStore) -> None:
        beside = harness.beside(store)
        woken: list[str] = []
        near, far = store.watch(store.revision, lambda: woken.append("now")), beside.watch(beside.revision)
        one, two = done(beside.put("k/a", b"1")), done(beside.put("k/a", b"2"))
        store.look()
        assert woken
        three = done(store.put("k/b", b"3"))
        seen = [drained(near), drained(far)]
        assert [last_values(changes) for changes in seen] == [{"k/a": b"2", "k/b": b"3"}] * 2
        assert all({change.revision for change in changes} <= {one, two, three} for changes in seen)
        count = len(woken)
        store.look()
        assert len(woken) == count and drained(near) == []

    def test_what_one_process_did_the_other_reads(self, harness: Harness, store: MetadataStore) -> None:
        beside = harness.beside(store)
        revision = done(store.put("k/a", b"1"))
        assert beside.revision == revision
        assert done(beside.put("k/a", b"2", revision)) == store.revision
        assert isinstance(store.put("k/a", b"3", revision), Conflict)

    def test_the_session_of_another_process_ends_for_all(self, harness: Harness, store: MetadataStore) -> None:
        beside = harness.beside(store)
        mine, far = harness.session(store), harness.session(beside)
        done(far.register("live/2", b"here"))
        watch = store.watch(store.revision)
        harness.pass_ms(TIMEOUT_MS, mine)
        assert last_values(drained(watch)) == {"live/2": None}
        assert beside.get("live/2") is None and far.renew() is False and mine.live

    # -- away

    def test_away_is_said_and_changes_nothing(self, harness: Harness, store: MetadataStore) -> None:
        session = harness.session(store)
        before = done(store.put("k/a", b"1"))
        woken: list[str] = []
        watch = store.watch(before, lambda: woken.append("now"))
        with harness.away(store):
            answers = [
                store.put("k/a", b"2"),
                store.transact([Delete("k/a"), Put("k/b", b"2")]),
                session.register("live/1", b"1"),
                session.elect("controller", b"1"),
                session.renew(),
                store.session(TIMEOUT_MS),
                store.next_epoch(),
                store.raise_revision(before + 100),
            ]
            for answer in answers:
                assert isinstance(answer, Away) and answer.reason
        assert (store.revision, store.epoch, woken, drained(watch)) == (before, 0, [], [])
        assert [entry.key for prefix in ("k/", "live/", "leaders/") for entry in store.list(prefix)] == ["k/a"]
        assert session.renew() is True
        assert done(store.put("k/a", b"2", before)) > before

    def test_time_away_ends_no_session(self, harness: Harness, store: MetadataStore) -> None:
        mine, far = harness.session(store), harness.session(harness.beside(store))
        done(far.register("live/2", b"here"))
        with harness.away(store):
            harness.stand_still(3 * TIMEOUT_MS)
            assert isinstance(mine.renew(), Away)
        assert mine.renew() is True and far.live
        harness.pass_ms(TIMEOUT_MS - 1, mine)
        assert far.live and store.get("live/2") is not None
        harness.pass_ms(1, mine)
        assert not far.live and store.get("live/2") is None

    def test_a_session_that_had_ended_does_not_come_back_with_the_store(
        self, harness: Harness, store: MetadataStore
    ) -> None:
        mine, gone = harness.session(store), harness.session(store)
        harness.pass_ms(TIMEOUT_MS, mine)
        with harness.away(store):
            harness.stand_still(TIMEOUT_MS)
        assert gone.renew() is False and mine.renew() is True

    # -- in doubt

    def test_a_change_in_doubt_that_was_made(self, harness: Harness, store: MetadataStore) -> None:
        with harness.in_doubt(store, made=True):
            doubt = doubtful(store.put("k/a", b"1", ABSENT))
        made = store.resolve(doubt)
        entry = store.get("k/a")
        assert entry is not None and made == Made(entry.revision, store.epoch)
        assert done(store.put("k/a", b"2", entry.revision)) > entry.revision
        assert store.resolve(doubt) == made

    def test_a_change_in_doubt_that_was_not_made(self, harness: Harness, store: MetadataStore) -> None:
        before = done(store.put("k/a", b"1"))
        with harness.in_doubt(store, made=False):
            doubt = doubtful(store.transact([Put("k/a", b"2", before), Put("k/b", b"2")]))
        assert isinstance(store.resolve(doubt), Away)
        assert store.revision == before and store.get("k/b") is None
        store = harness.reopen(store)
        assert [entry.value for entry in store.list("k/")] == [b"1"]

    @pytest.mark.parametrize("made", [True, False])
    def test_later_changes_do_not_hide_the_outcome(self, harness: Harness, store: MetadataStore, made: bool) -> None:
        with harness.in_doubt(store, made=made):
            first = doubtful(store.put("k/first", b"1"))
        with harness.in_doubt(store, made=not made):
            second = doubtful(store.put("k/second", b"1"))
        for number in range(3):
            done(harness.beside(store).put("k/a", b"%d" % number))
            done(store.put("k/b", b"%d" % number))
        for doubt, key, there in ((first, "k/first", made), (second, "k/second", not made)):
            entry, outcome = store.get(key), store.resolve(doubt)
            if there:
                assert entry is not None and outcome == Made(entry.revision, store.epoch)
            else:
                assert entry is None and isinstance(outcome, Away)

    def test_the_doubt_lasts_while_the_store_is_away(self, harness: Harness, store: MetadataStore) -> None:
        with harness.in_doubt(store, made=True):
            doubt = doubtful(store.put("k/a", b"1"))
        with harness.away(store):
            assert store.resolve(doubt) == doubt
        assert isinstance(store.resolve(doubt), Made)

    def test_an_election_in_doubt(self, harness: Harness, store: MetadataStore) -> None:
        session = harness.session(store)
        with harness.in_doubt(store, made=True):
            doubt = doubtful(session.elect("controller", b"1"))
        made = store.resolve(doubt)
        assert isinstance(made, Made)
        assert made.epoch == store.epoch
        done(store.transact([Check(leader_key("controller"), made.revision), Put("k/a", b"1")]))

    def test_a_refusal_whose_response_is_lost_is_no_change(self, harness: Harness, store: MetadataStore) -> None:
        held = done(store.put("k/a", b"1"))
        with harness.in_doubt(store, made=True):
            answer = store.put("k/a", b"2", ABSENT)
        assert isinstance(store.resolve(answer) if isinstance(answer, InDoubt) else answer, Conflict | Away)
        entry = store.get("k/a")
        assert entry is not None and entry.revision == held

    def test_a_renewal_in_doubt_harms_nobody(self, harness: Harness, store: MetadataStore) -> None:
        session = harness.session(store)
        with harness.in_doubt(store, made=True):
            assert isinstance(session.renew(), Away)
            assert isinstance(store.session(TIMEOUT_MS), Away)
            assert isinstance(store.next_epoch(), Away)
        assert session.renew() is True
