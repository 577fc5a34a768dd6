"""What the next life of a broker has of what the ones before had (R6, R10). Pure.

A member of an ISR is a broker in one of its lives, and has what that life had on its directory. On another directory
the broker lacks all of it. When the former directory comes back (its disk was not mounted, say), it lacks nothing that
its own last life had, so the journals whose ISR still names one of its lives are not noted as damaged any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from cairnmq.replication.records import BrokerRecord, ClusterView, FormerDirectory, JournalRecord, Member

FORMER_MAX = 4
"""So many directories are remembered, the latest."""


class Lacking(Struct, frozen=True):
    """What a start found on its disk. `damaged`: journals that lack bytes which it has had; `had`: of those that are
    not cut, up to where. `whole`: journals that an earlier start noted like that, and that lack nothing now."""

    damaged: frozenset[int] = frozenset()
    had: Mapping[int, int] = {}
    whole: frozenset[int] = frozenset()


def first_life(broker: int, epoch: int, lacking: Lacking) -> BrokerRecord:
    """Of a broker that nobody knows."""
    return BrokerRecord(broker, epoch, damaged=lacking.damaged, since=epoch, had=lacking.had)


def next_life(before: BrokerRecord, epoch: int, stopped_as: int, lacking: Lacking | None) -> BrokerRecord:
    """On the same directory. `stopped_as`: the life whose every byte this one has, or 0. What was noted as damaged
    stays noted until it is repaired, because it may have been cut since, or until somebody has restored what was
    not. `lacking` None: the process goes on, and has looked at nothing."""
    if lacking is None:
        lacking = Lacking(had=before.had)
    return BrokerRecord(
        before.broker,
        epoch,
        before.broker_epoch,
        clean=stopped_as == before.broker_epoch != 0,
        damaged=(before.damaged - lacking.whole) | lacking.damaged,
        since=before.since,
        former=before.former,
        had={each: end for each, end in lacking.had.items() if each not in before.damaged or each in before.had},
    )


def life_elsewhere(
    before: BrokerRecord,
    epoch: int,
    lacking: Lacking,
    journals: Iterable[JournalRecord],
    *,
    left: str,
    directory: str,
) -> BrokerRecord:
    """On another directory than the one that was `left`: a new one, or one of long ago."""
    back = next((one for one in before.former if one.directory == directory), None)
    others = tuple(one for one in before.former if one.directory not in (left, directory))
    hosted = [record for record in journals if before.broker in record.replicas]
    whole = {record.journal for record in hosted if back is not None and _has_all(back, record, before.broker)}
    missing = {record.journal for record in hosted} - whole
    return BrokerRecord(
        before.broker,
        epoch,
        before.broker_epoch,
        damaged=lacking.damaged | missing,
        since=epoch,
        former=(*others, FormerDirectory(left, before.since, before.broker_epoch, before.damaged))[-FORMER_MAX:],
    )


def _has_all(back: FormerDirectory, record: JournalRecord, broker: int) -> bool:
    """Whether the ISR names a life on that directory, which nobody noted as damaged there."""
    member = record.member(broker)
    return member is not None and back.first <= member.broker_epoch <= back.last and record.journal not in back.damaged


def others_have(record: JournalRecord, broker: int, view: ClusterView) -> bool:
    """Whether another member of the ISR has what this broker's disk lacks (R6). Not one that has started since and
    lacks bytes too: of two whose disks were not mounted, each would give up its journal because of the other. One that
    came into the ISR in the life that is noted has copied everything since."""

    def has(member: Member) -> bool:
        registered = view.brokers.get(member.broker)
        return registered is not None and (
            record.journal not in registered.damaged or registered.broker_epoch == member.broker_epoch
        )

    return any(member.broker != broker and has(member) for member in record.isr)


def why_remembered(broker: int, view: ClusterView) -> str | None:
    """Why a registered broker must not be forgotten; None if nobody would miss it."""
    if broker in view.live:
        return f"broker {broker} is up; stop it first"
    hosted = sorted(number for number, kept in view.journals.items() if broker in kept.record.replicas)
    if hosted:
        numbers = ", ".join(map(str, hosted))
        return f"broker {broker} is a replica of journal{'s' if len(hosted) > 1 else ''} {numbers}"
    return None
