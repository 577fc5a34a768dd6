"""A second process with the same metadata: every call goes through a pipe, and its outcome comes back."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cairnmq import errors
from cairnmq.metadata.sqlite import SqliteStore
from cairnmq.metadata.store import (
    ABSENT,
    Away,
    Change,
    Compacted,
    Conflict,
    Entry,
    InDoubt,
    Leadership,
    Made,
    MetadataStore,
    NextEpoch,
    Op,
)
from cairnmq.types import Epoch

WAIT_MS = 100


class FileClock:
    """A clock that several processes read, and a test sets."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self) -> int:
        return int(self._path.read_text())

    def set(self, ms: int) -> None:
        fresh = self._path.with_suffix(".new")
        fresh.write_text(str(ms))
        fresh.rename(self._path)


class SecondProcess:
    """Lives for a module of tests, and opens a store for each."""

    def __init__(self) -> None:
        self._child = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def open(self, path: str, clock: Path, boot: int) -> SecondStore:
        return SecondStore(self, self.ask(0, "open", path, str(clock), boot))

    def open_zookeeper(self, address: str, wait_ms: int) -> SecondStore:
        return SecondStore(self, self.ask(0, "open_zookeeper", address, wait_ms))

    def ask(self, number: int, name: str, *values: object, **named: object) -> Any:
        self.tell(number, name, *values, **named)
        return self.hear()

    def tell(self, number: int, name: str, *values: object, **named: object) -> None:
        assert self._child.stdin is not None
        pickle.dump((number, name, values, named), self._child.stdin)
        self._child.stdin.flush()

    def hear(self) -> Any:
        assert self._child.stdout is not None
        failed, answer = pickle.load(self._child.stdout)
        if failed:
            raise getattr(errors, failed, AssertionError)(answer)
        return answer

    def pause(self) -> None:
        self._child.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._child.send_signal(signal.SIGCONT)

    def wait_until_stopped(self) -> None:
        _, status = os.waitpid(self._child.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)

    def close(self) -> None:
        self._child.kill()
        self._child.communicate()


class SecondStore:
    """A MetadataStore, but for waking: the process that opened it has nobody to wake."""

    def __init__(self, process: SecondProcess, number: int) -> None:
        self.process = process
        self.number = number

    @property
    def revision(self) -> int:
        return int(self._ask("revision"))

    @property
    def epoch(self) -> Epoch:
        return Epoch(self._ask("epoch"))

    def get(self, key: str) -> Entry | None:
        return self._ask("get", key)

    def list(self, prefix: str) -> list[Entry]:
        return self._ask("list", prefix)

    def put(self, key: str, value: bytes, expect: int | None = None) -> int | Conflict | Away | InDoubt:
        return self._ask("put", key, value, expect)

    def transact(self, ops: Sequence[Op | NextEpoch]) -> int | Conflict | Away | InDoubt:
        return self._ask("transact", ops)

    def resolve(self, doubt: InDoubt) -> Made | Away | InDoubt:
        return self._ask("resolve", doubt)

    def watch(self, from_revision: int, wake: Callable[[], None] | None = None) -> SecondWatch:
        assert wake is None
        return SecondWatch(self, self._ask("watch", from_revision))

    def look(self) -> None:
        self._ask("look")

    def session(self, timeout_ms: int) -> SecondSession | Away:
        answer = self._ask("session", timeout_ms)
        return answer if isinstance(answer, Away) else SecondSession(self, answer)

    def next_epoch(self, above: int = 0) -> Epoch | Away:
        return self._ask("next_epoch", above)

    def raise_revision(self, revision: int) -> Away | None:
        return self._ask("raise_revision", revision)

    def hold_lock(self) -> None:
        """Begin a transaction, and stay in it."""
        self._ask("hold_lock")

    def let_go(self) -> None:
        self._ask("let_go")

    def stop_inside(self) -> None:
        """SIGSTOP in the middle of a transaction; `finish` when it was told to go on."""
        self.process.tell(self.number, "stop_inside")
        self.process.wait_until_stopped()

    def finish(self) -> Any:
        return self.process.hear()

    def close(self) -> None:
        self._ask("close")

    def _ask(self, name: str, *values: object) -> Any:
        return self.process.ask(self.number, name, *values)


class SecondSession:
    def __init__(self, store: SecondStore, number: int) -> None:
        self._store = store
        self._number = number

    @property
    def live(self) -> bool:
        return bool(self._ask("live"))

    @property
    def confirmed_ms(self) -> int:
        return int(self._ask("confirmed_ms"))

    @property
    def pace_ms(self) -> int:
        return int(self._ask("pace_ms"))

    def renew(self) -> bool | Away:
        return self._ask("renew")

    def register(
        self, key: str, value: bytes, *, expect: int = ABSENT, also: Sequence[Op | NextEpoch] = ()
    ) -> int | Conflict | Away | InDoubt:
        return self._ask("register", key, value, expect=expect, also=also)

    def elect(self, name: str, value: bytes) -> Leadership | Conflict | Away | InDoubt:
        return self._ask("elect", name, value)

    def close(self) -> None:
        self._ask("close")

    def _ask(self, name: str, *values: object, **named: object) -> Any:
        return self._store.process.ask(self._number, name, *values, **named)


class SecondWatch:
    def __init__(self, store: SecondStore, number: int) -> None:
        self._store = store
        self._number = number

    def poll(self) -> list[Change] | Compacted:
        return self._store.process.ask(self._number, "poll")

    def close(self) -> None:
        self._store.process.ask(self._number, "close")


def stop_inside(store: SqliteStore) -> int | Conflict | Away | InDoubt:
    """As `put`, by a process that is stopped when everything is written and nothing is committed."""

    def work() -> int:
        store._file.run("UPDATE entries SET session = session")
        os.kill(os.getpid(), signal.SIGSTOP)
        return 0

    return store._write(work)


def open_zookeeper(address: str, wait_ms: int) -> MetadataStore:
    from cairnmq.metadata.zookeeper import ZookeeperStore
    from cairnmq.metadata.zookeeper_address import parse_zookeeper

    return ZookeeperStore(parse_zookeeper(address), wait_ms=wait_ms)


def serve() -> None:
    held: list[Any] = [None]
    while True:
        try:
            number, name, values, named = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        failed, answer = "", None
        try:
            thing = held[number]
            if name == "open":
                path, clock, boot = values
                answer = SqliteStore(path, shared=True, wait_ms=WAIT_MS, clock=FileClock(Path(clock)), boot=boot)
            elif name == "open_zookeeper":
                answer = open_zookeeper(*values)
            elif name == "hold_lock":
                thing._file._db.execute("BEGIN IMMEDIATE")
            elif name == "let_go":
                thing._file._db.execute("ROLLBACK")
            elif name == "stop_inside":
                answer = stop_inside(thing)
            else:
                answer = getattr(thing, name)
                answer = answer(*values, **named) if callable(answer) else answer
            if any(hasattr(answer, method) for method in ("transact", "renew", "poll")):
                held.append(answer)
                answer = len(held) - 1
        except Exception as error:  # noqa: BLE001 - the test is to see it
            failed, answer = type(error).__name__, str(error)
        pickle.dump((failed, answer), sys.stdout.buffer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    serve()
