"""A group of transformers copies a topic into another one, with the offsets of what it copied, in transactions."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

from broker_process import wait_until
from chaos.actors import Actor, Follower, RecordedProducer, by_place
from chaos.exactly_once import GOES_ON_SECONDS, JUDGED_EVERY, PARTITIONS, ROUNDS, Play, Stage
from crash.ledger import Place
from history.events import Copy
from interop.clients.transactors import CommittedReader

SOURCE, TARGET, GROUP = "source", "target", "transformers"
MEMBERS = {"librdkafka": 2, "java": 2, "aiokafka": 1}
"""aiokafka does not say which generation of the group it commits for, so nothing fences a member that lost a partition;
one alone is fenced by its transactional id."""
BATCH = 20
ABORTED = 0.1
FEED_SECONDS = 0.2


class Feeder(Actor):
    """Fills the source, with aborted records among it, slower than it is copied."""

    entered = 0

    def work(self, producer: RecordedProducer) -> None:
        time.sleep(FEED_SECONDS)
        producer.begin()
        self.scribble(producer)
        producer.end(commit=self.rng.random() >= ABORTED)
        self.done += 1

    def scribble(self, producer: RecordedProducer) -> None:
        for partition in self.rng.sample(range(PARTITIONS), 2):
            first, self.entered = self.entered, self.entered + self.rng.randint(1, 20)
            producer.send(Place(SOURCE, partition), *(f"{self.name}-{n}" for n in range(first, self.entered)))


class Transformer(Actor):
    reader: CommittedReader | None = None
    copied = 0

    def work(self, producer: RecordedProducer) -> None:
        count = self.copy(producer)
        if not count:
            return
        if self.rng.random() < ABORTED:
            producer.end(commit=False)
            self.reopened()
        else:
            producer.end(commit=True)
            self.copied += count
        self.done += 1

    def copy(self, producer: RecordedProducer) -> int:
        """One batch and its offsets; how many records."""
        assert self.reader is not None
        asked = self.history.now()
        found = by_place(SOURCE, self.reader.poll())
        if not found:
            return 0
        for place, records in found.items():
            self.history.read(asked, place, records, committed=True)
        name = producer.begin()
        for place, records in found.items():
            producer.send(Place(TARGET, place.partition), *(f"{seen.value}|{name}" for seen in records))
        ends = {place.partition: records[-1].offset + 1 for place, records in found.items()}
        producer.commit_offsets(GROUP, self.reader, ends)
        return sum(map(len, found.values()))

    def scribble(self, producer: RecordedProducer) -> None:
        """By a zombie: records that it makes up, and offsets far ahead."""
        assert self.reader is not None and producer.transaction is not None
        number = len(self.history.sends)
        producer.send(Place(TARGET, self.rng.randrange(PARTITIONS)), f"zombie-{number}|{producer.transaction.name}")
        producer.commit_offsets(GROUP, self.reader, {self.rng.randrange(PARTITIONS): 1_000_000 + number})

    def reopened(self) -> None:
        """What was polled and not committed is polled again, once the end of the last transaction is decided."""
        if self.reader is None or self.reader.transactor is not self.transactor:
            self.reader = self.transactor.reader(SOURCE, GROUP, BATCH)
        else:
            self.reader.rewind()


def transform(
    directory: Path,
    seed: int,
    tally: Counter[str],
    rounds: int = ROUNDS,
    *,
    client: str,
    place: Callable[[str, Path, int, Counter[str]], Play] = Stage,
) -> None:
    stage = place(f"transform:{client}", directory, seed, tally)
    stage.history.copies.append(Copy(GROUP, SOURCE, TARGET))
    with stage.played():
        stage.make_topic(SOURCE)
        stage.make_topic(TARGET)
        transformers = tuple(
            Transformer(f"transformer-{n}", client, stage.bootstrap, stage.history, Random(stage.rng.random()))
            for n in range(MEMBERS[client])
        )
        feeder = Feeder("feeder", "librdkafka", stage.bootstrap, stage.history, Random(stage.rng.random()))
        stage.begin(Follower(client, stage.bootstrap, TARGET, stage.history), [feeder], transformers)
        stage.goes_on(3)
        for number in range(1, rounds + 1):
            stage.round()
            if number % JUDGED_EVERY == 0 and number < rounds:
                compare(stage)
        feeder.finish()
        drain(stage)
        compare(stage)
        assert sum(transformer.copied for transformer in transformers) > 0
        stage.count()


def positions(stage: Play) -> dict[Place, int]:
    """What the group has committed."""
    found = {}
    for place in stage.places(SOURCE):
        asked = stage.history.now()
        found[place] = stage.admin.committed(GROUP, *place) or 0
        stage.history.position(asked, GROUP, place, found[place])
    return found


def compare(stage: Play) -> None:
    """Between transactions: what was copied is what the group has committed."""
    with stage.at_rest():
        positions(stage)
        committed = stage.snapshot()
        stage.followed(committed)
        stage.judge()
    stage.tally["comparisons of source and target"] += 1


def drain(stage: Play) -> None:
    """Everything in the source is copied."""
    assert stage.follower is not None
    source = by_place(SOURCE, stage.follower.transactor.read(SOURCE))
    wait_until(
        lambda: all(end > source[place][-1].offset for place, end in positions(stage).items() if source[place]),
        GOES_ON_SECONDS,
        "the last records of the source to be copied",
    )
