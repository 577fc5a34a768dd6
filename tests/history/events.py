"""What clients asked, were told and saw, under one clock that only counts: the input of the checker.

An event has the time it was asked at, noted before the call, and the time of its answer, noted after it. So of two
events of which one was answered before the other was asked, the order is certain; of others it is not.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from crash.ledger import Place


class Result(StrEnum):
    ACKED = "acked"
    FAILED = "failed"  # told for certain that it has no effect
    UNKNOWN = "unknown"  # no answer, or one that says nothing of an earlier try


@dataclass
class Event:
    asked: int
    answered: int | None = None
    result: Result = Result.UNKNOWN

    def before(self, other: Event) -> bool:
        """Over, whatever came of it, when the other one was asked."""
        return self.answered is not None and self.answered < other.asked


@dataclass(kw_only=True)
class Session(Event):
    """A transactional producer; ACKED once it is initialized, which fences all earlier ones of the same id."""

    name: str
    transactional_id: str


@dataclass(kw_only=True)
class End(Event):
    commit: bool


@dataclass(kw_only=True)
class Transaction(Event):
    """`asked` is its beginning. The end is an event of its own, None if nobody asked for one."""

    name: str
    session: Session
    end: End | None = None


@dataclass(kw_only=True)
class Send(Event):
    """One record. The values that are sent to a partition are all different; those of one writer come in order.

    `weak`: acks=1, so that a new leader need not have it. `plain`: by a producer that is not idempotent. It may be
    there more than once, and change places: libraries send again what a former leader refused after it was stored.
    Of others only an `EpochBegun` can excuse another copy.
    """

    writer: str
    place: Place
    value: str
    transaction: Transaction | None = None
    offset: int | None = None
    weak: bool = False
    plain: bool = False


@dataclass(kw_only=True)
class EpochBegun(Event):
    """An idempotent producer began a new epoch by itself: of what was not answered by then another copy may come."""

    writer: str


class Seen(NamedTuple):
    offset: int
    value: str


@dataclass(kw_only=True)
class Read(Event):
    """Records of one partition, in the order in which they were given.

    `snapshot` names reads of everything that was visible, from the log start to the end, of all partitions, together.
    `reader` names a consumer that began at offset 0 and never seeks. Without both only the records themselves count.
    `group`: the reader is one of its members, as long as it has the partition, and began where the group was.
    """

    place: Place
    records: tuple[Seen, ...]
    committed: bool = True
    snapshot: str = ""
    reader: str = ""
    group: str = ""


@dataclass(kw_only=True)
class Commit(Event):
    """Of a group's offset, alone or in a transaction. Whoever commits for a group never means to go back."""

    group: str
    place: Place
    offset: int
    transaction: Transaction | None = None


@dataclass(kw_only=True)
class Position(Event):
    """A group's offset as somebody read it; 0 if there was none."""

    group: str
    place: Place
    offset: int


@dataclass(kw_only=True)
class Leadership(Event):
    """The epoch of a partition's leader as a broker told it; it never falls, and grows when another one leads."""

    place: Place
    epoch: int
    node: int = 0


class Copy(NamedTuple):
    """Each record of one topic becomes one of the same partition of another: its value, a bar, and anything."""

    group: str
    source: str
    target: str


@dataclass
class History:
    """Events in the order in which they were asked. Any thread may note one."""

    sessions: list[Session] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    sends: list[Send] = field(default_factory=list)
    epochs: list[EpochBegun] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    positions: list[Position] = field(default_factory=list)
    leaderships: list[Leadership] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    clock: itertools.count[int] = field(default_factory=itertools.count)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def open(self, name: str, transactional_id: str) -> Session:
        with self.lock:
            self.sessions.append(Session(next(self.clock), name=name, transactional_id=transactional_id))
            return self.sessions[-1]

    def begin(self, name: str, session: Session) -> Transaction:
        with self.lock:
            self.transactions.append(Transaction(next(self.clock), name=name, session=session))
            return self.transactions[-1]

    def end(self, transaction: Transaction, *, commit: bool) -> End:
        with self.lock:
            transaction.end = End(next(self.clock), commit=commit)
            return transaction.end

    def send(
        self,
        writer: str,
        place: Place,
        value: str,
        transaction: Transaction | None = None,
        *,
        weak: bool = False,
        plain: bool = False,
    ) -> Send:
        with self.lock:
            send = Send(
                next(self.clock),
                writer=writer,
                place=place,
                value=value,
                transaction=transaction,
                weak=weak,
                plain=plain,
            )
            self.sends.append(send)
            return send

    def begin_epoch(self, writer: str) -> None:
        with self.lock:
            self.epochs.append(EpochBegun(next(self.clock), writer=writer))

    def commit(self, group: str, place: Place, offset: int, transaction: Transaction | None = None) -> Commit:
        with self.lock:
            now = next(self.clock)
            self.commits.append(Commit(now, group=group, place=place, offset=offset, transaction=transaction))
            return self.commits[-1]

    def answer(self, event: Event, result: Result, offset: int | None = None) -> None:
        """`offset`: where a record was said to be."""
        with self.lock:
            event.answered = next(self.clock)
            event.result = result
            if isinstance(event, Send):
                event.offset = offset

    def now(self) -> int:
        """To be taken before records or a position are asked for, which are noted when they are there."""
        with self.lock:
            return next(self.clock)

    def read(
        self,
        asked: int,
        place: Place,
        records: Iterable[Seen],
        *,
        committed: bool,
        snapshot: str = "",
        reader: str = "",
        group: str = "",
    ) -> None:
        with self.lock:
            self.reads.append(
                Read(
                    asked,
                    next(self.clock),
                    Result.ACKED,
                    place=place,
                    records=tuple(records),
                    committed=committed,
                    snapshot=snapshot,
                    reader=reader,
                    group=group,
                )
            )

    def position(self, asked: int, group: str, place: Place, offset: int) -> None:
        with self.lock:
            answered = next(self.clock)
            self.positions.append(Position(asked, answered, Result.ACKED, group=group, place=place, offset=offset))

    def leadership(self, asked: int, place: Place, epoch: int, node: int = 0) -> None:
        with self.lock:
            self.leaderships.append(
                Leadership(asked, next(self.clock), Result.ACKED, place=place, epoch=epoch, node=node)
            )
