"""What a broker on damaged files may show, and what not. Pure: a stock, a damage and what was seen give findings.

Nothing wrong is ever served; nothing that was acknowledged is missing unless somebody was told; no id is given twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from cairnmq.errors import ErrorCode
from crash.ledger import Place
from damage.hurt import Hurt
from damage.sight import PartitionSeen, Seen
from damage.stock import Stock

MEMORY_BYTES_MAX = 256 << 20
LOUD = re.compile(r"^\S+ (WARNING|ERROR|CRITICAL) ")
ENTRY = re.compile(r"^\d{4}-\d\d-\d\d[T ]")
LOST_OFFSETS = re.compile(r"([\w.-]+)-(\d+): offset(s?) (\d+)(?: to (\d+))?")
LOST_ENDS = re.compile(r"([\w.-]+)-(\d+): the end of the transaction that producer \d+ began at offset (\d+)")
NO_END = 1 << 62
ALL_LOST = re.compile(r"settings of all topics are lost")
CUT = re.compile(r"\bcut\b|\btorn\b|\btruncated\b")
SILENT = (0, ErrorCode.OFFSET_OUT_OF_RANGE)
"""What makes a reader wait, or rewind and skip: neither tells anybody that records are gone."""

WHOLE, REPAIRED, LISTED, READ_ONLY, CUT_TOLD, ACCEPTED, RESTORED = OUTCOMES = (
    "all served",
    "repaired",
    "error, place listed",
    "no writes, told",
    "tail cut, logged",
    "refused; accepted or repaired, losses listed",
    "refused; only a copy helps",
)


@dataclass
class Verdict:
    findings: list[str] = field(default_factory=list)
    outcome: str = WHOLE
    hurts: bool = False
    """Something was lost, hidden or refused: `cairn verify` must say so too."""


def told(seen: Seen) -> list[str]:
    """What somebody who watches gets to know, beside the list of damages: warnings and worse, reasons, losses."""
    lines: list[str] = []
    loud = False
    for line in seen.log.splitlines():
        if ENTRY.match(line):
            loud = LOUD.match(line) is not None
        if loud:
            lines.append(line)
    return [*lines, *seen.reasons, *rows(seen.status.get("losses", ()))]


def rows(them: Iterable[object]) -> list[str]:
    return [msgspec.json.encode(each).decode() for each in them]


class Lost:
    """What a start that goes on without it lists as lost."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = list(texts)
        self.everything = any(ALL_LOST.search(text) for text in self.texts)
        self.ranges: dict[Place, list[tuple[int, int]]] = {}
        for text in self.texts:
            for topic, partition, many, first, last in LOST_OFFSETS.findall(text):
                end = int(last or first) + 1 if last or not many else NO_END
                self.ranges.setdefault(Place(topic, int(partition)), []).append((int(first), end))
            for topic, partition, first in LOST_ENDS.findall(text):  # readers of committed records wait there
                self.ranges.setdefault(Place(topic, int(partition)), []).append((int(first), NO_END))

    def covers(self, place: Place, offset: int) -> bool:
        return self.everything or any(first <= offset < end for first, end in self.ranges.get(place, ()))

    def mentions(self, *words: str) -> bool:
        return self.everything or any(word in text for text in self.texts for word in words)


