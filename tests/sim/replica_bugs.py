"""Bugs of replication, planted one at a time: the simulation of replicas must find each within a few seeds."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest
from msgspec.structs import replace

from cairnmq.replication import controller
from cairnmq.replication.follower import KnownEnds
from cairnmq.replication.followers_progress import Follower
from cairnmq.replication.history import EpochEnd, EpochHistory
from cairnmq.replication.leader import JournalLeader
from cairnmq.replication.messages import Accepted, FencedEpoch, FetchPosition, FetchReply
from cairnmq.replication.records import ClusterView, JournalRecord, Kept, Member, Proposal
from cairnmq.testing.replicas.broker_process import BrokerProcess, Hosted
from cairnmq.testing.replicas.sim_store import Done, InDoubt, Outcome, Refused, SimStore

Plant = Callable[[pytest.MonkeyPatch], None]


def ack_before_the_isr_has_it(patch: pytest.MonkeyPatch) -> None:
    def advance(leader: JournalLeader) -> None:
        leader.replicated_end, leader.durable_end = leader.history.end, leader.synced

    patch.setattr(JournalLeader, "_advance", advance)


def commit_acknowledged_when_written(patch: pytest.MonkeyPatch) -> None:
    advance = JournalLeader._advance

    def eager(leader: JournalLeader) -> None:
        advance(leader)
        leader.durable_end = leader.replicated_end

    patch.setattr(JournalLeader, "_advance", eager)


def own_sync_is_enough(patch: pytest.MonkeyPatch) -> None:
    advance = JournalLeader._advance

    def eager(leader: JournalLeader) -> None:
        advance(leader)
        leader.durable_end = max(leader.durable_end, min(leader.replicated_end, leader.synced))

    patch.setattr(JournalLeader, "_advance", eager)


def proposed_member_does_not_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(JournalLeader, "members", lambda leader: set(leader.record.isr))


def shrink_without_a_sync(patch: pytest.MonkeyPatch) -> None:
    def shrink(leader: JournalLeader, leaving: list[Member], view: ClusterView) -> Proposal:
        leader._shrinking = True
        return leader._send(leader.record.without(leaving), (leader.me,))

    patch.setattr(JournalLeader, "_shrink", shrink)


def shrink_forgets_earlier_epochs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(JournalLeader, "_safe_end", lambda leader: leader.replicated_end)


def replicated_end_moves_while_shrinking(patch: pytest.MonkeyPatch) -> None:
    shrink = JournalLeader._shrink

    def moving(leader: JournalLeader, leaving: list[Member], view: ClusterView) -> Proposal | None:
        proposal = shrink(leader, leaving, view)
        leader._shrinking = False
        return proposal

    def members(leader: JournalLeader) -> set[Member]:
        return set(leader._proposed.isr if leader._proposed is not None else leader.record.isr)

    patch.setattr(JournalLeader, "_shrink", moving)
    patch.setattr(JournalLeader, "members", members)


def in_doubt_taken_for_refused(patch: pytest.MonkeyPatch) -> None:
    def proposed(process: BrokerProcess, hosted: Hosted, leader: JournalLeader, outcome: Outcome) -> None:
        if hosted.leader is leader and not isinstance(outcome, Done):
            leader.refused()
            process.moved(hosted)

    patch.setattr(BrokerProcess, "proposed", proposed)


def member_joins_without_the_durable_end(patch: pytest.MonkeyPatch) -> None:
    def may_join(leader: JournalLeader, follower: Follower, view: ClusterView, now_ms: int) -> bool:
        return leader.record.member(follower.member.broker) is None and view.is_live(follower.member)

    patch.setattr(JournalLeader, "_may_join", may_join)


def restart_keeps_its_place(patch: pytest.MonkeyPatch) -> None:
    """The ISR as broker ids: any later life counts."""

    def next_life(member: Member, journal: int, view: ClusterView) -> Member:
        registered = view.brokers.get(member.broker)
        return member if registered is None else Member(member.broker, registered.broker_epoch)

    patch.setattr(controller, "_next_life", next_life)


def clean_marker_is_not_consumed(patch: pytest.MonkeyPatch) -> None:
    register = SimStore.register

    def believing(store: SimStore, broker: int, marker: int, damaged: frozenset[int], given: list[Member]) -> bool:
        known = store.brokers.get(broker)
        was_clean = known is not None and known.clean and marker == 0
        done = register(store, broker, marker, damaged, given)
        if was_clean:
            store.brokers[broker] = replace(store.brokers[broker], clean=True)
        return done

    patch.setattr(SimStore, "register", believing)


def diverging_follower_counts(patch: pytest.MonkeyPatch) -> None:
    fetched = JournalLeader.fetched

    def eager(leader: JournalLeader, asked: FetchPosition, view: ClusterView, now_ms: int) -> FetchReply:
        reply = fetched(leader, asked, view, now_ms)
        if not isinstance(reply, (Accepted, FencedEpoch)) and asked.epoch == leader.epoch:
            end = leader.history.end
            leader.followers.count(replace(asked, end=min(asked.end, end)), end, now_ms)
            leader._advance()
        return reply

    patch.setattr(JournalLeader, "fetched", eager)


def no_question_where_journals_part(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EpochHistory, "parting", lambda history, last_epoch, end: None)


def parting_without_epochs(patch: pytest.MonkeyPatch) -> None:
    """The leader tells its own end instead of that of the follower's last epoch."""

    def parting(history: EpochHistory, last_epoch: int, end: int) -> EpochEnd | None:
        return None if end <= history.end else EpochEnd(last_epoch, history.end)

    patch.setattr(EpochHistory, "parting", parting)


