"""A cluster, everybody who uses it, and the judgement at the end: what all of them were told makes one history."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from confluent_kafka.admin import NewTopic

from broker_process import wait_until
from cluster.brokers import Cluster, rack_of
from cluster.programs import ProgramMember, ProgramWriter
from cluster.readers import Asker, Follower, Member, Observer
from cluster.writers import AiokafkaWriter, LibrdkafkaWriter, Manner
from crash.ledger import Place
from history.checker import findings
from history.events import History, Seen
from interop.clients.librdkafka import LibrdkafkaClient, answer
from interop.clients.members import Host, own_host

STRONG, WEAK = "strong", "weak"
"""Topics: of acks=all with two in sync at least, and of acks=1."""
PARTITIONS = 4
GOES_ON_SECONDS = 120.0  # only a failure uses it up
FINDINGS_SHOWN = 20
GROUPS = {"classic": "classic", "kip848": "consumer"}
MEMBERS = 2
NEAR = 2
"""The broker in whose rack somebody reads."""

LIBRARIES: dict[str, type[LibrdkafkaWriter | AiokafkaWriter]] = {"rdk": LibrdkafkaWriter, "aio": AiokafkaWriter}
MANNERS = (
    Manner("rdk-idempotent", idempotent=True),
    Manner("rdk-plain"),
    Manner("rdk-acks-1", acks="1"),
    Manner("aio-idempotent", idempotent=True),
    Manner("aio-plain"),
    Manner("aio-acks-1", acks="1"),
)
"""By the names of libraries."""
PROGRAMS = (Manner("java-idempotent", idempotent=True), Manner("java-plain"), Manner("java-acks-1", acks="1"))


class Broken(AssertionError):
    """A promise was broken."""


class World:
    """Made while the brokers run."""

    def __init__(
        self, cluster: Cluster, tally: Counter[str], manners: Sequence[Manner] = MANNERS, program: str = ""
    ) -> None:
        """`program`: a client that is a program, and has members in both groups too."""
        self.cluster = cluster
        self.tally = tally
        self.manners = manners
        self.program = program
        self.history = History()
        self.client = LibrdkafkaClient(cluster.bootstrap)
        self.places: list[Place] = []
        self.writers: list[LibrdkafkaWriter | AiokafkaWriter | ProgramWriter] = []
        self.followers: list[Follower] = []
        self.members: list[Member] = []
        self.programs: list[ProgramMember] = []
        self.host: Host | None = None
        self.askers: list[Asker] = []
        self.observers: list[Observer] = []

    @contextmanager
    def lived_in(self) -> Iterator[World]:
        """All end with it; if it went well they were judged."""
        try:
            self.begin()
            yield self
            self.finish()
        finally:
            self.abandon()

    def make_topic(self, name: str, **configs: str) -> list[Place]:
        new = NewTopic(name, PARTITIONS, 3, config={key.replace("_", "."): value for key, value in configs.items()})
        answer(self.client.admin.create_topics([new], request_timeout=GOES_ON_SECONDS)[name])
        places = [Place(name, partition) for partition in range(PARTITIONS)]
        self.places += places
        return places

    def begin(self) -> None:
        topics = {
            STRONG: self.make_topic(STRONG, min_insync_replicas="2"),
            WEAK: self.make_topic(WEAK, min_insync_replicas="1"),
        }
        self.cluster.wait_in_sync()
        bootstrap = self.cluster.bootstrap
        self.observers = [Observer(self.cluster, node, self.history) for node in self.cluster.brokers]
        wait_until(lambda: self.history.leaderships, GOES_ON_SECONDS, "who leads")
        for manner in self.manners:
            client = manner.name.partition("-")[0]
            library = LIBRARIES.get(client) or partial(ProgramWriter, client)
            self.writers.append(library(bootstrap, manner, topics[WEAK if manner.weak else STRONG], self.history))
        self.followers = [
            Follower("follower", bootstrap, self.places, self.history),
            Follower("near", bootstrap, self.places, self.history, rack_of(NEAR)),
        ]
        for group, protocol in GROUPS.items():
            for number in range(MEMBERS):
                name = f"{group}-{number}"
                member = Member(name, bootstrap, group, [STRONG, WEAK], self.history, protocol=protocol)
                self.members.append(member)
            if self.program:
                self.host = self.host or own_host(self.program)
                told = ProgramMember(
                    self.host, bootstrap, f"{self.program}-{group}", [STRONG, WEAK], self.history, protocol=protocol
                )
                self.programs.append(told)
                self.askers.append(Asker(bootstrap, told.wish.group, self.places, self.history))
            self.askers.append(Asker(bootstrap, group, self.places, self.history))
        self.goes_on()

    def goes_on(self, more: int = 20) -> None:
        """Everybody who writes is answered again, and everybody who reads is given something."""
        wanted = {writer.manner.name: writer.acked + more for writer in self.writers}
        followed = {follower.name: follower.records + more for follower in self.followers}
        before = self._told()
        try:
            wait_until(
                lambda: (
                    all(writer.acked >= wanted[writer.manner.name] for writer in self.writers)
                    and all(follower.records >= followed[follower.name] for follower in self.followers)
                ),
                GOES_ON_SECONDS,
                "answers",
            )
        except AssertionError as failure:
            failure.add_note(f"before: {before}\nnow: {self._told()}")
            raise

    def _told(self) -> str:
        written = [
            f"{writer.manner.name} {writer.acked} ({writer.failed} failed: {dict(writer.notes.errors)})"
            for writer in self.writers
        ]
        return ", ".join([*written, *(f"{follower.name} {follower.records}" for follower in self.followers)])

    def finish(self) -> None:
        """At rest: nobody writes any more, all replicas are in sync, and everybody has read everything."""
        problems = [problem for writer in self.writers for problem in writer.finish()]
        self.cluster.wait_in_sync()
        snapshot = self._snapshot()
        ends = {place: seen[-1].offset for place, seen in snapshot.items() if seen}
        for follower in self.followers:
            wait_until(
                lambda follower=follower: all(follower.reached[place] >= end for place, end in ends.items()),  # type: ignore[misc]
                GOES_ON_SECONDS,
                f"{follower.name} to come to {ends}",
            )
        self._wait_for_groups(ends)
        for reader in (*self.members, *self.followers):
            reader.close()
            problems += reader.problems
        for member in self.programs:
            member.leave()
            problems += member.failures
        for asker in self.askers:
            wait_until(asker.ask, GOES_ON_SECONDS, f"the offsets of {asker.group}")
        self._snapshot()
        for observer in self.observers:
            wait_until(observer.look, GOES_ON_SECONDS, f"who leads, from {observer.node}")
        self.judge(problems)
        self.count()

    def _wait_for_groups(self, ends: dict[Place, int]) -> None:
        for asker in self.askers:

            def there(asker: Asker = asker) -> bool:
                with self.history.lock:
                    where = {each.place: each.offset for each in self.history.positions if each.group == asker.group}
                return all(where.get(place, 0) > end for place, end in ends.items())

            wait_until(there, GOES_ON_SECONDS, f"{asker.group} to come to {ends}")

    def _snapshot(self) -> dict[Place, list[Seen]]:
        """Everything that is visible."""
        name = f"snapshot at {self.history.now()}"
        found: dict[Place, list[Seen]] = defaultdict(list)
        for topic in (STRONG, WEAK):
            asked = self.history.now()
            for got in self.client.read(topic, range(PARTITIONS), 0):
                found[Place(topic, got.partition)].append(Seen(got.offset, (got.value or b"").decode()))
            for place in self.places:
                if place.topic == topic:
                    self.history.read(asked, place, found[place], committed=True, snapshot=name)
        return found

    def judge(self, problems: Sequence[str]) -> None:
        found = [*problems, *map(str, findings(self.history))]
        if found:
            raise Broken(f"{len(found)} findings\n" + "\n".join(found[:FINDINGS_SHOWN]))

    def count(self) -> None:
        for writer in self.writers:
            self.tally[f"records acknowledged: {writer.manner.name}"] += writer.acked
            self.tally["records acknowledged"] += writer.acked
            self.tally["epochs that a producer began by itself"] += writer.notes.epochs
        last = max(read.asked for read in self.history.reads if read.snapshot)
        self.tally["records checked"] += sum(len(read.records) for read in self.history.reads if read.asked >= last)
        self.tally["records read meanwhile"] += sum(reader.records for reader in (*self.followers, *self.members))
        self.tally["leader changes seen"] += sum(
            len({told.epoch for told in self.history.leaderships if told.place == place}) - 1 for place in self.places
        )

    def abandon(self) -> None:
        for writer in self.writers:
            writer.abandon()
        if self.host is not None:
            self.host.kill()
        for reader in (*self.followers, *self.members, *self.askers, *self.observers):
            reader.close()
