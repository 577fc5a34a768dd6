"""Those who use transactions while the broker is attacked: every step of theirs goes into a history."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from random import Random

from crash.ledger import Place
from history.events import Event, History, Result, Seen, Send, Transaction
from interop.clients.contract import Refused
from interop.clients.transactors import CommittedReader, Read, Transactor

FENCED = 90
FAILURES = (Refused, AssertionError, OSError, ValueError)
"""What a step may end with: the broker says no or is away, the client's process is dead or its pipe is closed."""
TIMEOUT_MS = 20_000
PAUSE_SECONDS = 0.05


class RecordedProducer:
    """A transactional producer of a client, initialized when made."""

    def __init__(self, history: History, transactor: Transactor, name: str, transactional_id: str) -> None:
        self.history = history
        self.session = history.open(name, transactional_id)
        self.transaction: Transaction | None = None
        self.transactions = 0
        self.superseded = False
        """A later one was initialized: that this one is refused is certain from now on, and no answer to an old try."""
        with self.told([self.session]):
            self.producer = transactor.producer(transactional_id, TIMEOUT_MS)

    @contextmanager
    def told(self, events: Iterable[Event]) -> Iterator[None]:
        result = Result.UNKNOWN
        try:
            yield
            result = Result.ACKED
        except Refused as refusal:
            if self.superseded and refusal.code == FENCED:
                result = Result.FAILED
            raise
        finally:
            for event in events:
                if event.answered is None:
                    self.history.answer(event, result)

    def begin(self) -> str:
        """The transaction's name."""
        self.transactions += 1
        self.transaction = self.history.begin(f"{self.session.name}-{self.transactions}", self.session)
        return self.transaction.name

    def send(self, place: Place, *values: str) -> None:
        sends: list[Send] = [self.history.send(self.session.name, place, each, self.transaction) for each in values]
        with self.told(sends):
            offsets = self.producer.send(*place, *values)
            for send, offset in zip(sends, offsets, strict=True):
                self.history.answer(send, Result.ACKED, offset)

    def commit_offsets(self, group: str, reader: CommittedReader, ends: Mapping[int, int]) -> None:
        places = {Place(reader.topic, partition): end for partition, end in ends.items()}
        commits = [self.history.commit(group, place, end, self.transaction) for place, end in places.items()]
        with self.told(commits):
            self.producer.commit_offsets(reader, ends)

    def end(self, *, commit: bool) -> None:
        assert self.transaction is not None
        transaction, self.transaction = self.transaction, None
        with self.told([self.history.end(transaction, commit=commit)]):
            self.producer.end(commit=commit)

    def close(self) -> None:
        try:
            self.producer.close()
        except FAILURES:
            return  # it is dead already


