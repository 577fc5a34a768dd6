"""What docs/recovery.md tells people to do about a lost disk and a backup, done as it is printed there: everything is
there afterwards that was not listed as lost, nothing is given out twice, and the next start needs no flag."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from damage.judgement import Judge, Verdict
from damage.sight import Seen, look
from damage.stock import LATE_TOPIC, Stock, build
from faults.procedures import Operator, Step, procedures
from faults.scene import verify


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Stock:
    """Two journals on a disk of their own; killed with records that are only there. `earlier` is a stop before it."""
    return build(tmp_path_factory.mktemp("stock") / "two", "two")


@pytest.fixture
def operator(tmp_path: Path, stock: Stock) -> Iterator[Operator]:
    """Before a copy of the stock, and of an earlier one as backup."""
    assert stock.earlier is not None
    operator = Operator(tmp_path, stock.settings)
    shutil.copytree(stock.root / "data", operator.place("DATA"))
    shutil.copytree(stock.root / "journals", operator.place("JOURNALS"))
    shutil.copytree(stock.earlier.root, operator.place("BACKUP"))
    yield operator
    operator.close()


def lose(disk: Path) -> None:
    """And mount a new one."""
    shutil.rmtree(disk)
    disk.mkdir()


def looked_at(operator: Operator, stock: Stock, *, accepted: bool = True) -> tuple[Verdict, Seen]:
    """Everything is read, and written to; then a stop, a verify and a start without any flag."""
    broker = operator.broker
    assert broker is not None
    seen = look(broker, stock)
    seen.exit_code = broker.stop()
    seen.log = broker.log()
    verdict = Judge(stock, None, seen, operator.said if accepted else None).judge()
    verify(broker)
    operator.do(Step("cairn serve --data DATA --journal-dir JOURNALS", ""))
    assert operator.broker is not None
    again = look(operator.broker, stock, write=False)
    for place, partition in seen.partitions.items():
        pending = stock.pending(place)
        gone = [each for each in partition.records if each in pending and each not in again.partitions[place].records]
        assert not gone, f"{place}: {gone} are gone after the next start"
    assert again.status["losses"] == seen.status["losses"]
    assert again.epoch > seen.epoch
    assert operator.stop() == 0
    verify(operator.broker)
    return verdict, seen


def test_every_procedure_of_the_page_is_done_here() -> None:
    source = Path(__file__).read_text()
    assert [name for name in procedures() if f'follow("{name}")' not in source] == []


def test_the_write_disk_is_lost(operator: Operator, stock: Stock) -> None:
    lose(operator.place("JOURNALS"))
    operator.follow("lost write disk")
    verdict, seen = looked_at(operator, stock)
    # Journal 0 held them; docs/recovery.md says what to do.
    findings = [each for each in verdict.findings if not each.startswith("given out again: epoch")]
    assert not findings, "\n".join(findings)
    assert stock.earlier is not None
    for place, records in stock.earlier.records.items():
        assert max(seen.partitions[place].records, default=-1) >= max(records, default=-1), (
            "what was checkpointed is all there"
        )


def test_the_read_disk_is_lost(operator: Operator, stock: Stock) -> None:
    """There is a copy of the metadata, and it is older: a topic and a setting have come since."""
    lose(operator.place("DATA"))
    operator.follow("lost read disk")
    verdict, seen = looked_at(operator, stock)
    assert not verdict.findings, "\n".join(verdict.findings)
    assert seen.records_read, "what the journals hold is there"


def test_the_read_disk_is_lost_with_the_metadata(operator: Operator, stock: Stock) -> None:
    lose(operator.place("DATA"))
    operator.follow("lost read disk without metadata")
    verdict, _ = looked_at(operator, stock)
    assert not verdict.findings, "\n".join(verdict.findings)
    assert list(operator.place("JOURNALS").glob("lost/*/0/*.jnl")), "nothing was deleted"


@pytest.mark.parametrize("way", ["damaged", "gone"])
def test_the_checkpoint_is_repaired(operator: Operator, stock: Stock, way: str) -> None:
    for checkpoint in (operator.place("DATA") / "checkpoints").glob("*.ckpt"):
        if way == "damaged":
            checkpoint.write_bytes(b"x" * checkpoint.stat().st_size)
        else:
            checkpoint.unlink()
    operator.follow("damaged checkpoint")
    verified, refused, repaired = operator.said[0], operator.said[1], operator.said[-1]
    assert "cairn repair" in verified and "cairn repair DIR" in refused
    verdict, seen = looked_at(operator, stock)
    assert not verdict.findings, "\n".join(verdict.findings)
    for place in stock.records:
        assert seen.partitions[place].records.keys() >= stock.pending(place).keys(), f"{place}: {repaired}"


@pytest.mark.parametrize("way", ["damaged", "gone"])
def test_the_checkpoint_is_lost(operator: Operator, stock: Stock, way: str) -> None:
    for checkpoint in (operator.place("DATA") / "checkpoints").glob("*.ckpt"):
        if way == "damaged":
            checkpoint.write_bytes(b"x" * checkpoint.stat().st_size)
        else:
            checkpoint.unlink()
    operator.follow("lost checkpoint")
    verdict, _ = looked_at(operator, stock)
    assert not verdict.findings, "\n".join(verdict.findings)


def test_a_backup_is_restored(operator: Operator, stock: Stock) -> None:
    """The copy is taken of a stopped broker; then it goes on, and is killed."""
    assert stock.earlier is not None
    for name in ("DATA", "JOURNALS", "BACKUP"):
        shutil.rmtree(operator.place(name))
    shutil.copytree(stock.earlier.root / "data", operator.place("DATA"))
    shutil.copytree(stock.earlier.root / "journals", operator.place("JOURNALS"))
    operator.place("BACKUP").mkdir()
    operator.follow("backup")
    operator.do(Step("cairn serve --data DATA --journal-dir JOURNALS", ""))
    assert operator.broker is not None
    seen = look(operator.broker, stock.earlier)
    assert all(wrote.stored and not wrote.code for wrote in seen.writes.values())
    operator.broker.kill_tree()
    operator.follow("restore")
    verdict, seen = looked_at(operator, stock.earlier, accepted=False)
    assert not verdict.findings, "\n".join(verdict.findings)
    assert seen.status["losses"] == [] and seen.reasons == []


def test_metadata_alone_are_restored(operator: Operator, stock: Stock) -> None:
    operator.follow("restore metadata")
    verdict, seen = looked_at(operator, stock)
    assert not verdict.findings, "\n".join(verdict.findings)
    assert LATE_TOPIC not in seen.topics
    for place, records in stock.records.items():
        if place.topic != LATE_TOPIC:
            assert seen.partitions[place].records.keys() >= stock.pending(place).keys(), (
                f"{place}: {len(records)} records"
            )
