"""Transactions of real clients under kills and pauses of the broker, judged by the history checker (tests/history)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from random import Random

from confluent_kafka import KafkaError, Message, Producer

from broker_process import Broker, fixed_port, wait_until
from chaos.actors import Actor, Follower, by_place
from chaos.attacker import Attacker
from chaos.power_cuts import settings
from chaos.world import MODELS, Broken, verify
from conftest import QUICK_GROUPS
from crash.ledger import Place
from crash.load import RETRY
from history.checker import findings
from history.events import History, Result, Seen, Send
from interop.clients.librdkafka import LibrdkafkaClient

CLIENTS = ("librdkafka", "aiokafka", "java")
ROUNDS = 12
JUDGED_EVERY = 2
PARTITIONS = 4
GOES_ON_SECONDS = 120.0  # only a failure uses it up
SETTINGS = {**QUICK_GROUPS, "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
FINDINGS_SHOWN = 20


class Play:
    """What is attacked, the actors on it, and what they did and saw."""

    def __init__(self, kind: str, bootstrap: str, rng: Random, tally: Counter[str]) -> None:
        self.kind = kind
        self.bootstrap = bootstrap
        self.rng = rng
        self.tally = tally
        self.admin = LibrdkafkaClient(self.bootstrap)
        self.producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True, **RETRY})
        self.history = History()
        self.actors: list[Actor] = []
        self.casts: list[Sequence[Actor]] = []
        """Actors that stand for one another: it is enough if one of them gets on."""
        self.follower: Follower | None = None
        self.topics: list[str] = []
        self.rounds = 0
        self.snapshots = 0
        self.plain = 0

    def served(self) -> AbstractContextManager[None]:
        """It runs; afterwards it stops cleanly, and what is on its disks is verified."""
        raise NotImplementedError

    def attack(self) -> None:
        """Runs again when this returns."""
        raise NotImplementedError

    @contextmanager
    def played(self) -> Iterator[None]:
        with self.served():
            try:
                yield
            finally:
                for each in (*self.actors, self.follower):
                    if each is not None:
                        each.close()

    def make_topic(self, name: str) -> None:
        self.admin.create_topic(name, PARTITIONS, {"cairn.model": self.rng.choice(MODELS)})
        self.topics.append(name)

    def places(self, topic: str) -> list[Place]:
        return [Place(topic, partition) for partition in range(PARTITIONS)]

    def begin(self, follower: Follower, *casts: Sequence[Actor]) -> None:
        self.follower = follower
        self.casts = [*casts]
        self.actors = [actor for cast in casts for actor in cast]
        for actor in self.actors:
            actor.start()

    def send_plain(self, records: Iterable[tuple[Place, str]]) -> None:
        """Without a transaction; while the broker runs."""
        for place, value in records:
            self.plain += 1
            told = partial(self.sent_plain, self.history.send("plain", place, value))
            self.producer.produce(place.topic, value.encode(), partition=place.partition, on_delivery=told)
        if self.producer.flush(GOES_ON_SECONDS):
            raise Broken("plain records were not acknowledged in time")

    def sent_plain(self, send: Send, error: KafkaError | None, message: Message) -> None:
        self.history.answer(send, Result.UNKNOWN if error else Result.ACKED, None if error else message.offset())

    # What happens

    def round(self) -> None:
        """One attack on a broker, just after one on a producer."""
        time.sleep(self.rng.uniform(0.0, 0.6))
        victim = self.rng.choice(self.actors)
        self.rounds += 1
        if self.rounds % 2:
            victim.zombie_due.set()
        else:
            victim.crash()
            self.tally["producers killed (kill -9)"] += 1
        time.sleep(self.rng.choice((0.0, 0.02, 0.2)))
        before = self.tally["kill -9"] + self.tally["SIGSTOP"]
        self.attack()
        struck = self.tally["kill -9"] + self.tally["SIGSTOP"] - before
        self.tally["kills and pauses of the broker under transactions"] += struck
        self.tally[f"kills and pauses of the broker: {self.kind}"] += struck
        self.goes_on(3)

    def goes_on(self, more: int) -> None:
        """Transactions end again."""
        aims = [(cast, sum(actor.done for actor in cast) + more) for cast in self.casts]
        try:
            wait_until(
                lambda: all(sum(actor.done for actor in cast) >= aim for cast, aim in aims),
                GOES_ON_SECONDS,
                "transactions that end",
            )
        except AssertionError as problem:
            said = [f"{actor.name} ({actor.done} done): {actor.problem!r}" for actor in self.actors]
            raise Broken(f"{problem}\n" + "\n".join(said)) from None

    # What is found

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """No transaction is open."""
        with ExitStack() as stack:
            for actor in self.actors:
                actor.going.clear()
            for actor in self.actors:
                stack.enter_context(actor.at_rest())
            yield

    def snapshot(self) -> dict[Place, list[Seen]]:
        """All that is committed, while at rest; a plain record behind it shows that no transaction hangs."""
        assert self.follower is not None
        self.snapshots += 1
        committed: dict[Place, list[Seen]] = {}
        for topic in self.topics:
            self.send_plain((place, f"plain-{self.snapshots}") for place in self.places(topic))
            for level in (True, False):
                asked = self.history.now()
                found = by_place(topic, self.follower.transactor.read(topic, committed=level))
                for place in self.places(topic):
                    seen = found.get(place, [])
                    name = f"snapshot {self.snapshots}"
                    self.history.read(asked, place, seen, committed=level, snapshot=name)
                    if level:
                        committed[place] = seen
        return committed

    def judge(self) -> None:
        """After a snapshot."""
        found = findings(self.history)
        if found:
            shown = [str(finding) for finding in found[:FINDINGS_SHOWN]]
            raise Broken(f"{len(found)} findings\n" + "\n".join(shown))

    def followed(self, committed: dict[Place, list[Seen]]) -> None:
        """The follower comes to what a snapshot saw."""
        follower = self.follower
        assert follower is not None
        ends = {place.partition: seen[-1].offset for place, seen in committed.items() if place.topic == follower.topic}
        wait_until(
            lambda: all(follower.reached.get(partition, -1) >= end for partition, end in ends.items()),
            GOES_ON_SECONDS,
            f"a follower of {follower.topic} at {ends}; it is at {follower.reached}: {follower.problem!r}",
        )

    def count(self) -> None:
        self.tally["zombies"] += sum(actor.zombies for actor in self.actors)
        self.tally["steps of transactions that failed"] += sum(actor.failures for actor in self.actors)
        self.tally["records checked"] += sum(len(read.records) for read in self.history.reads)
        self.tally["records sent in transactions"] += len(self.history.sends) - self.plain
        ends = Counter(
            f"{'commits' if end.commit else 'aborts'} {end.result}"
            for transaction in self.history.transactions
            if (end := transaction.end) is not None
        )
        for name, times in ends.items():
            self.tally[f"transactions: {name}"] += times
        self.tally["transactions: end never asked for"] += len(self.history.transactions) - ends.total()


class Stage(Play, Attacker):
    """One broker."""

    def __init__(self, kind: str, directory: Path, seed: int, tally: Counter[str]) -> None:
        rng = Random(seed)
        broker = Broker(directory / "broker", port=fixed_port(), http=False, settings=settings(rng) | SETTINGS)
        broker.journal_dir = directory / "journals"
        Attacker.__init__(self, broker, rng, tally)
        Play.__init__(self, kind, f"127.0.0.1:{broker.port}", rng, tally)

    @contextmanager
    def served(self) -> Iterator[None]:
        try:
            self.broker.start()
            yield
            assert self.broker.stop() == 0
            verify(self.broker, self.tally)
        finally:
            self.broker.close()

    def attack(self) -> None:
        acts = {
            "kills of the tree": self.kill_tree,
            "kills of the broker alone": self.kill_broker,
            "crash loops": self.crash_loop,
            "kills in a clean stop": self.kill_in_stop,
            "pauses of the broker": lambda: self.pause(splitter=False),
        }
        name = self.rng.choice([*acts])
        acts[name]()
        self.tally[name] += 1
