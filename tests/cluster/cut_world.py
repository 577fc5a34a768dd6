"""Who uses a cluster that loses power: a writer for each line of the ack table, a reader, a group; all is judged."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import NewTopic

from broker_process import wait_until
from chaos.onlookers import Onlooker
from chaos.promises import Line
from cluster.brokers import Cluster
from cluster.epoch_watch import EpochWatch
from cluster.lines import Event, Replicated
from crash.ledger import Place
from crash.load import Committer, Load
from interop.clients.contract import Got
from interop.clients.librdkafka import LibrdkafkaClient, answer, got
from stall_watch import StallWatch

PARTITIONS = 3  # so that each line is in each journal
STEADY_RATE, BURST_RATE = 60, 240  # records a second of each line
GOES_ON_SECONDS = 120.0  # only a failure uses it up
ASK_SECONDS = 5.0
SLACK_SECONDS = 1.5
MODELS = ("auto", "shared", "dedicated")


class Broken(AssertionError):
    """A promise was broken."""


class Burst(Load):
    """The producer of one line for one round. With acks=1 it sends nothing twice."""

    ledger: Replicated

    def __init__(self, bootstrap: str, ledger: Replicated, rate: int) -> None:
        self.epochs = 0
        self.since = dict(ledger.sent)
        settings: dict[str, str | int] = {"acks": ledger.line.acks}
        settings |= {"retries": 0} if ledger.alone else EpochWatch.settings
        super().__init__(
            bootstrap,
            list(ledger.sent),
            rate=rate,
            idempotent=not ledger.alone,
            ledger=ledger,
            settings=settings,
            logger=EpochWatch(self.epoch_begun),
        )

    def epoch_begun(self) -> None:
        self.epochs += 1
        self.ledger.epoch_begun(self.since)

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None or not self.ledger.alone:
            super().delivered(error, message)


class CutWorld:
    """`lines`: those whose producers promise nothing twice have a new one each round; that of acks=all with `commit`
    lives through everything. `beside`: a group commits offsets, which makes many syncs."""

    def __init__(self, cluster: Cluster, rng: Random, lines: Iterable[Line], tally: Counter[str]) -> None:
        self.cluster = cluster
        self.rng = rng
        self.tally = tally
        self.ledgers = [Replicated(line, retried=line.synced_first) for line in lines]
        for ledger in self.ledgers:
            for partition in range(PARTITIONS):
                ledger.sent[Place(ledger.line.name, partition)] = 0
        self.places = [place for ledger in self.ledgers for place in ledger.sent]
        self.client = LibrdkafkaClient(cluster.bootstrap)
        self.steady: list[Burst] = []
        self.bursts: list[Burst] = []
        self.committer: Committer | None = None
        self.committed = 0
        self.onlooker: Onlooker | None = None
        self.watch = StallWatch()
        self.epochs: dict[Place, int] = {}

    def begin(self, *, beside: bool) -> None:
        for ledger in self.ledgers:
            configs = {"cairn.model": self.rng.choice(MODELS), **ledger.line.configs()}
            new = NewTopic(ledger.line.name, PARTITIONS, 3, config=configs)
            answer(self.client.admin.create_topics([new], request_timeout=GOES_ON_SECONDS)[ledger.line.name])
        self.cluster.wait_in_sync()
        bootstrap = self.cluster.bootstrap
        self.steady = [Burst(bootstrap, ledger, STEADY_RATE) for ledger in self.ledgers if ledger.retried]
        if beside:
            self.committer = Committer(bootstrap, self.places[0])
        self.look_on(dict.fromkeys(self.places, 0))

    def burst(self) -> None:
        self.epochs = self._epochs()
        bootstrap = self.cluster.bootstrap
        self.bursts = [Burst(bootstrap, ledger, BURST_RATE) for ledger in self.ledgers if not ledger.retried]

    def _epochs(self) -> dict[Place, int]:
        rows = self.cluster.told()
        return {place: rows[place].leader_epoch for place in self.places}

    def fails_over(self) -> None:
        """Writers live on meanwhile. Libraries send again what a former leader refused after it was stored, so that of
        producers that are not idempotent records may come twice, and change places."""
        for ledger in self.ledgers:
            ledger.refused = ledger.refused or ledger.alone

    def lose_burst(self) -> None:
        """Its answers will not come."""
        for burst in self.bursts:
            burst.abandon()
            self._count(burst)
        self.bursts = []

    def end_burst(self) -> None:
        """It lived through a failover: each answer that its library promises comes."""
        for burst in self.bursts:
            burst.stopping.set()
            burst.thread.join()
        for burst in self.bursts:
            left = burst.producer.flush(GOES_ON_SECONDS)
            self._count(burst)
            if burst.problems or left:
                raise Broken(f"{burst.ledger.line.name}: {left} records were never answered; {burst.problems}")
        self.bursts = []

    def _count(self, burst: Burst) -> None:
        self.tally["records acknowledged"] += burst.acked_count
        self.tally[f"records acknowledged: {burst.ledger.line.name}"] += burst.acked_count
        self.tally["epochs that a producer began by itself"] += burst.epochs

    def look_on(self, positions: dict[Place, int]) -> None:
        self.onlooker = Onlooker(self.cluster.bootstrap, list(self.ledgers), positions)

    def stop_looking(self) -> None:
        if self.onlooker is not None:
            onlooker, self.onlooker = self.onlooker, None
            problems = onlooker.finish()
            self.tally["records read meanwhile"] += onlooker.records
            if problems:
                raise Broken("\n".join(problems[:5]))

    def slack(self) -> float:
        """What a deadline of the table may be missed by."""
        return SLACK_SECONDS + 3 * self.watch.worst

    def judge(self, lost: Mapping[Place, float]) -> None:
        """All replicas are in sync again. `lost`: the partitions whose in-sync replicas all lost power, and when."""
        slack = self.slack()
        problems: list[str] = []
        ends: dict[Place, int] = {}
        epochs = self._epochs()
        for ledger in self.ledgers:
            events = {place: Event(lost.get(place), epochs[place] == self.epochs.get(place)) for place in ledger.sent}
            owed = {place: ledger.owed_after(place, event, slack) for place, event in events.items()}
            logs = self._read(list(ledger.sent))
            for place, log in logs.items():
                of_place = ledger.judge(place, 0, log, owed[place])
                problems += [f"{text} ({events[place]})" for text in of_place]
                self.tally["records checked"] += len(log)
                self.tally["records owed"] += len(owed[place].records)
                if not of_place:
                    gone = ledger.found(place, log)
                    self.tally[f"acknowledged records lost as the table allows: {ledger.line.name}"] += gone
                ends[place] = len(log)
        problems += self._judge_group()
        if problems:
            raise Broken("\n".join(problems))
        self._look_further(ends)

    def _read(self, places: Sequence[Place]) -> dict[Place, list[Got]]:
        """From the start to the end, which may move on meanwhile."""
        logs: dict[Place, list[Got]] = {place: [] for place in places}
        ends = ends_of(self.client.consumer, places)
        consumer = self.client.consumer(**{"fetch.wait.max.ms": 50, "fetch.error.backoff.ms": 50})
        try:
            consumer.assign([TopicPartition(*place, 0) for place in places])
            deadline = time.monotonic() + GOES_ON_SECONDS
            while lacking := [place for place, end in ends.items() if len(logs[place]) < end]:
                if time.monotonic() > deadline:
                    raise Broken(f"cannot be read to {ends}: {lacking}")
                for message in consumer.consume(1000, 0.1):
                    if message.error() is None:
                        logs[Place(str(message.topic()), message.partition() or 0)].append(got(message))
        finally:
            consumer.close()
        return logs

    def _look_further(self, ends: dict[Place, int]) -> None:
        """A reader whose partitions lost nothing comes to the end by itself."""
        onlooker = self.onlooker
        if onlooker is None:
            self.look_on(ends)
            return
        reached = onlooker.next_offsets
        wait_until(
            lambda: all(reached[place] >= end for place, end in ends.items()) or onlooker.problems,
            GOES_ON_SECONDS,
            f"the reader to come to {ends}; it is at {reached}",
        )
        if onlooker.problems:
            raise Broken("\n".join(onlooker.problems[:5]))

    def _judge_group(self) -> list[str]:
        """What was confirmed, or read once, is there."""
        if self.committer is None:
            return []
        try:
            self.committer.check(self.client)
        except AssertionError as problem:
            return [str(problem)]
        place = self.committer.place
        stored = self.client.committed("crash-group", *place) or 0
        before, self.committed = self.committed, stored
        return [f"the group's offset went back from {before} to {stored}"] if stored < before else []

    def goes_on(self, more: int = 20) -> None:
        for load in self.steady:
            load.wait_for(more, GOES_ON_SECONDS)

    def finish(self) -> None:
        """Every answer that is owed comes; then all is read once more."""
        if self.committer is not None:
            self.committer.finish()
            self.tally["commits confirmed"] += self.committer.confirmed
        for load in self.steady:
            load.finish()
            self._count(load)
        self.judge({})
        self.stop_looking()

    def abandon(self) -> None:
        self.watch.finish()
        if self.committer is not None:
            self.committer.stopping.set()
        for load in [*self.steady, *self.bursts]:
            load.abandon()
        if self.onlooker is not None:
            self.onlooker.finish()


def ends_of(make: Callable[[], Consumer], places: Sequence[Place]) -> dict[Place, int]:
    """A client that was not told is replaced by another one. For a topic that it neither reads nor writes, librdkafka
    keeps what it has heard of leaders, also that a partition had none, and asks nobody again for minutes."""
    ends: dict[Place, int] = {}
    consumer = make()
    try:
        for place in places:
            deadline = time.monotonic() + GOES_ON_SECONDS
            while place not in ends:
                try:
                    ends[place] = int(consumer.get_watermark_offsets(TopicPartition(*place), ASK_SECONDS)[1])
                except KafkaException as problem:  # a preferred leader may just be on its way back
                    if time.monotonic() > deadline:
                        why = f"the end of {place} was not told for {GOES_ON_SECONDS:g} s: {problem}"
                        raise Broken(why) from problem
                    consumer.close()
                    consumer = make()
    finally:
        consumer.close()
    return ends