def restarted_member_is_elected(patch: pytest.MonkeyPatch) -> None:
    def candidates(record: JournalRecord, view: ClusterView) -> list[Member]:
        lives = [(member, view.present(member.broker)) for member in record.isr]
        return [Member(member.broker, life.broker_epoch) for member, life in lives if life is not None]

    patch.setattr(controller, "candidates", candidates)


def recovery_takes_the_first(patch: pytest.MonkeyPatch) -> None:
    told = controller._told
    patch.setattr(
        controller,
        "_told",
        lambda broker, record, view: (0, 0) if told(broker, record, view) is not None else None,
    )


def recovery_does_not_wait_for_all(patch: pytest.MonkeyPatch) -> None:
    recover = controller._recover

    def hasty(kept: Kept, view: ClusterView, epoch: int, waited_ms: int) -> Proposal | None:
        return recover(Kept(replace(kept.record, weak=False), kept.revision), view, epoch, controller.ABSENT_MAX_MS)

    patch.setattr(controller, "_recover", hasty)


def damaged_replica_is_elected(patch: pytest.MonkeyPatch) -> None:
    def register(store: SimStore, broker: int, marker: int, damaged: Collection[int], given: list[Member]) -> bool:
        known = store.brokers.get(broker)
        return honest(
            store, broker, known.broker_epoch if damaged and known is not None else marker, frozenset(), given
        )

    honest = SimStore.register
    patch.setattr(SimStore, "register", register)


def former_controller_still_decides(patch: pytest.MonkeyPatch) -> None:
    """Without the check of its leadership, nor of the record's revision (as with versions that begin at 0 again)."""

    def may_be_made(store: SimStore, proposal: Proposal) -> bool:
        return True

    propose = SimStore.propose
    patch.setattr(SimStore, "_may_be_made", may_be_made)
    patch.setattr(SimStore, "propose", lambda store, proposals, by_controller=None: propose(store, proposals))


def election_keeps_the_epoch(patch: pytest.MonkeyPatch) -> None:
    elect = controller._elect

    def same_epoch(kept: Kept, leader: Member, epoch: int) -> Proposal:
        proposal = elect(kept, leader, epoch)
        return replace(proposal, record=replace(proposal.record, epoch=max(kept.record.epoch, 1)))

    patch.setattr(controller, "_elect", same_epoch)


def recovery_is_not_remembered(patch: pytest.MonkeyPatch) -> None:
    """Followers are not told that the leader of an earlier epoch may have lacked what was not synced everywhere."""
    patch.setattr(KnownEnds, "floor", lambda known, record: known.replicated)


def doubtful_write_is_told_as_refused(patch: pytest.MonkeyPatch) -> None:
    """The store says that a change was not made, when it does not know."""

    def call(store: SimStore, broker: int, change: Callable[[], bool], tell: Callable[[Outcome], None]) -> None:
        def sure(outcome: Outcome) -> None:
            tell(Refused() if isinstance(outcome, InDoubt) else outcome)

        honest(store, broker, change, sure)

    honest = SimStore.call
    patch.setattr(SimStore, "call", call)


def replaced_leader_goes_on(patch: pytest.MonkeyPatch) -> None:
    """It sees that another one was elected in a later epoch, and leads on in its own."""
    seen = JournalLeader.seen

    def deaf(leader: JournalLeader, kept: Kept) -> bool:
        return kept.record.epoch != leader.epoch or seen(leader, kept)

    patch.setattr(JournalLeader, "seen", deaf)


def follower_cuts_to_the_replicated_end(patch: pytest.MonkeyPatch) -> None:
    """As soon as there is another leader, whatever that one has (KIP-101)."""
    take_role = BrokerProcess.take_role

    def eager(process: BrokerProcess, hosted: Hosted, kept: Kept) -> None:
        before = hosted.follower
        take_role(process, hosted, kept)
        if hosted.follower is not None and hosted.follower is not before:
            process.cut(hosted, hosted.follower, min(hosted.known.replicated, hosted.disk.end))

    patch.setattr(BrokerProcess, "take_role", eager)


def epoch_falls_at_an_election(patch: pytest.MonkeyPatch) -> None:
    elect = controller._elect

    def falling(kept: Kept, leader: Member, epoch: int) -> Proposal:
        proposal = elect(kept, leader, epoch)
        return replace(proposal, record=replace(proposal.record, epoch=max(kept.record.epoch - 1, 1)))

    patch.setattr(controller, "_elect", falling)
