"""What each broker of a cluster tells about brokers and journals, merged into rows and sentences. Pure.

A broker knows the metadata as of its own revision, and of journals that it leads how far each replica is. So all are
asked: the newest metadata count, and of each journal what its leader says. `cluster_outlook.py` tells what would be if
a broker died.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from cairnmq.client.session import Node
from cairnmq.replication.controller import candidates, reach, unclean_winner
from cairnmq.replication.follower_room import BACKLOG_MAX_PERCENT
from cairnmq.replication.records import ClusterView, JournalRecord

LIVE, STOPPING, SILENT, DOWN = "live", "stopping", "silent", "down"


class ReplicaTold(Struct, frozen=True, gc=False):
    """A replica as the leader of its journal knows it; `end` -1: not a byte was asked for since the leader began."""

    broker: int
    end: int = -1
    synced: int = -1
    lag_ms: int = -1  # since it had everything; -1: nobody knows
    unsplit_bytes: int = -1
    unsplit_percent: int = -1  # of the most that may wait for its splitter
    free_bytes: int = -1  # on the disk of its journals
    slows_producers: bool = False  # they wait until it has room


class Led(Struct, frozen=True):
    """A journal as its leader knows it, in one epoch."""

    epoch: int
    end: int
    replicated: int
    durable: int
    replicas: tuple[ReplicaTold, ...] = ()
    ready: bool = True  # all in-sync replicas have reached this epoch, so it serves
    unsplit: int = 0  # bytes that its splitter has not split


class Told(Struct, frozen=True):
    """One broker's answer. `led` are its journals, `stopped` those that take no writes, with the reason."""

    view: ClusterView
    nodes: Mapping[int, Node]
    controller: int = -1
    led: Mapping[int, Led] = {}
    session_age_ms: Mapping[int, int] = {}
    stopped: Mapping[int, str] = {}
    store_trouble: str = ""  # why the broker cannot reach the metadata store
    links: Mapping[int, str] = {}  # why it has no link to another broker
    slots_trouble: str = ""  # why no consumer group and no transaction can begin


class ReplicaRow(Struct, frozen=True):
    """One replica of a journal; None: nobody could tell."""

    broker: int
    in_sync: bool
    live: bool
    lag_bytes: int | None = None
    lag_ms: int | None = None
    unsplit_bytes: int | None = None
    unsplit_percent: int | None = None
    free_bytes: int | None = None
    slows_producers: bool = False


class ReachRow(Struct, frozen=True, gc=False):
    """How far a live replica of a journal without a leader reaches, and the epoch of its last entry; None: it has not
    told. `damaged`: it has lost bytes."""

    broker: int
    last_epoch: int | None
    end: int | None
    damaged: bool


class JournalRow(Struct, frozen=True):
    """One journal. `leader` -1: none."""

    journal: int
    leader: int
    epoch: int
    replicas: tuple[ReplicaRow, ...]
    end: int | None = None
    replicated: int | None = None
    durable: int | None = None
    unsplit: int | None = None
    ready: bool = True
    weak: bool = False
    unclean_epoch: int = 0
    unclean_winner: int = -1  # who would lead if an unclean election were asked for
    reaches: tuple[ReachRow, ...] = ()

    @property
    def in_sync(self) -> int:
        return sum(replica.in_sync for replica in self.replicas)

    @property
    def preferred(self) -> int:
        return self.replicas[0].broker if self.replicas else -1

    def replica(self, broker: int) -> ReplicaRow | None:
        return next((each for each in self.replicas if each.broker == broker), None)


class BrokerRow(Struct, frozen=True):
    """One registered broker."""

    broker: int
    state: str
    address: Node | None
    leads: int
    hosts: int
    in_sync: int
    controller: bool = False
    session_age_ms: int | None = None


