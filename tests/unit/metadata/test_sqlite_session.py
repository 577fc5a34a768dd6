"""Sessions as rows: they outlive the process that made them until their time has passed, and no boot of the machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from cairnmq.errors import Corrupt
from cairnmq.metadata.sqlite import SqliteStore
from cairnmq.metadata.sqlite_session import SqliteSession
from cairnmq.metadata.store import Away
from unit.metadata.conformance import done


class Machine:
    """A clock, a boot, and processes that have one file."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self.now_ms = 1000
        self.boot = 1
        self._path = str(path)
        self._stack = stack

    def open(self, *, shared: bool = True) -> SqliteStore:
        store = SqliteStore(self._path, shared=shared, clock=lambda: self.now_ms, boot=self.boot)
        return self._stack.enter_context(closing(store))


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with ExitStack() as stack:
        yield Machine(tmp_path / "meta.db", stack)


def session_of(store: SqliteStore, timeout_ms: int = 100) -> SqliteSession:
    session = store.session(timeout_ms)
    assert not isinstance(session, Away)
    return session


def killed(store: SqliteStore) -> None:
    store._file.close()
    store._own.clear()


def test_a_late_renewal_is_too_late_if_somebody_wrote(machine: Machine) -> None:
    """A paused process that wakes must not go on as if nothing had happened."""
    paused, other = machine.open(), machine.open()
    session = session_of(paused)
    done(session.register("brokers/1", b"here"))
    for machine.now_ms in (1040, 1080, 1099, 1100):
        done(other.put("k/a", b"%d" % machine.now_ms))
    assert session.renew() is False and not session.live
    assert other.get("brokers/1") is None


def test_a_late_renewal_counts_if_nobody_did(machine: Machine) -> None:
    """The store may have been away for all of that time; nobody can have taken anything over."""
    store = machine.open()
    session = session_of(store)
    machine.now_ms += 1_000_000
    assert session.renew() is True and session.live


@pytest.mark.parametrize(("silence_ms", "live"), [(50, False), (51, True)])
def test_half_of_its_time_without_a_write_gives_all_of_it_again(machine: Machine, silence_ms: int, live: bool) -> None:
    store = machine.open()
    session = session_of(store)
    machine.now_ms += 50
    done(store.put("k/a", b"1"))
    machine.now_ms += silence_ms
    done(store.put("k/a", b"2"))
    assert session.live is live


def test_closing_the_store_ends_its_sessions(machine: Machine) -> None:
    store, other = machine.open(), machine.open()
    session = session_of(store)
    done(session.register("brokers/1", b"here"))
    store.close()
    assert not session.live
    assert other.get("brokers/1") is None


def test_the_session_of_a_killed_process_goes_on_until_its_time_has_passed(machine: Machine) -> None:
    store, other = machine.open(), machine.open()
    done(session_of(store).register("brokers/1", b"here"))
    killed(store)
    again = machine.open()
    assert again.get("brokers/1") is not None
    for machine.now_ms in (1040, 1080):
        done(other.put("k/a", b"1"))
        assert again.get("brokers/1") is not None
    machine.now_ms = 1100
    done(other.put("k/a", b"2"))
    assert again.get("brokers/1") is None


def test_no_session_outlives_the_machine(machine: Machine) -> None:
    """The clock begins anew with a boot, so deadlines of before mean nothing."""
    store = machine.open()
    held = done(session_of(store).register("brokers/1", b"here"))
    killed(store)
    machine.now_ms, machine.boot = 5, 2
    first, second = machine.open(), machine.open()
    assert first.revision == held
    assert first.get("brokers/1") is None and second.list("brokers/") == []
    done(session_of(first).register("brokers/1", b"first"))
    third = machine.open()
    assert third.get("brokers/1") is not None, "it opens the file after the first one of this boot has written"


def test_a_system_without_boot_numbers_goes_by_the_clock(machine: Machine) -> None:
    machine.boot = 0
    store = machine.open()
    done(session_of(store).register("brokers/1", b"here"))
    killed(store)
    machine.now_ms += 10
    store = machine.open()
    assert store.get("brokers/1") is not None
    done(store.put("k/a", b"1"))
    killed(store)
    machine.now_ms = 5
    assert machine.open().get("brokers/1") is None


def test_a_session_has_a_number_that_none_had(machine: Machine) -> None:
    """Or a process that was paused would renew another one's."""
    paused, other = machine.open(), machine.open()
    old = session_of(paused)
    for machine.now_ms in (1040, 1080, 1120):
        done(other.put("k/a", b"%d" % machine.now_ms))
    session_of(other)
    assert old.renew() is False


def test_a_damaged_row_is_found(machine: Machine) -> None:
    store = machine.open()
    session_of(store)
    store._file._db.execute("UPDATE sessions SET deadline = deadline + 1")
    with pytest.raises(Corrupt, match="session 1"):
        store.put("k/a", b"1")
    with pytest.raises(Corrupt, match="session 1"):
        machine.open()
    store._own.clear()
