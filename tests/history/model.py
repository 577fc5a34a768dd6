"""A broker that keeps its word, in a few lines: its users have clean histories, into which faults can be planted."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from crash.ledger import Place
from history.events import Commit, History, Position, Read, Result, Seen, Send, Session, Transaction

PLACES = [Place("t", 0), Place("t", 1)]
GROUP = "g"


@dataclass
class Model:
    history: History = field(default_factory=History)
    logs: dict[Place, list[Send | None]] = field(default_factory=lambda: {place: [] for place in PLACES})
    """None is a marker."""
    committed: dict[str, bool] = field(default_factory=dict)
    """Transaction -> how it ended."""
    groups: dict[tuple[str, Place], int] = field(default_factory=lambda: defaultdict(int))
    follower: dict[Place, int] = field(default_factory=lambda: defaultdict(int))
    count: int = 0

    def name(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def open(self, transactional_id: str = "id") -> Session:
        session = self.history.open(self.name("session"), transactional_id)
        for transaction in self.history.transactions:
            if transaction.session.transactional_id == transactional_id and transaction.name not in self.committed:
                self._settle(transaction, commit=False)
        self.history.answer(session, Result.ACKED)
        return session

    def begin(self, session: Session) -> Transaction:
        return self.history.begin(self.name("transaction"), session)

    def send(
        self,
        transaction: Transaction | None = None,
        place: Place = PLACES[0],
        value: str = "",
        result: Result = Result.ACKED,
    ) -> Send:
        writer = "plain" if transaction is None else transaction.session.name
        send = self.history.send(writer, place, value or self.name("value"), transaction)
        if result is not Result.FAILED:
            self.logs[place].append(send)
        self.history.answer(send, result, len(self.logs[place]) - 1 if result is Result.ACKED else None)
        return send

    def offset(self, transaction: Transaction, offset: int, place: Place = PLACES[0]) -> Commit:
        commit = self.history.commit(GROUP, place, offset, transaction)
        self.history.answer(commit, Result.ACKED)
        return commit

    def end(
        self, transaction: Transaction, *, commit: bool, result: Result = Result.ACKED, happens: bool = True
    ) -> None:
        """An end that does not happen leaves the transaction open."""
        end = self.history.end(transaction, commit=commit)
        if happens:
            self._settle(transaction, commit=commit)
        self.history.answer(end, result)

    def _settle(self, transaction: Transaction, *, commit: bool) -> None:
        self.committed[transaction.name] = commit
        for log in self.logs.values():
            if any(send is not None and send.transaction is transaction for send in log):
                log.append(None)
        for each in self.history.commits:
            if each.transaction is transaction and commit:
                self.groups[each.group, each.place] = each.offset

    def visible(self, place: Place, *, committed: bool) -> list[Seen]:
        found = []
        for offset, send in enumerate(self.logs[place]):
            if send is None:
                continue
            if committed and send.transaction is not None:
                ended = self.committed.get(send.transaction.name)
                if ended is None:
                    break  # nothing behind an open transaction is stable
                if not ended:
                    continue
            found.append(Seen(offset, send.value))
        return found

    def poll(self, place: Place = PLACES[0]) -> None:
        asked = self.history.now()
        records = [seen for seen in self.visible(place, committed=True) if seen.offset >= self.follower[place]]
        if records:
            self.follower[place] = records[-1].offset + 1
            self.history.read(asked, place, records, committed=True, reader="follower")

    def snapshot(self) -> None:
        name = self.name("snapshot")
        for place in self.logs:
            for committed in (True, False):
                asked = self.history.now()
                self.history.read(
                    asked, place, self.visible(place, committed=committed), committed=committed, snapshot=name
                )

    def position(self, place: Place = PLACES[0]) -> Position:
        asked = self.history.now()
        self.history.position(asked, GROUP, place, self.groups[GROUP, place])
        return self.history.positions[-1]


def last_reads(history: History, *, committed: bool = True) -> dict[Place, Read]:
    """The last whole ones."""
    return {read.place: read for read in history.reads if read.snapshot and read.committed == committed}