class Judge:
    """`accepted`: texts of a refusal that a person has accepted, and of what was done then."""

    def __init__(self, stock: Stock, hurt: Hurt | None, seen: Seen, accepted: Iterable[str] | None = None) -> None:
        self.stock = stock
        self.seen = seen
        self.told = told(seen)
        self.is_accepted = accepted is not None
        self.lost = Lost([*accepted, *self.told] if accepted is not None else [])
        self.names = hurt.names if hurt is not None else ()
        said = [*self.told, *rows(seen.status.get("damages", ()))]
        self.is_named = any(name in text for text in said for name in self.names)
        self.cut_told = any(CUT.search(text) and "journal" in text for text in self.told)
        self.verdict = Verdict()
        self.outcomes: set[str] = set()

    def found(self, text: str) -> None:
        self.verdict.findings.append(text)
        self.verdict.hurts = True

    def judge(self) -> Verdict:
        for place, partition in self.seen.partitions.items():
            self.served(place, partition)
            self.missing(place, partition)
        self.committed()
        self.settings()
        self.ids()
        self.written()
        self.process()
        for outcome in (ACCEPTED, CUT_TOLD, READ_ONLY, LISTED, REPAIRED):
            if outcome in self.outcomes or (outcome == ACCEPTED and self.is_accepted):
                self.verdict.outcome = outcome
                break
        self.verdict.hurts |= self.is_accepted or bool(self.outcomes & {CUT_TOLD, READ_ONLY, LISTED})
        return self.verdict

    def served(self, place: Place, partition: PartitionSeen) -> None:
        stock = self.stock
        for text in partition.undecodable:
            self.found(f"{name(place)}: bytes were served that are no batch: {text}")
        for offset, record in partition.records.items():
            at = f"{name(place)} at offset {offset}"
            if offset in stock.never[place]:
                self.found(f"wrong record: {at} is one that was aborted, or never decided")
            elif offset < stock.starts[place]:
                self.found(f"wrong record: {at} was deleted")
            elif offset not in stock.records[place]:
                self.found(f"wrong record: {at} was never written")
            elif record != stock.records[place][offset]:
                self.found(
                    f"wrong record: {at} is {record!r:.200}, acknowledged was {stock.records[place][offset]!r:.200}"
                )

    def missing(self, place: Place, partition: PartitionSeen) -> None:
        """Each must be listed as lost, or its reader must be told, and somebody who watches too."""
        if partition.healed:
            self.outcomes.add(REPAIRED)
        missing = [offset for offset in self.stock.pending(place) if offset not in partition.records]
        silent: dict[int, list[int]] = {}
        unlisted: list[int] = []
        for offset in missing:
            gap = partition.gap_at(offset)
            code = gap.code if gap is not None else 0
            if self.lost.covers(place, offset):
                continue
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and self.lost.mentions("topics"):
                continue  # metadata that are older cannot name what they do not know
            if code in SILENT:
                silent.setdefault(code, []).append(offset)
            elif self.listed(place, offset):
                self.outcomes.add(LISTED)
            else:
                unlisted.append(offset)
        for code, offsets in silent.items():
            said = "without an error" if code == 0 else "with OFFSET_OUT_OF_RANGE"
            what = (
                f"{name(place)}: {len(offsets)} acknowledged records from offset {offsets[0]} on are not served, {said}"
            )
            if self.cut_told:
                self.outcomes.add(CUT_TOLD)
            elif self.is_named:
                self.found(f"readers are misled: {what}")
            else:
                self.found(f"silent loss: {what}, and nobody is told")
        if unlisted:
            self.found(
                f"unsaid damage: {name(place)}: {len(unlisted)} records from offset {unlisted[0]} on get an error, and "
                f"neither the log nor the status names the place"
            )
        if missing:
            self.verdict.hurts = True

    def listed(self, place: Place, offset: int) -> bool:
        for row in self.seen.status.get("damages", ()):
            is_in = row["first_offset"] <= offset and (offset < row["end_offset"] or row["end_offset"] < 0)
            if row["queue"] == name(place) and (is_in or row["first_offset"] < 0):
                return True
        return any(each in text for text in self.told for each in (*self.names, name(place)))

    def committed(self) -> None:
        for (group, place), offset in self.stock.committed.items():
            code, got = self.seen.committed.get((group, place), (0, -1))
            if code or got == offset:
                if code:
                    self.verdict.hurts = True
                    self.outcomes.add(LISTED)
                continue
            self.verdict.hurts = True
            if self.lost.mentions("ommitted offset", "ommitted of", group):
                continue
            if self.cut_told and got < offset:
                self.outcomes.add(CUT_TOLD)
                continue
            self.found(
                f"the committed offset of {group} on {name(place)} is {got} instead of {offset}, without an error"
            )

    def settings(self) -> None:
        for topic, wanted in self.stock.topic_settings.items():
            got = self.seen.topic_settings.get(topic)
            if got != wanted and not self.lost.mentions("setting", topic):
                self.verdict.hurts = True
                self.found(f"settings of {topic} are {got} instead of {wanted}, and nobody is told")

    def ids(self) -> None:
        stock, seen = self.stock, self.seen
        for code, producer_id in seen.producer_ids:
            if not code and producer_id in stock.producer_ids:
                self.found(f"given out again: producer id {producer_id}")
        for each, (code, producer_id, epoch) in seen.transactional.items():
            known_id, known_epoch = stock.transactional[each]
            if code:
                continue
            if producer_id == known_id and epoch <= known_epoch:
                self.found(f"given out again: epoch {epoch} of the producer id {producer_id} of {each}")
            elif producer_id != known_id and producer_id in stock.producer_ids:
                self.found(f"given out again: producer id {producer_id}, to {each}")
        again = sorted(seen.queue_ids & stock.queue_ids)
        if again:
            self.found(f"given out again: queue ids {again}")
        if seen.epoch <= stock.epoch:
            self.found(f"given out again: epoch {seen.epoch} (clients saw {stock.epoch})")

    def written(self) -> None:
        refused = []
        for place, wrote in self.seen.writes.items():
            if not wrote.stored:
                self.found(f"acknowledged and not stored: {name(place)} at offsets {list(wrote.offsets)}")
            end = self.stock.ends.get(place, 0)
            for offset in wrote.offsets:
                reused = [each for each in self.stock.records.get(place, {}) if offset <= each < end]
                if reused and not all(self.lost.covers(place, each) or self.cut_told for each in reused):
                    self.found(f"given out again: offset {offset} of {name(place)}, which had ended at {end}")
                    break
            if wrote.code:
                refused.append((place, wrote.code))
        if refused or any(code for code, _ in self.seen.producer_ids):
            self.verdict.hurts = True
            what = f"{len(refused)} partitions take no writes" if refused else "new producers get no id"
            why = f" ({name(refused[0][0])}: error {refused[0][1]})" if refused else ""
            if self.is_accepted:
                self.found(f"{what} after the loss was accepted{why}")
            elif refused and self.stock.is_checkpointed:
                self.found(f"{what}{why}, and nothing was lost that could be a reason")
            elif self.seen.reasons:
                self.outcomes.add(READ_ONLY)
            else:
                self.found(f"{what}{why}, and /health/ready says that all is well")

    def process(self) -> None:
        if "Traceback (most recent call last)" in self.seen.log:
            self.found("a traceback in the log")
        if self.seen.exit_code:
            self.found(f"SIGTERM ended with {self.seen.exit_code}")
        if self.seen.memory_bytes > MEMORY_BYTES_MAX:
            self.found(f"{self.seen.memory_bytes >> 20} MB of memory")


def name(place: Place) -> str:
    return f"{place.topic}-{place.partition}"
