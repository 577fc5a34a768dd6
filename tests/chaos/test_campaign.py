"""A share of the campaign, and that it finds what is wrong: a disk that lies, an answer without a record.

A short episode of each kind, those of `SHORT` in `make test`; `make chaos` goes on for as long as wanted.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections import Counter
from copy import deepcopy
from pathlib import Path

import pytest

from chaos.attacks import Siege
from chaos.bank import audit, open_bank
from chaos.campaign import EPISODES, chosen, goes_on, keep
from chaos.counts import PAGE, TABLES, marks, put
from chaos.damages import seeds, stocks
from chaos.exactly_once import CLIENTS, Stage
from chaos.power_cuts import WHEN, power_cuts
from chaos.promises import KILL, LINES
from chaos.world import Broken
from crash.ledger import Place
from damage.stock import Record
from damage.trial import Trial

ROUNDS = {"kills": 6, "pauses": 3, "full": 2, "eio": 4, "cuts:together": 4, "damage": 20}
ROUNDS |= {"cluster": 10, "cluster:lost-disks": 6, "cluster:full-disk": 6, "cluster-java": 5, "cluster-cuts": 4}
ROUNDS |= {f"{workload}:{client}": 3 for workload in ("bank", "transform") for client in CLIENTS}
ROUNDS |= {f"cluster-{workload}:{client}": 3 for workload in ("bank", "transform") for client in CLIENTS}
CUTS = 2  # of each line alone
SHORT = {"kills", "cuts:all-commit", "bank:librdkafka"}
"""What `make test` runs: no JVM, and each way of attacking and judging once."""
LYING_ROUNDS = 10


@pytest.mark.parametrize(
    "kind", [kind if kind in SHORT else pytest.param(kind, marks=pytest.mark.long) for kind in EPISODES]
)
def test_the_promises_hold(kind: str, tmp_path: Path) -> None:
    tally: Counter[str] = Counter()
    # Damages that a campaign has been through; others are for `make chaos`, until its 1,000 trials hold.
    seed = 9000 if kind == "damage" else time.time_ns() // 1_000_000
    print(f"make chaos KINDS={kind} SEED={seed} MINUTES=0")
    EPISODES[kind](tmp_path, seed, tally, ROUNDS.get(kind, CUTS))
    # Of what is only written, two power cuts may leave nothing to look at.
    assert tally["records checked"] + tally["acknowledged records lost as the table allows"] > 0
    assert tally["verify runs"] > 0
    for line in LINES:
        if kind == f"cuts:{line}":
            assert sum(tally[f"power cuts {when}: {line}"] for when in set(WHEN.values())) == CUTS


def test_a_disk_that_lies_about_syncs_is_found(tmp_path: Path) -> None:
    """Else the cuts would prove nothing: what was acknowledged as synced is lost, or the start says that it is."""
    with pytest.raises(AssertionError, match=r"lost that were promised|cairn verify|ended with 1|not what was told"):
        power_cuts(tmp_path, 1, Counter(), LYING_ROUNDS, lines=[LINES["all-commit"]], lies_about=".jnl")


def test_an_acknowledgement_without_a_record_is_found(tmp_path: Path) -> None:
    """The judgement reads real logs: one promise too many, and it says so."""
    siege = Siege(tmp_path, 1, Counter())
    with pytest.raises(Broken, match="1 records lost that were promised"), siege.besieged():
        siege.kill_tree()
        (ledger,) = (each for each in siege.world.lines if each.line.name == "all-commit")
        place = next(iter(ledger.sent))
        ledger.note(place, 10_000_000, 0)
        siege.world.judge(KILL, time.monotonic())


def test_a_reader_that_is_given_aborted_records_is_found(tmp_path: Path) -> None:
    """The history checker looks at what real clients did: readers of committed records who are given all there is."""
    stage = Stage("bank", tmp_path, 1, Counter())
    with pytest.raises(Broken, match="read though aborted"), stage.played():
        open_bank(stage, "librdkafka")
        stage.goes_on(20)
        follower = stage.follower
        assert follower is not None
        read = follower.transactor.read
        follower.transactor.read = lambda topic, *, committed=True: read(topic, committed=False)
        audit(stage)


def test_an_acknowledged_record_that_is_missing_is_found_by_a_trial(tmp_path: Path) -> None:
    """With nothing damaged: it was never stored."""
    stock = deepcopy(stocks(("clean",))["clean"])
    place = Place("plain", 0)
    stock.records[place][stock.ends[place]] = Record(1, b"key", b"value")
    verdict = Trial(stock, 1, tmp_path / "trial", Counter()).run(unhurt=True)
    assert any(finding.startswith("silent loss: plain-0: 1 ack") for finding in verdict.findings), verdict.findings


def test_episodes_by_number_by_time_or_by_faults() -> None:
    def begins(number: int, seconds: float, *, minutes: float | None = None, faults: int | None = None) -> bool:
        counts = Counter({"faults": 150, "power cuts": 49, "kill -9": 1000})
        return goes_on(Namespace(minutes=minutes, faults=faults), number, 3, seconds, counts)

    assert begins(2, 9999, minutes=0) and not begins(3, 0, minutes=0)
    assert begins(9, 299) and not begins(9, 300)
    assert begins(9, 599, minutes=10) and not begins(9, 600, minutes=10)
    assert begins(9, 9999, faults=200) and not begins(0, 0, faults=199)


def test_trials_by_number_or_by_time() -> None:
    assert list(seeds(7, 3, None)) == [7, 8, 9]
    assert list(seeds(7, None, 0)) == [7]
    assert list(seeds(7, 2, 10)) == [7, 8]


def test_kinds_by_name() -> None:
    assert chosen("kills,eio") == ["kills", "eio"]
    assert len(chosen("cuts")) == len(LINES) + 1
    assert chosen("damage") == ["damage"]
    assert chosen("bank") == ["bank:librdkafka", "bank:aiokafka", "bank:java"]
    with pytest.raises(SystemExit, match="choose from"):
        chosen("earthquakes")


def test_counts_add_up_over_runs(tmp_path: Path) -> None:
    path = tmp_path / "tally.json"
    for _ in range(2):
        keep(Counter({"kill -9": 3}), path)
    assert path.read_text() == '{\n "kill -9": 6\n}\n'


def test_counts_go_between_their_marks() -> None:
    begin, end = marks("counts")
    page = f"before\n{begin}old\n{end}\nafter"
    once = put(page, "counts", "Of today.", Counter({"power cuts": 1234}))
    assert once == f"before\n{begin}Of today.\n\n| what | how often |\n|---|---|\n| power cuts | 1,234 |\n{end}\nafter"
    assert put(once, "counts", "Of today.", Counter({"power cuts": 1234})) == once


@pytest.mark.parametrize("name", TABLES)
def test_every_table_has_its_place(name: str) -> None:
    begin, end = marks(name)
    assert begin in PAGE.read_text() and end in PAGE.read_text()
