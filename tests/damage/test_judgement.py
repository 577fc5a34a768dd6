"""The judge of damage trials finds each kind of broken promise, and lets pass what was told."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from cairnmq.errors import ErrorCode
from crash.ledger import Place
from damage.hurt import BIT, CUT, GONE, MISPLACED, ZEROES, Hurt, choose, files_of, kind_of
from damage.judgement import (
    ACCEPTED,
    CUT_TOLD,
    LISTED,
    MEMORY_BYTES_MAX,
    READ_ONLY,
    REPAIRED,
    WHOLE,
    Judge,
    Lost,
    Verdict,
)
from damage.sight import Gap, PartitionSeen, Seen, Wrote
from damage.stock import Record, Stock
from damage.table import BROKEN, damage_tables, key

LOG, TABLE = Place("log", 0), Place("table", 0)
JOURNAL = Hurt("data/journal/0/00000000000000000000.jnl", "journal", BIT, 7)
SEGMENT = Hurt("data/queues/log-0/00000000000000000000.log", "segment", BIT, 7)
WARNING = "2026-11-18T13:13:45.784+00:00 WARNING cairnmq.broker: "


def record(number: int) -> Record:
    return Record(1000 + number, b"k%d" % (number % 2), b"v%d" % number)


@pytest.fixture
def stock(tmp_path: Path) -> Stock:
    """Two partitions, the second compacted; offset 3 of the first was aborted, what lies before 1 was deleted."""
    stock = Stock("planted", tmp_path, {})
    stock.records = {
        LOG: {offset: record(offset) for offset in (1, 2, 4, 5)},
        TABLE: {offset: record(offset) for offset in range(6)},
    }
    stock.never = {LOG: {3}, TABLE: set()}
    stock.starts = {LOG: 1, TABLE: 0}
    stock.ends = {LOG: 6, TABLE: 6}
    stock.compacted = {"table"}
    stock.committed = {("group", LOG): 5}
    stock.topic_settings = {"log": {"retention.ms": "-1"}}
    stock.producer_ids = {7, 8}
    stock.transactional = {"mover": (8, 3)}
    stock.queue_ids = {1, 2}
    stock.epoch = 4
    return stock


@pytest.fixture
def seen(stock: Stock) -> Seen:
    """All is well: the table was compacted, the rest is there."""
    return Seen(
        topics={"log": 1, "table": 1},
        partitions={
            LOG: PartitionSeen(dict(stock.records[LOG])),
            TABLE: PartitionSeen({offset: record(offset) for offset in (4, 5)}),
        },
        committed={("group", LOG): (0, 5)},
        topic_settings={"log": {"retention.ms": "-1"}},
        producer_ids=[(0, 9), (0, 10)],
        transactional={"mover": (0, 8, 4)},
        queue_ids={3},
        writes={LOG: Wrote(0, (6, 9), stored=True), TABLE: Wrote(0, (6,), stored=True)},
        epoch=5,
        status={"damages": [], "losses": []},
    )


def judged(stock: Stock, seen: Seen, hurt: Hurt = SEGMENT, accepted: list[str] | None = None) -> Verdict:
    return Judge(stock, hurt, seen, accepted).judge()


def lose(seen: Seen, *gaps: Gap) -> None:
    for gap in gaps:
        for offset in range(gap.first, gap.end):
            seen.partitions[LOG].records.pop(offset, None)
        seen.partitions[LOG].gaps.append(gap)


def test_all_is_well(stock: Stock, seen: Seen) -> None:
    assert judged(stock, seen) == Verdict([], WHOLE, hurts=False)


@pytest.mark.parametrize(
    ("offset", "served", "words"),
    [
        (2, record(9), "wrong record: log-0 at offset 2 is"),
        (3, record(3), "aborted"),
        (0, record(0), "was deleted"),
        (6, record(6), "was never written"),
        (2, record(2)._replace(timestamp=5), "wrong record"),
        (2, record(2)._replace(headers=(("h", b""),)), "wrong record"),
    ],
)
def test_a_wrong_record(stock: Stock, seen: Seen, offset: int, served: Record, words: str) -> None:
    seen.partitions[LOG].records[offset] = served
    (finding,) = judged(stock, seen).findings
    assert words in finding


def test_bytes_that_are_no_batch(stock: Stock, seen: Seen) -> None:
    seen.partitions[LOG].undecodable.append("its CRC does not match")
    assert "no batch" in judged(stock, seen).findings[0]


@pytest.mark.parametrize("code", [0, ErrorCode.OFFSET_OUT_OF_RANGE])
def test_a_silent_loss(stock: Stock, seen: Seen, code: int) -> None:
    lose(seen, Gap(4, 6, code))
    verdict = judged(stock, seen, JOURNAL)
    assert verdict.findings[0].startswith("silent loss: log-0: 2 acknowledged records from offset 4 on")
    assert verdict.hurts


@pytest.mark.parametrize("code", [0, ErrorCode.OFFSET_OUT_OF_RANGE])
def test_a_reader_is_misled_although_somebody_was_told(stock: Stock, seen: Seen, code: int) -> None:
    lose(seen, Gap(4, 6, code))
    seen.reasons = ["journal 0 is damaged at position 7"]
    assert judged(stock, seen, JOURNAL).findings[0].startswith("readers are misled")


def test_a_compacted_topic_owes_the_latest_of_each_key(stock: Stock, seen: Seen) -> None:
    del seen.partitions[TABLE].records[4]
    seen.partitions[TABLE].records[2] = record(2)
    assert "1 acknowledged records from offset 4" in judged(stock, seen).findings[0]


def test_an_error_whose_place_is_listed(stock: Stock, seen: Seen) -> None:
    lose(seen, Gap(4, 6, ErrorCode.KAFKA_STORAGE_ERROR))
    assert judged(stock, seen).findings[0].startswith("unsaid damage: log-0")
    row = {"file": "queues/log-0/0.log", "position": 0, "queue": "log-0", "first_offset": 4, "end_offset": 6}
    seen.status["damages"] = [row]
    assert judged(stock, seen) == Verdict([], LISTED, hurts=True)
    seen.status["damages"] = [row | {"first_offset": 5, "file": "another"}]
    assert judged(stock, seen).findings[0].startswith("unsaid damage: log-0: 1 records from offset 4")


def test_a_place_that_was_repaired(stock: Stock, seen: Seen) -> None:
    seen.partitions[LOG].healed = True
    assert judged(stock, seen) == Verdict([], REPAIRED, hurts=False)


def test_a_tail_that_was_cut_and_logged(stock: Stock, seen: Seen) -> None:
    lose(seen, Gap(5, 6, 0))
    seen.committed["group", LOG] = (0, 4)
    seen.writes[LOG] = Wrote(0, (5,), stored=True)
    seen.log = WARNING.replace("WARNING", "INFO") + "journal 0 was cut by 90 bytes"
    assert judged(stock, seen, JOURNAL).findings[0].startswith("silent loss"), "nobody reads what is said at INFO"
    seen.log = WARNING + "journal 0 was cut by 90 bytes"
    assert judged(stock, seen, JOURNAL) == Verdict([], CUT_TOLD, hurts=True)


def test_a_committed_offset_that_goes_back(stock: Stock, seen: Seen) -> None:
    seen.committed["group", LOG] = (0, 4)
    assert "committed offset of group on log-0 is 4 instead of 5" in judged(stock, seen).findings[0]
    seen.committed["group", LOG] = (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    assert judged(stock, seen).findings == []


def test_settings_that_go_back(stock: Stock, seen: Seen) -> None:
    seen.topic_settings = {"log": {}}
    assert "settings of log are" in judged(stock, seen).findings[0]
    assert judged(stock, seen, accepted=["the metadata are old: settings may be too"]).findings == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"producer_ids": [(0, 7)]}, "producer id 7"),
        ({"transactional": {"mover": (0, 8, 3)}}, "epoch 3 of the producer id 8 of mover"),
        ({"transactional": {"mover": (0, 7, 0)}}, "producer id 7, to mover"),
        ({"queue_ids": {2}}, "queue ids [2]"),
        ({"epoch": 4}, "epoch 4"),
        ({"writes": {LOG: Wrote(0, (5,), stored=True)}}, "offset 5 of log-0"),
    ],
)
def test_what_is_given_out_again(stock: Stock, seen: Seen, change: dict[str, object], words: str) -> None:
    for name, value in change.items():
        setattr(seen, name, value)
    (finding,) = judged(stock, seen).findings
    assert finding.startswith("given out again") and words in finding


def test_a_record_that_is_acknowledged_and_not_stored(stock: Stock, seen: Seen) -> None:
    seen.writes[LOG] = Wrote(0, (6,), stored=False)
    assert judged(stock, seen).findings == ["acknowledged and not stored: log-0 at offsets [6]"]


def test_writes_that_are_refused(stock: Stock, seen: Seen) -> None:
    seen.writes[LOG] = Wrote(ErrorCode.KAFKA_STORAGE_ERROR, (), stored=True)
    assert "says that all is well" in judged(stock, seen, JOURNAL).findings[0]
    seen.reasons = ["journal 0 is damaged"]
    assert judged(stock, seen, JOURNAL) == Verdict([], READ_ONLY, hurts=True)
    assert "after the loss was accepted" in judged(stock, seen, JOURNAL, []).findings[0]
    stock.is_checkpointed = True
    assert "nothing was lost that could be a reason" in judged(stock, seen, JOURNAL).findings[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"log": "Traceback (most recent call last):"}, "traceback"),
        ({"exit_code": 1}, "SIGTERM ended with 1"),
        ({"memory_bytes": MEMORY_BYTES_MAX + 1}, "256 MB of memory"),
    ],
)
def test_a_process_that_behaves_badly(stock: Stock, seen: Seen, change: dict[str, object], words: str) -> None:
    for name, value in change.items():
        setattr(seen, name, value)
    assert words in judged(stock, seen).findings[0]


def test_what_was_accepted_as_lost_need_not_be_there(stock: Stock, seen: Seen) -> None:
    lose(seen, Gap(4, 6, ErrorCode.OFFSET_OUT_OF_RANGE))
    seen.writes[LOG] = Wrote(0, (4,), stored=True)
    seen.committed["group", LOG] = (0, -1)
    text = "something is gone\n  lost: log-0: offsets 4 to 5\n  committed offsets of 1 group are lost"
    assert judged(stock, seen, accepted=[text]) == Verdict([], ACCEPTED, hurts=True)
    findings = judged(stock, seen, accepted=["lost: log-0: offsets 5 on, as many as there were"]).findings
    assert "1 acknowledged records from offset 4" in findings[0] and "committed offset" in findings[1]


def test_a_list_of_losses_is_read() -> None:
    lost = Lost(
        ['{"queues":["my-topic-0: offsets 0 to 4","b-12: offset 7","c-1: offsets 9 on, as many as there were"]}']
    )
    assert lost.ranges == {Place("my-topic", 0): [(0, 5)], Place("b", 12): [(7, 8)], Place("c", 1): [(9, 1 << 62)]}
    assert not lost.everything
    ended = Lost(["--accept-loss: moves-0: the end of the transaction that producer 7 began at offset 95 may be lost"])
    assert ended.ranges == {Place("moves", 0): [(95, 1 << 62)]}
    assert Lost(["names, partitions and settings of all topics are lost"]).covers(LOG, 99)


def test_damages_change_what_they_name(tmp_path: Path) -> None:
    files = {
        "journal/0/00000000000000000000.jnl": "journal",
        "queues/a-0/00000000000000000000.log": "segment",
        "queues/a-0/00000000000000000000.log.cleaned": "unfinished",
        "meta.db-wal": "meta.db-wal",
        "journal/0/next.new": "next.new",
        "journal/0/synced": "synced",
    }
    for name in [*files, "lock"]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"" if name.endswith("next.new") else bytes(range(1, 256)) * 40)
    assert {kind: names for kind, names in files_of(tmp_path).items()} == {v: [k] for k, v in files.items()}
    assert all(kind_of(Path(name)) == kind for name, kind in files.items())
    seen: Counter[str] = Counter()
    for seed in range(300):
        hurt = choose(tmp_path, Random(seed))
        assert hurt == choose(tmp_path, Random(seed)), "a seed repeats it"
        before = (tmp_path / hurt.file).read_bytes()
        after = hurt.done_to(before)
        seen[hurt.way] += 1
        if hurt.way == GONE:
            assert after is None
        elif hurt.way == CUT:
            assert after == before[: hurt.at] != before
        else:
            changed = [i for i, (a, b) in enumerate(zip(before, after or b"", strict=True)) if a != b]
            assert changed and (len(changed) == 1 if hurt.way == BIT else changed[-1] - changed[0] < 4096)
    assert all(seen[way] > 10 for way in (BIT, CUT, ZEROES, GONE))


def test_the_identity_of_another_queue_takes_the_place_of_one(tmp_path: Path) -> None:
    for name in ("a-0", "b-0"):
        (tmp_path / "queues" / name).mkdir(parents=True)
        (tmp_path / "queues" / name / "queue.json").write_text(name * 9)
    hurts = [choose(tmp_path, Random(seed)) for seed in range(100)]
    misplaced = [hurt for hurt in hurts if hurt.way == MISPLACED]
    assert 10 < len(misplaced) < 90
    misplaced[0].apply(tmp_path)
    texts = {path.read_text() for path in tmp_path.rglob("queue.json")}
    assert len(texts) == 1 and misplaced[0].source in str(misplaced[0]) != misplaced[0].file


def test_the_table_adds_up() -> None:
    counts = Counter(
        {
            key("journal", BIT, WHOLE): 3,
            key("journal", CUT, BROKEN): 1,
            key("synced", GONE, WHOLE): 1200,
            "records checked": 5000,
        }
    )
    text = damage_tables(counts)
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    assert rows[0] == ["file", "trials", *(BIT, CUT, ZEROES, GONE, MISPLACED), WHOLE, BROKEN]
    assert rows[1] == ["journal", "4", "3", "1", "-", "-", "-", "3", "1"]
    assert rows[2] == ["synced", "1,200", "-", "-", "-", "1,200", "-", "1,200", "-"]
    assert rows[3] == ["all", "1,204", "3", "1", "-", "1,200", "-", "1,203", "1"]
    assert ["cut", "1", "-", "1"] in rows
    assert text.endswith("records checked: 5,000.\n")
    assert key("00000000000000000007.previous", BIT, WHOLE) == key("00000000000000000008.previous", BIT, WHOLE)
