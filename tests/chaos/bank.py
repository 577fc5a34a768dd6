"""Money moves between accounts on different partitions, each time in one transaction: none is ever made or lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

from chaos.actors import Actor, Follower, RecordedProducer
from chaos.exactly_once import JUDGED_EVERY, PARTITIONS, ROUNDS, Play, Stage
from chaos.world import Broken
from crash.ledger import Place
from history.events import Seen

TOPIC = "bank"
ACCOUNTS = 12
DEPOSIT = 1_000
TELLERS = 2
ABORTED = 0.2


def place_of(account: int) -> Place:
    return Place(TOPIC, account % PARTITIONS)


class Teller(Actor):
    """A value is NAME/ACCOUNT/AMOUNT/PART; a side of a transfer may come in several parts."""

    entered = 0

    def work(self, producer: RecordedProducer) -> None:
        producer.begin()
        self.scribble(producer)
        producer.end(commit=self.rng.random() >= ABORTED)
        self.done += 1

    def scribble(self, producer: RecordedProducer) -> None:
        assert producer.transaction is not None
        payer = self.rng.randrange(ACCOUNTS)
        payee = self.rng.choice([account for account in range(ACCOUNTS) if place_of(account) != place_of(payer)])
        parts = [self.rng.randint(1, 50) for _ in range(self.rng.randint(1, 3))]
        for account, sign in ((payer, -1), (payee, 1)):
            self.entered += 1
            name = f"{producer.transaction.name}/{account}"
            producer.send(
                place_of(account), *(f"{name}/{sign * part:+d}/{self.entered}.{n}" for n, part in enumerate(parts))
            )


def balances(committed: dict[Place, list[Seen]]) -> Counter[int]:
    """Of every account, by all committed entries."""
    accounts: Counter[int] = Counter()
    for seen in (seen for records in committed.values() for seen in records):
        if not seen.value.startswith("plain"):
            _, account, amount, _ = seen.value.split("/")
            accounts[int(account)] += int(amount)
    return accounts


def bank(
    directory: Path,
    seed: int,
    tally: Counter[str],
    rounds: int = ROUNDS,
    *,
    client: str,
    place: Callable[[str, Path, int, Counter[str]], Play] = Stage,
) -> None:
    stage = place(f"bank:{client}", directory, seed, tally)
    with stage.played():
        open_bank(stage, client)
        for number in range(1, rounds + 1):
            stage.round()
            if number % JUDGED_EVERY == 0 or number == rounds:
                audit(stage)
        stage.count()


def open_bank(stage: Play, client: str) -> None:
    stage.make_topic(TOPIC)
    stage.send_plain((place_of(account), f"deposit/{account}/{DEPOSIT:+d}/0") for account in range(ACCOUNTS))
    tellers = [
        Teller(f"teller-{n}", client, stage.bootstrap, stage.history, Random(stage.rng.random()))
        for n in range(TELLERS)
    ]
    stage.begin(Follower(client, stage.bootstrap, TOPIC, stage.history), *([teller] for teller in tellers))
    stage.goes_on(3)


def audit(stage: Play) -> None:
    """Between transfers: nothing is made or lost, and the history is clean."""
    with stage.at_rest():
        committed = stage.snapshot()
        total = balances(committed).total()
        if total != ACCOUNTS * DEPOSIT:
            raise Broken(f"{total} instead of {ACCOUNTS * DEPOSIT} are in the bank")
        stage.followed(committed)
        stage.judge()
    stage.tally["audits of the bank"] += 1
