"""Who leads each journal: pure decisions of the one broker that is the controller (R12, R21).

It reads a view of the store and proposes changes to it. It sends nothing to brokers: they act on the records that they
see. All elections of one look share one new epoch, so however many journals a broker led, it is one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from cairnmq.replication.records import ClusterView, JournalRecord, Kept, Member, Proposal

ABSENT_MAX_MS = 60_000
"""So long a journal without a leader waits for a member that is away, before the others do without it."""

PREFERRED_AFTER_MS = 60_000
"""So long the first replica has been in the ISR before it leads again by itself."""

PREFERRED_EVERY_MS = 1_000


class ControllerMemory(Struct):
    """What a controller remembers between looks. A new one begins with none, and waits anew."""

    leaderless: dict[int, tuple[int, int]] = {}  # journal -> (epoch, since when)
    returnable: dict[int, tuple[Member, int]] = {}  # journal -> its first replica, and since when it could lead again
    returned_ms: int | None = None  # when the last leadership was given back

    def waited_ms(self, record: JournalRecord, now_ms: int) -> int:
        """For how long the journal has been seen without a leader in this epoch."""
        epoch, since = self.leaderless.get(record.journal, (0, now_ms))
        if epoch != record.epoch:
            self.leaderless[record.journal] = (record.epoch, now_ms)
            return 0
        return now_ms - since


def decide(view: ClusterView, memory: ControllerMemory, now_ms: int) -> list[Proposal]:
    """Every change that is due now. They go into one transaction, or one after the other."""
    epoch = view.last_epoch + 1
    due = (_due(kept, view, memory, epoch, now_ms) for kept in view.journals.values())
    return [proposal for proposal in due if proposal is not None]


def elect_preferred(view: ClusterView, journal: int) -> Proposal | None:
    """Leadership back to the first replica, if it is in the ISR and another one leads."""
    kept = view.journals[journal]
    first = kept.record.member(kept.record.replicas[0])
    if first is None or first == kept.record.leader or not may_lead(first, kept.record, view):
        return None
    return _elect(kept, first, view.last_epoch + 1)


def preferred_due(view: ClusterView, memory: ControllerMemory, now_ms: int) -> Proposal | None:
    """One leadership that is to go back to the first replica, now and then (R12)."""
    due = None
    for journal in view.journals:
        proposal = elect_preferred(view, journal)
        if proposal is None or proposal.record.leader is None:
            memory.returnable.pop(journal, None)
            continue
        first = proposal.record.leader
        known, since = memory.returnable.get(journal, (first, now_ms))
        if known != first:
            since = now_ms
        memory.returnable[journal] = (first, since)
        if due is None and now_ms - since >= PREFERRED_AFTER_MS and not view.brokers[first.broker].stopping:
            due = proposal
    if due is None or (memory.returned_ms is not None and now_ms - memory.returned_ms < PREFERRED_EVERY_MS):
        return None
    memory.returned_ms = now_ms
    return due


def elect_unclean(view: ClusterView, journal: int, wall_ms: int = 0) -> Proposal | None:
    """A person gives up what the live replicas may lack: one of them leads alone. None: nobody is live, or a member of
    the ISR can lead without a loss. `wall_ms`: the date."""
    kept = view.journals[journal]
    record = kept.record
    best = unclean_winner(record, view)
    if best is None:
        return None
    winner, epoch = Member(best, view.brokers[best].broker_epoch), view.last_epoch + 1
    record = replace(
        record, leader=winner, epoch=epoch, isr=(winner,), unclean=epoch, unclean_ms=wall_ms, resigned=None
    )
    return Proposal(record, kept.revision, registered=(winner,), new_epoch=epoch)


def unclean_winner(record: JournalRecord, view: ClusterView) -> int | None:
    """The live replica that reaches furthest, also if it has lost bytes: those that it has count. The first one if none
    has told how far it reaches."""
    live = [broker for broker in record.replicas if view.present(broker) is not None]
    if not live or candidates(record, view):
        return None
    return max(live, key=lambda broker: (*(reach(broker, record, view) or (-1, -1)), -record.replicas.index(broker)))


def reach(broker: int, record: JournalRecord, view: ClusterView) -> tuple[int, int] | None:
    """Epoch of the last entry and end of a live replica, as it has told since the journal has no leader."""
    registered = view.present(broker)
    end = registered.ends.get(record.journal) if registered is not None else None
    return (end.last_epoch, end.end) if end is not None and end.of_epoch == record.epoch else None


def may_lead(member: Member, record: JournalRecord, view: ClusterView) -> bool:
    """A member of the ISR that is up, in the life that the ISR names, and whose disk lacks nothing."""
    registered = view.brokers.get(member.broker)
    return registered is not None and view.is_live(member) and record.journal not in registered.damaged


def candidates(record: JournalRecord, view: ClusterView) -> list[Member]:
    """Those who may lead, the best first: not on its way down, not the one that just gave up, then as in `replicas`."""

    def rank(member: Member) -> tuple[bool, bool, int]:
        stopping = view.brokers[member.broker].stopping
        return stopping, member.broker == record.resigned, record.replicas.index(member.broker)

    return sorted((member for member in record.isr if may_lead(member, record, view)), key=rank)


def _due(kept: Kept, view: ClusterView, memory: ControllerMemory, epoch: int, now_ms: int) -> Proposal | None:
    record = kept.record
    revived = _revived(record, view)
    if revived is not None:
        return Proposal(revived, kept.revision, registered=tuple(m for m in revived.isr if m not in record.isr))
    best = candidates(record, view)
    leader = record.leader
    if leader is not None and view.is_live(leader):
        if view.brokers[leader.broker].stopping and best and not view.brokers[best[0].broker].stopping:
            return _elect(kept, best[0], epoch)
        memory.leaderless.pop(record.journal, None)
        return None
    if best:
        return _elect(kept, best[0], epoch)
    if leader is not None:  # nobody can lead: fence the one that did, so that all replicas stand still
        return Proposal(replace(record, leader=None, epoch=epoch), kept.revision, new_epoch=epoch)
    return _recover(kept, view, epoch, memory.waited_ms(record, now_ms))


def _revived(record: JournalRecord, view: ClusterView) -> JournalRecord | None:
    """Members that stopped cleanly and are back: their next life has all that the one before had (R10). A leader among
    them leads again only by an election, which gives it an epoch of its own."""
    isr = tuple(_next_life(member, record.journal, view) for member in record.isr)
    return replace(record, isr=isr) if isr != record.isr else None


def _next_life(member: Member, journal: int, view: ClusterView) -> Member:
    registered = view.brokers.get(member.broker)
    if (
        registered is None
        or not registered.clean
        or registered.previous != member.broker_epoch
        or journal in registered.damaged
    ):
        return member
    return Member(member.broker, registered.broker_epoch)


def _elect(kept: Kept, leader: Member, epoch: int) -> Proposal:
    record = replace(kept.record, leader=leader, epoch=epoch)
    return Proposal(record, kept.revision, registered=(leader,), new_epoch=epoch)


def _recover(kept: Kept, view: ClusterView, epoch: int, waited_ms: int) -> Proposal | None:
    """Every member has restarted, or is away. The one that reaches furthest leads, once all have told how far they are
    (R21). Without all of them only if each member has everything that was acknowledged, which it has unless `weak`."""
    record = kept.record
    told = {member.broker: end for member in record.isr if (end := _told(member.broker, record, view)) is not None}
    if len(told) < len(record.isr) and (record.weak or not told or waited_ms < ABSENT_MAX_MS):
        return None
    best = max(told, key=lambda broker: (*told[broker], -record.replicas.index(broker)))
    winner = Member(best, view.brokers[best].broker_epoch)
    record = replace(record, leader=winner, epoch=epoch, isr=(winner,), recovered=epoch, resigned=None)
    return Proposal(record, kept.revision, registered=_lives(told, view), new_epoch=epoch)


def _told(broker: int, record: JournalRecord, view: ClusterView) -> tuple[int, int] | None:
    """Of a replica that lacks nothing which its disk has had (R6)."""
    registered = view.brokers.get(broker)
    if registered is None or record.journal in registered.damaged:
        return None
    return reach(broker, record, view)


def _lives(brokers: Iterable[int], view: ClusterView) -> tuple[Member, ...]:
    return tuple(Member(broker, view.brokers[broker].broker_epoch) for broker in brokers)