class Actor:
    """Works in turns, in a client's process of its own that may be killed, with one transactional id, until stopped."""

    def __init__(self, name: str, client: str, bootstrap: str, history: History, rng: Random) -> None:
        self.name = name
        self.client = client
        self.bootstrap = bootstrap
        self.history = history
        self.rng = rng
        self.transactor = Transactor(client, bootstrap, own=True)
        self.producer: RecordedProducer | None = None
        self.sessions = 0
        self.done = 0
        """Transactions that ended as they were meant to."""
        self.zombies = 0
        self.failures = 0
        self.problem: BaseException | None = None
        self.going = threading.Event()
        self.stopping = threading.Event()
        self.abandoned = threading.Event()
        self.zombie_due = threading.Event()
        self.turn_lock = threading.Lock()
        self.thread = threading.Thread(target=self.run, name=name, daemon=True)

    def start(self) -> None:
        self.going.set()
        self.thread.start()

    def run(self) -> None:
        while not self.stopping.is_set():
            if not self.going.wait(PAUSE_SECONDS):
                continue
            with self.turn_lock:
                if self.going.is_set():
                    self.turn()

    def turn(self) -> None:
        """Whatever fails, its transaction is decided when the turn is over: a successor has been initialized."""
        try:
            if self.zombie_due.is_set():
                self.zombie_due.clear()
                self.be_fenced()
            else:
                self.work(self.live())
            return
        except FAILURES as problem:
            self.failed(problem)
        while not self.abandoned.is_set():
            try:
                self.live()
                return
            except FAILURES as problem:
                self.failed(problem)
                time.sleep(PAUSE_SECONDS)

    def failed(self, problem: BaseException) -> None:
        self.problem = problem
        self.failures += 1
        if self.producer is not None:
            self.producer.close()
            self.producer = None

    def live(self) -> RecordedProducer:
        """The producer, made anew if the last one failed."""
        if self.producer is None:
            if self.transactor.process.process.poll() is not None:
                self.transactor.process.kill()
                self.transactor = Transactor(self.client, self.bootstrap, own=True)
            self.producer = self.open()
            self.reopened()
        return self.producer

    def open(self) -> RecordedProducer:
        self.sessions += 1
        return RecordedProducer(self.history, self.transactor, f"{self.name}.{self.sessions}", self.name)

    def be_fenced(self) -> None:
        """The producer goes on after its successor has come, sometimes in a transaction that it had begun before."""
        zombie = self.live()
        if self.rng.random() < 0.5:
            zombie.begin()
            self.scribble(zombie)
        self.producer = self.open()
        zombie.superseded = True
        for step in (self.scribble, lambda producer: producer.end(commit=True)):
            if zombie.transaction is None:
                zombie.begin()
            try:
                step(zombie)
            except FAILURES:
                continue  # as it should be; the history tells
        zombie.close()
        self.zombies += 1
        self.reopened()

    def crash(self) -> None:
        """kill -9 of its process, from another thread, at any moment."""
        self.transactor.process.kill()

    def work(self, producer: RecordedProducer) -> None:
        """One transaction."""
        raise NotImplementedError

    def scribble(self, producer: RecordedProducer) -> None:
        """Records into an open transaction that will not be committed."""
        raise NotImplementedError

    def reopened(self) -> None:
        """There is a new producer, perhaps in a new process."""

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Between two turns, and no other begins."""
        self.going.clear()
        with self.turn_lock:
            yield
        self.going.set()

    def finish(self) -> None:
        """The last turn ends as any other."""
        self.stopping.set()
        self.thread.join()

    def close(self) -> None:
        self.abandoned.set()
        self.stopping.set()
        self.transactor.process.kill()
        if self.thread.is_alive():
            self.thread.join()
        self.transactor.process.kill()  # perhaps a new one


class Follower:
    """Reads all committed records of a topic as they come, through everything."""

    def __init__(self, client: str, bootstrap: str, topic: str, history: History) -> None:
        self.topic = topic
        self.history = history
        self.transactor = Transactor(client, bootstrap, own=True)
        self.reader = self.transactor.reader(topic)
        self.reached: dict[int, int] = {}
        self.stopping = threading.Event()
        self.problem: BaseException | None = None
        self.thread = threading.Thread(target=self.run, name=f"follower of {topic}", daemon=True)
        self.thread.start()

    def run(self) -> None:
        while not self.stopping.is_set():
            asked = self.history.now()
            try:
                records = self.reader.poll()
            except FAILURES as problem:
                self.problem = problem  # a client may say that the broker is away; it goes on where it was
                time.sleep(PAUSE_SECONDS)
                continue
            for place, seen in by_place(self.topic, records).items():
                self.history.read(asked, place, seen, committed=True, reader=self.thread.name)
                self.reached[place.partition] = seen[-1].offset

    def close(self) -> None:
        self.stopping.set()
        self.transactor.process.kill()
        self.thread.join()


def by_place(topic: str, records: Iterable[Read]) -> dict[Place, list[Seen]]:
    places: dict[Place, list[Seen]] = defaultdict(list)
    for record in records:
        places[Place(topic, record.partition)].append(Seen(record.offset, record.value))
    return places
