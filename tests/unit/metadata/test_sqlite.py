"""SQLite passes the conformance suite, embedded and shared; beyond it: damage is found, kills and stops harm nobody."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random

import pytest

from cairnmq.metadata.sqlite import SqliteStore
from cairnmq.metadata.store import Away, Delete, MetadataStore, Put, Session
from unit.metadata.conformance import TIMEOUT_MS, StoredSessionConformance, done, given
from unit.metadata.lost_response import lost_response
from unit.metadata.second_process import WAIT_MS, FileClock, SecondProcess, SecondStore

FIRST_MS = 1_000_000


class EmbeddedHarness:
    shared = False

    def __init__(self, directory: Path) -> None:
        self._path = str(directory / "meta.db")
        self._clock_path = directory / "clock"
        self._clock = FileClock(self._clock_path)
        self._clock.set(FIRST_MS)
        self._boot = 1
        self._store: SqliteStore | None = None
        self._keeper: Session | None = None

    def open(self) -> SqliteStore:
        self._store = SqliteStore(self._path, shared=self.shared, wait_ms=WAIT_MS, clock=self._clock, boot=self._boot)
        self._keeper = None
        return self._store

    def reopen(self, store: MetadataStore) -> SqliteStore:
        """A killed process: nothing is closed in order, the lock alone goes. With it the machine, if others have the
        file too: else their sessions go on."""
        image = f"{self._path}.image"
        for suffix in ("", "-wal"):
            if os.path.exists(self._path + suffix):
                shutil.copyfile(self._path + suffix, image + suffix)
        store.close()
        self._path = image
        self._boot += self.shared
        return self.open()

    def beside(self, store: MetadataStore) -> MetadataStore:
        return store

    def session(self, store: MetadataStore) -> Session:
        session = store.session(TIMEOUT_MS)
        assert not isinstance(session, Away)
        return session

    def look(self, store: MetadataStore) -> None:
        store.look()

    def pass_ms(self, ms: int, *renewed: Session) -> None:
        if self._keeper is None:
            assert self._store is not None
            self._keeper = self.session(self._store)
        until = self._clock() + ms
        while self._clock() < until:
            self._clock.set(min(until, self._clock() + TIMEOUT_MS // 3))
            for session in (self._keeper, *renewed):
                assert session.renew() is True

    def stand_still(self, ms: int) -> None:
        self._clock.set(self._clock() + ms)

    @contextmanager
    def away(self, store: MetadataStore) -> Iterator[None]:
        os.rename(self._path, self._path + ".elsewhere")
        yield
        os.rename(self._path + ".elsewhere", self._path)

    @contextmanager
    def in_doubt(self, store: MetadataStore, *, made: bool) -> Iterator[None]:
        assert isinstance(store, SqliteStore)
        with lost_response(store, made=made):
            yield

    def close(self) -> None:
        if self._store is not None:
            self._store.close()


class SharedHarness(EmbeddedHarness):
    """`beside` is a store in another process."""

    shared = True

    def __init__(self, directory: Path, second: SecondProcess) -> None:
        super().__init__(directory)
        self._second = second
        self._opened: list[SecondStore] = []

    def beside(self, store: MetadataStore) -> SecondStore:
        self._opened.append(self._second.open(self._path, self._clock_path, self._boot))
        return self._opened[-1]

    @contextmanager
    def away(self, store: MetadataStore) -> Iterator[None]:
        holder = self.beside(store)
        holder.hold_lock()
        yield
        holder.let_go()

    def close(self) -> None:
        super().close()
        for store in self._opened:
            store.close()


@pytest.fixture(scope="module")
def second() -> Iterator[SecondProcess]:
    with closing(SecondProcess()) as process:
        yield process


class TestEmbedded(StoredSessionConformance):
    """The suite on a file that one process has."""

    @pytest.fixture
    def harness(self, tmp_path: Path) -> Iterator[EmbeddedHarness]:
        with closing(EmbeddedHarness(tmp_path)) as harness:
            yield harness


class TestShared(StoredSessionConformance):
    """The suite on a file that two processes have."""

    @pytest.fixture
    def harness(self, tmp_path: Path, second: SecondProcess) -> Iterator[SharedHarness]:
        with closing(SharedHarness(tmp_path, second)) as harness:
            yield harness


def test_every_prefix_of_the_wal_is_a_past_state(tmp_path: Path) -> None:
    """Power may fail while a commit is on its way to the disk: what opens then is the state after some commit."""
    path = tmp_path / "meta.db"
    store = SqliteStore(str(path))
    states = {store.revision: store.list("k/")}
    for number in range(12):
        ops = [Put(f"k/{number}", b"x" * number), Put("k/last", str(number).encode())]
        done(store.transact([*ops, Delete(f"k/{number - 3}")]))
        states[store.revision] = store.list("k/")
    database, wal = path.read_bytes(), Path(f"{path}-wal").read_bytes()
    store.close()
    seen = set()
    for size in range(0, len(wal) + 1, 1031):
        crashed = tmp_path / f"cut-{size}.db"
        crashed.write_bytes(database)
        Path(f"{crashed}-wal").write_bytes(wal[:size])
        again = SqliteStore(str(crashed))
        assert again.list("k/") == states[again.revision]
        seen.add(again.revision)
        again.close()
    assert len(seen) > 6


def test_kill_9_loses_no_commit(tmp_path: Path) -> None:
    """The child names each revision after its commit returned; all that were named must be there."""
    path = tmp_path / "meta.db"
    child = subprocess.Popen([sys.executable, "-c", _CHILD, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    for line in child.stdout:
        if int(line) >= 200:
            child.send_signal(signal.SIGKILL)
            break
    rest = child.stdout.read().split()
    assert child.wait() == -signal.SIGKILL
    child.stdout.close()
    told = max([200, *(int(number) for number in rest)])
    store = SqliteStore(str(path))
    assert len(store.list("k/")) >= told
    assert store.revision >= told
    assert given(store.next_epoch()) > told
    store.close()


_CHILD = """
import sys
from cairnmq.metadata.sqlite import SqliteStore
store = SqliteStore(sys.argv[1])
number = 0
while True:
    number += 1
    store.put(f"k/{number}", b"value")
    store.next_epoch()
    print(number, flush=True)
