"""What clients of groups and transactions on the simulated machine were told, and what must be stored because of it.

Facts are durable before anybody hears of them, whatever the flush policy of any topic: no stop may take them back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from cairnmq.codec.batch import CONTROL_BIT, TRANSACTIONAL_BIT, read_header
from cairnmq.codec.records import decode_batch
from cairnmq.decision import KeyedRecord
from cairnmq.groups import stored_group
from cairnmq.groups.offsets import OffsetKey, Offsets
from cairnmq.groups.stored_group import ClassicRecord, GroupRecord
from cairnmq.testing.oracle import demand, serial_of
from cairnmq.transactions.record import PREPARED, State, TransactionRecord

Number: TypeAlias = tuple[str, int]  # a group's protocol, and its generation or epoch
OfThese: TypeAlias = Callable[[str], bool]  # groups that are looked at
BatchName: TypeAlias = tuple[int, int]  # producer id, serial number of the batch

CLASSIC, CONSUMER = "classic", "consumer"


class Ledger:
    """Belongs to the clients: it survives every stop of the machine."""

    def __init__(self) -> None:
        self._latest: dict[str, Number] = {}  # group -> what was last decided about it
        self._told: dict[str, Number] = {}  # group -> what a member was told, and nothing was decided against since
        self._haunted: set[str] = set()
        self.tried: dict[OffsetKey, list[int]] = {}  # offsets that a client tried to commit, ascending
        self.kept: dict[OffsetKey, int] = {}  # the largest that was acknowledged, or read
        self.batches: dict[BatchName, int] = {}  # batch -> its transaction
        self.producers: set[int] = set()  # who wrote them
        self.ended: dict[int, bool] = {}  # transaction -> how its producer was told that it ended
        self.offset_of: dict[int, OffsetKey] = {}  # transaction -> where it committed its own number, as it was told

    # ---------------------------------------------------------------------------------------------------- groups

    def decided(self, fact: KeyedRecord) -> None:
        """A fact is on its way: generations and epochs of a group grow, until it begins anew."""
        space, key, value = fact
        if space != stored_group.SPACE:
            return
        group, before = key.decode(), self._latest.get(key.decode())
        now = None if value is None else number_of(stored_group.decode(value))
        if now is not None and before is not None and now[0] == before[0]:
            demand(now[1] >= before[1], "group", group, "goes back from", before, "to", now)
        else:
            self._told.pop(group, None)
        self._set_latest(group, now)

    def taken_back(self, group: str, stored: bytes | None) -> None:
        """What was decided could not be stored; its bytes may turn up after a power loss all the same."""
        self._haunted.add(group)
        self._told.pop(group, None)
        self._set_latest(group, None if stored is None else number_of(stored_group.decode(stored)))

    def _set_latest(self, group: str, now: Number | None) -> None:
        if now is None:
            self._latest.pop(group, None)
        else:
            self._latest[group] = now

    def told(self, group: str, kind: str, number: int) -> None:
        """A member was told an assignment of this generation, or an epoch."""
        latest = self._latest.get(group)
        if latest is not None and latest[0] == kind and group not in self._haunted:
            self._told[group] = (kind, max(number, self._told.get(group, (kind, 0))[1]))

    def check_groups(self, stored: Mapping[str, bytes], of: OfThese) -> None:
        for group, (kind, number) in self._told.items():
            if not of(group):
                continue
            found = number_of(stored_group.decode(stored[group])) if group in stored else None
            kept = found is not None and found[0] == kind and found[1] >= number
            demand(kept, "group", group, "was told", kind, number, "and is stored as", found)

    def recovered(self, stored: Mapping[str, bytes], of: OfThese) -> None:
        self._haunted = {group for group in self._haunted if not of(group)}
        self._latest = {group: number for group, number in self._latest.items() if not of(group)}
        self._latest |= {group: number_of(stored_group.decode(value)) for group, value in stored.items()}

    # --------------------------------------------------------------------------------------------------- offsets

    def acknowledged(self, key: OffsetKey, offset: int) -> None:
        if key in self.tried:
            self.kept[key] = max(offset, self.kept.get(key, offset))

    def forget_topic(self, topic_id: bytes) -> None:
        for known in (self.tried, self.kept):
            for key in [key for key in known if key.topic_id == topic_id]:
                del known[key]

    def check_offsets(self, offsets: Offsets, of: OfThese, *, seen: bool) -> None:
        """`seen`: clients read these, so they are no less than a promise."""
        for key, tried in self.tried.items():
            if not of(key.group):
                continue
            found = offsets.get(key.group, key.topic_id, key.partition)
            floor = self.kept.get(key)
            if found is None:
                demand(floor is None, key, "was committed to", floor, "and is gone")
                continue
            demand(found.offset in tried, key, "is at", found.offset, "which nobody committed")
            demand(floor is None or found.offset >= floor, key, "went back from", floor, "to", found.offset)
            if seen:
                self.kept[key] = found.offset

    # ---------------------------------------------------------------------------------------------- transactions

    def wrote(self, producer_id: int, serial: int, transaction: int) -> None:
        self.batches[producer_id, serial] = transaction
        self.producers.add(producer_id)

    def check_queue(self, who: str, batches: Iterable[tuple[int, int, bytes]]) -> None:
        """Batches of a transaction have ended as its producer was told."""
        for batch, commit in endings(batches).items():
            transaction = self.batches.get(batch)
            told = self.ended.get(transaction) if transaction is not None else None
            if told is not None:
                demand(commit is told, who, "batch", batch, "was told to be", told, "and is", commit)

    def check_transactional_offsets(self, offsets: Offsets, of: OfThese) -> None:
        for transaction, key in self.offset_of.items():
            if not of(key.group):
                continue
            told = self.ended.get(transaction)
            found = offsets.get(key.group, key.topic_id, key.partition)
            if told is None:
                continue
            at = -1 if found is None else found.offset
            if told:
                demand(at >= transaction, key, "is at", at, "but transaction", transaction, "was committed")
            else:
                demand(at != transaction, key, "is at", at, "of a transaction that was aborted")


def number_of(found: GroupRecord) -> Number:
    if isinstance(found, ClassicRecord):
        return CLASSIC, found.generation
    return CONSUMER, found.epoch


def endings(batches: Iterable[tuple[int, int, bytes]]) -> dict[BatchName, bool | None]:
    """How the batches of transactions have ended: committed, aborted, or not at all (None)."""
    open_: dict[int, list[BatchName]] = {}
    found: dict[BatchName, bool | None] = {}
    for _, _, data in batches:
        header = read_header(data)
        if header.attributes & CONTROL_BIT:
            commit = next(decode_batch(data)).key != b"\0\0\0\0"
            found.update(dict.fromkeys(open_.pop(header.producer_id, ()), commit))
        elif header.attributes & TRANSACTIONAL_BIT:
            batch = header.producer_id, serial_of(data)
            open_.setdefault(header.producer_id, []).append(batch)
            found[batch] = None
    return found


def check_open(who: str, queue_id: int, producers: Iterable[int], records: Mapping[int, TransactionRecord]) -> None:
    """Nothing hangs: whatever is open in a queue is named in a stored fact that will lead a marker to it."""
    for producer_id in producers:
        found = records.get(producer_id)
        led = found is not None and (found.state is State.ONGOING or found.state in PREPARED)
        demand(
            led and found is not None and queue_id in found.queues,
            who,
            "producer",
            producer_id,
            "hangs; stored:",
            found,
        )
