"""A broker, everybody who uses it, and the judgement after each event of a campaign."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Iterable
from random import Random

from confluent_kafka import KafkaError, Message

from broker_process import CAIRN, Broker
from chaos.onlookers import Meddler, Onlooker, Trickle
from chaos.promises import KILL, Line, Promises
from crash.ledger import Place
from crash.load import Committer, Load
from interop.clients.aio import AiokafkaClient
from interop.clients.contract import Got, Refused
from interop.clients.kafka_python import KafkaPythonClient
from interop.clients.librdkafka import LibrdkafkaClient
from stall_watch import StallWatch

PARTITIONS = 2
STEADY_RATE, BURST_RATE = 200, 1_500  # records a second of each line
GOES_ON_SECONDS = 120.0  # only a failure uses it up
SLACK_SECONDS = 1.5
VERIFY_SECONDS = 120
READ_TRIES = 10
OTHER_CLIENTS: tuple[type[AiokafkaClient | KafkaPythonClient], ...] = (AiokafkaClient, KafkaPythonClient)
MODELS = ("auto", "shared", "dedicated")


class Broken(AssertionError):
    """A promise was broken."""


def verify(broker: Broker, tally: Counter[str]) -> None:
    """Holds `cairn verify` against its files while no process of it lives."""
    command = [CAIRN, "verify", str(broker.data)]
    if broker.journal_dir is not None:
        command += ["--journal-dir", str(broker.journal_dir)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=VERIFY_SECONDS, check=False)
    tally["verify runs"] += 1
    if done.returncode != 0:
        raise Broken(f"cairn verify:\n{done.stdout}{done.stderr}")


class LineLoad(Load):
    """The producer of one line. One that is not to survive the broker takes lost answers as they are."""

    ledger: Promises

    def __init__(self, bootstrap: str, ledger: Promises, rate: int) -> None:
        settings: dict[str, str | int] = {"acks": ledger.line.acks}
        if not ledger.retried or ledger.line.acks == "0":
            settings |= {"retries": 0}
        super().__init__(
            bootstrap, list(ledger.sent), rate=rate, idempotent=ledger.idempotent, ledger=ledger, settings=settings
        )

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None and self.ledger.line.acks == "0":
            with self.changed:  # nobody said where, or whether
                self.acked_count += 1
                self.changed.notify_all()
        elif error is None or (self.ledger.retried and self.ledger.line.acks != "0"):
            super().delivered(error, message)

    def failed(self, error: KafkaError) -> None:
        if self.ledger.retried:
            super().failed(error)


class World:
    """`steady`: lines whose producers live through every event. The others have a new one each round (`burst`)."""

    def __init__(
        self, broker: Broker, rng: Random, lines: Iterable[Line], tally: Counter[str], *, steady: bool
    ) -> None:
        self.broker = broker
        self.rng = rng
        self.tally = tally
        self.ledgers = [Promises(line, retried=steady or line.synced_first) for line in lines]
        # Other libraries: their records are synced before the answer, whatever line is looked at.
        self.others = {client: Promises(Line(f"by-{client.name}", "all"), retried=False) for client in OTHER_CLIENTS}
        self.lines = [*self.ledgers]
        self.ledgers += self.others.values()
        for ledger in self.ledgers:
            for partition in range(PARTITIONS):
                ledger.sent[Place(ledger.line.name, partition)] = 0
        self.client = LibrdkafkaClient(f"127.0.0.1:{broker.port}")
        self.loads: list[LineLoad] = []
        self.bursts: list[LineLoad] = []
        self.trickles: list[Trickle] = []
        self.committer: Committer | None = None
        self.meddler: Meddler | None = None
        self.onlooker: Onlooker | None = None
        self.watch = StallWatch()
        self.committed = 0

    def start(self, *, beside: bool) -> None:
        """The broker runs. `beside`: others commit, produce and change topics too, which makes many syncs."""
        for ledger in self.ledgers:
            model = {"cairn.model": self.rng.choice(MODELS)}
            self.client.create_topic(ledger.line.name, PARTITIONS, ledger.line.configs() | model)
        self.loads = [LineLoad(self.broker.bootstrap, ledger, STEADY_RATE) for ledger in self.lines if ledger.retried]
        if beside:
            place = next(iter(self.ledgers[0].sent))
            self.committer = Committer(self.broker.bootstrap, place)
            self.trickles = [Trickle(client, self.broker.bootstrap, ledger) for client, ledger in self.others.items()]
            self.meddler = Meddler(self.broker.bootstrap, self.lines, Random(self.rng.random()), pause=0.3)
        self.look_on()

    def look_on(self) -> None:
        positions = {}
        for ledger in self.ledgers:
            for place in ledger.sent:
                positions[place] = self.client.bounds(*place)[1]
        self.onlooker = Onlooker(self.broker.bootstrap, self.ledgers, positions)

    def burst(self) -> None:
        self.bursts = [
            LineLoad(self.broker.bootstrap, ledger, BURST_RATE) for ledger in self.lines if not ledger.retried
        ]

    def end_burst(self, *, finish: bool = False) -> None:
        """`finish`: the broker lives, so that every answer comes."""
        for burst in self.bursts:
            burst.stopping.set()
            burst.thread.join()
            if finish:
                burst.producer.flush(GOES_ON_SECONDS)
            self.tally["records acknowledged"] += burst.acked_count if burst.ledger.line.acks != "0" else 0
            burst.abandon()
        self.bursts = []

    def goes_on(self, more: int = 50) -> None:
        """Producers that live on get answers again."""
        for load in self.loads:
            load.wait_for(more, GOES_ON_SECONDS)

    def verify(self) -> None:
        """While no process of the broker lives."""
        verify(self.broker, self.tally)

    def slack(self) -> float:
        """What a deadline of the table may be missed by."""
        return SLACK_SECONDS + 3 * self.watch.worst

    def judge(self, event: str, at: float) -> None:
        """The broker runs again after an event at that time; raises Broken."""
        found: list[str] = []
        slack = self.slack()
        for ledger in self.ledgers:
            for place in ledger.sent:
                owed = ledger.owed(place, event, at, slack)
                start, log = self.read(place)
                found += ledger.judge(place, start, log, owed)
                self.tally["records checked"] += len(log)
                self.tally["records owed"] += len(owed.records)
                if not ledger.retried and not ledger.line.synced_first:
                    lost = ledger.settle(place, start + len(log))
                    self.tally["acknowledged records lost as the table allows"] += lost
        found += self.judge_group()
        if self.meddler is not None:
            found += self.meddler.findings()
        if found:
            raise Broken("\n".join(found))

    def read(self, place: Place) -> tuple[int, list[Got]]:
        """The log start, and all that is visible now; under load there is no end to wait for."""
        for _ in range(READ_TRIES):
            start, end = self.client.bounds(*place)
            reader = self.client.reader(*place, start, 100)
            try:
                return start, reader.take(end - start, GOES_ON_SECONDS)
            except Refused:
                continue  # records were deleted between the two questions; that does not happen all the time
            finally:
                reader.close()
        raise Broken(f"{place}: cannot be read from its start")

    def judge_group(self) -> list[str]:
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

    def stop_looking(self) -> None:
        if self.onlooker is not None:
            onlooker, self.onlooker = self.onlooker, None
            problems = onlooker.finish()
            self.tally["records read meanwhile"] += onlooker.records
            if problems:
                raise Broken("\n".join(problems[:5]))

    def finish(self) -> None:
        """Everybody ends; every answer that is owed must come; one clean stop."""
        self.end_burst(finish=True)
        if self.committer is not None:
            self.committer.finish()
            self.tally["commits confirmed"] += self.committer.confirmed
        if self.meddler is not None:
            self.meddler.finish()
            self.tally["deletions of records"] += self.meddler.trims
            self.tally["topics made"] += len(self.meddler.made)
        for trickle in self.trickles:
            trickle.finish()
            self.tally["records acknowledged"] += trickle.acked_count
            self.tally["records acknowledged to aiokafka and kafka-python"] += trickle.acked_count
        for load in self.loads:
            load.finish()
            self.tally["records acknowledged"] += load.acked_count if load.ledger.line.acks != "0" else 0
        self.judge(KILL, time.monotonic())
        self.stop_looking()
        assert self.broker.stop() == 0
        self.verify()

    def abandon(self) -> None:
        """After a failure, or after `finish`."""
        self.watch.finish()
        for each in (self.committer, self.meddler, *self.trickles):
            if each is not None:
                each.stopping.set()
        for load in [*self.loads, *self.bursts]:
            load.abandon()
        if self.onlooker is not None:
            self.onlooker.finish()
