"""A broker has the journals that it is a replica of, before it knows of their queues."""

from __future__ import annotations

from msgspec.structs import replace

from cairnmq.broker.cluster.hosted_journals import HostedJournals
from cairnmq.metadata.cluster_image import ClusterImage
from cairnmq.replication.records import ClusterView, JournalRecord, Kept
from cairnmq.storage.live.follow_path import FollowPath
from unit.broker.cluster.replica_desk import RECORD, Desk
from unit.broker.rig import scenario


def image(*records: JournalRecord) -> ClusterImage:
    journals = {each.journal: Kept(each, 1) for each in records}
    return ClusterImage(ClusterView(1, 1, journals, {}, {}), {}, {})


@scenario
async def test_journals_that_are_new_are_made_once() -> None:
    async with Desk() as desk:
        hosted, mine = HostedJournals(1, desk.store), replace(RECORD, journal=12)
        others = replace(RECORD, journal=13, replicas=(2, 3))
        assert hosted.hosts(4) and not hosted.hosts(12)
        await hosted.host(image(RECORD, mine, others))
        assert hosted.hosts(12) and not hosted.hosts(13)
        path = desk.store.engine.paths[12]
        assert isinstance(path, FollowPath) and path.journal.end == 0 and 12 in desk.store.loops
        await hosted.host(image(RECORD, mine, others))
        assert desk.store.engine.paths[12] is path


@scenario
async def test_what_is_known_of_queues_goes_to_all_journals() -> None:
    async with Desk() as desk:
        hosted = HostedJournals(1, desk.store)
        hosted.knows_queues(99)
        await hosted.host(image(replace(RECORD, journal=12)))
        for journal in (4, 9, 12):
            assert desk.machine.engine.paths[journal]._fold.next_queue == 99  # type: ignore[union-attr]