"""


def test_a_process_stopped_inside_a_transaction_makes_the_store_away_and_no_more(
    tmp_path: Path, second: SecondProcess
) -> None:
    clock = FileClock(tmp_path / "clock")
    clock.set(FIRST_MS)
    path = str(tmp_path / "meta.db")
    with closing(SqliteStore(path, shared=True, wait_ms=WAIT_MS, clock=clock, boot=1)) as store:
        stopped = second.open(path, tmp_path / "clock", 1)
        mine, far, silent = store.session(TIMEOUT_MS), stopped.session(TIMEOUT_MS), store.session(TIMEOUT_MS)
        assert not isinstance(mine, Away) and not isinstance(far, Away) and not isinstance(silent, Away)
        before = done(far.register("live/2", b"here"))
        watch = store.watch(before)
        stopped.stop_inside()
        for _ in range(4):
            clock.set(clock() + TIMEOUT_MS)
            assert isinstance(mine.renew(), Away)
            assert isinstance(store.put("k/a", b"1"), Away)
            store.look()
            assert (store.revision, watch.poll()) == (before, [])
            assert store.get("live/2") is not None and mine.live and silent.live
        stopped.process.go_on()
        assert stopped.finish() == 0
        assert far.renew() is True and mine.renew() is True
        for step in range(5):
            clock.set(clock() + TIMEOUT_MS // 6)
            assert mine.renew() is True and silent.live, step
        assert far.live and store.revision == before
        clock.set(clock() + TIMEOUT_MS // 6)
        assert mine.renew() is True and not silent.live, "its whole time has passed since"
        stopped.close()


_WRITER = """
import os, sys
from cairnmq.metadata.sqlite import SqliteStore
from cairnmq.metadata.store import Delete, Put
store = SqliteStore(sys.argv[1], shared=True, history=64, wait_ms=60_000)
me = sys.argv[2]
session = store.session(60_000)
print("ready", flush=True)
number = 0
while True:
    number += 1
    revision = store.transact([Put(f"k/{me}", b"%d" % number), Put(f"n/{me}-{number % 8}", os.urandom(50))])
    assert isinstance(revision, int), revision
    print(number, flush=True)
    session.renew()
    session.register(f"live/{me}-{number}", b"")
    store.transact([Delete(f"live/{me}-{number}")])
"""
KILLS = 12


def test_kill_9_of_writers_leaves_the_others_working(tmp_path: Path) -> None:
    """At any point of any of them, and stopped a moment before: what a writer was told stays, what others write is
    written, the file is whole."""
    path, random = tmp_path / "meta.db", Random(7)
    told: dict[str, int] = {}
    with (
        closing(SqliteStore(str(path), shared=True, wait_ms=60_000)) as store,
        closing(SqliteStore(str(path), shared=True, wait_ms=20)) as impatient,
    ):
        for kill in range(KILLS):
            names = [f"{kill}-a", f"{kill}-b"]
            writers = [
                subprocess.Popen([sys.executable, "-c", _WRITER, str(path), name], stdout=subprocess.PIPE, text=True)
                for name in names
            ]
            for writer in writers:
                assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
            time.sleep(random.random() / 5)
            writers[0].send_signal(signal.SIGSTOP)
            assert isinstance(impatient.put("k/impatient", b"%d" % kill), int | Away)
            writers[0].send_signal(signal.SIGCONT)
            for writer in writers:
                writer.kill()
                done(store.put("k/mine", b"%d" % kill))
            for name, writer in zip(names, writers, strict=True):
                output, _ = writer.communicate()
                told[name] = max((int(line) for line in output.split()), default=0)
            with closing(SqliteStore(str(path), shared=True, wait_ms=60_000)) as opened:
                assert opened.revision == store.revision
        for name, number in told.items():
            entry = store.get(f"k/{name}")
            assert (int(entry.value) if entry is not None else 0) in (number, number + 1)
    assert sum(told.values()) > KILLS
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    SqliteStore(str(path)).close()


def test_a_process_that_writes_all_the_time_keeps_nobody_out(tmp_path: Path) -> None:
    """Topics made in a loop on one broker must not take the others' sessions from them."""
    path = tmp_path / "meta.db"
    writers = [
        subprocess.Popen([sys.executable, "-c", _WRITER, str(path), name], stdout=subprocess.PIPE, text=True)
        for name in ("a", "b")
    ]
    try:
        for writer in writers:
            assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
        with closing(SqliteStore(str(path), shared=True, wait_ms=5_000)) as store:
            for number in range(50):
                done(store.put("k/mine", b"%d" % number))
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()


def test_it_opens_while_others_write(tmp_path: Path) -> None:
    """Rows and the sum over them are read as of one moment."""
    path = tmp_path / "meta.db"
    SqliteStore(str(path)).close()
    writer = subprocess.Popen([sys.executable, "-c", _WRITER, str(path), "w"], stdout=subprocess.PIPE, text=True)
    try:
        assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
        seen = set()
        for _ in range(60):
            with closing(SqliteStore(str(path), shared=True, wait_ms=60_000)) as store:
                seen.add(store.revision)
        assert len(seen) > 10
    finally:
        writer.kill()
        writer.communicate()
