"""Holds a history against what exactly-once promises; each way to break it is a kind of finding.

Nothing is concluded from times that overlap: an end whose answer never came may have happened or not, but then for
all of its transaction, and for every reader alike.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from enum import Enum, StrEnum
from math import inf
from typing import NamedTuple

from crash.ledger import Place
from history.events import (
    Commit,
    Copy,
    Event,
    History,
    Leadership,
    Position,
    Read,
    Result,
    Seen,
    Send,
    Session,
    Transaction,
)


class Kind(StrEnum):
    LOST = "lost"
    VANISHED = "read, and gone later"
    DOUBLED = "doubled"
    REORDERED = "reordered"
    SKIPPED = "skipped"
    INVENTED = "never sent, or refused"
    ABORTED_READ = "read though aborted"
    UNCOMMITTED_READ = "read before its commit"
    INCONSISTENT_OFFSET = "inconsistent offset"
    OFFSET_BACKWARD = "committed offset went back"
    TORN = "torn transaction"
    ZOMBIE = "not fenced"


class Finding(NamedTuple):
    kind: Kind
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


class Fate(Enum):
    """What readers of committed records must find of an event."""

    ALWAYS = "always"
    EITHER = "either"
    NEVER = "never"


def findings(history: History) -> list[Finding]:
    """[] is what we want. Raises ValueError if the history does not say enough to be judged."""
    checker = Checker(history)
    checks = (
        checker.zombies,
        checker.contents,
        checker.offsets,
        checker.copied_offsets,
        checker.streams,
        checker.losses,
        checker.vanished,
        checker.skips,
        checker.group_skips,
        checker.torn,
        checker.positions,
        checker.torn_offsets,
        checker.copies,
    )
    return [finding for check in checks for finding in check()]


class Checker:
    """One history, indexed."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.sent: dict[tuple[Place, str], Send] = {}
        self.sends_of: dict[str, list[Send]] = defaultdict(list)
        for send in history.sends:
            if (send.place, send.value) in self.sent:
                raise ValueError(f"{send.value} was sent to {send.place} twice: nobody could tell them apart")
            self.sent[send.place, send.value] = send
            if send.transaction is not None:
                self.sends_of[send.transaction.name].append(send)
        self.fences = self._fences()
        self.epochs: dict[str, list[int]] = defaultdict(list)
        for epoch in history.epochs:
            self.epochs[epoch.writer].append(epoch.asked)
        self.leaderships: dict[Place, list[Leadership]] = defaultdict(list)
        for told in history.leaderships:
            self.leaderships[told.place].append(told)
        self.group_of = {read.reader: read.group for read in history.reads if read.group}
        self.snapshots: dict[str, list[Read]] = defaultdict(list)
        for read in history.reads:
            if read.snapshot:
                self.snapshots[read.snapshot].append(read)
        self.last: dict[tuple[Place, bool], Read] = {}
        """The last whole read of a place, of committed records or of all"""
        for read in sorted((read for reads in self.snapshots.values() for read in reads), key=lambda read: read.asked):
            self.last[read.place, read.committed] = read
        self._must_be_read()

    def _fences(self) -> dict[str, int]:
        """Session -> when a later one of the same id had been initialized."""
        fences: dict[str, int] = {}
        by_id: dict[str, list[Session]] = defaultdict(list)
        for session in self.history.sessions:
            by_id[session.transactional_id].append(session)
        for sessions in by_id.values():
            opened = [session for session in sessions if session.result is Result.ACKED]
            for session in sessions:
                later = [other.answered for other in opened if session.before(other) and other.answered is not None]
                if later:
                    fences[session.name] = min(later)
        return fences

    def _must_be_read(self) -> None:
        for send in self.history.sends:
            read = self.last.get((send.place, True))
            end = None if send.transaction is None else send.transaction.end
            if read is None or read.asked < send.asked or (end is not None and read.asked < end.asked):
                raise ValueError(f"{send.place} was not read to its end after {send.value} was sent")

    # What an event came to

    def fenced(self, session: Session, event: Event) -> bool:
        """Asked by a session that had a successor by then."""
        return event.asked > self.fences.get(session.name, event.asked)

    def outcome(self, transaction: Transaction) -> Fate:
        end = transaction.end
        if end is None or not end.commit or end.result is Result.FAILED or self.fenced(transaction.session, end):
            return Fate.NEVER
        return Fate.ALWAYS if end.result is Result.ACKED else Fate.EITHER

    def fate(self, event: Send | Commit) -> Fate:
        if event.transaction is not None:
            return self.outcome(event.transaction)
        if isinstance(event, Send) and event.result is Result.ACKED and self.may_be_lost(event):
            return Fate.EITHER
        return {Result.ACKED: Fate.ALWAYS, Result.UNKNOWN: Fate.EITHER, Result.FAILED: Fate.NEVER}[event.result]

    def may_be_lost(self, send: Send) -> bool:
        """Acknowledged by a leader alone, and another one led later. Or before: one that is replaced goes on until it
        hears of that. So only an epoch that every broker had told by then is that of the leader who has it."""
        if not send.weak:
            return False
        told = self.leaderships[send.place]
        known = dict.fromkeys((each.node for each in told), -1)
        for each in told:
            if each.before(send):
                known[each.node] = max(known[each.node], each.epoch)
        before = min(known.values(), default=-1)
        return before < 0 or before < max(each.epoch for each in told)

    def settled(self, event: Send | Commit, by: Event) -> bool:
        """Certain to be there when `by` was asked."""
        if self.fate(event) is not Fate.ALWAYS:
            return False
        last = event if event.transaction is None else event.transaction.end
        return last is not None and last.before(by)

    def decided(self, transaction: Transaction, at: int) -> bool:
        """Committed or aborted at that time, even if nobody knows which: its answer or a successor came before."""
        end = transaction.end
        if end is not None and end.result is not Result.UNKNOWN and end.answered is not None and end.answered < at:
            return True
        return self.fences.get(transaction.session.name, at) < at

    def committed_log(self, place: Place) -> tuple[Seen, ...]:
        read = self.last.get((place, True))
        return () if read is None else read.records

    def copies_allowed(self, send: Send) -> float:
        """How often it may be there: once more for each epoch that began before it was answered."""
        if send.plain:
            return inf
        answered = inf if send.answered is None else send.answered
        return 1 + sum(send.asked < began < answered for began in self.epochs[send.writer])

    # Records

    def zombies(self) -> Iterator[Finding]:
        """Nothing that a fenced session asks for may succeed."""
        for send in self.history.sends:
            if send.transaction is not None and self.succeeded_fenced(send.transaction.session, send):
                yield Finding(Kind.ZOMBIE, f"{send.value} of {send.transaction.session.name} was acknowledged")
        for commit in self.history.commits:
            if commit.transaction is not None and self.succeeded_fenced(commit.transaction.session, commit):
                yield Finding(Kind.ZOMBIE, f"offset {commit.offset} of {commit.transaction.session.name} was taken")
        for transaction in self.history.transactions:
            end = transaction.end
            if end is not None and end.commit and self.succeeded_fenced(transaction.session, end):
                yield Finding(Kind.ZOMBIE, f"{transaction.session.name} committed {transaction.name}")

    def succeeded_fenced(self, session: Session, event: Event) -> bool:
        return event.result is Result.ACKED and self.fenced(session, event)

    def contents(self) -> Iterator[Finding]:
        """Each record that anybody read, alone."""
        for read in self.history.reads:
            for seen in read.records:
                send = self.sent.get((read.place, seen.value))
                what = f"{read.place} offset {seen.offset}: {seen.value}"
                if send is None or send.result is Result.FAILED:
                    yield Finding(Kind.INVENTED, what)
                elif send.transaction is not None:
                    if self.fenced(send.transaction.session, send):
                        yield Finding(Kind.ZOMBIE, f"{what} of {send.transaction.session.name}")
                    if read.committed:
                        yield from self._too_early(read, send.transaction, what)

    def _too_early(self, seen: Read | Position, transaction: Transaction, what: str) -> Iterator[Finding]:
        assert seen.answered is not None
        if transaction.end is None or seen.answered < transaction.end.asked:
            yield Finding(Kind.UNCOMMITTED_READ, f"{what} of {transaction.name}")
        elif self.outcome(transaction) is Fate.NEVER:
            yield Finding(Kind.ABORTED_READ, f"{what} of {transaction.name}")

    def offsets(self) -> Iterator[Finding]:
        """An offset means the same record to everybody: to whom it was acknowledged, and to every reader."""
        told: dict[tuple[Place, int], str] = {}
        for send in self.history.sends:
            if send.result is Result.ACKED and send.offset is not None and not self.may_be_lost(send):
                before = told.setdefault((send.place, send.offset), send.value)
                if before != send.value:
                    what = f"{send.place} offset {send.offset} was acknowledged for {before} and for {send.value}"
                    yield Finding(Kind.INCONSISTENT_OFFSET, what)
        for read in self.history.reads:
            for seen in read.records:
                before = told.setdefault((read.place, seen.offset), seen.value)
                if before != seen.value:
                    what = f"{read.place} offset {seen.offset} was told as {before} and read as {seen.value}"
                    yield Finding(Kind.INCONSISTENT_OFFSET, what)
                acked = self.sent.get((read.place, seen.value))
                if acked is not None and self.copies_allowed(acked) == 1 and acked.offset not in (None, seen.offset):
                    what = f"{read.place}: {seen.value} was acknowledged at {acked.offset} and read at {seen.offset}"
                    yield Finding(Kind.INCONSISTENT_OFFSET, what)

    def copied_offsets(self) -> Iterator[Finding]:
        """Of a record that came again, the copy that was acknowledged is there."""
        for send in self.history.sends:
            if send.offset is not None and 1 < self.copies_allowed(send) < inf:
                found = [seen.offset for seen in self.committed_log(send.place) if seen.value == send.value]
                if found and send.offset not in found:
                    what = f"{send.place}: {send.value} was acknowledged at {send.offset} and is at {found}"
                    yield Finding(Kind.INCONSISTENT_OFFSET, what)

    def whole_streams(self) -> Iterator[tuple[str, Place, list[Seen]]]:
        """What was read in one go, or by one consumer in all its polls."""
        for name, reads in self.snapshots.items():
            for read in reads:
                yield f"{name}{'' if read.committed else ', uncommitted too'}", read.place, [*read.records]
        for (reader, place, _), records in self.followed().items():
            yield reader, place, records

    def followed(self) -> dict[tuple[str, Place, bool], list[Seen]]:
        streams: dict[tuple[str, Place, bool], list[Seen]] = defaultdict(list)
        for read in self.history.reads:
            if read.reader:
                streams[read.reader, read.place, read.committed] += read.records
        return streams

    def streams(self) -> Iterator[Finding]:
        """Once, by ascending offsets, and each writer's records as it sent them."""
        for name, place, records in self.whole_streams():
            times: Counter[str] = Counter()
            latest = -1
            newest: dict[str, Send] = {}
            for seen in records:
                what = f"{place} offset {seen.offset}: {seen.value} by {name}"
                send = self.sent.get((place, seen.value))
                if times[seen.value] >= (1 if send is None else self.copies_allowed(send)):
                    yield Finding(Kind.DOUBLED, what)
                    continue
                if seen.offset <= latest:
                    yield Finding(Kind.REORDERED, f"{what}, behind offset {latest}")
                latest = max(latest, seen.offset)
                times[seen.value] += 1
                is_first = times[seen.value] == 1
                if send is None or send.plain or not is_first:
                    continue
                before = newest.get(send.writer)
                if before is not None and before.asked > send.asked:
                    yield Finding(Kind.REORDERED, f"{what}, behind {before.value}, which was sent later")
                else:
                    newest[send.writer] = send

    def losses(self) -> Iterator[Finding]:
        """What is certain is in every whole read that began later; what was acknowledged, in those of all records."""
        by_place: dict[Place, list[Send]] = defaultdict(list)
        for send in self.history.sends:
            by_place[send.place].append(send)
        for name, reads in self.snapshots.items():
            at_rest = self.at_rest(reads)
            for read in reads:
                values = {seen.value for seen in read.records}
                # Behind an open transaction nothing is seen, so then only what lies before something seen is missed.
                end = None if at_rest else max((seen.offset for seen in read.records), default=-1)
                for send in by_place[read.place]:
                    if send.value in values:
                        continue
                    if read.committed and end is not None and (send.offset is None or send.offset > end):
                        continue
                    if read.committed and self.settled(send, read):
                        yield Finding(Kind.LOST, f"{read.place}: {send.value}, not in {name}")
                    elif self.may_be_lost(send):
                        continue
                    elif not read.committed and send.result is Result.ACKED and send.before(read):
                        yield Finding(Kind.LOST, f"{read.place}: {send.value}, not even uncommitted in {name}")

    def vanished(self) -> Iterator[Finding]:
        """What a reader was given stays, also what may be lost as long as nobody has read it."""
        stay = {key: {seen.value for seen in read.records} for key, read in self.last.items()}
        for read in self.history.reads:
            last = self.last.get((read.place, read.committed))
            if last is None or not read.before(last):
                continue
            for seen in read.records:
                send = self.sent.get((read.place, seen.value))
                is_gone = seen.value not in stay[read.place, read.committed]
                if is_gone and send is not None and send.transaction is None and not self.settled(send, last):
                    yield Finding(Kind.VANISHED, f"{read.place} offset {seen.offset}: {seen.value}")

    def group_skips(self) -> Iterator[Finding]:
        """Below where a group is, some member was given each record."""
        given: dict[tuple[str, Place], set[int]] = defaultdict(set)
        for read in self.history.reads:
            if read.group:
                given[read.group, read.place].update(seen.offset for seen in read.records)
        ends = {(position.group, position.place): position.offset for position in self.history.positions}
        for (group, place), offsets in given.items():
            end = ends.get((group, place), 0)
            for seen in self.committed_log(place):
                if seen.offset < end and seen.offset not in offsets:
                    yield Finding(
                        Kind.SKIPPED, f"{place} offset {seen.offset}: {seen.value} by {group}, which is at {end}"
                    )

    def skips(self) -> Iterator[Finding]:
        """A consumer that went past an offset was given the record there, if there is one at all."""
        for (reader, place, committed), records in self.followed().items():
            log = self.last.get((place, committed))
            if log is None or not records:
                continue
            end = max(seen.offset for seen in records)
            given = {seen.offset for seen in records}
            start = min(given) if reader in self.group_of else 0
            for seen in log.records:
                if start <= seen.offset <= end and seen.offset not in given:
                    yield Finding(Kind.SKIPPED, f"{place} offset {seen.offset}: {seen.value} by {reader}")

    # Transactions

    def at_rest(self, events: Sequence[Event]) -> bool:
        """No transaction was open from the first to the last of them."""
        began = min(event.asked for event in events)
        ended = max(event.answered or event.asked for event in events)
        return all(each.asked > ended or self.decided(each, began) for each in self.history.transactions)

    def torn(self) -> Iterator[Finding]:
        """In a whole read of all partitions, at rest, each transaction is there as a whole, or not at all."""
        for name, reads in self.snapshots.items():
            whole = {read.place: {seen.value for seen in read.records} for read in reads if read.committed}
            if not whole or not self.at_rest(reads):
                continue
            for transaction in self.history.transactions:
                sends = [send for send in self.sends_of.get(transaction.name, ()) if send.place in whole]
                there = [send for send in sends if send.value in whole[send.place]]
                if there and len(there) < len(sends):
                    gone = [send.value for send in sends if send not in there]
                    yield Finding(Kind.TORN, f"{transaction.name}: {gone} are not in {name}, the others are")

    def positions(self) -> Iterator[Finding]:
        """A group's offset is one that was committed, and never falls."""
        commits: dict[tuple[str, Place], list[Commit]] = defaultdict(list)
        for commit in self.history.commits:
            commits[commit.group, commit.place].append(commit)
        earlier: dict[tuple[str, Place], list[Position]] = defaultdict(list)
        for position in self.history.positions:
            key, where = (position.group, position.place), f"{position.group}, {position.place}"
            for before in earlier[key]:
                if before.before(position) and position.offset < before.offset:
                    yield Finding(Kind.OFFSET_BACKWARD, f"{where}: {before.offset}, later {position.offset}")
            for commit in commits[key]:
                if position.offset < commit.offset and self.settled(commit, position):
                    what = f"{where}: {commit.offset} committed, later {position.offset}"
                    yield Finding(Kind.OFFSET_BACKWARD, what)
            earlier[key].append(position)
            if position.offset:
                yield from self._origin(position, commits[key])

    def _origin(self, position: Position, commits: list[Commit]) -> Iterator[Finding]:
        assert position.answered is not None
        commits = [each for each in commits if each.offset == position.offset and each.asked < position.answered]
        if any(not self._problems(commit, position) for commit in commits):
            return
        what = f"{position.group}, {position.place}: offset {position.offset}"
        yield from self._problems(commits[0], position) if commits else [Finding(Kind.INVENTED, what)]

    def _problems(self, commit: Commit, position: Position) -> list[Finding]:
        what = f"{position.group}, {position.place}: offset {position.offset}"
        if commit.transaction is not None:
            return [*self._too_early(position, commit.transaction, what)]
        return [Finding(Kind.INVENTED, what)] if commit.result is Result.FAILED else []

    def last_positions(self) -> dict[tuple[str, Place], int]:
        """Those that may be held against the last snapshot: no transaction was open from the one to the other."""
        last = {(position.group, position.place): position for position in self.history.positions}
        reads = list(self.last.values())
        return {key: position.offset for key, position in last.items() if self.at_rest([*reads, position])}

    def torn_offsets(self) -> Iterator[Finding]:
        """Offsets and records of a transaction are there together."""
        last = self.last_positions()
        visible = {place: {seen.value for seen in self.committed_log(place)} for place, _ in self.last}
        shown = {
            name: any(send.value in visible.get(send.place, ()) for send in sends)
            for name, sends in self.sends_of.items()
        }
        meant = {  # offsets that something else accounts for
            (commit.group, commit.place, commit.offset)
            for commit in self.history.commits
            if commit.transaction is None or shown.get(commit.transaction.name, True)
        }
        for commit in self.history.commits:
            end = last.get((commit.group, commit.place))
            if end is None or commit.transaction is None or commit.transaction.name not in shown:
                continue
            name, what = commit.transaction.name, f"{commit.group}, {commit.place}: offset {commit.offset}"
            if shown[name] and end < commit.offset:
                yield Finding(Kind.TORN, f"{name}: its records are there, not its {what}, but {end}")
            if not shown[name] and end == commit.offset and (commit.group, commit.place, end) not in meant:
                yield Finding(Kind.TORN, f"{name}: its {what} is there, none of its records is")

    def copies(self) -> Iterator[Finding]:
        """Below the group's offset each record of the source was copied once, in order, and above it none."""
        last = self.last_positions()
        for copy in self.history.copies:
            for place, committed in self.last:
                if place.topic == copy.source and committed:
                    yield from self._copied(copy, place, last.get((copy.group, place)))

    def _copied(self, copy: Copy, place: Place, end: int | None) -> Iterator[Finding]:
        sources = {seen.value: seen.offset for seen in self.committed_log(place)}
        copied: set[str] = set()
        latest = -1
        for seen in self.committed_log(Place(copy.target, place.partition)):
            value, bar, _ = seen.value.partition("|")
            what = f"{copy.target} {place.partition} offset {seen.offset}: {seen.value}"
            offset = sources.get(value) if bar else None
            if offset is None:
                continue  # not a copy; that it was sent is checked elsewhere
            if value in copied:
                yield Finding(Kind.DOUBLED, f"{what} is copied twice")
                continue
            copied.add(value)
            if end is not None and offset >= end:
                yield Finding(Kind.TORN, f"{what} comes from offset {offset}; the group is at {end}")
            if offset < latest:
                yield Finding(Kind.REORDERED, f"{what} is from {offset}, behind one from {latest}")
            latest = max(latest, offset)
        for value, offset in sources.items():
            if end is not None and offset < end and value not in copied:
                yield Finding(Kind.SKIPPED, f"{place} offset {offset}: {value} was not copied; the group is at {end}")
