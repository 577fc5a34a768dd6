"""What a replica knows is on its disk soon, and never more than its disk has."""

from __future__ import annotations

import errno

import pytest
from msgspec.structs import replace

from cairnmq.broker.cluster.replica_notes import ReplicaNotes
from cairnmq.storage.journal.replica_note import ReplicaNote, read_replica_note
from unit.broker.cluster.replica_desk import JOURNAL, RECORD, B, Desk, Source, fed, follows
from unit.broker.rig import scenario, until


async def followed(desk: Desk) -> None:
    source = Source()
    source.put(2)
    await follows(desk, source, replace(RECORD, leader=B))
    await fed(desk, source, replicated=1 << 40, durable=90)


def note(desk: Desk) -> ReplicaNote:
    """After a power loss."""
    return read_replica_note(desk.disk.crash(), JOURNAL)


@scenario
async def test_ends_are_noted_once_the_own_disk_has_them() -> None:
    async with Desk() as desk:
        notes = ReplicaNotes({JOURNAL: desk.replica})
        await followed(desk)
        await notes.write()
        assert note(desk) == ReplicaNote()
        desk.loop.sync()
        await until(lambda: desk.state.path.journal.synced == desk.end)
        await notes.write()
        assert note(desk) == ReplicaNote(desk.end, 90, 20)


@scenario
async def test_nothing_is_written_when_nothing_is_new() -> None:
    async with Desk() as desk:
        notes = ReplicaNotes({JOURNAL: desk.replica})
        await followed(desk)
        desk.loop.sync()
        await until(lambda: desk.state.path.journal.synced == desk.end)
        await notes.write()
        before = desk.disk.operations
        await notes.write()
        assert desk.disk.operations == before


@scenario
async def test_a_note_that_the_disk_refused_is_written_the_next_time(caplog: pytest.LogCaptureFixture) -> None:
    async with Desk() as desk:
        notes = ReplicaNotes({JOURNAL: desk.replica})
        await followed(desk)
        desk.loop.sync()
        await until(lambda: desk.state.path.journal.synced == desk.end and not desk.loop._syncing)
        await until(lambda: desk.loop.room is not None)
        desk.disk.faults = {desk.disk.operations + each: errno.EIO for each in range(1, 3)}
        await notes.write()
        assert "cannot be noted down" in caplog.text and note(desk) == ReplicaNote()
        desk.disk.faults = {}
        await notes.write()
        assert note(desk) == ReplicaNote(desk.end, 90, 20)