class ClusterReport(Struct, frozen=True):
    """All that the brokers told. `problems` are sentences, the worst first; `notes` need nobody."""

    revision: int
    controller: int
    brokers: tuple[BrokerRow, ...]
    journals: tuple[JournalRow, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()


def merge(told: Mapping[int, Told], silent: Mapping[int, str] | None = None) -> ClusterReport:
    """`told` by broker, at least one; `silent`: brokers that were asked and did not answer, with the reason."""
    silent = silent or {}
    newest = max(told.values(), key=lambda one: one.view.revision)
    view = newest.view
    journals = tuple(_journal_row(view, view.journals[number].record, told) for number in sorted(view.journals))
    ages = {broker: age for one in told.values() for broker, age in one.session_age_ms.items()}  # of itself, mostly
    everybody = sorted({*view.brokers, *view.live})
    brokers = tuple(_broker_row(number, newest, ages, journals, silent) for number in everybody)
    return ClusterReport(
        view.revision,
        newest.controller,
        brokers,
        journals,
        tuple(_problems(newest, told, silent, journals)),
        tuple(_notes(brokers, journals)),
    )


def _journal_row(view: ClusterView, record: JournalRecord, told: Mapping[int, Told]) -> JournalRow:
    leader = record.leader
    source = told.get(leader.broker) if leader is not None else None
    led = source.led.get(record.journal) if source is not None else None
    if led is not None and led.epoch != record.epoch:
        led = None  # of another epoch: not about this leader
    replicas = tuple(_replica_row(view, record, broker, led) for broker in record.replicas)
    return JournalRow(
        record.journal,
        leader.broker if leader is not None and view.is_live(leader) else -1,
        record.epoch,
        replicas,
        led.end if led else None,
        led.replicated if led else None,
        led.durable if led else None,
        led.unsplit if led else None,
        led.ready if led else True,
        record.weak,
        record.unclean,
        -1 if (winner := unclean_winner(record, view)) is None else winner,
        () if record.leader is not None else tuple(_reaches(view, record)),
    )


def _reaches(view: ClusterView, record: JournalRecord) -> Iterable[ReachRow]:
    for broker in record.replicas:
        registered = view.present(broker)
        if registered is not None:
            last_epoch, end = reach(broker, record, view) or (None, None)
            yield ReachRow(broker, last_epoch, end, record.journal in registered.damaged)


def _replica_row(view: ClusterView, record: JournalRecord, broker: int, led: Led | None) -> ReplicaRow:
    """In sync is a life, so a broker that has just restarted is not."""
    member = record.member(broker)
    in_sync, live = member is not None and view.is_live(member), view.present(broker) is not None
    if led is not None and record.leader is not None and record.leader.broker == broker:
        return ReplicaRow(broker, in_sync, live, 0, 0)
    known = next((one for one in led.replicas if one.broker == broker), None) if led is not None else None
    if led is None or known is None or known.end < 0:
        return ReplicaRow(broker, in_sync, live)
    return ReplicaRow(
        broker,
        in_sync,
        live,
        max(0, led.end - known.end),
        _known(known.lag_ms),
        _known(known.unsplit_bytes),
        _known(known.unsplit_percent),
        _known(known.free_bytes),
        known.slows_producers,
    )


def _known(number: int) -> int | None:
    return number if number >= 0 else None


def _broker_row(
    number: int,
    newest: Told,
    ages: Mapping[int, int],
    journals: Sequence[JournalRow],
    silent: Mapping[int, str],
) -> BrokerRow:
    hosted = [replica for row in journals if (replica := row.replica(number)) is not None]
    return BrokerRow(
        number,
        _state(newest.view, number, silent),
        newest.nodes.get(number),
        sum(row.leader == number for row in journals),
        len(hosted),
        sum(replica.in_sync for replica in hosted),
        number == newest.controller,
        ages.get(number),
    )


def _state(view: ClusterView, broker: int, silent: Mapping[int, str]) -> str:
    registered = view.present(broker)
    if registered is None:
        return DOWN
    if broker in silent:
        return SILENT
    return STOPPING if registered.stopping else LIVE


# ------------------------------------------------------------------------------------------------------------ sentences


def _problems(
    newest: Told, told: Mapping[int, Told], silent: Mapping[int, str], journals: Sequence[JournalRow]
) -> Iterable[str]:
    view = newest.view
    yield from _without_leader(view, journals)
    yield from _away_or_damaged(view, silent)
    if newest.controller not in view.live:
        yield "the cluster has no controller: leaders that die are not replaced until one is elected"
    for broker, one in sorted(told.items()):
        if one.store_trouble:
            yield f"broker {broker} cannot reach the metadata store: {one.store_trouble}"
        yield from _stopped(broker, one.stopped)
    yield from _without_link(view, told, silent)
    for refused in {one.slots_trouble: None for one in told.values() if one.slots_trouble}:
        yield f"consumer groups and transactions cannot begin: {refused}"
    yield from _not_ready(journals)
    yield from _slowed(journals)
    yield from _out_of_sync(journals, {(broker, number) for broker, one in told.items() for number in one.stopped})


def _not_ready(journals: Sequence[JournalRow]) -> Iterable[str]:
    waiting = [row.journal for row in journals if row.leader >= 0 and not row.ready]
    if waiting:
        yield f"{names('journal', waiting)}: the new leader waits for replicas that are in sync"


def _away_or_damaged(view: ClusterView, silent: Mapping[int, str]) -> Iterable[str]:
    for broker in sorted({*view.brokers, *silent}):
        state = _state(view, broker, silent)
        if state == DOWN and _hosts(view, broker):
            yield f"broker {broker} is down"
        elif state == SILENT:
            yield f"broker {broker} does not answer: {silent[broker]}"
    for broker, registered in sorted(view.brokers.items()):
        if registered.damaged:
            yield from _lost_bytes(view, broker, registered.damaged)


def _lost_bytes(view: ClusterView, broker: int, damaged: Iterable[int]) -> Iterable[str]:
    """Only an in-sync replica without damage has what others lost."""
    grouped: dict[bool, list[int]] = {}
    for number in sorted(damaged):
        kept = view.journals.get(number)
        sources = [
            member.broker
            for member in (kept.record.isr if kept is not None else ())
            if (entry := view.brokers.get(member.broker)) is not None and number not in entry.damaged
        ]
        grouped.setdefault(bool(sources), []).append(number)
    for has_source, numbers in sorted(grouped.items()):
        where = names("journal", numbers)
        if not has_source:
            how = "and no other replica in sync has them"
        elif view.present(broker) is None:
            how = "and will copy them from others once it is up"
        else:
            how = "and copies them from others"
        yield f"broker {broker} lost bytes of {where} {how}"


def _stopped(broker: int, stopped: Mapping[int, str]) -> Iterable[str]:
    """One sentence for all journals with the same reason."""
    grouped: dict[str, list[int]] = {}
    for number, why in sorted(stopped.items()):
        grouped.setdefault(why.removeprefix(f"journal {number}: "), []).append(number)
    for why, numbers in grouped.items():
        yield f"broker {broker}, {names('journal', numbers)}: {why}"


def _without_link(view: ClusterView, told: Mapping[int, Told], silent: Mapping[int, str]) -> Iterable[str]:
    """One sentence for each broker that others cannot reach, and each reason. Of those that are down or do not answer
    that was said."""
    grouped: dict[tuple[int, str], list[int]] = {}
    for broker, one in sorted(told.items()):
        for peer, why in one.links.items():
            if view.present(peer) is not None and peer not in silent:
                grouped.setdefault((peer, why), []).append(broker)
    for (peer, why), brokers in sorted(grouped.items()):
        yield f"{names('broker', brokers)} cannot open a link to broker {peer}: {why}"


def _slowed(journals: Sequence[JournalRow]) -> Iterable[str]:
    """One sentence for each broker that producers wait for."""
    slow: dict[int, list[tuple[JournalRow, ReplicaRow]]] = {}
    for row in journals:
        for replica in row.replicas:
            if row.leader >= 0 and replica.slows_producers:
                slow.setdefault(replica.broker, []).append((row, replica))
    for broker, rows in sorted(slow.items()):
        percent = max(replica.unsplit_percent or 0 for _, replica in rows)
        free = min((replica.free_bytes for _, replica in rows if replica.free_bytes is not None), default=None)
        why = f"its splitter is behind by {percent} % of the limit"
        if percent < BACKLOG_MAX_PERCENT and free is not None:
            why = f"its journal disk has {free:,} bytes left"
        leaders = names("broker", sorted({row.leader for row, _ in rows}))
        where = names("journal", [row.journal for row, _ in rows])
        yield f"broker {broker} slows down producers of {leaders}: {why} ({where})"


def _without_leader(view: ClusterView, journals: Sequence[JournalRow]) -> Iterable[str]:
    """One sentence for all journals with the same reason."""
    grouped: dict[str, list[int]] = {}
    for row in journals:
        if row.leader < 0:
            grouped.setdefault(_waits_for(view, view.journals[row.journal].record), []).append(row.journal)
    for why, numbers in grouped.items():
        yield f"{names('journal', numbers)}: no leader; {why}"


def _waits_for(view: ClusterView, record: JournalRecord) -> str:
    """The controller elects without those that are away or damaged if another one is left and the record is not weak
    (R21)."""
    if candidates(record, view):
        return "an election is under way"
    away = [member.broker for member in record.isr if view.present(member.broker) is None]
    hurt = [
        member.broker
        for member in record.isr
        if (entry := view.present(member.broker)) is not None and record.journal in entry.damaged
    ]
    others_elect = len(away) + len(hurt) < len(record.isr) and not record.weak
    if away:
        waits = f"waiting for {names('broker', away)}, in sync and down"
        if others_elect:
            return f"{waits}; after a minute the others elect a leader without"
        if hurt:
            waits += f", as {names('broker', hurt)} lost bytes of it"
        return f"{waits}. Start it, or see `cairn cluster elect --unclean J`"
    if not hurt:
        return "all in-sync replicas have restarted, and the one that reaches furthest is being elected"
    lost = f"{names('broker', hurt)}, in sync, lost bytes of it"
    if others_elect:
        return f"{lost}; after a minute the others elect a leader without"
    others = "nobody else has them" if len(hurt) == len(record.isr) else "others may lack them"
    return f"{lost}, and {others}. Restore the disk, or see `cairn cluster elect --unclean J`"


def _out_of_sync(journals: Sequence[JournalRow], stopped: Collection[tuple[int, int]]) -> Iterable[str]:
    """Of journals with a leader: of the others it was said what they wait for. Replicas that are `stopped` (broker,
    journal) do not catch up."""
    grouped: dict[tuple[int, str], list[JournalRow]] = {}
    for row in journals:
        for replica in row.replicas:
            if row.leader >= 0 and not replica.in_sync:
                can = replica.live and (replica.broker, row.journal) not in stopped
                how = "; it catches up" if can else ""
                grouped.setdefault((replica.broker, how), []).append(row)
    for (broker, how), rows in sorted(grouped.items()):
        lags = [lag for row in rows if (one := row.replica(broker)) and (lag := one.lag_bytes) is not None]
        behind = f", {sum(lags):,} bytes behind" if how and sum(lags) else ""
        yield f"broker {broker} is not in sync: {_left(rows)}{how}{behind}"


def _left(rows: Sequence[JournalRow]) -> str:
    """The journals by what they have left: `journals 1-6, 2 of 3 replicas left; journal 7, 1 of 2 replicas left`."""
    grouped: dict[tuple[int, int], list[int]] = {}
    for row in rows:
        grouped.setdefault((row.in_sync, len(row.replicas)), []).append(row.journal)
    return "; ".join(
        f"{names('journal', numbers)}, {in_sync} of {replicas} replicas left"
        for (in_sync, replicas), numbers in sorted(grouped.items())
    )


def _hosts(view: ClusterView, broker: int) -> bool:
    return any(broker in kept.record.replicas for kept in view.journals.values())


def _notes(brokers: Sequence[BrokerRow], journals: Sequence[JournalRow]) -> Iterable[str]:
    for broker in brokers:
        if broker.state == DOWN and not broker.hosts:
            number = broker.broker
            yield f"broker {number} is down and has no replicas; `cairn cluster forget {number}` if it is gone for good"
        if broker.state == STOPPING:
            yield f"broker {broker.broker} is stopping; others take over what it leads"
    moved = [row.journal for row in journals if row.leader >= 0 and row.leader != row.preferred]
    if moved:
        yield f"{names('journal', moved)}: led by another broker than the preferred one"
    for row in journals:
        if row.unclean_epoch:
            yield (
                f"journal {row.journal}: an unclean election in epoch {row.unclean_epoch} "
                "may have lost acknowledged records"
            )


def names(what: str, numbers: Sequence[int]) -> str:
    """`journal 3`, or `journals 1, 2, 5-9`."""
    return f"{what} {numbers[0]}" if len(numbers) == 1 else f"{what}s {spans(numbers)}"


def spans(numbers: Sequence[int]) -> str:
    """Numbers in order, runs of three and more shortened: `1, 2, 5-9`."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    shown = [[f"{part[0]}-{part[-1]}"] if len(part) > 2 else list(map(str, part)) for part in parts]
    return ", ".join(text for part in shown for text in part)
