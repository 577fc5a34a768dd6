"""DescribeJournals and ElectUnclean: of one node what its journals say, of a cluster what the shells report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from cairnmq.broker.handlers import elections, journals
from cairnmq.broker.leadership import JournalView
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.wire.apis import DESCRIBE_JOURNALS, ELECT_UNCLEAN
from cairnmq.wire.codec import decode, encode
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import (
    DescribeJournalsRequest,
    DescribeJournalsResponse,
    ElectUncleanRequest,
)
from unit.broker.rig import batch, open_rig, scenario


@scenario
async def test_one_node_tells_of_its_journals(tmp_path: Path) -> None:
    async with open_rig(tmp_path, journals=(0, 3)) as rig:
        await rig.create("a", partitions=2)
        await rig.produce("a", batch(b"x"))
        told = await rig.ask(DESCRIBE_JOURNALS, 0, DescribeJournalsRequest())
        assert (told.error_code, told.cluster_id, told.node_id) == (0, rig.ctx.node.cluster_id, 1)
        (broker,) = told.brokers
        assert (broker.node_id, broker.host, broker.port, broker.is_live, broker.damaged) == (
            1,
            "127.0.0.1",
            9092,
            True,
            [],
        )
        assert [each.journal for each in told.journals] == [0, 3]
        for each in told.journals:
            journal = rig.ctx.store.engine.paths[each.journal].journal
            assert (each.epoch, each.leader.node_id, each.replicas, each.trouble) == (1, 1, [1], None)
            assert [member.node_id for member in each.isr] == [1]
            led = each.led_here
            assert (led.is_ready, led.end, led.replicated_end) == (True, journal.end, journal.replicated_end)
            assert led.unsplit_bytes == led.end - led.split_end
            assert [(one.node_id, one.end, one.is_in_sync) for one in led.replicas] == [(1, journal.end, True)]
        assert any(each.led_here.unsplit_bytes > 0 for each in told.journals)
        only = await rig.ask(DESCRIBE_JOURNALS, 0, DescribeJournalsRequest(journals=[3, 9]))
        assert [each.journal for each in only.journals] == [3]


@scenario
async def test_a_cluster_tells_what_its_shells_report(tmp_path: Path) -> None:
    def report() -> DescribeJournalsResponse:
        member = DescribeJournalsResponse.Member(node_id=2, broker_epoch=17)
        return DescribeJournalsResponse(
            cluster_id="c",
            node_id=1,
            metadata_away_ms=40,
            journals=[
                DescribeJournalsResponse.DescribedJournal(
                    journal=5, epoch=4, leader=member, isr=[member], is_weak=True
                ),
                DescribeJournalsResponse.DescribedJournal(journal=6),
            ],
        )

    async with open_rig(tmp_path) as rig:
        ctx = replace(rig.ctx, cluster_report=report)
        header = RequestHeader(DESCRIBE_JOURNALS, 0, 1, "test")
        made = journals.handle(ctx, header, DescribeJournalsRequest(journals=[5]))
        told, _ = decode(DescribeJournalsResponse, 0, b"".join(encode(made, 0)))
        assert told.metadata_away_ms == 40
        (journal,) = told.journals
        assert (journal.leader.broker_epoch, journal.is_weak, journal.led_here) == (17, True, None)


class Elections:
    """Journal 0 gets a leader; for others there is nobody."""

    async def preferred(self, journal: int) -> Refusal | None:
        raise AssertionError("not what was asked for")

    async def unclean(self, journal: int) -> Refusal | None:
        return None if journal == 0 else Refusal(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no replica is live")


@scenario
async def test_an_unclean_election(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        asked = ElectUncleanRequest(journals=[0, 1, 0, 7])

        def codes(answer: Any) -> list[tuple[int, int]]:
            return [(row.journal, row.error_code) for row in answer.results]

        unknown = ErrorCode.RESOURCE_NOT_FOUND
        needless = await rig.ask(ELECT_UNCLEAN, 0, asked)
        assert codes(needless) == [(0, ErrorCode.ELECTION_NOT_NEEDED), (1, unknown), (7, unknown)]
        rig.join_cluster(JournalView(-1, 3, (1, 2), (2,)), JournalView(-1, 3, (2, 3), (3,)))
        ctx = replace(rig.ctx, elections=Elections())
        made = await elections.elect_unclean(ctx, RequestHeader(ELECT_UNCLEAN, 0, 1, "test"), asked)
        assert codes(made) == [(0, 0), (1, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE), (7, unknown)]
        assert made.results[1].error_message == "no replica is live"
