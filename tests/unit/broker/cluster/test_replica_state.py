"""What a start finds of a replica, before its leader says anything."""

from __future__ import annotations

from msgspec.structs import replace

from cairnmq.broker.cluster.replica_state import ReplicaState
from cairnmq.replication.follower import KnownEnds
from cairnmq.replication.records import JournalRecord
from cairnmq.storage.journal.replica_note import ReplicaNote
from unit.broker.cluster.replica_desk import JOURNAL, RECORD, Source, store_of
from unit.broker.rig import scenario

LED = replace(RECORD, epoch=20)


def found(record: JournalRecord, note: ReplicaNote) -> ReplicaState:
    """A journal with two entries in epoch 20, and this note beside it, after the process was killed."""
    source = Source()
    source.put(2)
    source.machine.sync()
    source.machine.engine.note(JOURNAL, note)
    source.machine.killed(lambda journal, kept: KnownEnds(kept.replicated, kept.durable, kept.epoch).floor(record))
    return ReplicaState.found(JOURNAL, store_of(source.machine), record)


@scenario
async def test_what_was_noted_is_known_again() -> None:
    state = found(LED, ReplicaNote(150, 90, 20))
    assert state.known == KnownEnds(150, 90, 20)
    assert state.history.starts() == [(20, 0)] and state.history.end == state.path.journal.end
    assert state.told_trouble is None and state.split_end == 0
    state.store.loops.close()


@scenario
async def test_a_note_of_more_than_is_here_says_no_more_than_is_here() -> None:
    state = found(LED, ReplicaNote(1 << 40, 1 << 40, 20))
    assert state.known.replicated == state.known.durable == state.history.end
    state.store.loops.close()


@scenario
async def test_after_an_election_among_restarted_members_only_the_durable_end_counts() -> None:
    state = found(replace(LED, epoch=22, recovered=22), ReplicaNote(150, 90, 20))
    assert state.known.replicated == 90
    state.store.loops.close()


@scenario
async def test_after_an_unclean_election_nothing_counts() -> None:
    state = found(replace(LED, epoch=22, unclean=22), ReplicaNote(150, 90, 20))
    assert state.known.replicated == 0
    state.store.loops.close()


@scenario
async def test_trouble_is_what_keeps_it_out_or_what_its_disk_says() -> None:
    state = found(LED, ReplicaNote())
    state.path.refuse("the disk refuses")
    assert state.told_trouble == "the disk refuses"
    state.trouble = "it cannot go on"
    assert state.told_trouble == "it cannot go on"
    state.store.loops.close()
