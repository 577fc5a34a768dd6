"""What would be lost, and what would stand still, if a broker of a cluster died now. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from cairnmq.client.cluster_report import DOWN, ClusterReport, JournalRow, names


class Outlook(Struct, frozen=True):
    """Of one broker that is up; `cairn cluster health` shows it."""

    broker: int
    moves: tuple[int, ...] = ()  # journals that another broker would lead
    stops: tuple[int, ...] = ()  # journals without a leader until it is back: nobody else is in sync
    single: tuple[int, ...] = ()  # the same, of journals that have no other replica
    thin: tuple[int, ...] = ()  # journals that would have one replica in sync left, of several
    acks1_bytes: int | None = 0  # written, and not on all in-sync replicas: only acks=1 was promised for it
    only_bytes: int | None = 0  # in journals of `stops`: what its disk alone has

    def sentences(self) -> list[str]:
        """None of them: nothing would change."""
        said = []
        if self.stops:
            only = "what was written since the others left" if self.only_bytes is None else _bytes(self.only_bytes)
            said.append(
                f"{names('journal', self.stops)} would have no leader until it is back; its disk alone has {only}"
            )
        if self.single:
            said.append(f"{names('journal', self.single)} would have no leader until it is back: replication factor 1")
        if self.moves:
            said.append(f"{names('journal', self.moves)} would move; no record acknowledged with acks=all is lost")
        if self.acks1_bytes != 0:
            said.append(
                f"{_bytes(self.acks1_bytes)} are not on all in-sync replicas yet: records in them that were "
                "acknowledged with acks=1 may be lost"
            )
        if self.thin:
            said.append(f"{names('journal', self.thin)} would have one replica in sync left")
        return said


def outlooks(report: ClusterReport) -> list[Outlook]:
    """Of every broker that is up."""
    return [_outlook(row.broker, report.journals) for row in report.brokers if row.state != DOWN]


def _outlook(broker: int, journals: Sequence[JournalRow]) -> Outlook:
    moves: list[int] = []
    stops: list[int] = []
    single: list[int] = []
    thin: list[int] = []
    acks1: list[int | None] = []
    only: list[int | None] = []
    for row in journals:
        mine = row.replica(broker)
        if mine is None or not (mine.in_sync or row.leader == broker):
            continue  # whether it is up makes no difference
        others = [replica for replica in row.replicas if replica.in_sync and replica.broker != broker]
        if len(others) == 1:
            thin.append(row.journal)
        if len(row.replicas) == 1:
            single.append(row.journal)
        elif not others:
            stops.append(row.journal)
            only.append(_only_here(row, broker))
        elif row.leader == broker:
            moves.append(row.journal)
            acks1.append(None if row.end is None or row.replicated is None else row.end - row.replicated)
    return Outlook(broker, tuple(moves), tuple(stops), tuple(single), tuple(thin), _sum(acks1), _sum(only))


def _only_here(row: JournalRow, broker: int) -> int | None:
    """What the furthest of the others lacks; None if nobody could tell."""
    lags = [replica.lag_bytes for replica in row.replicas if replica.broker != broker and replica.lag_bytes is not None]
    return min(lags, default=None)


def _sum(found: Sequence[int | None]) -> int | None:
    """None: of some nobody knows."""
    known = [one for one in found if one is not None]
    return sum(known) if len(known) == len(found) else None


def _bytes(count: int | None) -> str:
    return "an unknown number of bytes" if count is None else f"{count:,} bytes"
