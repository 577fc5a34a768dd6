"""What each broker says of the cluster: all of the metadata, and more of what it leads."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from cairnmq.broker.cluster.journal_copying import OUT
from cairnmq.broker.cluster.report import UNCLEAN_TOLD_MS, report_of
from cairnmq.broker.options import Address
from unit.broker.cluster.rig import cluster
from unit.broker.rig import scenario, until


@scenario
async def test_a_leader_tells_how_far_its_followers_are(tmp_path: Path) -> None:
    async with cluster(tmp_path) as rig:
        journal = await rig.journal()
        leader = await rig.leader(journal)
        await rig.produce(leader, b"a")
        end = leader.end(journal)
        await until(lambda: leader.replica(journal).leader.durable_end == end)  # type: ignore[union-attr]
        report = leader.node.report()
        assert (report.node_id, report.metadata_away_ms) == (leader.number, -1)
        assert report.cluster_id and report.controller_id in (1, 2, 3)
        assert [(one.node_id, one.is_live, one.is_stopping, one.damaged) for one in report.brokers] == [
            (number, True, False, []) for number in (1, 2, 3)
        ]
        assert [one.session_age_ms >= 0 for one in report.brokers] == [
            number == leader.number for number in (1, 2, 3)
        ], "of others it does not know"
        (described,) = [one for one in report.journals if one.journal == journal]
        assert described.leader is not None and described.leader.node_id == leader.number
        assert sorted(one.node_id for one in described.isr) == [1, 2, 3] and not described.offline
        led = described.led_here
        assert led is not None and led.is_ready and (led.end, led.synced, led.durable_end) == (end, end, end)
        assert led.unsplit_bytes == led.end - led.split_end
        assert [(one.is_in_sync, one.end, one.synced) for one in led.replicas] == 3 * [(True, end, end)]


@scenario
async def test_a_follower_tells_what_the_metadata_say_and_its_own_trouble(tmp_path: Path) -> None:
    async with cluster(tmp_path) as rig:
        journal = await rig.journal()
        leader = await rig.leader(journal)
        follower = rig.followers(journal)[0]
        copying = follower.replica(journal).copying
        assert copying.follower is not None
        copying._stay_out(copying.follower, "its disk is lost")
        (described,) = [one for one in follower.node.report().journals if one.journal == journal]
        assert described.led_here is None and described.trouble == OUT
        assert described.leader is not None and described.leader.node_id == leader.number


@scenario
async def test_a_broker_that_is_away_is_still_described(tmp_path: Path) -> None:
    async with cluster(tmp_path) as rig:
        journal = await rig.journal()
        gone, one = rig.followers(journal)
        await rig.drop(gone.number)
        await until(lambda: len(one.record(journal).isr) == 2)
        (described,) = [each for each in one.node.report().journals if each.journal == journal]
        assert described.offline == [gone.number]
        assert [each.node_id for each in one.node.report().brokers if not each.is_live] == [gone.number]


@scenario
async def test_an_unclean_election_is_told_for_a_week(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as rig:
        journal = await rig.journal(factor=1)
        one = (await rig.leader(journal)).node
        seen = one._loop.cluster
        kept = seen.view.journals[journal]
        kept = replace(kept, record=replace(kept.record, unclean=5, unclean_ms=1000))
        seen = replace(seen, view=replace(seen.view, journals={journal: kept}))

        def told(wall_ms: int) -> int:
            made = report_of(
                seen, one._replicas, cluster_id="c", node_id=1, session_age_ms=0, away_ms=-1, wall_ms=wall_ms
            )
            return made.journals[0].unclean

        assert (told(1000), told(999 + UNCLEAN_TOLD_MS), told(1000 + UNCLEAN_TOLD_MS)) == (5, 5, 0)


@scenario
async def test_links_that_fail_and_groups_that_cannot_begin_are_told(tmp_path: Path) -> None:
    """A broker at the address of another one: nothing refuses a connection there, so nobody is taken for dead."""
    async with cluster(tmp_path, 1, 2, offsets_topic_replication_factor="3") as rig:
        one, other = rig[1], rig[2]
        assert (one.node.report().links, one.node.report().slots_trouble) == ([], "")
        one.node._slots_wanted.set()
        await until(lambda: one.node.report().slots_trouble)
        assert "consumer groups begin when 3 brokers have been live together" in one.node.report().slots_trouble
        await rig.start(3)
        await until(lambda: one.catalog.image.slots is not None and not one.node.report().slots_trouble)
        one.node._links.data.want({2: Address("127.0.0.1", one.node._joined.internal.getsockname()[1])})
        await until(lambda: one.node.report().links)
        (failing,) = one.node.report().links
        assert (failing.node_id, failing.trouble) == (2, "broker 1 is at this address, not 2")
        assert other.node.report().links == []
